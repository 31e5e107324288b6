//! From a request to a tentative decision.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Ledger, Ticket, intern::fingerprint, plan_remember::Shift, plan_reserve::Purpose, space::Part,
    tentative::InFlight,
};
use crate::{
    Action, Actor, Answer, AuditEntry, Decision, Identity, Lease, LeaseKey, Op, PoolId, Refusal,
    Request, Text, Timestamp,
};

/// What became of a request.
#[derive(Debug, PartialEq)]
#[must_use]
pub enum Planned {
    /// Nothing has to change.
    Answer(Answer),
    /// Answer this once the decision is durable and confirmed.
    Tentative {
        ticket: Ticket,
        decision: Decision,
        answer: Answer,
    },
    /// It stands on something that a decision in flight changes (or a pool is full only because of decisions in
    /// flight). Plan it again after the next confirm or abort, before requests that came later.
    Busy,
    Refused(Refusal),
}

/// How far planning got; what is not a finished draft ends it.
pub(super) enum Stop {
    Answer(Answer),
    Busy,
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A decision being made: nothing of it is in the ledger yet but the addresses it has taken.
pub(super) struct Draft {
    pub now: Timestamp,
    pub actor: Actor,
    pub flight: InFlight,
    pub audit: Vec<AuditEntry>,
    /// What it adds to the pools' memories and forgets of them.
    pub shifts: BTreeMap<PoolId, Shift>,
}

impl Draft {
    pub fn new(now: Timestamp, actor: &Actor) -> Self {
        Self {
            now,
            actor: Arc::clone(actor),
            flight: InFlight::default(),
            audit: Vec::with_capacity(1),
            shifts: BTreeMap::new(),
        }
    }

    /// Writes a lease and says why.
    pub fn put(&mut self, lease: &Arc<Lease>, action: Action, detail: Text) {
        self.flight.keys.push(lease.key);
        self.put_new(lease, action, detail);
    }

    /// Writes a lease on an address that the draft has taken, and says why.
    pub fn put_new(&mut self, lease: &Arc<Lease>, action: Action, detail: Text) {
        self.flight.ops.push(Op::PutLease(Arc::clone(lease)));
        let owner = lease.owner().map(|holder| holder.identity.clone());
        self.say_lease(lease, action, owner, detail);
    }

    /// Deletes a lease and says why.
    pub fn delete(&mut self, lease: &Lease, action: Action, detail: Text) {
        self.flight.keys.push(lease.key);
        self.flight.ops.push(Op::DeleteLease(lease.key));
        let owner = lease.owner().map(|holder| holder.identity.clone());
        self.say_lease(lease, action, owner, detail);
    }

    /// Audits something about a lease.
    pub fn say_lease(
        &mut self,
        lease: &Lease,
        action: Action,
        identity: Option<Identity>,
        detail: Text,
    ) {
        self.audit.push(AuditEntry {
            at: self.now,
            actor: Arc::clone(&self.actor),
            action,
            network: Some(lease.key.network),
            address: Some(lease.key.address),
            pool: lease.pool,
            identity,
            detail,
        });
    }

    /// Audits something that is about no address.
    pub fn say(&mut self, action: Action, detail: Text) {
        self.audit.push(AuditEntry {
            at: self.now,
            actor: Arc::clone(&self.actor),
            action,
            network: None,
            address: None,
            pool: None,
            identity: None,
            detail,
        });
    }
}

impl Ledger {
    /// Decides a request without making the decision visible. Addresses it gives are nobody else's from here on;
    /// what it changes is locked until [`Ledger::confirm`] or [`Ledger::abort`].
    ///
    /// `now` must not run backwards between calls.
    pub fn plan(&mut self, request: &Request, now: Timestamp) -> Planned {
        let planned = match request {
            Request::Allocate(ask) => self.plan_allocate(ask, Purpose::of(ask, now), now),
            Request::Reserve(ask) => self.plan_reserve(ask, now),
            Request::Release(ask) => self.plan_release(ask, now),
            Request::Probed(ask) => self.plan_probed(ask, now),
            Request::Adopt(ask) => self.plan_adopt(ask, now),
            Request::Handover(ask) => self.plan_handover(ask, now),
            Request::Transfer(ask) => self.plan_transfer(ask, now),
            Request::Label(ask) => self.plan_label(ask, now),
            Request::CreateNetwork { name, actor } => self.plan_network(name, actor, now),
            Request::CreatePool { spec, actor } => self.plan_create_pool(spec, actor, now),
            Request::UpdatePool(edit) => self.plan_update_pool(edit, now),
            Request::DeletePool { pool, actor } => self.plan_delete_pool(*pool, actor, now),
            Request::MoveNetwork {
                pool,
                network,
                actor,
            } => self.plan_move_network(*pool, *network, actor, now),
            Request::Separate {
                networks,
                apart,
                actor,
            } => self.plan_separate(*networks, *apart, actor, now),
            Request::SetQuota { quota, actor } => self.plan_set_quota(quota, actor, now),
            Request::DeleteQuota {
                pool,
                tenant,
                actor,
            } => self.plan_delete_quota(*pool, tenant, actor, now),
            Request::RecordCluster { record } => self.plan_record_cluster(record, now),
            Request::SetApart {
                record,
                name,
                actor,
            } => self.plan_set_apart(record, name, actor, now),
            Request::MarkAdopted { marker, actor } => self.plan_mark_adopted(marker, actor, now),
            Request::Orphan {
                cluster,
                system,
                most,
                actor,
            } => self.plan_orphan(cluster, system.as_ref(), *most, actor, now),
            Request::Forget {
                cluster,
                most,
                actor,
            } => self.plan_forget(cluster, *most, actor, now),
            Request::Expire { most, actor } => self.plan_expire(*most, actor, now),
            Request::RollUp { after, most, actor } => self.plan_roll_up(*after, *most, actor, now),
            Request::CreateAccount { account, actor } => {
                self.plan_create_account(account, actor, now)
            }
            Request::EditAccount(edit) => self.plan_edit_account(edit, now),
            Request::DeleteAccount { name, actor } => self.plan_delete_account(name, actor, now),
            Request::PutToken { token, actor } => self.plan_put_token(token, actor, now),
            Request::DeleteToken { id, actor } => self.plan_delete_token(*id, actor, now),
            Request::RotateKey {
                bytes,
                after,
                actor,
            } => self.plan_rotate_key(bytes, *after, actor, now),
            Request::ImportKey { bytes, actor } => self.plan_import_key(bytes, actor, now),
            Request::Note {
                action,
                what,
                actor,
            } => Ok(note(*action, what, actor, now)),
            Request::HoldNetworks {
                networks,
                reason,
                actor,
            } => self.plan_hold_networks(networks, reason, actor, now),
            Request::PassHold { elapsed, actor } => self.plan_pass_hold(*elapsed, actor, now),
            Request::Import(ask) => self.plan_import(ask, now),
            Request::LiftHold { reason, actor } => self.plan_lift_hold(reason, actor, now),
        };
        match planned {
            Ok((draft, answer)) => self.depart(draft, answer),
            Err(Stop::Answer(answer)) => Planned::Answer(answer),
            Err(Stop::Busy) => Planned::Busy,
            Err(Stop::Refused(refusal)) => {
                self.count_refused(&refusal);
                Planned::Refused(refusal)
            }
        }
    }

    /// Puts a finished draft in flight; one that leaves nothing behind is an answer at once.
    fn depart(&mut self, mut draft: Draft, answer: Answer) -> Planned {
        if draft.flight.ops.is_empty() && draft.audit.is_empty() {
            if let Some((identity, instance)) = draft.flight.leaves.as_deref() {
                self.leave_queues(identity, instance.as_ref());
            }
            self.moved_up(draft.flight.places.iter().map(|(id, ..)| *id).collect());
            return Planned::Answer(answer);
        }
        let forgets = self.forget_granted(&draft.flight);
        draft.flight.ops.extend(forgets);
        let decision = Decision {
            ops: draft.flight.ops.to_vec(),
            audit: draft.audit,
        };
        self.count_ahead(&draft.flight);
        self.start_in_memory(&draft.flight);
        let ticket = self.tentative.start(draft.flight);
        Planned::Tentative {
            ticket,
            decision,
            answer,
        }
    }

    /// Leases in which the identity is a member or contender, in key order; busy while a decision in flight may
    /// change that.
    pub(super) fn settled_leases(&self, identity: &Identity) -> Result<Vec<Arc<Lease>>, Stop> {
        self.settled_prints(fingerprint(identity), identity)
    }

    /// [`Ledger::settled_leases`] of an identity whose fingerprint is known.
    pub(super) fn settled_prints(
        &self,
        fingerprint: u64,
        identity: &Identity,
    ) -> Result<Vec<Arc<Lease>>, Stop> {
        if self.tentative.locks_identity(fingerprint) {
            return Err(Stop::Busy);
        }
        let mut leases: Vec<_> = self
            .printed_leases(fingerprint, identity)
            .cloned()
            .collect();
        self.settled(leases.iter().map(|lease| lease.key))?;
        leases.sort_by_key(|lease| lease.key);
        Ok(leases)
    }

    /// Busy if one of the leases is being changed.
    pub(super) fn settled(&self, mut keys: impl Iterator<Item = LeaseKey>) -> Result<(), Stop> {
        if keys.any(|key| self.tentative.locks(key) || self.free.is_taken(key)) {
            Err(Stop::Busy)
        } else {
            Ok(())
        }
    }

    /// The pool that an address found in use is attributed to: of those that list it an open one, the smallest,
    /// the oldest.
    pub(super) fn pool_around(&self, key: LeaseKey) -> Option<PoolId> {
        self.pool_around_but(key, None)
    }

    /// The same, as if there were not the other pool.
    pub(super) fn pool_around_but(&self, key: LeaseKey, other: Option<PoolId>) -> Option<PoolId> {
        let pools = self.pools_around(key);
        let others = pools.filter(|(.., pool)| Some(*pool) != other);
        others.min().map(|(.., pool)| pool)
    }

    /// The pools that list the address. The lowest is the one that it is attributed to.
    pub(super) fn pools_around(&self, key: LeaseKey) -> impl Iterator<Item = (bool, u128, PoolId)> {
        let rank = |part: &Part| {
            let pool = self.rows.pools.get(&part.pool)?;
            let listed = self.free.room(part.pool)?.layout.size.listed;
            Some((pool.spec.closed, listed, part.pool))
        };
        self.free.stab(key).iter().filter_map(rank)
    }
}

fn note(action: Action, what: &Text, actor: &Actor, now: Timestamp) -> (Draft, Answer) {
    let mut draft = Draft::new(now, actor);
    draft.say(action, Text::clone(what));
    (draft, Answer::Done)
}

/// The result of planning one kind of request.
pub(super) type Draw = Result<(Draft, Answer), Stop>;
