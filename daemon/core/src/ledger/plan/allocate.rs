//! New addresses, or the same again.
//!
//! Policy, in this order: a want is answered by leases that the identity has already; only what is missing is
//! new. New leases need an open pool, a network that is not held back, room in the tenant's quotas, and the asker's
//! turn in the queue. All wants are served or none. An address that cools is given only to who gave it back, or by
//! name to an admin or its last tenant, and not to be kept for later.

use std::{net::IpAddr, sync::Arc};

use smallvec::SmallVec;

use super::{
    adopt::exclusive,
    quota::Need,
    reserve::Purpose,
    wants::{AskedWant, Given, needs, sums},
};
use crate::{
    Action, Allocate, Answer, Lease, LeaseKey, LeaseState, Pool, PoolId, PoolSpec, Refusal, Share,
    Text, Timestamp, layout,
    ledger::{
        Ledger,
        draft::{Draft, Draw, Stop},
        intern::Prints,
    },
};

impl Ledger {
    /// `keep`: the addresses are kept for later, whatever else the request says.
    pub(super) fn plan_allocate(
        &mut self,
        ask: &Allocate,
        keep: Option<Purpose>,
        mut draft: Draft,
    ) -> Draw {
        let purpose = keep.unwrap_or_else(|| Purpose::of(ask, draft.now));
        let mut asked = self.open(ask, purpose)?;
        let share = Self::check_share(ask)?;
        let prints = Prints::of(&ask.holder.identity);
        let mut held = self.settled_prints(prints.whole, &ask.holder.identity)?;
        held.retain(|lease| lease.held_by(&ask.holder.identity));
        self.match_held(&mut asked, held);
        for lease in asked.iter().flat_map(|want| &want.existing) {
            self.check_idle(lease, purpose)?;
        }
        if let Some(share) = &share {
            self.share_again(&mut asked, share, &ask.holder)?;
            self.join(&mut asked, share, ask)?;
        } else if !matches!(purpose, Purpose::Keep(_)) {
            Self::alone_again(&mut asked)?;
        }
        let named = |want: &&mut AskedWant<'_>| want.missing > 0 && want.selection.is_none();
        for want in asked.iter_mut().filter(named) {
            let cools = self.check_new(want, ask)?;
            want.again.cooling.extend(want.key.filter(|_| cools));
        }
        self.find_again(&mut asked, prints, ask, draft.now)?;
        self.settle(&mut asked, (prints, ask), draft.now)?;
        self.check_tenant(&asked, ask)?;
        self.check_turn(&asked, ask)?;
        draft.flight.identities.push(prints.whole);
        draft.flight.prints = Some(prints);
        if let Err(pool) = self.take(&mut asked, &mut draft) {
            for key in draft.flight.taken {
                self.free.give_back(key);
            }
            return Err(self.full(&pool));
        }
        draft.flight.places = self.leave_places(&asked, ask);
        Ok(self.grant(draft, asked, prints, ask, (purpose, share.as_ref())))
    }

    /// What has to hold before the identity uses an address that it has and does not use yet. Somebody else may have come to
    /// use it meanwhile, known as a contender or in a cluster that is yet to be adopted.
    fn check_idle(&self, lease: &Lease, purpose: Purpose) -> Result<(), Stop> {
        let contender = lease.contenders.first();
        match (purpose, lease.state) {
            (Purpose::Keep(_), _)
            | (_, LeaseState::Allocated | LeaseState::Quarantined)
            | (Purpose::Probe(_), LeaseState::Probing) => Ok(()),
            (_, LeaseState::Reserved | LeaseState::Probing) if contender.is_some() => {
                let address = lease.prefix();
                let owner = contender.map(|contender| contender.holder.identity.to_string());
                let owner = owner.unwrap_or_default();
                Err(Refusal::AddressTaken { address, owner }.into())
            }
            (_, LeaseState::Reserved | LeaseState::Orphaned) => {
                self.check_adopted(lease.key.network)?;
                let pool = lease.pool.and_then(|id| self.rows.pools.get(&id));
                Ok(pool.map_or(Ok(()), |pool| self.check_looked_at(pool))?)
            }
            (_, LeaseState::Probing) => Ok(()),
        }
    }

    /// What has to hold before a pool gives anything new; whether the named address cools.
    pub(super) fn check_new(&self, want: &AskedWant<'_>, ask: &Allocate) -> Result<bool, Stop> {
        self.check_open(&want.pool.spec)?;
        self.check_looked_at(&want.pool)?;
        let cools = match want.key {
            Some(key) => self.check_address(want, key, ask)?,
            None => false,
        };
        // Also what cools may have another user since the store that was put back.
        self.check_restored(want.pool.spec.network)?;
        Ok(cools)
    }

    /// What has to hold before anybody more has an address of the pool.
    pub(super) fn check_open(&self, spec: &PoolSpec) -> Result<(), Stop> {
        Stop::busy_if(self.drafts.edits(spec.network))?;
        self.check_adopted(spec.network)?;
        if spec.closed {
            return Err(Refusal::PoolClosed(Arc::clone(&spec.name)).into());
        }
        Ok(())
    }

    /// Whether a named address can be given. One that cools goes only to an admin's request or back to its tenant.
    fn check_address(
        &self,
        want: &AskedWant<'_>,
        key: LeaseKey,
        ask: &Allocate,
    ) -> Result<bool, Stop> {
        let (pool, address): (&Pool, IpAddr) = (&want.pool, key.address);
        let room = self.free.room(pool.id);
        let why = room.map_or_else(
            || Some("the pool's specification is not valid".to_owned()),
            |room| layout::why_not(&pool.spec, &room.layout, address),
        );
        if self.withholds(key, pool.id) {
            return Err(self.ambiguous(pool, address).into());
        }
        if let Some(why) = why {
            let pool = Arc::clone(&pool.spec.name);
            return Err(Refusal::NotAssignable { pool, address, why }.into());
        }
        let prefix = pool.spec.prefix_at(key);
        self.settled_prefix(prefix)?;
        let Some(lease) = self.lease_over(prefix) else {
            return Ok(false);
        };
        if lease.prefix() != prefix {
            return Err(Refusal::overlap(prefix, lease).into());
        }
        if lease.state == LeaseState::Quarantined {
            let tenant = ask.tenant.is_some() && ask.tenant == lease.tenant;
            if !want.keep && (ask.by_admin || tenant) && lease.contenders.is_empty() {
                return Ok(true);
            }
            return Err(Refusal::cools(lease, want.keep).into());
        }
        let owner = lease.owner().map(|owner| owner.identity.to_string());
        let (address, owner) = (prefix, owner.unwrap_or_default());
        Err(Refusal::AddressTaken { address, owner }.into())
    }

    /// Whether the tenant's quotas allow it. Where there are none and no pool requires one nothing is looked at.
    fn check_tenant(&mut self, asked: &[AskedWant<'_>], ask: &Allocate) -> Result<(), Stop> {
        let required = || asked.iter().any(|want| want.pool.spec.quota_required);
        match &ask.tenant {
            Some(tenant) if self.has_quotas() || required() => {
                let needs = sums(asked, |want| want.missing.into());
                self.check_quota(&needs, tenant, &ask.holder)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it is the asker's turn in all pools that are to give something new. If not, and it says since when
    /// it waits, it gets a place in the queues of the pools that are full.
    fn check_turn(&mut self, asked: &[AskedWant<'_>], ask: &Allocate) -> Result<(), Stop> {
        let mut full: SmallVec<[Need<'_>; 2]> = SmallVec::new();
        let needs = needs(asked);
        for need in &needs {
            if !self.has_turn(need.0, need.1, ask)? {
                full.push(*need);
            }
        }
        let Some((.., first)) = full.first() else {
            return Ok(());
        };
        let refusal = self.exhausted(first);
        let pools: SmallVec<[PoolId; 2]> = needs.iter().map(|(id, ..)| *id).collect();
        let full: Vec<(PoolId, u128)> = full.iter().map(|(id, need, _)| (*id, *need)).collect();
        self.move_places(&pools, &full, ask);
        Err(refusal)
    }

    pub(super) fn exhausted(&self, pool: &Pool) -> Stop {
        let room = self.free.room(pool.id);
        let (used, size) = room.map_or((0, 0), |room| (room.used, room.layout.size.assignable));
        Refusal::Exhausted {
            pool: Arc::clone(&pool.spec.name),
            used,
            size,
            of_prefixes: pool.spec.allocation_length.is_some(),
            cooling: self.cooling_of(pool.id),
        }
        .into()
    }

    /// Busy where a decision in flight may yet give back, else exhausted.
    fn full(&self, pool: &Pool) -> Stop {
        if self.free.room(pool.id).is_some_and(|room| room.taken > 0) {
            return Stop::Busy;
        }
        self.exhausted(pool)
    }

    /// Takes the addresses that are missing, named ones first. Fails with the pool that has none left: only wants
    /// on pools that share addresses can come away empty here, and they get no place in a queue.
    fn take(&mut self, asked: &mut [AskedWant<'_>], draft: &mut Draft) -> Result<(), Arc<Pool>> {
        for want in asked.iter_mut().filter(|want| want.missing > 0) {
            let named = want.key.filter(|_| want.lacks() > 0);
            want.again.free.extend(named);
            for key in std::mem::take(&mut want.again.free) {
                if !self.free.take(want.pool.spec.prefix_at(key)) {
                    return Err(Arc::clone(&want.pool));
                }
                draft.flight.taken.push(key);
                want.fresh.push(key);
            }
        }
        for want in asked.iter_mut() {
            while want.fresh.len() < want.lacks() {
                let Some(key) = self.choose(&want.pool) else {
                    return Err(Arc::clone(&want.pool));
                };
                self.free.take(want.pool.spec.prefix_at(key));
                draft.flight.taken.push(key);
                want.fresh.push(key);
            }
        }
        Ok(())
    }

    /// Finds what the identity had before and gets again, for wants that name no address.
    fn find_again(
        &self,
        asked: &mut [AskedWant<'_>],
        prints: Prints,
        ask: &Allocate,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let mut named: Given = asked.iter().filter_map(AskedWant::named).collect();
        for want in asked.iter_mut() {
            if want.key.is_none() && want.missing > 0 && want.selection.is_none() {
                let who = (prints, ask);
                want.again = self.had(want, who, &mut named, now)?;
            }
        }
        Ok(())
    }

    /// Writes the leases and answers them in the order of the wants, then by address.
    fn grant(
        &self,
        mut draft: Draft,
        asked: Vec<AskedWant<'_>>,
        prints: Prints,
        ask: &Allocate,
        (purpose, share): (Purpose, Option<&Share>),
    ) -> (Draft, Answer) {
        let shared = self.interner.shared(prints, &ask.holder, &ask.tenant);
        let news = |want: &AskedWant<'_>| want.again.cooling.len() + want.fresh.len();
        let fresh = asked.iter().map(news).sum();
        let mut leases = Vec::with_capacity(asked.len());
        let mut any_fresh = fresh > 0;
        let mut holders = std::iter::repeat_n(shared, fresh);
        for want in asked {
            let mut mine = want.existing;
            for lease in &mut mine {
                if let Some((next, action)) = purpose.again(lease, &ask.holder) {
                    any_fresh |= matches!(action, Action::Allocated | Action::Probing);
                    draft.put(&next, action, Text::default());
                    *lease = next;
                } else if want.reshared {
                    draft.put(lease, Action::PortsChanged, Text::default());
                }
            }
            if let Some(lease) = want.joins {
                draft.join(&lease, &ask.holder);
                any_fresh = true;
                mine.push(lease);
            }
            let cooling = want.again.cooling.into_iter().map(|key| (key, true));
            let fresh = want.fresh.into_iter().map(|key| (key, false));
            for ((key, cools), (holder, tenant)) in cooling.chain(fresh).zip(holders.by_ref()) {
                let prefix = want.pool.spec.prefix_at(key);
                let mut lease = exclusive(prefix, Some(want.pool.id), holder, tenant, draft.now);
                let action = purpose.dedicate(&mut lease);
                if let Some(share) = share {
                    lease.open_to(share);
                }
                let lease = Arc::new(lease);
                if cools {
                    draft.put(&lease, action, "it was in quarantine".into());
                } else {
                    draft.put_new(&lease, action, Text::default());
                }
                mine.push(lease);
            }
            if mine.len() > 1 {
                mine.sort_by_key(|lease| lease.key);
            }
            leases.extend(mine);
        }
        let fresh = any_fresh;
        (draft, Answer::Granted { leases, fresh })
    }
}
