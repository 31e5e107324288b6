//! Which addresses are free, per pool and without looking at one address after the other.
//!
//! Each network and family is one [`Space`]: the runs of addresses that are not free, and disjoint segments
//! that say which pools have what is between two numbers. A pool remembers which of its segments have room,
//! so that "the lowest free address" is three look-ups however large, full or fragmented the pool is, and an
//! address that two pools share is free in both or in none.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    choice::Choice,
    memory::PastLeases,
    runs::Runs,
    segments::{Gives, Layer, PoolPart, Space, Stab},
};
use crate::{Family, Lease, LeaseKey, NetworkId, PoolId, Span, address::number, layout::Layout};

/// The rows of leases, which a pool's counters are counted from when its spans change.
pub(in crate::ledger) type Leases = BTreeMap<LeaseKey, Arc<Lease>>;

/// Free space of all networks.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Free {
    spaces: BTreeMap<(NetworkId, Family), Space>,
    rooms: BTreeMap<PoolId, PoolRoom>,
    /// Addresses that decisions in flight have taken; not leased yet.
    taken: BTreeSet<LeaseKey>,
    memory: PastLeases,
}

/// A pool's place in its space. Invariant: `used + taken <= layout.size.assignable`.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct PoolRoom {
    pub network: NetworkId,
    pub layout: Arc<Layout>,
    /// Committed leases on assignable addresses, whatever pool they were given from.
    pub used: u128,
    /// The most of `used` since the last roll-up, or since the pool has these addresses.
    pub highest: u128,
    /// Of these leases, those attributed to this pool.
    pub own: u128,
    /// Leases attributed to this pool on addresses that it withholds.
    pub aside: u128,
    /// Assignable addresses taken by decisions in flight.
    pub taken: u128,
    /// Segments with at least one address that is neither leased nor taken.
    open: BTreeSet<u128>,
    /// Of these, those with one that is not remembered, either; empty where no pool remembers anything.
    unused: BTreeSet<u128>,
}

impl PoolRoom {
    /// Addresses that can be given at once.
    pub fn free(&self) -> u128 {
        self.unleased().saturating_sub(self.taken)
    }

    /// Addresses without a committed lease, with those that decisions in flight have taken.
    pub fn unleased(&self) -> u128 {
        self.layout.size.assignable.saturating_sub(self.used)
    }

    fn open_in(&self, layer: Layer) -> &BTreeSet<u128> {
        match layer {
            Layer::Occupied => &self.open,
            Layer::Shunned => &self.unused,
        }
    }

    fn open_in_mut(&mut self, layer: Layer) -> &mut BTreeSet<u128> {
        match layer {
            Layer::Occupied => &mut self.open,
            Layer::Shunned => &mut self.unused,
        }
    }
}

impl Free {
    /// Free space around sorted leases, before there are pools.
    pub fn of_sorted(leases: &[Arc<Lease>]) -> Self {
        let same_space = |a: &Arc<Lease>, b: &Arc<Lease>| space_of(a.key) == space_of(b.key);
        let spaces = leases.chunk_by(same_space).filter_map(|chunk| {
            let at = space_of(chunk.first()?.key);
            let numbers = chunk.iter().map(|lease| number(lease.key.address));
            Some((at, Space::new(Runs::of_sorted(at.1, numbers))))
        });
        Self {
            spaces: spaces.collect(),
            ..Self::default()
        }
    }

    /// The pool's counters.
    pub fn room(&self, pool: PoolId) -> Option<&PoolRoom> {
        self.rooms.get(&pool)
    }

    /// Those of all pools.
    pub fn rooms(&self) -> &BTreeMap<PoolId, PoolRoom> {
        &self.rooms
    }

    /// The pools that list `key`'s address.
    pub fn stab(&self, key: LeaseKey) -> &[PoolPart] {
        self.spaces
            .get(&space_of(key))
            .and_then(|space| space.segments.get(&number(key.address)))
            .map_or(&[], SmallVec::as_slice)
    }

    /// The parts of the span that the same pools have, see [`Space::within`].
    pub fn segments(&self, network: NetworkId, span: Span) -> impl Iterator<Item = (Span, &Stab)> {
        let space = self.spaces.get(&(network, span.family)).into_iter();
        space.flat_map(move |space| space.within(span))
    }

    /// A free address of `pool` that nobody is remembered for, if there is one.
    pub fn choose_unused(
        &self,
        pool: PoolId,
        choose: impl FnOnce(Choice<'_>) -> Option<u128>,
    ) -> Option<LeaseKey> {
        self.choose_in(Layer::Shunned, pool, choose)
    }

    /// A free address of `pool`, if there is one.
    pub fn choose(
        &self,
        pool: PoolId,
        choose: impl FnOnce(Choice<'_>) -> Option<u128>,
    ) -> Option<LeaseKey> {
        self.choose_in(Layer::Occupied, pool, choose)
    }

    fn choose_in(
        &self,
        layer: Layer,
        pool: PoolId,
        choose: impl FnOnce(Choice<'_>) -> Option<u128>,
    ) -> Option<LeaseKey> {
        let room = self.rooms.get(&pool)?;
        let space = self.spaces.get(&(room.network, room.layout.family))?;
        let is_shunned = space.shunned.is_some();
        let layer = if is_shunned { layer } else { Layer::Occupied };
        let at = choose(Choice {
            layout: &room.layout,
            space,
            filled: space.filled(layer)?,
            open: room.open_in(layer),
        })?;
        Some(LeaseKey {
            network: room.network,
            address: room.layout.family.address(at),
        })
    }

    /// Whether nobody has or takes the address.
    pub fn is_free(&self, key: LeaseKey) -> bool {
        let space = self.spaces.get(&space_of(key));
        space.is_none_or(|space| !space.occupied.contains(number(key.address)))
    }

    /// A decision in flight takes a free address.
    pub fn take(&mut self, key: LeaseKey) {
        if self.occupy(key, |room, _| room.taken += 1) {
            self.taken.insert(key);
        }
    }

    /// Gives back what [`Free::take`] took.
    pub fn give_back(&mut self, key: LeaseKey) {
        if self.taken.remove(&key) {
            self.vacate(key, |room, _| room.taken -= 1);
        }
    }

    /// Whether a decision in flight takes the address.
    pub fn is_taken(&self, key: LeaseKey) -> bool {
        self.taken.contains(&key)
    }

    /// Whether decisions in flight take addresses of `range`.
    pub fn takes_in(&self, range: RangeInclusive<LeaseKey>) -> bool {
        self.taken.range(range).next().is_some()
    }

    /// A lease row appeared, attributed to `pool`. The pools that may give the address.
    pub fn leased(&mut self, key: LeaseKey, pool: Option<PoolId>) -> SmallVec<[PoolId; 2]> {
        let taken = self.taken.remove(&key);
        if !taken {
            self.occupy(key, |_, _| {});
        }
        let pools = self.assigning(key);
        for id in &pools {
            if let Some(room) = self.rooms.get_mut(id) {
                room.taken -= u128::from(taken);
                room.used += 1;
                room.highest = room.highest.max(room.used);
                room.own += u128::from(Some(*id) == pool);
            }
        }
        if let Some(room) = self.withholding(key, pool) {
            room.aside += 1;
        }
        pools
    }

    /// A lease row went.
    pub fn freed(&mut self, key: LeaseKey, pool: Option<PoolId>) {
        self.vacate(key, |room, id| {
            room.used -= 1;
            room.own -= u128::from(Some(id) == pool);
        });
        if let Some(room) = self.withholding(key, pool) {
            room.aside -= 1;
        }
    }

    /// A lease row was attributed to another pool.
    pub fn attributed(&mut self, key: LeaseKey, from: Option<PoolId>, to: Option<PoolId>) {
        if from == to {
            return;
        }
        for id in self.assigning(key) {
            if let Some(room) = self.rooms.get_mut(&id) {
                room.own += u128::from(Some(id) == to);
                room.own -= u128::from(Some(id) == from);
            }
        }
        if let Some(room) = self.withholding(key, from) {
            room.aside -= 1;
        }
        if let Some(room) = self.withholding(key, to) {
            room.aside += 1;
        }
    }

    /// The pool, if it withholds the address.
    fn withholding(&mut self, key: LeaseKey, pool: Option<PoolId>) -> Option<&mut PoolRoom> {
        let pool = pool?;
        let here = |part: &PoolPart| part.pool == pool && part.gives == Gives::Withheld;
        let withheld = self.stab(key).iter().any(here);
        self.rooms.get_mut(&pool).filter(|_| withheld)
    }

    /// Puts a pool into its space, or changes its spans. Costs as much as there are spans in either layout and, if
    /// they differ, leases on the assignable ones and past leases of the pool.
    pub fn set_pool(
        &mut self,
        pool: PoolId,
        network: NetworkId,
        layout: Arc<Layout>,
        leases: &Leases,
    ) {
        let here = |room: &PoolRoom| room.network == network && room.layout == layout;
        if self.rooms.get(&pool).is_some_and(here) {
            return;
        }
        self.take_out(pool);
        let family = layout.family;
        let space = self
            .spaces
            .entry((network, family))
            .or_insert_with(|| Space::new(Runs::new(family)));
        let mut changed = Vec::new();
        for (spans, gives) in [
            (&layout.listed, Gives::No),
            (&layout.withheld, Gives::Withheld),
            (&layout.assignable, Gives::Yes),
        ] {
            for span in spans {
                space.add(span, PoolPart { pool, gives }, &mut changed);
            }
        }
        let count = |spans: &[Span], found: &dyn Fn(Span) -> usize| -> u128 {
            spans.iter().map(|span| found(*span) as u128).sum()
        };
        let (given, aside) = (&layout.assignable, &layout.withheld);
        let used = count(given, &|span| leases.range(keys(network, span)).count());
        let mine = |row: &(&LeaseKey, &Arc<Lease>)| row.1.pool == Some(pool);
        let mine = |span| leases.range(keys(network, span)).filter(mine).count();
        let (own, aside) = (count(given, &mine), count(aside, &mine));
        let taken = count(given, &|span| self.taken.range(keys(network, span)).count());
        self.rooms.insert(
            pool,
            PoolRoom {
                network,
                layout,
                used,
                highest: used,
                own,
                aside,
                taken,
                open: BTreeSet::new(),
                unused: BTreeSet::new(),
            },
        );
        self.reopen((network, family), changed);
        self.review_memory(pool);
    }

    /// The highest use is counted from here on.
    pub fn begin_hour(&mut self, pool: PoolId) {
        if let Some(room) = self.rooms.get_mut(&pool) {
            room.highest = room.used;
        }
    }

    /// Takes a pool out of its space.
    pub fn drop_pool(&mut self, pool: PoolId) {
        self.take_out(pool);
        self.review_memory(pool);
    }

    fn take_out(&mut self, pool: PoolId) {
        let Some(room) = self.rooms.remove(&pool) else {
            return;
        };
        let at = (room.network, room.layout.family);
        let mut changed = Vec::new();
        if let Some(space) = self.spaces.get_mut(&at) {
            for span in &room.layout.listed {
                space.subtract(span, pool, &mut changed);
            }
        }
        self.reopen(at, changed);
    }

    /// Marks the address as not free; false if it was not.
    fn occupy(&mut self, key: LeaseKey, count: impl FnMut(&mut PoolRoom, PoolId)) -> bool {
        let free = self.fill(Layer::Occupied, key, count);
        if free {
            self.fill(Layer::Shunned, key, |_, _| {});
            self.memory.occupied(key);
        }
        free
    }

    /// Marks the address as free again.
    fn vacate(&mut self, key: LeaseKey, count: impl FnMut(&mut PoolRoom, PoolId)) {
        self.clear(Layer::Occupied, key, count);
        match self.memory.get(key).map(|past| self.gives(past)) {
            Some(true) => self.memory.vacated(key),
            Some(false) => {}
            None => self.clear(Layer::Shunned, key, |_, _| {}),
        }
    }

    fn assigning(&self, key: LeaseKey) -> SmallVec<[PoolId; 2]> {
        self.stab(key)
            .iter()
            .filter(|part| part.is_assignable())
            .map(|part| part.pool)
            .collect()
    }
}

/// Keys of `span`'s addresses in `network`.
pub(in crate::ledger) fn keys(network: NetworkId, span: Span) -> RangeInclusive<LeaseKey> {
    let key = |address: IpAddr| LeaseKey { network, address };
    key(span.first_address())..=key(span.last_address())
}

fn space_of(key: LeaseKey) -> (NetworkId, Family) {
    (key.network, Family::of(key.address))
}

mod consistent;
mod layers;
#[cfg(test)]
mod tests;
