//! Addresses found in use, and leases that change hands.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::from_whom;
use crate::{
    Action, Adopt, Answer, Contender, Handover, Holder, Identity, Labels, Lease, LeasePrefix,
    LeaseState, Member, PoolId, Refusal, Tenant, Text, Timestamp,
    contender::part,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        intern::{Prints, fingerprint},
        space::free::touching,
    },
};

impl Ledger {
    /// Adoption never waits for the gate and knows no reserved ends: what is in use is in use. Somebody who uses some of what
    /// another has in one lease, or more than that, contends for it.
    pub(super) fn plan_adopt(&mut self, ask: &Adopt, mut draft: Draft) -> Draw {
        let key = ask.key.canonical();
        let length = ask.length.unwrap_or_else(|| key.bits());
        let prefix = LeasePrefix { key, length }.leasable()?;
        self.check_network(prefix.key.network)?;
        let prints = Prints::of(&ask.holder.identity);
        Stop::busy_if(self.drafts.edits(prefix.key.network))?;
        Stop::busy_if(self.free.takes_in(prefix.key.network, prefix.span()))?;
        let over = touching(&self.rows.leases, key.network, prefix.span(), |one| {
            one.length
        });
        let over = over.map(|(_, lease)| Arc::clone(lease));
        let over: SmallVec<[Arc<Lease>; 1]> = over.take(Self::SCAN + 1).collect();
        self.settled(over.iter().map(|lease| lease.key).chain([prefix.key]))?;
        if over.len() > Self::SCAN {
            let allowed = format!("one with at most {} leases in it", Self::SCAN);
            return Err(Refusal::invalid("address", prefix, allowed).into());
        }
        Stop::busy_if(self.drafts.locks_identity(prints.whole))?;
        draft.flight.identities.push(prints.whole);
        let (holder, tenant) = self.interner.shared(prints, &ask.holder, &ask.tenant);
        let Some(lease) = over.first() else {
            let pool = self.pool_around(prefix);
            let lease = Arc::new(exclusive(prefix, pool, holder, tenant, draft.now));
            self.free.take(prefix);
            draft.flight.taken.push(prefix.key);
            draft.flight.prints = Some(prints);
            draft.put_new(&lease, Action::Adopted, Text::default());
            return Ok((draft, Answer::Adopted { lease }));
        };
        let asker = Contender {
            holder,
            tenant,
            since: ask.since,
            uses: Vec::new(),
        };
        if !lease.span().covers(&prefix.span()) {
            return self.adopt_over(draft, prefix, &over, asker);
        }
        let holder = &asker.holder;
        if lease.held_by(&holder.identity) {
            return readopt(draft, lease, holder);
        }
        let is_same = lease.prefix() == prefix;
        if is_same && is_foreign_there(lease, holder) {
            let contenders = contenders_beside(lease, &holder.identity);
            let why = "a Service of its cluster used it";
            let next = exclusive(prefix, lease.pool, asker.holder, asker.tenant, draft.now);
            return Ok(adopted(draft, Lease { contenders, ..next }, why));
        }
        if is_same && lease.state == LeaseState::Quarantined {
            let contenders = others(lease, &holder.identity);
            let next = exclusive(prefix, lease.pool, asker.holder, asker.tenant, draft.now);
            let why = "it was in quarantine";
            return Ok(adopted(draft, Lease { contenders, ..next }, why));
        }
        contend(draft, std::slice::from_ref(lease), prefix, &asker)
    }

    pub(super) fn plan_handover(&self, ask: &Handover, mut draft: Draft) -> Draw {
        let leases = self.settled_leases(&ask.from.identity)?;
        self.settled_leases(&ask.to.identity)?;
        draft.flight.identities.push(fingerprint(&ask.to.identity));
        let mut handed = Vec::new();
        if ask.from == ask.to {
            return Ok((draft, Answer::HandedOver { leases: handed }));
        }
        for lease in leases {
            let wanted =
                ask.keys.is_empty() || ask.keys.iter().any(|key| key.canonical() == lease.key);
            if wanted && lease.has_member(&ask.from) {
                let mut next = handed_over(&lease, &ask.from, &ask.to);
                next.pool = self.pool_for(&mut draft, &lease, &ask.to.identity)?;
                let next = Arc::new(next);
                handed.push(next.key);
                let detail = from_whom(Some(&ask.from), &ask.reason);
                draft.put_for(next, Action::HandedOver, &ask.to.identity, detail);
            }
        }
        Ok((draft, Answer::HandedOver { leases: handed }))
    }

    /// [`Ledger::pool_with`]. What pool it is stays so until the lease is written.
    pub(super) fn pool_for(
        &self,
        draft: &mut Draft,
        lease: &Lease,
        to: &Identity,
    ) -> Result<Option<PoolId>, Stop> {
        let pool = self.pool_with(lease, to);
        if pool != lease.pool {
            self.unlocked(LockedTable::Pools)?;
            Stop::busy_if(self.drafts.edits(lease.key.network))?;
            draft.flight.also = Some(LockedTable::Pools);
            draft.flight.edits.push(lease.key.network);
        }
        Ok(pool)
    }
}

/// The lease becomes this one.
fn adopted(mut draft: Draft, next: Lease, why: &str) -> (Draft, Answer) {
    let lease = Arc::new(next);
    draft.put(&lease, Action::Adopted, why.into());
    (draft, Answer::Adopted { lease })
}

/// The contenders other than this one.
pub(super) fn others(lease: &Lease, than: &Identity) -> Vec<Contender> {
    let contenders = lease.contenders.iter();
    let others = contenders.filter(|one| one.holder.identity != *than);
    others.cloned().collect()
}

/// The same where a foreign object loses the lease to `owner`. Unless that is the same object it goes on contending: what it
/// shows may be another use, until a list of its cluster tells.
pub(super) fn contenders_beside(lease: &Lease, owner: &Identity) -> Vec<Contender> {
    let mut contenders = others(lease, owner);
    let foreign = lease.members.iter().map(|member| &member.holder);
    for holder in foreign.filter(|one| !one.identity.names_same_object(owner)) {
        contenders.retain(|one| one.holder.identity != holder.identity);
        contenders.push(Contender {
            holder: holder.clone(),
            tenant: lease.tenant.clone(),
            since: lease.since,
            uses: Vec::new(),
        });
    }
    contenders.sort_by_key(|one| one.since);
    contenders
}

/// Whether the address was only kept for a foreign object of the cluster of which an object is ours now.
pub(super) fn is_foreign_there(lease: &Lease, holder: &Holder) -> bool {
    let kept = |member: &Member| {
        let identity = &member.holder.identity;
        identity.is_foreign() && identity.shares_cluster(&holder.identity)
    };
    let is_ours = !holder.identity.is_foreign();
    is_ours && !lease.members.is_empty() && lease.members.iter().all(kept)
}

/// A lease in use by one holder.
pub(super) fn exclusive(
    LeasePrefix { key, length }: LeasePrefix,
    pool: Option<PoolId>,
    holder: Holder,
    tenant: Option<Tenant>,
    now: Timestamp,
) -> Lease {
    Lease {
        key,
        length,
        pool,
        state: LeaseState::Allocated,
        members: smallvec![Member {
            holder,
            ports: Vec::new()
        }],
        contenders: Vec::new(),
        tenant,
        group: None,
        since: now,
        until: None,
        labels: Labels::default(),
    }
}

/// The holder is known already: it comes back to life, has a new instance, or nothing changes.
fn readopt(mut draft: Draft, lease: &Arc<Lease>, holder: &Holder) -> Draw {
    let Some((next, renewed)) = renew(lease, holder, true) else {
        return Err(Stop::Answer(Answer::Adopted {
            lease: Arc::clone(lease),
        }));
    };
    let (action, detail) = match renewed {
        true => (Action::Adopted, "it was not in use".into()),
        false => (Action::InstanceChanged, Text::default()),
    };
    draft.put(&next, action, detail);
    Ok((draft, Answer::Adopted { lease: next }))
}

/// The member's lease with this instance and in use; `None` if it is so already. The flag says whether it was
/// not in use before. An address being probed becomes in use only if it is `used` all the same.
pub(super) fn renew(lease: &Arc<Lease>, holder: &Holder, used: bool) -> Option<(Arc<Lease>, bool)> {
    let idle = match lease.state {
        LeaseState::Reserved | LeaseState::Orphaned => true,
        LeaseState::Probing => used,
        LeaseState::Allocated | LeaseState::Quarantined => false,
    };
    let other_instance = |member: &Member| {
        member.holder.identity == holder.identity && member.holder.instance != holder.instance
    };
    if !idle && !lease.members.iter().any(other_instance) {
        return None;
    }
    let mut next = Lease::clone(lease);
    if idle {
        next.state = LeaseState::Allocated;
        next.until = None;
    }
    for member in next
        .members
        .iter_mut()
        .filter(|member| other_instance(member))
    {
        member.holder.instance = Arc::clone(&holder.instance);
    }
    Some((Arc::new(next), idle))
}

/// Others hold them: the asker is noted in each, by the time since when it uses the prefix. The answer is the first.
pub(super) fn contend(
    mut draft: Draft,
    leases: &[Arc<Lease>],
    used: LeasePrefix,
    contender: &Contender,
) -> Draw {
    let mut answer = None;
    for lease in leases {
        let next = contended(lease, used, contender)?;
        if let Some(next) = &next {
            let detail = match used.length > lease.length {
                true => format!("{} uses {used} of it", contender.holder.identity),
                false => format!("{} uses it too", contender.holder.identity),
            };
            draft.put(next, Action::Contended, detail.into());
        }
        answer.get_or_insert_with(|| next.unwrap_or_else(|| Arc::clone(lease)));
    }
    let Some(lease) = answer else {
        return Err(Stop::Busy);
    };
    let answer = Answer::Contended { lease };
    match draft.flight.ops.is_empty() {
        true => Err(Stop::Answer(answer)),
        false => Ok((draft, answer)),
    }
}

/// The lease with the contender; `None` where it is known as that, or shares the lease.
fn contended(
    lease: &Lease,
    used: LeasePrefix,
    contender: &Contender,
) -> Result<Option<Arc<Lease>>, Refusal> {
    let identity = &contender.holder.identity;
    if lease.held_by(identity) {
        return Ok(None);
    }
    let known = lease.contender(identity);
    let mut asker = contender.clone();
    match known {
        Some(known) => {
            asker.uses.clone_from(&known.uses);
            if known.holder.instance == asker.holder.instance {
                asker.since = asker.since.min(known.since);
                asker.tenant = asker.tenant.or_else(|| known.tenant.clone());
            }
            asker.adds(used, lease.prefix());
        }
        None => asker.uses.extend(part(used, lease.prefix())),
    }
    if known.is_some_and(|known| *known == asker) {
        return Ok(None);
    }
    let before = known.map_or(0, |known| known.uses.len());
    if asker.uses.len() > before && !lease.has_room_for_use(identity) {
        let (prefix, most) = (lease.prefix(), Lease::MAX_USES);
        let allowed = format!(
            "what is not in {prefix}: of a lease at most {most} uses by others are noted; end some of them, or release it"
        );
        return Err(Refusal::invalid("address", used, allowed));
    }
    let mut next = Lease::clone(lease);
    let mut contenders = next.contenders.iter_mut();
    // Among others of its age it keeps its place.
    match contenders.find(|known| known.holder.identity == *identity) {
        Some(known) => *known = asker,
        None => next.contenders.push(asker),
    }
    next.contenders.sort_by_key(|one| one.since);
    Ok(Some(Arc::new(next)))
}

/// Takes a new holder off the contenders. Having been found using the address, it has it in use.
pub(super) fn stop_contending(next: &mut Lease, to: &Holder) {
    let contenders = next.contenders.len();
    next.contenders
        .retain(|contender| contender.holder.identity != to.identity);
    if next.contenders.len() < contenders {
        next.state = LeaseState::Allocated;
        next.until = None;
    }
}

/// `to` in the place of `from`, and nowhere else in the lease.
fn handed_over(lease: &Arc<Lease>, from: &Holder, to: &Holder) -> Lease {
    let mut next = Lease::clone(lease);
    stop_contending(&mut next, to);
    if from.identity != to.identity && next.held_by(&to.identity) {
        let place = next
            .members
            .iter()
            .position(|member| member.holder == *from);
        let left = place.map(|at| next.members.remove(at));
        let mut members = next.members.iter_mut();
        if let Some(heir) = members.find(|member| member.holder.identity == to.identity) {
            heir.holder.instance = Arc::clone(&to.instance);
            heir.ports
                .extend(left.into_iter().flat_map(|member| member.ports));
        }
        return next;
    }
    for member in next
        .members
        .iter_mut()
        .filter(|member| member.holder == *from)
    {
        member.holder = to.clone();
    }
    if matches!(lease.state, LeaseState::Orphaned | LeaseState::Probing) {
        (next.state, next.until) = (LeaseState::Allocated, None);
    }
    next
}
