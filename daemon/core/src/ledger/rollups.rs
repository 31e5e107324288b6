//! The running hour of each pool and how its last ones ended.

use std::collections::{BTreeMap, VecDeque};

use super::{Ledger, maps::uncount, space::free::PoolRoom};
use crate::{Forecast, Hour, Lease, LeaseState, Op, PoolId, Refusal, Rollup, Timestamp};

/// What happened to a pool since its last row was made; in memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    given: u64,
    released: u64,
    refused: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PoolHistory {
    tally: Tally,
    /// Those a forecast looks at, and the one before them, in the order of time.
    rows: VecDeque<Rollup>,
    /// When each of them was and what it ended with: all that a forecast looks at, close together.
    ends: VecDeque<(Hour, u64)>,
}

impl PoolHistory {
    fn last(&self) -> Option<Hour> {
        self.rows.back().map(|row| row.hour)
    }

    /// Of a pool with this history and place, where it has them.
    pub fn forecast(history: Option<&Self>, room: Option<&PoolRoom>, now: Timestamp) -> Forecast {
        let free = room.map_or(0, PoolRoom::unleased);
        let ends = history.into_iter().flat_map(|history| &history.ends);
        Forecast::new(ends.copied(), Hour::of(now).before(1), free)
    }

    /// Rows may come in any order.
    fn put(&mut self, row: Rollup) {
        if self.last().is_none_or(|last| last < row.hour) {
            self.tally.given = self.tally.given.saturating_sub(row.given);
            self.tally.released = self.tally.released.saturating_sub(row.released);
            self.tally.refused = self.tally.refused.saturating_sub(row.refused);
        }
        let at = self.ends.partition_point(|(hour, _)| *hour < row.hour);
        match (self.rows.get_mut(at), self.ends.get_mut(at)) {
            (Some(known), Some(end)) if end.0 == row.hour => {
                end.1 = row.used;
                *known = row;
            }
            _ => {
                self.rows.insert(at, row);
                self.ends.insert(at, (row.hour, row.used));
            }
        }
        let Some(last) = self.last() else {
            return;
        };
        let window = last.before(Forecast::WINDOW);
        let before = self.ends.partition_point(|(hour, _)| *hour <= window);
        let gone = before.saturating_sub(1);
        self.rows.drain(..gone);
        self.ends.drain(..gone);
    }
}

/// Histories of all pools that have one, and what they come to.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollups {
    histories: BTreeMap<PoolId, PoolHistory>,
    /// `given` of all tallies.
    given: u64,
    /// `released` of all tallies.
    released: u64,
    /// How many pools have their last row of an hour; none that no pool has.
    last: BTreeMap<Hour, usize>,
}

impl Rollups {
    pub fn put(&mut self, row: Rollup) {
        self.change(row.pool, |history| history.put(row));
    }

    pub fn drop_pool(&mut self, pool: PoolId) {
        self.change(pool, |history| *history = PoolHistory::default());
        self.histories.remove(&pool);
    }

    /// An address of the pool got a holder.
    pub fn given(&mut self, pool: Option<PoolId>) {
        if let Some(pool) = pool {
            self.histories.entry(pool).or_default().tally.given += 1;
            self.given += 1;
        }
    }

    /// An address of the pool lost its last holder.
    pub fn released(&mut self, pool: Option<PoolId>) {
        if let Some(pool) = pool {
            self.histories.entry(pool).or_default().tally.released += 1;
            self.released += 1;
        }
    }

    /// A request was refused because the pool is full.
    pub fn refused(&mut self, pool: PoolId) {
        self.histories.entry(pool).or_default().tally.refused += 1;
    }

    fn tally(&self, pool: PoolId) -> Tally {
        self.histories
            .get(&pool)
            .map_or_else(Tally::default, |history| history.tally)
    }

    /// Takes back what was counted since.
    pub fn recount(&mut self, pool: PoolId, tally: Tally) {
        self.change(pool, |history| history.tally = tally);
    }

    pub fn histories(&self) -> &BTreeMap<PoolId, PoolHistory> {
        &self.histories
    }

    /// All rows kept in memory, by pool and hour.
    pub fn rows(&self) -> impl Iterator<Item = &Rollup> {
        let histories = self.histories.values();
        histories.flat_map(|history| &history.rows)
    }

    /// Changes a history, and what all of them come to.
    fn change(&mut self, pool: PoolId, change: impl FnOnce(&mut PoolHistory)) {
        let history = self.histories.entry(pool).or_default();
        let (before, from) = (history.tally, history.last());
        change(history);
        let (after, to) = (history.tally, history.last());
        self.given = self.given - before.given + after.given;
        self.released = self.released - before.released + after.released;
        if from == to {
            return;
        }
        if let Some(hour) = from {
            uncount(&mut self.last, &hour);
        }
        if let Some(hour) = to {
            *self.last.entry(hour).or_default() += 1;
        }
    }
}

impl Ledger {
    /// Addresses of all pools that got a holder since their last rows were made, and those that lost their last one.
    pub fn running_hour(&self) -> (u64, u64) {
        (self.rollups.given, self.rollups.released)
    }

    /// The last hour that has rows, and how many pools have one of it: where this is as it was, no row of any pool was
    /// added meanwhile. `None` before the first one.
    pub fn rolled_up(&self) -> Option<(Hour, usize)> {
        let last = self.rollups.last.last_key_value();
        last.map(|(hour, pools)| (*hour, *pools))
    }

    /// When a pool is full at the pace of its last days; `now` is the time of the address book.
    pub fn forecast(&self, pool: PoolId, now: Timestamp) -> Forecast {
        let history = self.rollups.histories.get(&pool);
        PoolHistory::forecast(history, self.free.room(pool), now)
    }

    /// The pool that the rows take to another network with its leases, and what it counts: nobody gets or loses one of them.
    pub(super) fn moving(&self, ops: &[Op]) -> Option<(PoolId, Tally)> {
        let moved = ops.iter().find_map(|op| {
            if let Op::PutPool(pool) = op {
                let before = self.rows.pools.get(&pool.id)?;
                let moves = before.spec.network != pool.spec.network;
                (moves && self.index.of_pool(pool.id).is_some()).then_some(pool.id)
            } else {
                None
            }
        })?;
        Some((moved, self.rollups.tally(moved)))
    }

    /// Counts an address that gets its first holder or loses its last.
    pub(super) fn tally(&mut self, before: Option<&Lease>, after: Option<&Lease>) {
        let held = |lease: &&Lease| lease.state != LeaseState::Quarantined;
        match (before.filter(held), after.filter(held)) {
            (None, Some(lease)) => self.rollups.given(lease.pool),
            (Some(lease), None) => self.rollups.released(lease.pool),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Counts a request that was refused for want of room.
    pub(super) fn count_refused(&mut self, refusal: &Refusal) {
        if let Refusal::NoneGives { reasons, .. } = refusal {
            for reason in reasons {
                self.count_refused(reason);
            }
        } else if let Refusal::Exhausted { pool, .. } = refusal
            && let Some(id) = self.rows.pool_by_name(pool).map(|pool| pool.id)
        {
            self.rollups.refused(id);
        }
    }

    /// `None` where the hour has a row, a later one has, or nothing happened.
    pub(super) fn row(&self, pool: PoolId, hour: Hour) -> Option<Rollup> {
        let room = self.free.room(pool)?;
        let history = self.rollups.histories.get(&pool);
        let tally = self.rollups.tally(pool);
        let count = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        let row = Rollup {
            pool,
            hour,
            size: room.layout.size.assignable,
            used: count(room.used),
            quarantined: self.index.cooling.count(pool),
            highest: count(room.highest),
            given: tally.given,
            released: tally.released,
            refused: tally.refused,
        };
        let before = history.and_then(|history| history.rows.back());
        let new = before.is_none_or(|before| before.hour < hour && !row.idle_since(before));
        new.then_some(row)
    }
}
