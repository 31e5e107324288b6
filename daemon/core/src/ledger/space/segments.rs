//! One network, family and length: what is not free, and which pools have what.

use std::{collections::BTreeMap, ops::RangeInclusive};

use rangemap::RangeInclusiveMap;
use smallvec::SmallVec;

use super::runs::Runs;
use crate::{
    Family, LeasePrefix, PoolId, Span,
    layout::{rounded, units},
};

/// The pools of one address, by their numbers.
pub(in crate::ledger) type Stab = SmallVec<[PoolPart; 2]>;

/// A pool's share in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) struct PoolPart {
    pub pool: PoolId,
    pub gives: Gives,
}

/// Whether a pool gives addresses that it lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) enum Gives {
    No,
    /// It could, but for a pool of another network that may mean the same.
    Withheld,
    Yes,
}

impl PoolPart {
    pub fn is_assignable(&self) -> bool {
        self.gives == Gives::Yes
    }

    /// Whether the specification of the pool gives them.
    pub fn in_range(&self) -> bool {
        self.gives != Gives::No
    }
}

/// What is known of an address, or of a prefix that a pool may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Occupancy {
    Free,
    /// A decision in flight takes it, or some of it.
    Taken,
    /// Somebody has it, or some of it.
    Leased,
}

/// A run whose occupancy changes.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) struct Turn {
    pub span: Span,
    pub from: Occupancy,
    pub to: Occupancy,
}

impl Turn {
    /// Whether it becomes free, or no longer is.
    pub fn opens_or_closes(&self) -> bool {
        self.from == Occupancy::Free || self.to == Occupancy::Free
    }
}

/// How many leases lie within a prefix, which is larger than each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct InnerLeases {
    leased: u64,
    /// And how many decisions in flight take.
    taken: u64,
}

impl InnerLeases {
    fn occupancy(self) -> Occupancy {
        match (self.leased, self.taken) {
            (0, 0) => Occupancy::Free,
            (0, _) => Occupancy::Taken,
            _ => Occupancy::Leased,
        }
    }

    fn count(&mut self, occupancy: Occupancy) -> Option<&mut u64> {
        match occupancy {
            Occupancy::Free => None,
            Occupancy::Taken => Some(&mut self.taken),
            Occupancy::Leased => Some(&mut self.leased),
        }
    }
}

/// One network, family and length of what its pools give.
///
/// Spans and segments are of whole prefixes of that length, which for addresses are themselves.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Space {
    pub length: u8,
    /// Leased or taken, be it in part.
    pub occupied: Runs,
    /// These, and what is remembered for those who had it. `None` where no pool remembers anything.
    pub shunned: Option<Runs>,
    /// Runs of addresses that the same pools have. None is without pools.
    pub segments: RangeInclusiveMap<u128, Stab>,
    /// Prefixes that are occupied by what is smaller, by their first address.
    pub inner: BTreeMap<u128, InnerLeases>,
}

/// The spaces of one network and family, by the length of what their pools give.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct FamilySpaces {
    pub addresses: Space,
    /// Each has pools.
    pub prefixes: BTreeMap<u8, Space>,
}

impl FamilySpaces {
    pub fn new(family: Family) -> Self {
        Self::of(Space::new(Runs::new(family), family.bits()))
    }

    pub fn of(addresses: Space) -> Self {
        let prefixes = BTreeMap::new();
        Self {
            addresses,
            prefixes,
        }
    }

    /// Of what is `length` bits long; `None` where no pool gives such prefixes.
    pub fn get(&self, length: u8) -> Option<&Space> {
        match length == self.addresses.length {
            true => Some(&self.addresses),
            false => self.prefixes.get(&length),
        }
    }

    pub fn get_mut(&mut self, length: u8) -> Option<&mut Space> {
        match length == self.addresses.length {
            true => Some(&mut self.addresses),
            false => self.prefixes.get_mut(&length),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Space> {
        std::iter::once(&self.addresses).chain(self.prefixes.values())
    }
}

/// Which addresses a pool leaves out when it gives one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Layer {
    Occupied,
    Shunned,
}

impl Space {
    /// What the layer leaves out.
    pub fn filled(&self, layer: Layer) -> Option<&Runs> {
        match layer {
            Layer::Occupied => Some(&self.occupied),
            Layer::Shunned => self.shunned.as_ref(),
        }
    }

    /// A space without pools.
    pub fn new(occupied: Runs, length: u8) -> Self {
        Self {
            length,
            occupied,
            shunned: None,
            segments: RangeInclusiveMap::new(),
            inner: BTreeMap::new(),
        }
    }

    /// A prefix goes from one occupancy to another; what that changes here.
    pub fn turn(&mut self, prefix: LeasePrefix, from: Occupancy, to: Occupancy) -> Option<Turn> {
        let span = prefix.span();
        let turn = match prefix.length <= self.length {
            true => Turn { span, from, to },
            false => self.turn_within(rounded(span, self.length), from, to)?,
        };
        self.occupy(turn);
        Some(turn)
    }

    /// Notes what is occupied since; false, and nothing is, where it was to be free and is not.
    pub fn occupy(&mut self, turn: Turn) -> bool {
        let run = turn.span.first..=turn.span.last;
        match (turn.from, turn.to) {
            (Occupancy::Free, _) => self.occupied.insert(&run),
            (_, Occupancy::Free) => {
                self.occupied.remove(&run);
                true
            }
            _ => true,
        }
    }

    /// Whether the span is one of what the pools give.
    pub fn is_one(&self, span: Span) -> bool {
        units(span, self.length) == 1
    }

    /// Whether a lease lies within the prefix that begins there.
    pub fn is_leased_within(&self, first: u128) -> bool {
        let inner = self.inner.get(&first);
        inner.is_some_and(|inner| inner.leased > 0)
    }

    /// Something within the prefix `span` does.
    fn turn_within(&mut self, span: Span, from: Occupancy, to: Occupancy) -> Option<Turn> {
        let inner = self.inner.entry(span.first).or_default();
        let before = inner.occupancy();
        if let Some(count) = inner.count(from) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = inner.count(to) {
            *count = count.saturating_add(1);
        }
        let after = inner.occupancy();
        if after == Occupancy::Free {
            self.inner.remove(&span.first);
        }
        (before != after).then_some(Turn {
            span,
            from: before,
            to: after,
        })
    }

    /// The parts of the span that the same pools have, where any has one.
    pub fn within(&self, span: Span) -> impl Iterator<Item = (Span, &Stab)> {
        let segments = self.segments.overlapping(span.first..=span.last);
        segments.map(move |(run, parts)| {
            let part = Span {
                first: span.first.max(*run.start()),
                last: span.last.min(*run.end()),
                ..span
            };
            (part, parts)
        })
    }

    /// Adds `part` throughout `span`; a pool that only listed an address may assign it then.
    pub fn add(&mut self, span: &Span, part: PoolPart, changed: &mut Vec<u128>) {
        self.change(span, changed, |parts| {
            match parts.binary_search_by_key(&part.pool, |part| part.pool) {
                Ok(at) => {
                    if let Some(known) = parts.get_mut(at) {
                        known.gives = known.gives.max(part.gives);
                    }
                }
                Err(at) => parts.insert(at, part),
            }
        });
    }

    /// Takes `pool` out of `span`.
    pub fn subtract(&mut self, span: &Span, pool: PoolId, changed: &mut Vec<u128>) {
        self.change(span, changed, |parts| {
            parts.retain(|part| part.pool != pool);
        });
    }

    /// Changes the pools of all addresses of `span`. Where a segment begins or began that may be another one now is added
    /// to `changed`.
    fn change(&mut self, span: &Span, changed: &mut Vec<u128>, change: impl Fn(&mut Stab)) {
        let run = span.first..=span.last;
        // Segments beside the span are cut off, or joined to what becomes like them.
        let around = span.first.saturating_sub(1)..=span.last.saturating_add(1);
        changed.extend(self.starts(&around));
        let known = self.within(*span);
        let known = known.map(|(part, parts)| (part.first..=part.last, parts.clone()));
        let gaps = self.segments.gaps(&run).map(|gap| (gap, Stab::new()));
        let pieces: Vec<_> = known.chain(gaps).collect();
        self.segments.remove(run);
        for (piece, mut parts) in pieces {
            change(&mut parts);
            if !parts.is_empty() {
                self.segments.insert(piece, parts);
            }
        }
        changed.extend(self.starts(&around));
    }

    /// Where the segments begin that touch the run.
    fn starts(&self, run: &RangeInclusive<u128>) -> impl Iterator<Item = u128> {
        self.segments.overlapping(run).map(|(run, _)| *run.start())
    }
}
