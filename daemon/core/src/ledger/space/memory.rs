//! Past leases, and by what they are found: the address, its pool and age, who had it.
//!
//! A decision in flight that forgets a row takes it out of the ages, so that the next one finds another to forget.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    ops::{Bound, RangeInclusive},
    sync::Arc,
};

use crate::{
    Identity, LeaseKey, LeaseState, NetworkId, PastLease, PoolId, Timestamp,
    address::number,
    ledger::{Ledger, Violation, intern::fingerprint, maps::uncount},
};

/// Where a row stands among its pool's: the oldest first.
pub(in crate::ledger) type Age = (Timestamp, LeaseKey);

/// The rows with their indexes.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct PastLeases {
    rows: BTreeMap<LeaseKey, Arc<PastLease>>,
    /// How long those are that are no addresses.
    lengths: BTreeMap<LeaseKey, u8>,
    pools: BTreeMap<PoolId, Shelf>,
    /// By who had it, the latest first.
    owners: BTreeSet<(u64, PoolId, Reverse<Timestamp>, LeaseKey)>,
    /// By how many decisions in flight a row is forgotten.
    going: BTreeMap<LeaseKey, u32>,
}

/// What one pool remembers. One that remembers nothing has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shelf {
    rows: usize,
    /// Rows that decisions in flight add.
    coming: usize,
    /// Rows that no decision in flight forgets.
    ages: BTreeSet<Age>,
    /// Rows of addresses that the pool gives and nobody has or takes.
    idle: BTreeSet<Age>,
}

/// Below the keys of all leases but one.
const LOWEST: LeaseKey = LeaseKey {
    network: NetworkId::DEFAULT,
    address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
};

fn age(past: &PastLease) -> Age {
    (past.released, past.key)
}

fn ownership(past: &PastLease) -> (u64, PoolId, Reverse<Timestamp>, LeaseKey) {
    let print = fingerprint(&past.identity);
    (print, past.pool, Reverse(past.released), past.key)
}

impl PastLeases {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, key: LeaseKey) -> Option<&Arc<PastLease>> {
        self.rows.get(&key)
    }

    /// All rows, in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<PastLease>> {
        self.rows.values()
    }

    /// How many bits it covered: those of an address where nothing else is known.
    pub fn length(&self, key: LeaseKey) -> u8 {
        let known = self.lengths.get(&key).copied();
        known.unwrap_or_else(|| key.bits())
    }

    /// The keys of rows in the range.
    pub fn within(&self, range: RangeInclusive<LeaseKey>) -> impl Iterator<Item = LeaseKey> {
        self.rows.range(range).map(|(key, _)| *key)
    }

    /// Adds a row in place of the one that the address may have; `idle`: its pool gives the address, and nobody has or
    /// takes it.
    pub fn put(&mut self, past: Arc<PastLease>, length: u8, idle: bool) {
        self.delete(past.key);
        if length < past.key.bits() {
            self.lengths.insert(past.key, length);
        }
        let shelf = self.pools.entry(past.pool).or_default();
        shelf.rows += 1;
        if !self.going.contains_key(&past.key) {
            shelf.ages.insert(age(&past));
        }
        if idle {
            shelf.idle.insert(age(&past));
        }
        self.owners.insert(ownership(&past));
        self.rows.insert(past.key, past);
    }

    /// Removes a row; whether there was one.
    pub fn delete(&mut self, key: LeaseKey) -> bool {
        let Some(past) = self.rows.remove(&key) else {
            return false;
        };
        self.lengths.remove(&key);
        self.owners.remove(&ownership(&past));
        self.on_shelf(past.pool, |shelf| {
            shelf.rows -= 1;
            shelf.ages.remove(&age(&past));
            shelf.idle.remove(&age(&past));
        });
        true
    }

    /// Somebody has or takes the address.
    pub fn occupied(&mut self, key: LeaseKey) {
        if let Some(past) = self.rows.get(&key)
            && let Some(shelf) = self.pools.get_mut(&past.pool)
        {
            shelf.idle.remove(&age(past));
        }
    }

    /// Nobody has or takes the address any more, which its pool gives.
    pub fn vacated(&mut self, key: LeaseKey) {
        if let Some(past) = self.rows.get(&key) {
            let shelf = self.pools.entry(past.pool).or_default();
            shelf.idle.insert(age(past));
        }
    }

    /// A decision that adds a row to the pool is in flight.
    pub fn comes(&mut self, pool: PoolId) {
        self.pools.entry(pool).or_default().coming += 1;
    }

    /// It is no more.
    pub fn came(&mut self, pool: PoolId) {
        self.on_shelf(pool, |shelf| shelf.coming -= 1);
    }

    /// A decision that forgets the row is in flight.
    pub fn goes(&mut self, key: LeaseKey) {
        *self.going.entry(key).or_default() += 1;
        if let Some(past) = self.rows.get(&key)
            && let Some(shelf) = self.pools.get_mut(&past.pool)
        {
            shelf.ages.remove(&age(past));
        }
    }

    /// It is no more.
    pub fn gone(&mut self, key: LeaseKey) {
        if uncount(&mut self.going, &key)
            && let Some(past) = self.rows.get(&key)
        {
            let shelf = self.pools.entry(past.pool).or_default();
            shelf.ages.insert(age(past));
        }
    }

    /// How many rows the pool has, with those that decisions in flight add.
    pub fn count(&self, pool: PoolId) -> usize {
        self.pools
            .get(&pool)
            .map_or(0, |shelf| shelf.rows + shelf.coming)
    }

    /// How many rows the pool has.
    pub fn rows_of(&self, pool: PoolId) -> usize {
        self.pools.get(&pool).map_or(0, |shelf| shelf.rows)
    }

    /// The oldest row of the pool, of those younger than `after`, that no decision in flight forgets.
    pub fn oldest(&self, pool: PoolId, after: Option<Age>) -> Option<Age> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ages = &self.pools.get(&pool)?.ages;
        ages.range((from, Bound::Unbounded)).next().copied()
    }

    /// All rows of the pool that no decision in flight forgets, the oldest first.
    pub fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = Age> {
        let shelf = self.pools.get(&pool).into_iter();
        shelf.flat_map(|shelf| shelf.ages.iter().copied())
    }

    /// The pool's addresses that it gives and nobody has or takes, the one released longest ago first.
    pub fn idle(&self, pool: PoolId) -> impl Iterator<Item = LeaseKey> {
        let pool = self.pools.get(&pool).into_iter();
        pool.flat_map(|pool| pool.idle.iter().map(|(_, key)| *key))
    }

    /// Decides anew which rows of a pool are idle, whose addresses changed. Looks at all of them.
    pub fn review(&mut self, pool: PoolId, idle: impl Fn(&PastLease) -> bool) {
        let Some(shelf) = self.pools.get_mut(&pool) else {
            return;
        };
        let ages = shelf.ages.iter().map(|(_, key)| key);
        let rows = ages
            .chain(self.going.keys())
            .filter_map(|key| self.rows.get(key));
        let mine = rows.filter(|past| past.pool == pool && idle(past));
        shelf.idle = mine.map(|past| age(past)).collect();
    }

    /// What the identity had of the pool, the latest first.
    pub fn of_owner(
        &self,
        print: u64,
        identity: &Identity,
        pool: PoolId,
    ) -> impl Iterator<Item = &Arc<PastLease>> {
        let keys = self
            .owners
            .range((print, pool, Reverse(Timestamp(u64::MAX)), LOWEST)..);
        keys.take_while(move |(of, from, ..)| (*of, *from) == (print, pool))
            .filter_map(|(.., key)| self.rows.get(key))
            .filter(move |past| past.identity == *identity)
    }

    /// Whether the indexes say what the rows say; `idle` as for [`Self::put`].
    pub fn consistent(&self, idle: impl Fn(&PastLease) -> bool) -> bool {
        let mut other = Self::default();
        for (key, times) in &self.going {
            other.going.insert(*key, *times);
        }
        for past in self.rows.values() {
            other.put(Arc::clone(past), self.length(past.key), idle(past));
        }
        for (pool, shelf) in &self.pools {
            (0..shelf.coming).for_each(|_| other.comes(*pool));
        }
        other.pools == self.pools && other.owners == self.owners
    }

    /// Changes a pool's shelf; an empty one goes.
    fn on_shelf(&mut self, pool: PoolId, change: impl FnOnce(&mut Shelf)) {
        if let Some(shelf) = self.pools.get_mut(&pool) {
            change(shelf);
            if *shelf == Shelf::default() {
                self.pools.remove(&pool);
            }
        }
    }
}

impl Ledger {
    /// Checks the past leases: each is of an address that its pool gives and nobody uses, and they are not too many.
    pub(in crate::ledger) fn check_memory(&self, found: &mut Vec<Violation>) {
        let mut broken = |past: &PastLease, why| {
            let address = past.key;
            found.push(Violation::PastLease { address, why });
        };
        for past in self.free.memory().rows() {
            let Some(pool) = self.rows.pools.get(&past.pool) else {
                broken(past, "its pool does not exist");
                continue;
            };
            let room = self.free.room(past.pool);
            let given = room.is_some_and(|room| room.layout.in_range(number(past.key.address)));
            if !given || pool.spec.network != past.key.network {
                broken(past, "its pool does not give the address");
            }
            let lease = self.rows.leases.get(&past.key);
            if lease.is_some_and(|lease| lease.state != LeaseState::Quarantined) {
                broken(past, "somebody has the address");
            }
            if self.free.memory().rows_of(past.pool) > pool.spec.remembers() {
                broken(past, "its pool remembers fewer");
            }
        }
    }
}
