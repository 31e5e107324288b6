//! Wants that leave the pool open: the first pool in order that can give, in the same decision.
//!
//! A pool that is full, over quota, closed, held back or without the named address is passed over. Only a decision
//! in flight that may change that is waited for, so that the order of the pools is kept. Where none can give, a
//! place is kept in the queue of each pool that is full; whoever is served, or asks again, gives up its places in
//! other pools it may have selected from.

use std::sync::Arc;

use smallvec::SmallVec;

use super::wants::{Again, AskedWant, Given};
use crate::{
    Allocate, LeaseKey, Pool, PoolId, Refusal, Selection, Timestamp,
    ledger::{
        Ledger,
        draft::Stop,
        intern::Prints,
        rows::candidates::{Rank, rank},
        space::free::prefixes_in,
        waiters::{QueuePlace, Waiter},
    },
};

/// What is looked for: by whom, what else the request asks, and when.
#[derive(Clone, Copy)]
struct PoolSearch<'a> {
    prints: Prints,
    ask: &'a Allocate,
    /// Wants that are settled.
    others: &'a [&'a AskedWant<'a>],
    now: Timestamp,
}

/// Pools that cannot give, and why.
#[derive(Default)]
struct PassedOver {
    reasons: Vec<Refusal>,
    more: usize,
    /// Pools that are full, and how many addresses are waited for.
    full: Vec<(PoolId, u128)>,
}

impl PassedOver {
    /// The most reasons that a refusal tells.
    const TOLD: usize = 5;

    fn add(&mut self, refusal: Refusal) {
        if self.reasons.len() < Self::TOLD {
            self.reasons.push(refusal);
        } else {
            self.more += 1;
        }
    }

    fn refusal(self) -> Refusal {
        Refusal::NoneGives {
            full: !self.full.is_empty(),
            reasons: self.reasons,
            more: self.more,
        }
    }
}

impl Ledger {
    /// Chooses the pools of wants that leave them open and miss something.
    pub(super) fn settle(
        &mut self,
        asked: &mut [AskedWant<'_>],
        (prints, ask): (Prints, &Allocate),
        now: Timestamp,
    ) -> Result<(), Stop> {
        for at in 0..asked.len() {
            let (before, rest) = asked.split_at_mut(at);
            let Some((want, after)) = rest.split_first_mut() else {
                break;
            };
            let Some(selection) = want.selection.filter(|_| want.missing > 0) else {
                continue;
            };
            let named = after.iter().filter(|want| want.selection.is_none());
            let others: SmallVec<[&AskedWant<'_>; 2]> = before.iter().chain(named).collect();
            let look = PoolSearch {
                prints,
                ask,
                others: &others,
                now,
            };
            self.settle_one(want, selection, look)?;
        }
        Ok(())
    }

    fn settle_one(
        &mut self,
        want: &mut AskedWant<'_>,
        selection: &Selection,
        look: PoolSearch<'_>,
    ) -> Result<(), Stop> {
        let address = want.key.map(|key| key.address);
        if want.outside {
            return Err(Refusal::NoPool {
                family: selection.family,
                length: selection.length,
                address,
            }
            .into());
        }
        let mut passed = PassedOver::default();
        let mut next = Some(Arc::clone(&want.pool));
        while let Some(pool) = next {
            let network = pool.spec.network;
            want.key = address.map(|address| LeaseKey { network, address });
            want.pool = pool;
            let id = want.pool.id;
            match self.try_pool(want, look) {
                Ok(()) => return Ok(()),
                Err(Stop::Refused(refusal)) => {
                    if matches!(refusal, Refusal::Exhausted { .. }) {
                        passed.full.push((id, look.beside(id, lacks) + lacks(want)));
                    }
                    passed.add(refusal);
                }
                Err(stop) => return Err(stop),
            }
            let after: Rank = rank(&want.pool);
            next = self.next_candidate(&self.search(selection), address, Some(&after));
        }
        if look.ask.waiting_since.is_some() {
            let pools = self.selected_places(selection, look.ask);
            self.move_places(&pools, &passed.full, look.ask);
        }
        Err(passed.refusal().into())
    }

    /// Whether the want's pool can give what is missing; what of it the asker may have again.
    fn try_pool(&mut self, want: &mut AskedWant<'_>, look: PoolSearch<'_>) -> Result<(), Stop> {
        let ask = look.ask;
        let mut given = look.given();
        let twice = |key: &LeaseKey| {
            let span = want.pool.spec.prefix_at(*key).span();
            prefixes_in(&given, key.network, span).next().is_some()
        };
        if let Some(key) = want.key.filter(twice) {
            let address = want.pool.spec.prefix_at(key);
            let owner = ask.holder.identity.to_string();
            return Err(Refusal::AddressTaken { address, owner }.into());
        }
        want.again = Again::default();
        let cools = self.check_new(want, ask)?;
        want.again.cooling.extend(want.key.filter(|_| cools));
        if want.key.is_none() {
            let who = (look.prints, ask);
            want.again = self.had(want, who, &mut given, look.now)?;
        }
        let id = want.pool.id;
        let limited = self.has_quotas() || want.pool.spec.quota_required;
        if let Some(tenant) = ask.tenant.as_ref().filter(|_| limited) {
            let need = look.beside(id, |other| other.missing.into()) + u128::from(want.missing);
            self.check_quota(&[(id, need, &want.pool)], tenant, &ask.holder)?;
        }
        let need = look.beside(id, lacks) + lacks(want);
        if want.lacks() > 0 && !self.has_turn(id, need, ask)? {
            return Err(self.exhausted(&want.pool));
        }
        Ok(())
    }

    /// Whether it is the asker's turn to have so many addresses of the pool, and there are as many. Busy where a
    /// decision in flight may yet give some back.
    pub(super) fn has_turn(
        &mut self,
        pool: PoolId,
        need: u128,
        ask: &Allocate,
    ) -> Result<bool, Stop> {
        let free = self.free.room(pool).map_or(0, |room| room.free());
        if self.waiters.none(pool) && need <= free {
            return Ok(true);
        }
        let (identity, since) = (&ask.holder.identity, ask.waiting_since);
        if self.waiters.admits(pool, identity, since, need, free) {
            return Ok(true);
        }
        if self.free.room(pool).is_some_and(|room| room.taken > 0) {
            return Err(Stop::Busy);
        }
        Ok(false)
    }

    /// Pools that the selection could have been about and in whose queues the asker is.
    fn selected_places(&self, selection: &Selection, ask: &Allocate) -> SmallVec<[PoolId; 2]> {
        let meant = |pool: &Arc<Pool>| {
            selection
                .network
                .is_none_or(|network| network == pool.spec.network)
                && pool.spec.family() == Some(selection.family)
                && pool.spec.allocation_length == selection.length
        };
        let pools = self.waiters.pools_of(&ask.holder.identity);
        pools
            .filter(|id| self.rows.pools.get(id).is_some_and(meant))
            .collect()
    }

    /// Gives up the asker's places for what the wants are about, and returns them.
    pub(super) fn leave_places(
        &mut self,
        asked: &[AskedWant<'_>],
        ask: &Allocate,
    ) -> Vec<(PoolId, QueuePlace, Waiter)> {
        let mut left = Vec::new();
        for want in asked {
            let pools = match want.selection {
                Some(selection) => self.selected_places(selection, ask),
                None => std::iter::once(want.pool.id).collect(),
            };
            for id in pools {
                let place = self.waiters.leave(id, &ask.holder.identity);
                left.extend(place.map(|(place, waiter)| (id, place, waiter)));
            }
        }
        left
    }

    /// Gives up the places of `leave` and keeps places for as many addresses as `full` says. Whoever waits behind a
    /// place that is given up may be served next.
    pub(super) fn move_places(
        &mut self,
        leave: &[PoolId],
        full: &[(PoolId, u128)],
        ask: &Allocate,
    ) {
        let Some(since) = ask.waiting_since else {
            return;
        };
        let identity = &ask.holder.identity;
        let mut left: SmallVec<[PoolId; 2]> = SmallVec::new();
        for id in leave {
            if self.waiters.leave(*id, identity).is_some() {
                left.push(*id);
            }
        }
        for (id, need) in full {
            left.retain(|left| left != id);
            let waiter = Waiter {
                need: *need,
                instance: Arc::clone(&ask.holder.instance),
            };
            self.waiters.keep(*id, (since, identity.clone()), waiter);
        }
        self.moved_up(left);
    }
}

impl PoolSearch<'_> {
    /// What the settled wants ask of the pool.
    fn beside(&self, pool: PoolId, count: impl Fn(&AskedWant<'_>) -> u128) -> u128 {
        let of_pool = self.others.iter().filter(|other| other.pool.id == pool);
        of_pool.map(|other| count(other)).sum()
    }

    /// Addresses that the settled wants name or have again.
    fn given(&self) -> Given {
        let mut given = Given::new();
        for other in self.others {
            let again = other.again.free.iter().chain(&other.again.cooling);
            let keys = other.key.iter().chain(again);
            let spec = &other.pool.spec;
            given.extend(keys.map(|key| (*key, spec.prefix_at(*key).length)));
        }
        given
    }
}

/// How many free addresses the want takes.
fn lacks(want: &AskedWant<'_>) -> u128 {
    want.lacks() as u128
}
