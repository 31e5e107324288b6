//! What becomes free, taken or leased, in the spaces of all lengths.

use std::{collections::BTreeMap, ops::RangeInclusive};

use smallvec::SmallVec;

use super::{Free, PoolRoom, layers::shun_turned, run_of, space_of};
use crate::{
    LeasePrefix, PoolId, Span,
    layout::units,
    ledger::space::segments::{FamilySpaces, Occupancy, Space, Stab, Turn},
};

impl Free {
    /// The prefix, which is `owner`'s where it is leased, goes from one occupancy to another, in the spaces of all lengths; the
    /// pools that may give any of it. `None`, and nothing changes, where it was to be free and is not.
    pub(super) fn turn(
        &mut self,
        prefix: LeasePrefix,
        from: Occupancy,
        to: Occupancy,
        owner: Option<PoolId>,
    ) -> Option<SmallVec<[PoolId; 2]>> {
        let Self {
            spaces,
            rooms,
            memory,
            ..
        } = self;
        let at = space_of(prefix.key);
        let FamilySpaces {
            addresses,
            prefixes,
        } = spaces.entry(at).or_insert_with(|| FamilySpaces::new(at.1));
        let span = prefix.span();
        let turn = Turn { span, from, to };
        if !addresses.occupy(turn) {
            return None;
        }
        let mut pools = SmallVec::new();
        let mut settle = |space: &mut Space, turn: Turn| {
            if turn.opens_or_closes() {
                shun_turned(space, memory, rooms, at.0, turn);
            }
            let owner = owner.filter(|_| space.length == prefix.length);
            count(space, rooms, turn, owner, &mut pools);
        };
        settle(addresses, turn);
        for space in prefixes.values_mut() {
            if let Some(turn) = space.turn(prefix, from, to) {
                settle(space, turn);
            }
        }
        Some(pools)
    }
}

/// Counts the turn in each pool that gives what turns, and for the owner of the lease, and opens or closes their segments.
fn count(
    space: &Space,
    rooms: &mut BTreeMap<PoolId, PoolRoom>,
    turn: Turn,
    owner: Option<PoolId>,
    pools: &mut SmallVec<[PoolId; 2]>,
) {
    let mut segment = |run: &RangeInclusive<u128>, parts: &Stab, many: u128| {
        for part in parts {
            let Some(room) = rooms.get_mut(&part.pool) else {
                continue;
            };
            if owner == Some(part.pool)
                && let Some(own) = room.own_mut(part.gives)
            {
                *own = match turn.to {
                    Occupancy::Leased => *own + 1,
                    Occupancy::Free | Occupancy::Taken => *own - 1,
                };
            }
            if part.is_assignable() {
                room.turn(turn.from, turn.to, many);
                if !pools.contains(&part.pool) {
                    pools.push(part.pool);
                }
                if turn.opens_or_closes() {
                    room.open_at(space, run);
                }
            }
        }
    };
    if space.is_one(turn.span) {
        if let Some((run, parts)) = space.segments.get_key_value(&turn.span.first) {
            segment(run, parts, 1);
        }
        return;
    }
    for (run, parts) in space.segments.overlapping(run_of(turn.span)) {
        let part = Span {
            first: turn.span.first.max(*run.start()),
            last: turn.span.last.min(*run.end()),
            ..turn.span
        };
        segment(run, parts, units(part, space.length));
    }
}
