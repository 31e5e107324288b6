//! Who waits for an address of a full pool, and whose turn it is.
//!
//! A place is kept from the first refusal until the waiter is served, released or forgotten. While places are
//! kept, an address is given only to those at the head of the queue, as many as there are free addresses for.
//! A waiter that no longer asks would keep its address idle, so the edge must call
//! [`crate::Ledger::forget_waiter`] when its object is gone or asks elsewhere. Queues live in memory only: after
//! a restart they fill again as objects are reconciled, each with the place of its creation time.
//! Queues of pools that share addresses know nothing of each other.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::{Change, Ledger, intern::fingerprint, maps::above, rows_read::CountedRows as _};
use crate::{ClusterId, Identity, PoolId, System, Text, Timestamp};

/// Orders waiters: the oldest object first, then by identity.
pub(super) type QueuePlace = (Timestamp, Identity);

/// How many addresses are waited for, and by which instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub need: u128,
    pub instance: Text,
}

/// The queues of all pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters {
    queues: BTreeMap<PoolId, WaitQueue>,
    places: BTreeMap<Identity, BTreeMap<PoolId, Timestamp>>,
}

/// One pool's queue. The first waiters whose needs fit into what was free at the last look are `ready`; the
/// border moves by as many places as addresses came or went since, so a look costs O(log n) each.
#[derive(Clone, Debug, Default)]
struct WaitQueue {
    waiting: BTreeMap<QueuePlace, Waiter>,
    /// Sum of all needs.
    need: u128,
    /// The last ready place.
    ready: Option<QueuePlace>,
    /// Sum of the needs up to `ready`.
    ready_need: u128,
}

impl Waiters {
    /// Whether `need` addresses may be given to the identity with `free` ones left. Its turn is that of the time
    /// it names, else that of the place it has; without either it comes after everybody.
    pub fn admits(
        &mut self,
        pool: PoolId,
        identity: &Identity,
        since: Option<Timestamp>,
        need: u128,
        free: u128,
    ) -> bool {
        let kept = self.place(pool, identity);
        let Some(queue) = self.queues.get_mut(&pool) else {
            return need <= free;
        };
        let waiter = kept.as_ref().and_then(|place| queue.remove(place));
        let place = since
            .map(|since| (since, identity.clone()))
            .or_else(|| kept.clone());
        let admits = match place {
            None => queue.need.saturating_add(need) <= free,
            Some(place) => queue.admits(place, need, free),
        };
        if let Some((place, waiter)) = kept.zip(waiter) {
            queue.insert(place, waiter);
        }
        admits
    }

    /// The pools in whose queues the identity is.
    pub fn pools_of(&self, identity: &Identity) -> impl Iterator<Item = PoolId> {
        let places = self.places.get(identity);
        places.into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Whether nobody waits for the pool.
    pub fn none(&self, pool: PoolId) -> bool {
        !self.queues.contains_key(&pool)
    }

    /// Keeps a place, instead of the one the identity may have had.
    pub fn keep(&mut self, pool: PoolId, place: QueuePlace, waiter: Waiter) {
        self.leave(pool, &place.1);
        self.places
            .entry(place.1.clone())
            .or_default()
            .insert(pool, place.0);
        self.queues.entry(pool).or_default().insert(place, waiter);
    }

    /// Gives up the identity's place in one queue and returns it.
    pub fn leave(&mut self, pool: PoolId, identity: &Identity) -> Option<(QueuePlace, Waiter)> {
        let since = self.drop_place(pool, identity)?;
        let queue = self.queues.get_mut(&pool)?;
        let place = (since, identity.clone());
        let waiter = queue.remove(&place)?;
        if queue.waiting.is_empty() {
            self.queues.remove(&pool);
        }
        Some((place, waiter))
    }

    /// Gives up the identity's places in all queues; with `instance`, only those of that instance. Where it had one.
    pub fn leave_all(&mut self, identity: &Identity, instance: Option<&Text>) -> Vec<PoolId> {
        let mut pools: Vec<PoolId> = self.pools_of(identity).collect();
        pools.retain(|pool| {
            let place = self.place(*pool, identity);
            let waiter = place.and_then(|place| self.queues.get(pool)?.waiting.get(&place));
            let is_meant = |waiter: &Waiter| instance.is_none_or(|one| waiter.instance == *one);
            waiter.is_some_and(is_meant) && self.leave(*pool, identity).is_some()
        });
        pools
    }

    /// The identity's place in the queue of the pool.
    fn place(&self, pool: PoolId, identity: &Identity) -> Option<QueuePlace> {
        let since = self.places.get(identity)?.get(&pool)?;
        Some((*since, identity.clone()))
    }

    /// Gives up the places of everybody in the cluster (and system); where it had some, each once. Looks at all who
    /// wait.
    pub fn leave_cluster(
        &mut self,
        cluster: &ClusterId,
        system: Option<&System>,
    ) -> BTreeSet<PoolId> {
        let leaves = |identity: &&Identity| is_of(identity, cluster, system);
        let leavers: Vec<Identity> = self.places.keys().filter(leaves).cloned().collect();
        let pools = leavers
            .iter()
            .flat_map(|identity| self.leave_all(identity, None));
        pools.collect()
    }

    /// Empties the queue of a pool that is no more.
    pub fn close(&mut self, pool: PoolId) {
        let Some(queue) = self.queues.remove(&pool) else {
            return;
        };
        for (_, identity) in queue.waiting.into_keys() {
            self.drop_place(pool, &identity);
        }
    }

    fn drop_place(&mut self, pool: PoolId, identity: &Identity) -> Option<Timestamp> {
        let places = self.places.get_mut(identity)?;
        let since = places.remove(&pool);
        if places.is_empty() {
            self.places.remove(identity);
        }
        since
    }

    /// The queue, oldest first.
    pub fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = (&QueuePlace, &Waiter)> {
        self.queues
            .get(&pool)
            .into_iter()
            .flat_map(|queue| &queue.waiting)
    }

    /// How many are in the queue.
    pub fn count(&self, pool: PoolId) -> usize {
        let queue = self.queues.get(&pool);
        queue.map_or(0, |queue| queue.waiting.len())
    }

    /// How many are in each queue, by pool, after `after`.
    pub fn lengths_after(&self, after: Option<PoolId>) -> impl Iterator<Item = (PoolId, usize)> {
        let queues = above(&self.queues, after.as_ref());
        queues.map(|(pool, queue)| (*pool, queue.waiting.len()))
    }

    /// Whether queues and places tell the same.
    pub fn consistent(&self) -> bool {
        let queued: usize = self.lengths_after(None).map(|(_, waiting)| waiting).sum();
        let places: usize = self.places.values().map(BTreeMap::len).sum();
        queued == places
            && self
                .queues
                .keys()
                .all(|pool| self.consistent_in(*pool, queued))
    }

    /// The same of the first `most` in the queue of the pool; whether the sums fit where these are all.
    pub fn consistent_in(&self, pool: PoolId, most: usize) -> bool {
        let Some(queue) = self.queues.get(&pool) else {
            return true;
        };
        let (mut need, mut ready_need) = (0, 0);
        for (place, waiter) in queue.waiting.iter().take(most).counted() {
            let (since, identity) = place;
            let places = self.places.get(identity);
            if places.and_then(|places| places.get(&pool)) != Some(since) {
                return false;
            }
            need += waiter.need;
            if queue.ready.as_ref().is_some_and(|ready| place <= ready) {
                ready_need += waiter.need;
            }
        }
        let all = queue.waiting.len() <= most;
        !queue.waiting.is_empty() && (!all || (need, ready_need) == (queue.need, queue.ready_need))
    }
}

/// Whether the identity is one of the cluster (and system).
pub(super) fn is_of(identity: &Identity, cluster: &ClusterId, system: Option<&System>) -> bool {
    identity.cluster.as_ref() == Some(cluster)
        && system.is_none_or(|system| identity.system == *system)
}

impl WaitQueue {
    /// Whether somebody who is not in the queue would be ready at `place`.
    fn admits(&mut self, place: QueuePlace, need: u128, free: u128) -> bool {
        self.insert(
            place.clone(),
            Waiter {
                need,
                instance: Text::default(),
            },
        );
        self.settle(free);
        let admitted = self.ready.as_ref().is_some_and(|ready| place <= *ready);
        self.remove(&place);
        admitted
    }

    /// Moves the border to the last place up to which all needs fit into `free`.
    fn settle(&mut self, free: u128) {
        while self.ready_need > free {
            let Some(ready) = self.ready.take() else {
                break;
            };
            self.ready_need -= self.waiting.get(&ready).map_or(0, |waiter| waiter.need);
            self.ready = self.before(&ready);
        }
        while let Some((place, waiter)) = above(&self.waiting, self.ready.as_ref()).next() {
            if self.ready_need.saturating_add(waiter.need) > free {
                break;
            }
            self.ready_need += waiter.need;
            self.ready = Some(place.clone());
        }
    }

    fn insert(&mut self, place: QueuePlace, waiter: Waiter) {
        self.need += waiter.need;
        if self.ready.as_ref().is_some_and(|ready| place < *ready) {
            self.ready_need += waiter.need;
        }
        self.waiting.insert(place, waiter);
    }

    fn remove(&mut self, place: &QueuePlace) -> Option<Waiter> {
        let waiter = self.waiting.remove(place)?;
        self.need -= waiter.need;
        if self.ready.as_ref().is_some_and(|ready| place <= ready) {
            self.ready_need -= waiter.need;
        }
        if self.ready.as_ref() == Some(place) {
            self.ready = self.before(place);
        }
        Some(waiter)
    }

    /// The last place before this one.
    fn before(&self, place: &QueuePlace) -> Option<QueuePlace> {
        let before = self.waiting.range(..place).next_back();
        before.map(|(place, _)| place.clone())
    }
}

impl Ledger {
    /// Gives up the identity's places in all queues: its object is gone or asks elsewhere. Counts as a change of
    /// the pools where it had one.
    pub fn forget_waiter(&mut self, identity: &Identity) {
        self.leave_queues(identity, None);
        self.drafts.forget_places(fingerprint(identity), identity);
    }

    /// Gives up the places of a cluster (or of one of its systems) in all queues: nothing asks for it any more. Counts as
    /// a change of the pools where it had some.
    pub fn forget_waiters_of(&mut self, cluster: &ClusterId, system: Option<&System>) {
        let pools = self.waiters.leave_cluster(cluster, system);
        self.drafts.forget_places_of(cluster, system);
        self.moved_up(pools.into_iter().collect());
    }

    /// Gives up places in all queues; with `instance`, only those of that instance.
    pub(super) fn leave_queues(&mut self, identity: &Identity, instance: Option<&Text>) {
        let pools = self.waiters.leave_all(identity, instance);
        self.moved_up(pools.into());
    }

    /// Somebody left these queues and who waits behind may be served next; counts as a change of the pools.
    pub(super) fn moved_up(&mut self, pools: SmallVec<[PoolId; 2]>) {
        if !pools.is_empty() {
            self.changes.push(Change {
                pools,
                ..Change::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{count_rows, testing};

    #[test]
    fn queues_are_checked_in_parts() {
        let mut ledger = Ledger::new();
        for (pool, many) in [(1, 600), (2, 400), (3, 1), (4, 1_200), (5, 1)] {
            for at in 0..many {
                let holder = testing::holder(format!("fipd/vm/lab/{at}"), "1");
                let instance = holder.instance;
                let waiter = Waiter { need: 1, instance };
                let place = (Timestamp(at), holder.identity);
                ledger.waiters.keep(PoolId(pool), place, waiter);
            }
        }
        let check = |ledger: &Ledger, after| {
            let ((found, next), rows) = count_rows(|| ledger.check_queues_page(after));
            (found.len(), next.map(|pool: PoolId| pool.0), rows)
        };
        for (after, next, rows) in [
            (None, Some(2), 1_000),
            (Some(PoolId(2)), Some(3), 1),
            (Some(PoolId(3)), Some(4), 1_000),
            (Some(PoolId(4)), None, 1),
        ] {
            assert_eq!(check(&ledger, after), (0, next, rows), "{after:?}");
        }
        assert!(ledger.waiters.consistent());
        let queue = ledger.waiters.queues.get_mut(&PoolId(2)).unwrap();
        queue.need += 1;
        assert_eq!(check(&ledger, None), (1, Some(2), 1_000));
        let gone = testing::holder("fipd/vm/lab/0", "1").identity;
        ledger.waiters.places.remove(&gone);
        assert_eq!(check(&ledger, Some(PoolId(4))), (1, None, 1));
        assert!(!ledger.waiters.consistent());
    }
}
