//! Whether free space is what the rows make it.

use std::collections::BTreeSet;

use super::{Free, Leases, PoolRoom, keys, space_of};
use crate::{
    Family, LeaseKey, NetworkId, PoolId,
    address::number,
    ledger::space::{
        runs::Runs,
        segments::{Layer, PoolPart},
    },
};

impl Free {
    /// Whether segments, open sets and counters are what the leases make them; with `in_flight`, taken addresses
    /// count as well. Looks at everything.
    pub fn consistent(&self, leases: &Leases, in_flight: bool) -> bool {
        let open = |layer: Layer, id: PoolId, room: &PoolRoom| {
            let Some(space) = self.spaces.get(&(room.network, room.layout.family)) else {
                return false;
            };
            let Some(filled) = space.filled(layer) else {
                return room.unused.is_empty();
            };
            let gives = |part: &PoolPart| part.pool == id && part.is_assignable();
            let open = space.segments.iter();
            let open = open.filter(|(run, parts)| parts.iter().any(gives) && !filled.covers(run));
            let starts = open.map(|(run, _)| *run.start());
            starts.eq(room.open_in(layer).iter().copied())
        };
        (in_flight || self.taken.is_empty())
            && self
                .taken
                .iter()
                .all(|key| !leases.contains_key(key) && !self.is_free(*key))
            && self.rooms.iter().all(|(id, room)| {
                let spans = || {
                    room.layout
                        .assignable
                        .iter()
                        .map(|span| keys(room.network, *span))
                };
                let rows = || spans().flat_map(|range| leases.range(range));
                let used = rows().count() as u128;
                let own = rows().filter(|(_, lease)| lease.pool == Some(*id)).count() as u128;
                let taken = spans()
                    .map(|range| self.taken.range(range).count() as u128)
                    .sum::<u128>();
                let aside = room.layout.withheld.iter();
                let aside = aside.flat_map(|span| leases.range(keys(room.network, *span)));
                let aside = aside.filter(|(_, lease)| lease.pool == Some(*id)).count() as u128;
                (room.used, room.own, room.aside, room.taken) == (used, own, aside, taken)
                    && open(Layer::Occupied, *id, room)
                    && open(Layer::Shunned, *id, room)
            })
            && self.memory_consistent(leases)
    }

    /// Whether what is left out for those who had it follows from the past leases.
    fn memory_consistent(&self, leases: &Leases) -> bool {
        let remembered = self.memory.rows().map(|past| past.key);
        let keys: BTreeSet<LeaseKey> = leases.keys().copied().chain(remembered).collect();
        let follows = |at: &(NetworkId, Family), shunned: &Runs| {
            let here = keys
                .iter()
                .chain(&self.taken)
                .filter(|key| space_of(**key) == *at);
            let numbers: BTreeSet<u128> = here.map(|key| number(key.address)).collect();
            *shunned == Runs::of_sorted(at.1, numbers.into_iter())
        };
        self.memory.consistent(|past| self.is_idle(past))
            && self.spaces.iter().all(|(at, space)| match &space.shunned {
                Some(shunned) => follows(at, shunned),
                None => !self.memory.rows().any(|past| space_of(past.key) == *at),
            })
    }
}
