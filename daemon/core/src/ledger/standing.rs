//! How each of many pools stands, without looking each of them up in one map after the other.

use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    sync::Arc,
};

use super::{Ledger, maps::above, rollups::PoolHistory, space::free::PoolRoom, usage::PoolUsage};
use crate::{Forecast, Pool, PoolId, Timestamp};

/// A pool, with what [`Ledger::usage`] and [`Ledger::forecast`] count from.
#[derive(Clone, Copy)]
pub struct PoolStanding<'a> {
    pub pool: &'a Arc<Pool>,
    room: Option<&'a PoolRoom>,
    /// Leases attributed to the pool.
    attributed: usize,
    /// Of these, those that cool.
    cooling: u64,
    history: Option<&'a PoolHistory>,
}

impl PoolStanding<'_> {
    /// `None` of a pool that has no place.
    pub fn usage(&self) -> Option<PoolUsage> {
        let room = self.room?;
        Some(PoolUsage::of(room, self.attributed, self.cooling))
    }

    /// When the pool is full at the pace of its last days; `now` is the time of the address book.
    pub fn forecast(&self, now: Timestamp) -> Forecast {
        PoolHistory::forecast(self.history, self.room, now)
    }
}

impl Ledger {
    /// Pools by id, after `after`.
    pub fn standings_after(&self, after: Option<PoolId>) -> impl Iterator<Item = PoolStanding<'_>> {
        let mut rooms = Beside::new(self.free.rooms(), after);
        let mut keys = Beside::new(&self.index.pools, after);
        let mut cooling = Beside::new(self.index.cooling.by_pool(), after);
        let mut histories = Beside::new(self.rollups.histories(), after);
        self.pools_after(after).map(move |pool| PoolStanding {
            pool,
            room: rooms.at(pool.id),
            attributed: keys.at(pool.id).map_or(0, |keys| keys.len()),
            cooling: cooling.at(pool.id).copied().unwrap_or(0),
            history: histories.at(pool.id),
        })
    }
}

/// A map that is read along with pools by id.
struct Beside<'a, V>(Peekable<btree_map::Range<'a, PoolId, V>>);

impl<'a, V> Beside<'a, V> {
    fn new(map: &'a BTreeMap<PoolId, V>, after: Option<PoolId>) -> Self {
        Self(above(map, after.as_ref()).peekable())
    }

    /// What the pool has; each pool asked for is a later one.
    fn at(&mut self, pool: PoolId) -> Option<&'a V> {
        while self.0.next_if(|(id, _)| **id < pool).is_some() {}
        let found = self.0.next_if(|(id, _)| **id == pool)?;
        Some(found.1)
    }
}
