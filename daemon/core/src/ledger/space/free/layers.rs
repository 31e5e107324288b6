//! What pools leave out when they give an address: what is taken, and before that what is remembered.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use smallvec::SmallVec;

use super::{Free, PoolRoom, run_of, space_of};
use crate::{
    Family, LeaseKey, LeasePrefix, NetworkId, PastLease, PoolId, Span,
    address::number,
    ledger::space::{
        memory::PastLeases,
        runs::Runs,
        segments::{Layer, Occupancy, Space, Turn},
    },
};

impl Free {
    /// What is remembered.
    pub fn memory(&self) -> &PastLeases {
        &self.memory
    }

    /// Of the addresses that the pool gives and nobody has or takes, the one released longest ago.
    pub fn oldest_idle(&self, pool: PoolId) -> Option<LeaseKey> {
        self.memory.idle(pool).next()
    }

    /// Whether the pool that remembers the address gives it and nobody has or takes it.
    pub(in crate::ledger) fn is_idle(&self, past: &PastLease) -> bool {
        gives(&self.rooms, past) && self.is_free(self.past_prefix(past))
    }

    /// What a past lease covered.
    pub fn past_prefix(&self, past: &PastLease) -> LeasePrefix {
        let (key, room) = (past.key, self.rooms.get(&past.pool));
        let length = room.map_or_else(|| key.bits(), |room| room.layout.length);
        LeasePrefix { key, length }
    }

    /// The pool has other addresses than before.
    pub(in crate::ledger) fn review_memory(&mut self, pool: PoolId) {
        let mut memory = std::mem::take(&mut self.memory);
        memory.review(pool, |past| self.is_idle(past));
        self.memory = memory;
    }

    /// What decisions in flight add to it and forget of it.
    pub fn memory_mut(&mut self) -> &mut PastLeases {
        &mut self.memory
    }

    /// A past lease appeared.
    pub fn remember(&mut self, past: Arc<PastLease>) {
        let prefix = self.past_prefix(&past);
        if self.memory.get(past.key).is_some() {
            self.forget(past.key);
        }
        let idle = gives(&self.rooms, &past) && self.is_free(prefix);
        self.memory.put(past, prefix.length, idle);
        self.reshun(prefix, |shunned, run| shunned.fill(run));
    }

    /// A past lease went.
    pub fn forget(&mut self, key: LeaseKey) {
        let length = self.memory.length(key);
        let prefix = LeasePrefix { key, length };
        if self.memory.delete(key) && self.is_free(prefix) {
            self.reshun(prefix, |shunned, run| {
                shunned.remove(run);
            });
        }
    }

    /// Changes what is left out of a prefix beside what is occupied.
    fn reshun(
        &mut self,
        prefix: LeasePrefix,
        change: impl FnOnce(&mut Runs, &RangeInclusive<u128>),
    ) {
        let spaces = self.spaces.get_mut(&space_of(prefix.key));
        let Some(space) = spaces.and_then(|spaces| spaces.get_mut(prefix.length)) else {
            return;
        };
        let Some(shunned) = &mut space.shunned else {
            return;
        };
        change(shunned, &run_of(prefix.span()));
        let first = number(prefix.key.address);
        let Some((run, parts)) = space.segments.get_key_value(&first) else {
            return;
        };
        for part in parts.iter().filter(|part| part.is_assignable()) {
            if let Some(room) = self.rooms.get_mut(&part.pool) {
                room.open_at(space, run);
            }
        }
    }

    /// From here on what is remembered in the space is left out where there is something else.
    pub fn shun(&mut self, network: NetworkId, family: Family, length: u8) {
        let at = (network, family);
        let spaces = self.spaces.get_mut(&at);
        let space = spaces.and_then(|spaces| spaces.get_mut(length));
        let Some(space) = space.filter(|space| space.shunned.is_none()) else {
            return;
        };
        let mut shunned = space.occupied.clone();
        for past in remembered(&self.memory, network, family.network(0, 0), length) {
            shunned.fill(&run_of(past.span()));
        }
        space.shunned = Some(shunned);
        let starts: Vec<u128> = space.segments.iter().map(|(run, _)| *run.start()).collect();
        self.reopen(at, length, starts);
    }

    /// Decides anew which of the segments at `starts` are open, for each of their pools.
    pub(in crate::ledger) fn reopen(
        &mut self,
        at: (NetworkId, Family),
        length: u8,
        mut starts: Vec<u128>,
    ) {
        let spaces = self.spaces.get(&at);
        let Some(space) = spaces.and_then(|spaces| spaces.get(length)) else {
            return;
        };
        starts.sort_unstable();
        starts.dedup();
        for start in &starts {
            // A start that was joined to the segment below is open for nobody any more.
            let Some((run, parts)) = space.segments.get_key_value(start) else {
                continue;
            };
            for layer in [Layer::Occupied, Layer::Shunned] {
                let Some(filled) = space.filled(layer) else {
                    continue;
                };
                let full = run.start() != start || filled.covers(run);
                for part in parts {
                    let Some(room) = self.rooms.get_mut(&part.pool) else {
                        continue;
                    };
                    if part.is_assignable() && !full {
                        room.open_in_mut(layer).insert(*start);
                    } else {
                        room.open_in_mut(layer).remove(start);
                    }
                }
            }
        }
    }
}

/// What is remembered of the span by pools that give prefixes of this length.
fn remembered(
    memory: &PastLeases,
    network: NetworkId,
    span: Span,
    length: u8,
) -> impl Iterator<Item = LeasePrefix> {
    let keys = memory.within(LeaseKey::within(network, span));
    let keys = keys.filter(move |key| memory.length(*key) == length);
    keys.map(move |key| LeasePrefix { key, length })
}

/// Whether the pool that remembers the address gives it.
fn gives(rooms: &BTreeMap<PoolId, PoolRoom>, past: &PastLease) -> bool {
    rooms.get(&past.pool).is_some_and(|room| {
        room.network == past.key.network && room.layout.assigns(number(past.key.address))
    })
}

/// What is remembered of the span, as long as what the space's pools give.
fn known_in(
    memory: &PastLeases,
    space: &Space,
    network: NetworkId,
    span: Span,
) -> SmallVec<[LeasePrefix; 1]> {
    if !space.is_one(span) {
        return remembered(memory, network, span, space.length).collect();
    }
    let (address, length) = (span.first_address(), space.length);
    let key = LeaseKey { network, address };
    let known = memory.get(key).filter(|_| memory.length(key) == length);
    known
        .map(|_| LeasePrefix { key, length })
        .into_iter()
        .collect()
}

/// Leaves out what is no longer free, and no longer what is free and not remembered.
pub(super) fn shun_turned(
    space: &mut Space,
    memory: &mut PastLeases,
    rooms: &BTreeMap<PoolId, PoolRoom>,
    network: NetworkId,
    turn: Turn,
) {
    if memory.is_empty() && space.shunned.is_none() {
        return;
    }
    let run = run_of(turn.span);
    let known = known_in(memory, space, network, turn.span);
    if turn.to != Occupancy::Free {
        if let Some(shunned) = &mut space.shunned {
            shunned.fill(&run);
        }
        for prefix in known {
            memory.occupied(prefix.key);
        }
        return;
    }
    if let Some(shunned) = &mut space.shunned {
        shunned.remove(&run);
        for prefix in &known {
            shunned.fill(&run_of(prefix.span()));
        }
    }
    for prefix in known {
        if memory
            .get(prefix.key)
            .is_some_and(|past| gives(rooms, past))
        {
            memory.vacated(prefix.key);
        }
    }
}
