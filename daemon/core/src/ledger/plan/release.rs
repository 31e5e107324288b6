//! Giving back: compare-and-release, and what becomes of a lease whose last member goes.
//!
//! In a pool with quarantine an address that was in use cools before it is free.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{adopt::exclusive, from_whom};
use crate::{
    Action, Answer, Contender, Holder, Labels, Lease, LeaseKey, LeasePrefix, LeaseState, Release,
    ReleaseScope, Text, Timestamp,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable, Stop},
        space::free::touching,
    },
};

/// A lease, and some of its addresses.
type WithKeys<'a> = (&'a Arc<Lease>, Vec<LeaseKey>);

/// Leases that come of one.
type Heirs = BTreeMap<LeaseKey, Lease>;

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
                for (lease, keys) in self.around(&keys)? {
                    let reason = &ask.reason;
                    if !lease.has_member(holder) {
                        end_contention(&mut draft, lease, holder, Some(&keys), reason);
                    } else if keys.contains(&lease.key) {
                        released.extend(self.leave(&mut draft, lease, holder, reason)?);
                    }
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
                    end_contention(&mut draft, lease, contender, None, &ask.reason);
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

    /// The leases with these addresses, and which of them each has.
    fn around(&self, keys: &BTreeSet<LeaseKey>) -> Result<Vec<WithKeys<'_>>, Stop> {
        let mut found: Vec<WithKeys<'_>> = Vec::new();
        for key in keys {
            let Some(lease) = self.lease_around(*key) else {
                continue;
            };
            // In key order, so that those of one lease come one after the other.
            match found.last_mut() {
                Some((last, keys)) if last.key == lease.key => keys.push(*key),
                Some(_) | None => found.push((lease, vec![*key])),
            }
        }
        self.settled(found.iter().map(|(lease, _)| lease.key))?;
        Ok(found)
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
        end_contention(draft, lease, holder, None, reason);
        Ok(None)
    }

    /// All members go: the lease passes to the oldest contender that uses all of it, cools, passes in parts to those who use
    /// them, or is deleted, with action and reason in the audit log. `own`: by their own word.
    pub(super) fn vacate(
        &self,
        draft: &mut Draft,
        lease: &Arc<Lease>,
        why: (Action, &Text),
        own: bool,
    ) -> Result<(), Stop> {
        let mut contenders = lease.contenders.iter();
        if let Some(next) = contenders.position(|one| one.uses.is_empty()) {
            let mut contenders = lease.contenders.clone();
            let next = contenders.remove(next);
            let pool = self.pool_for(draft, lease, &next.holder.identity)?;
            let passed = Lease {
                contenders,
                ..exclusive(lease.prefix(), pool, next.holder, next.tenant, draft.now)
            };
            let detail = from_whom(lease.owner(), why.1);
            draft.put(&Arc::new(passed), Action::PassedOn, detail);
            return Ok(());
        }
        let (action, reason) = why;
        match self.cools_until(lease, draft.now) {
            Some(until) => cool(draft, lease, until, action, reason),
            None if !lease.contenders.is_empty() => return self.pass_parts(draft, lease, why),
            None => draft.delete(lease, action, Arc::clone(reason)),
        }
        self.remember(draft, lease, own)
    }

    /// Each contender gets what it uses of the lease, who uses more before who uses less, then the older one before the younger.
    /// Where another has that, or more, it contends for it.
    fn pass_parts(
        &self,
        draft: &mut Draft,
        lease: &Lease,
        (action, reason): (Action, &Text),
    ) -> Result<(), Stop> {
        let network = lease.key.network;
        self.unlocked(LockedTable::Pools)?;
        Stop::busy_if(self.drafts.edits(network))?;
        // What pool a part is of is so until it is written.
        draft.flight.also = Some(LockedTable::Pools);
        draft.flight.edits.push(network);
        let whole = lease.prefix();
        let mut contenders: Vec<(&Contender, LeasePrefix)> = Vec::new();
        for one in &lease.contenders {
            contenders.extend(one.used_of(whole).map(|used| (one, used)));
        }
        // Of two prefixes one is in the other, or they have nothing in common.
        contenders.sort_by_key(|(_, used)| used.length);
        let mut heirs = Heirs::new();
        for (contender, used) in contenders {
            if with_any_of(&heirs, used).is_empty() {
                let (holder, tenant) = (contender.holder.clone(), contender.tenant.clone());
                let pool = self.pool_around(used);
                let heir = exclusive(used, pool, holder, tenant, draft.now);
                heirs.insert(used.key, heir);
            }
        }
        for contender in &lease.contenders {
            let uses = contender.used_of(whole);
            let over: BTreeSet<LeaseKey> =
                uses.flat_map(|used| with_any_of(&heirs, used)).collect();
            for key in over {
                if let Some(heir) = heirs.get_mut(&key)
                    && !heir.held_by(&contender.holder.identity)
                {
                    heir.contenders
                        .extend(contender.moved(whole, heir.prefix()));
                }
            }
        }
        draft.delete(lease, action, Arc::clone(reason));
        let detail = from_whom(lease.owner(), reason);
        for heir in heirs.into_values() {
            draft.put(&Arc::new(heir), Action::PassedOn, Arc::clone(&detail));
        }
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

/// The heirs that have some of the prefix.
fn with_any_of(heirs: &Heirs, prefix: LeasePrefix) -> Vec<LeaseKey> {
    let over = touching(heirs, prefix.key.network, prefix.span(), |heir| heir.length);
    over.map(|(key, _)| *key).collect()
}

/// Takes the holder off the contenders, where it is one: all of what it uses, or what begins at these keys.
fn end_contention(
    draft: &mut Draft,
    lease: &Arc<Lease>,
    holder: &Holder,
    keys: Option<&[LeaseKey]>,
    reason: &Text,
) {
    let is_it = |contender: &Contender| contender.holder == *holder;
    if !lease.contenders.iter().any(is_it) {
        return;
    }
    let stays = |one: &mut Contender| {
        let mut ends = |key: &LeaseKey| one.ends(*key, lease.prefix());
        keys.is_some_and(|keys| keys.iter().all(&mut ends))
    };
    let mut rest = Lease::clone(lease);
    rest.contenders.retain_mut(|one| !is_it(one) || stays(one));
    if rest.contenders != lease.contenders {
        let (rest, reason) = (Arc::new(rest), Arc::clone(reason));
        draft.put_for(rest, Action::ContenderLeft, &holder.identity, reason);
    }
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
