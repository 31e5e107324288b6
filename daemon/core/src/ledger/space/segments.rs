//! One network and family: what is not free, and which pools have what.

use std::ops::RangeInclusive;

use rangemap::RangeInclusiveMap;
use smallvec::SmallVec;

use super::runs::Runs;
use crate::{PoolId, Span};

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

/// One network and family.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Space {
    /// Leased or taken.
    pub occupied: Runs,
    /// These, and what is remembered for those who had it. `None` where no pool remembers anything.
    pub shunned: Option<Runs>,
    /// Runs of addresses that the same pools have. None is without pools.
    pub segments: RangeInclusiveMap<u128, Stab>,
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

    pub fn filled_mut(&mut self, layer: Layer) -> Option<&mut Runs> {
        match layer {
            Layer::Occupied => Some(&mut self.occupied),
            Layer::Shunned => self.shunned.as_mut(),
        }
    }

    /// A space without pools.
    pub fn new(occupied: Runs) -> Self {
        Self {
            occupied,
            shunned: None,
            segments: RangeInclusiveMap::new(),
        }
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
