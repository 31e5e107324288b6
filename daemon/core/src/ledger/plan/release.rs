//! Giving back: compare-and-release, and what becomes of a lease whose last member goes.
//!
//! In a pool with quarantine an address that was in use cools before it is free.

use std::{collections::BTreeSet, sync::Arc};

use smallvec::SmallVec;

use super::{adopt::exclusive, from_whom};
use crate::{
    Action, Answer, Contender, Holder, Labels, Lease, LeaseKey, LeasePrefix, LeaseState, Release,
    ReleaseScope, Text, Timestamp,
    ledger::{
        Ledger,
        draft::{Draft, Draw, Stop},
    },
};

impl Ledger {
    pub(super) fn plan_release(&self, ask: &Release, mut draft: Draft) -> Draw {
        let mut released = Vec::new();
        match &ask.scope {
            ReleaseScope::Holder(holder) => {
                for lease in self.settled_leases(&holder.identity)? {
                    released.extend(self.leave(&mut draft, &lease, holder, &ask.reason)?);
                }
                let leaves = (holder.identity.clone(), Some(Arc::clone(&holder.instance)));
                draft.flight.leaves = Some(Box::new(leaves));
            }
            ReleaseScope::HolderAddresses(holder, keys) => {
                // Its other leases are not looked at: they may be very many.
                let keys: BTreeSet<LeaseKey> = keys.iter().map(|key| key.canonical()).collect();
                self.settled(keys.iter().copied())?;
                for lease in keys.iter().filter_map(|key| self.rows.leases.get(key)) {
                    released.extend(self.leave(&mut draft, lease, holder, &ask.reason)?);
                }
            }
            ReleaseScope::Contention {
                contender,
                key,
                beside,
            } => {
                let key = key.canonical();
                self.settled(std::iter::once(key))?;
                let has_it = |lease: &&Arc<Lease>| {
                    let beside = beside.as_ref();
                    beside.is_none_or(|one| lease.held_by(one))
                };
                if let Some(lease) = self.rows.leases.get(&key).filter(has_it) {
                    end_contention(&mut draft, lease, contender, &ask.reason);
                }
            }
            ReleaseScope::Address(key) | ReleaseScope::Quarantine(key) => {
                let key = key.canonical();
                self.settled(std::iter::once(key))?;
                let early = matches!(ask.scope, ReleaseScope::Quarantine(_));
                let meant = |lease: &&Arc<Lease>| (lease.state == LeaseState::Quarantined) == early;
                if let Some(lease) = self.rows.leases.get(&key).filter(meant) {
                    let why = (Action::Released, &ask.reason);
                    self.vacate(&mut draft, lease, why, false)?;
                    released.push(lease.prefix());
                }
            }
        }
        Ok((draft, Answer::Released { leases: released }))
    }

    /// Takes the holder out of a lease; what that covers if it changed hands or went, or the member left it.
    fn leave(
        &self,
        draft: &mut Draft,
        lease: &Arc<Lease>,
        holder: &Holder,
        reason: &Text,
    ) -> Result<Option<LeasePrefix>, Stop> {
        if lease.has_member(holder) {
            if lease.members.len() > 1 {
                let mut rest = Lease::clone(lease);
                rest.members.retain(|member| member.holder != *holder);
                let (rest, reason) = (Arc::new(rest), Arc::clone(reason));
                draft.put_for(rest, Action::Released, &holder.identity, reason);
            } else {
                self.vacate(draft, lease, (Action::Released, reason), true)?;
            }
            return Ok(Some(lease.prefix()));
        }
        end_contention(draft, lease, holder, reason);
        Ok(None)
    }

    /// All members go: the lease passes to the oldest contender, cools or is deleted, with action and reason in the
    /// audit log. `own`: by their own word.
    pub(super) fn vacate(
        &self,
        draft: &mut Draft,
        lease: &Arc<Lease>,
        (action, reason): (Action, &Text),
        own: bool,
    ) -> Result<(), Stop> {
        let mut contenders = lease.contenders.iter().cloned();
        let Some(next) = contenders.next() else {
            match self.cools_until(lease, draft.now) {
                Some(until) => cool(draft, lease, until, action, reason),
                None => draft.delete(lease, action, Arc::clone(reason)),
            }
            return self.remember(draft, lease, own);
        };
        let detail = from_whom(lease.owner(), reason);
        let (holder, tenant) = (next.holder, next.tenant);
        let passed = Lease {
            contenders: contenders.collect(),
            ..exclusive(lease.prefix(), lease.pool, holder, tenant, draft.now)
        };
        draft.put(&Arc::new(passed), Action::PassedOn, detail);
        Ok(())
    }

    /// Until when an address that is given up cools. One that was not in use by its members does not.
    fn cools_until(&self, lease: &Lease, now: Timestamp) -> Option<Timestamp> {
        let pool = self
            .rows
            .pools
            .get(&lease.pool.filter(|_| in_use(lease))?)?;
        let cooling = u64::from(pool.spec.quarantine).saturating_mul(1_000);
        (cooling > 0).then_some(Timestamp(now.0.saturating_add(cooling)))
    }
}

/// Takes the holder off the contenders, where it is one.
fn end_contention(draft: &mut Draft, lease: &Arc<Lease>, holder: &Holder, reason: &Text) {
    let is_it = |contender: &Contender| contender.holder == *holder;
    if !lease.contenders.iter().any(is_it) {
        return;
    }
    let mut rest = Lease::clone(lease);
    rest.contenders.retain(|contender| !is_it(contender));
    let (rest, reason) = (Arc::new(rest), Arc::clone(reason));
    draft.put_for(rest, Action::ContenderLeft, &holder.identity, reason);
}

/// Whether its members have used the address.
pub(super) fn in_use(lease: &Lease) -> bool {
    match lease.state {
        LeaseState::Allocated | LeaseState::Orphaned => true,
        LeaseState::Reserved | LeaseState::Probing | LeaseState::Quarantined => false,
    }
}

/// The address goes into quarantine; it remembers whom it was charged to.
pub(super) fn cool(
    draft: &mut Draft,
    lease: &Lease,
    until: Timestamp,
    action: Action,
    reason: &Text,
) {
    let cooling = Lease {
        state: LeaseState::Quarantined,
        members: SmallVec::new(),
        group: None,
        since: draft.now,
        until: Some(until),
        labels: Labels::default(),
        ..lease.clone()
    };
    draft.write(Arc::new(cooling));
    draft.say_owner(lease, action, Arc::clone(reason));
}
