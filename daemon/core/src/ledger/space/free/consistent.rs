//! Whether free space is what the rows make it.

use super::{
    Free, Leases, PoolRoom,
    lengths::{count_own, space_of_rows},
    run_of, space_of,
};
use crate::{
    Family, LeaseKey, LeasePrefix, NetworkId, PoolId, Span,
    ledger::space::segments::{Layer, PoolPart, Space},
};

impl Free {
    /// Whether segments, open sets and counters are what the leases make them; with `in_flight`, taken addresses
    /// count as well. Looks at everything.
    pub fn consistent(&self, leases: &Leases, in_flight: bool) -> bool {
        (in_flight || self.taken.is_empty())
            && self.rooms.iter().all(|(id, room)| {
                self.room_consistent(*id, room, leases)
                    && self.opens(Layer::Occupied, *id, room)
                    && self.opens(Layer::Shunned, *id, room)
            })
            && self
                .spaces
                .iter()
                .all(|(at, spaces)| spaces.all().all(|space| self.follows(*at, space, leases)))
            && self.memory.consistent(|past| self.is_idle(past))
    }

    fn room_consistent(&self, id: PoolId, room: &PoolRoom, leases: &Leases) -> bool {
        let (network, length) = (room.network, room.layout.length);
        let given = &room.layout.assignable;
        let own = |spans: &[Span]| count_own(id, network, spans, length, leases);
        room.used == self.count_leased(network, given, length, leases)
            && room.taken == self.count_taken(network, given, length)
            && (room.own, room.aside) == (own(given), own(&room.layout.withheld))
    }

    /// Whether the pool knows which of its segments have room.
    fn opens(&self, layer: Layer, id: PoolId, room: &PoolRoom) -> bool {
        let at = (room.network, room.layout.family);
        let Some(space) = self.space(at, room.layout.length) else {
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
    }

    /// Whether what is left out in the space follows from leases, what is taken and what is remembered.
    fn follows(&self, at: (NetworkId, Family), space: &Space, leases: &Leases) -> bool {
        let other = space_of_rows(at, space.length, leases, &self.taken);
        let rows = self.memory.rows().map(|past| past.key);
        let here = |key: &LeaseKey| space_of(*key) == at;
        let past = rows.filter(here).map(|key| LeasePrefix {
            key,
            length: self.memory.length(key),
        });
        let mut past = past.filter(|past| past.length == space.length).peekable();
        let shunned = match &space.shunned {
            None => past.peek().is_none(),
            Some(shunned) => {
                let mut expected = other.occupied.clone();
                past.for_each(|past| expected.fill(&run_of(past.span())));
                *shunned == expected
            }
        };
        shunned && (&other.occupied, &other.inner) == (&space.occupied, &space.inner)
    }
}
