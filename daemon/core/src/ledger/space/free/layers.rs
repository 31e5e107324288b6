//! What pools leave out when they give an address: what is taken, and before that what is remembered.

use std::sync::Arc;

use super::{Free, PoolRoom, space_of};
use crate::{
    Family, LeaseKey, NetworkId, PastLease, PoolId,
    address::number,
    ledger::space::{
        memory::PastLeases,
        runs::Runs,
        segments::{Layer, Space},
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

    /// Whether the pool that remembers the address gives it.
    pub(in crate::ledger) fn gives(&self, past: &PastLease) -> bool {
        self.rooms.get(&past.pool).is_some_and(|room| {
            room.network == past.key.network && room.layout.assigns(number(past.key.address))
        })
    }

    /// Whether the pool that remembers the address can give it at once.
    pub(in crate::ledger) fn is_idle(&self, past: &PastLease) -> bool {
        self.gives(past) && self.is_free(past.key)
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
        let key = past.key;
        let idle = self.is_idle(&past);
        self.memory.put(past, idle);
        self.fill(Layer::Shunned, key, |_, _| {});
    }

    /// A past lease went.
    pub fn forget(&mut self, key: LeaseKey) {
        if self.memory.delete(key) && self.is_free(key) {
            self.clear(Layer::Shunned, key, |_, _| {});
        }
    }

    /// From here on what is remembered in the space is left out where there is something else.
    pub fn shun(&mut self, network: NetworkId, family: Family) {
        let at = (network, family);
        let Some(space) = self
            .spaces
            .get_mut(&at)
            .filter(|space| space.shunned.is_none())
        else {
            return;
        };
        space.shunned = Some(space.occupied.clone());
        let starts: Vec<u128> = space.segments.iter().map(|(run, _)| *run.start()).collect();
        self.reopen(at, starts);
    }

    /// Decides anew which of the segments at `starts` are open, for each of their pools.
    pub(in crate::ledger) fn reopen(&mut self, at: (NetworkId, Family), mut starts: Vec<u128>) {
        let Some(space) = self.spaces.get(&at) else {
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

    /// Leaves the address out in the layer; false if it is already, or where there is no such layer.
    pub(in crate::ledger) fn fill(
        &mut self,
        layer: Layer,
        key: LeaseKey,
        mut count: impl FnMut(&mut PoolRoom, PoolId),
    ) -> bool {
        let at = number(key.address);
        let of = space_of(key);
        let space = self
            .spaces
            .entry(of)
            .or_insert_with(|| Space::new(Runs::new(of.1)));
        if !space
            .filled_mut(layer)
            .is_some_and(|filled| filled.insert(at))
        {
            return false;
        }
        let Some((run, parts)) = space.segments.get_key_value(&at) else {
            return true;
        };
        let filled = space.filled(layer);
        let full = filled.is_some_and(|filled| filled.covers(run));
        for part in parts.iter().filter(|part| part.is_assignable()) {
            let Some(room) = self.rooms.get_mut(&part.pool) else {
                continue;
            };
            count(room, part.pool);
            if full {
                room.open_in_mut(layer).remove(run.start());
            }
        }
        true
    }

    /// Takes the address back into the layer.
    pub(in crate::ledger) fn clear(
        &mut self,
        layer: Layer,
        key: LeaseKey,
        mut count: impl FnMut(&mut PoolRoom, PoolId),
    ) {
        let at = number(key.address);
        let Some(space) = self.spaces.get_mut(&space_of(key)) else {
            return;
        };
        let Some(filled) = space.filled_mut(layer) else {
            return;
        };
        filled.remove(at);
        let Some((run, parts)) = space.segments.get_key_value(&at) else {
            return;
        };
        for part in parts.iter().filter(|part| part.is_assignable()) {
            let Some(room) = self.rooms.get_mut(&part.pool) else {
                continue;
            };
            count(room, part.pool);
            room.open_in_mut(layer).insert(*run.start());
        }
    }
}
