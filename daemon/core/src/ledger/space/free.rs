//! Which addresses and prefixes are free, per pool and without looking at one after the other.
//!
//! Each network, family and length is one [`Space`]: the runs of addresses that are not free, and disjoint segments
//! that say which pools have what is between two numbers. A pool remembers which of its segments have room,
//! so that "the lowest free address" is three look-ups however large, full or fragmented the pool is, and an
//! address that two pools share is free in both or in none. A lease occupies what it touches in the spaces of all
//! lengths, so that an address makes the prefixes around it unavailable, and a prefix the addresses in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    choice::Choice,
    memory::PastLeases,
    runs::Runs,
    segments::{FamilySpaces, Gives, Layer, Occupancy, PoolPart, Space, Stab},
};
use crate::{
    Family, Lease, LeaseKey, LeasePrefix, NetworkId, PoolId, Span, address::number, layout::Layout,
};
use lengths::count_own;
pub(in crate::ledger) use lengths::{prefixes_in, touching};

/// The rows of leases, which a pool's counters are counted from when its spans change.
pub(in crate::ledger) type Leases = BTreeMap<LeaseKey, Arc<Lease>>;

/// Free space of all networks.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Free {
    spaces: BTreeMap<(NetworkId, Family), FamilySpaces>,
    rooms: BTreeMap<PoolId, PoolRoom>,
    /// What decisions in flight have taken, not leased yet, with its length.
    taken: BTreeMap<LeaseKey, u8>,
    memory: PastLeases,
}

/// A pool's place in its space, counted in what it gives. Invariant: `used + taken <= layout.size.assignable`.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct PoolRoom {
    pub network: NetworkId,
    pub layout: Arc<Layout>,
    /// Assignable ones with a committed lease on them, in them or around them, whatever pool it was given from.
    pub used: u128,
    /// The most of `used` since the last roll-up, or since the pool has these addresses.
    pub highest: u128,
    /// Of these, leases attributed to this pool.
    pub own: u128,
    /// Leases attributed to this pool on addresses that it withholds.
    pub aside: u128,
    /// Assignable ones taken by decisions in flight.
    pub taken: u128,
    /// Segments with at least one that is neither leased nor taken.
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

    /// So many of its addresses or prefixes go from one occupancy to another.
    fn turn(&mut self, from: Occupancy, to: Occupancy, many: u128) {
        match from {
            Occupancy::Free => {}
            Occupancy::Taken => self.taken -= many,
            Occupancy::Leased => self.used -= many,
        }
        match to {
            Occupancy::Free => {}
            Occupancy::Taken => self.taken += many,
            Occupancy::Leased => self.used += many,
        }
        self.highest = self.highest.max(self.used);
    }

    /// Where leases of its own are counted that are on what it `gives` so.
    fn own_mut(&mut self, gives: Gives) -> Option<&mut u128> {
        match gives {
            Gives::No => None,
            Gives::Withheld => Some(&mut self.aside),
            Gives::Yes => Some(&mut self.own),
        }
    }

    /// Whether the segment, of which it gives something, has room.
    fn open_at(&mut self, space: &Space, segment: &RangeInclusive<u128>) {
        for layer in [Layer::Occupied, Layer::Shunned] {
            match space.filled(layer).map(|filled| filled.covers(segment)) {
                None => {}
                Some(true) => drop(self.open_in_mut(layer).remove(segment.start())),
                Some(false) => drop(self.open_in_mut(layer).insert(*segment.start())),
            }
        }
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
            let runs = chunk.iter().map(|lease| run_of(lease.span()));
            let addresses = Space::new(Runs::of_sorted(at.1, runs), at.1.bits());
            Some((at, FamilySpaces::of(addresses)))
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

    /// The pools that list the prefix and give such.
    pub fn stab(&self, prefix: LeasePrefix) -> &[PoolPart] {
        self.space(space_of(prefix.key), prefix.length)
            .and_then(|space| space.segments.get(&number(prefix.key.address)))
            .map_or(&[], SmallVec::as_slice)
    }

    /// The pools that list the address, or the prefix around it.
    pub fn stabs(&self, key: LeaseKey) -> impl Iterator<Item = PoolPart> {
        let spaces = self.spaces.get(&space_of(key)).into_iter();
        let spaces = spaces.flat_map(FamilySpaces::all);
        let parts = spaces.filter_map(move |space| space.segments.get(&number(key.address)));
        parts.flatten().copied()
    }

    /// The pools that list any of the prefix.
    pub fn touched(&self, prefix: LeasePrefix) -> impl Iterator<Item = PoolId> {
        let parts = self.segments(prefix.key.network, prefix.span());
        parts.flat_map(|(_, parts)| parts.iter().map(|part| part.pool))
    }

    /// The pool's part at the address.
    pub fn part(&self, key: LeaseKey, pool: PoolId) -> Option<PoolPart> {
        let length = self.rooms.get(&pool)?.layout.length;
        let mut parts = self.stab(LeasePrefix { key, length }).iter();
        parts.find(|part| part.pool == pool).copied()
    }

    /// The parts of the span that the same pools have, see [`Space::within`]; one length of what they give after the other.
    pub fn segments(&self, network: NetworkId, span: Span) -> impl Iterator<Item = (Span, &Stab)> {
        let spaces = self.spaces.get(&(network, span.family)).into_iter();
        let spaces = spaces.flat_map(FamilySpaces::all);
        spaces.flat_map(move |space| space.within(span))
    }

    fn space(&self, at: (NetworkId, Family), length: u8) -> Option<&Space> {
        self.spaces.get(&at)?.get(length)
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
        let space = self.space((room.network, room.layout.family), room.layout.length)?;
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

    /// Whether nobody has or takes any of it.
    pub fn is_free(&self, prefix: LeasePrefix) -> bool {
        let space = self.space(space_of(prefix.key), prefix.key.bits());
        space.is_none_or(|space| space.occupied.misses(&run_of(prefix.span())))
    }

    /// A decision in flight takes it; false where it is not free.
    pub fn take(&mut self, prefix: LeasePrefix) -> bool {
        let turned = self.turn(prefix, Occupancy::Free, Occupancy::Taken, None);
        if turned.is_some() {
            self.taken.insert(prefix.key, prefix.length);
        }
        turned.is_some()
    }

    /// Gives back what [`Free::take`] took.
    pub fn give_back(&mut self, key: LeaseKey) {
        if let Some(length) = self.taken.remove(&key) {
            let prefix = LeasePrefix { key, length };
            self.turn(prefix, Occupancy::Taken, Occupancy::Free, None);
        }
    }

    /// Whether a decision in flight takes what begins there.
    pub fn is_taken(&self, key: LeaseKey) -> bool {
        self.taken.contains_key(&key)
    }

    /// Whether decisions in flight take any of the span.
    pub fn takes_in(&self, network: NetworkId, span: Span) -> bool {
        prefixes_in(&self.taken, network, span).next().is_some()
    }

    /// A lease row appeared, attributed to `pool`. The pools that may give any of it.
    pub fn leased(&mut self, prefix: LeasePrefix, pool: Option<PoolId>) -> SmallVec<[PoolId; 2]> {
        let from = match self.taken.remove(&prefix.key) {
            Some(_) => Occupancy::Taken,
            None => Occupancy::Free,
        };
        let pools = self.turn(prefix, from, Occupancy::Leased, pool);
        pools.unwrap_or_default()
    }

    /// A lease row went.
    pub fn freed(&mut self, prefix: LeasePrefix, pool: Option<PoolId>) {
        self.turn(prefix, Occupancy::Leased, Occupancy::Free, pool);
    }

    /// A lease row was attributed to another pool.
    pub fn attributed(&mut self, prefix: LeasePrefix, from: Option<PoolId>, to: Option<PoolId>) {
        if from == to {
            return;
        }
        if let Some(own) = from.and_then(|pool| self.own(prefix, pool)) {
            *own -= 1;
        }
        if let Some(own) = to.and_then(|pool| self.own(prefix, pool)) {
            *own += 1;
        }
    }

    /// Where the pool counts a lease attributed to it, if it gives or withholds what that covers.
    fn own(&mut self, prefix: LeasePrefix, pool: PoolId) -> Option<&mut u128> {
        let mut parts = self.stab(prefix).iter();
        let gives = parts.find(|part| part.pool == pool)?.gives;
        self.rooms.get_mut(&pool)?.own_mut(gives)
    }

    /// Puts a pool into its space, or changes its spans. Costs as much as there are spans in either layout and, if
    /// they differ, leases on the assignable ones and past leases of the pool; for the first pool of a length as much as there
    /// are leases in the network.
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
        let before = self.take_out(pool);
        let at = (network, layout.family);
        let mut changed = Vec::new();
        if let Some(space) = self.open_space(at, layout.length, leases) {
            for (spans, gives) in [
                (&layout.listed, Gives::No),
                (&layout.withheld, Gives::Withheld),
                (&layout.assignable, Gives::Yes),
            ] {
                for span in spans {
                    space.add(span, PoolPart { pool, gives }, &mut changed);
                }
            }
        }
        let (given, length) = (&layout.assignable, layout.length);
        let used = self.count_leased(network, given, length, leases);
        let taken = self.count_taken(network, given, length);
        let count = |spans: &[Span]| count_own(pool, network, spans, length, leases);
        let (own, aside) = (count(given), count(&layout.withheld));
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
        self.reopen(at, length, changed);
        self.review_memory(pool);
        for left in before.into_iter().chain([at]) {
            self.close_spaces(left);
        }
    }

    /// The highest use is counted from here on.
    pub fn begin_hour(&mut self, pool: PoolId) {
        if let Some(room) = self.rooms.get_mut(&pool) {
            room.highest = room.used;
        }
    }

    /// Takes a pool out of its space.
    pub fn drop_pool(&mut self, pool: PoolId) {
        let at = self.take_out(pool);
        self.review_memory(pool);
        if let Some(at) = at {
            self.close_spaces(at);
        }
    }

    fn take_out(&mut self, pool: PoolId) -> Option<(NetworkId, Family)> {
        let room = self.rooms.remove(&pool)?;
        let (at, length) = ((room.network, room.layout.family), room.layout.length);
        let mut changed = Vec::new();
        let spaces = self.spaces.get_mut(&at);
        if let Some(space) = spaces.and_then(|spaces| spaces.get_mut(length)) {
            for span in &room.layout.listed {
                space.subtract(span, pool, &mut changed);
            }
        }
        self.reopen(at, length, changed);
        Some(at)
    }
}

/// The run of its addresses.
fn run_of(span: Span) -> RangeInclusive<u128> {
    span.first..=span.last
}

fn space_of(key: LeaseKey) -> (NetworkId, Family) {
    (key.network, Family::of(key.address))
}

mod consistent;
mod layers;
mod lengths;
#[cfg(test)]
mod tests;
mod turn;
