//! One network and family: what is not free, and which pools have what.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::runs::Runs;
use crate::{PoolId, Span};

/// The pools of one address.
pub(in crate::ledger) type Stab = SmallVec<[PoolPart; 2]>;

/// A pool's share in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) struct PoolPart {
    pub pool: PoolId,
    /// Whether the pool may give these addresses; otherwise it only lists them.
    pub assignable: bool,
    /// It could give them, but for a pool of another network that may mean the same.
    pub withheld: bool,
}

impl PoolPart {
    /// The pool lists the addresses and gives none.
    pub fn listed(pool: PoolId) -> Self {
        Self {
            pool,
            assignable: false,
            withheld: false,
        }
    }

    pub fn assignable(pool: PoolId) -> Self {
        Self {
            assignable: true,
            ..Self::listed(pool)
        }
    }

    pub fn withheld(pool: PoolId) -> Self {
        Self {
            withheld: true,
            ..Self::listed(pool)
        }
    }

    /// Whether the specification of the pool gives them.
    pub fn in_range(&self) -> bool {
        self.assignable || self.withheld
    }
}

/// One network and family.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Space {
    /// Leased or taken.
    pub occupied: Runs,
    /// These, and what is remembered for those who had it. `None` where no pool remembers anything.
    pub shunned: Option<Runs>,
    /// `first -> segment`, disjoint.
    pub segments: BTreeMap<u128, Segment>,
}

/// Addresses that the same pools have. Invariant: `parts` is sorted by pool and not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Segment {
    pub last: u128,
    pub parts: Stab,
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
            segments: BTreeMap::new(),
        }
    }

    /// The segment around `at`.
    pub fn segment(&self, at: u128) -> Option<(u128, &Segment)> {
        let (first, segment) = self.segments.range(..=at).next_back()?;
        (at <= segment.last).then_some((*first, segment))
    }

    /// The segments that touch the span.
    pub fn segments_within(&self, span: Span) -> impl Iterator<Item = (u128, &Segment)> {
        let around = self.segment(span.first).map(|(first, _)| first);
        let from = around.unwrap_or(span.first);
        let runs = self.segments.range(from..=span.last);
        runs.map(|(first, segment)| (*first, segment))
    }

    /// Cuts the segment around `at` so that one starts there.
    fn cut(&mut self, at: u128, changed: &mut Vec<u128>) {
        let Some((first, segment)) = self.segment(at).filter(|(first, _)| *first < at) else {
            return;
        };
        let upper = segment.clone();
        if let Some(lower) = self.segments.get_mut(&first) {
            lower.last = at - 1;
        }
        self.segments.insert(at, upper);
        changed.extend([first, at]);
    }

    /// Cuts at both ends of `span`.
    fn cut_out(&mut self, span: &Span, changed: &mut Vec<u128>) {
        self.cut(span.first, changed);
        if let Some(after) = span.last.checked_add(1) {
            self.cut(after, changed);
        }
    }

    /// Adds `part` throughout `span`; a pool that only listed an address may assign it then.
    pub fn add(&mut self, span: &Span, part: PoolPart, changed: &mut Vec<u128>) {
        self.cut_out(span, changed);
        let mut gaps = Vec::new();
        let mut from = Some(span.first);
        for (first, segment) in self.segments.range_mut(span.first..=span.last) {
            if let Some(start) = from.filter(|start| start < first) {
                gaps.push((start, first - 1));
            }
            match segment
                .parts
                .binary_search_by_key(&part.pool, |part| part.pool)
            {
                Ok(at) => {
                    if let Some(known) = segment.parts.get_mut(at) {
                        known.assignable |= part.assignable;
                        known.withheld |= part.withheld;
                    }
                }
                Err(at) => segment.parts.insert(at, part),
            }
            changed.push(*first);
            from = segment.last.checked_add(1);
        }
        if let Some(start) = from.filter(|start| *start <= span.last) {
            gaps.push((start, span.last));
        }
        for (first, last) in gaps {
            self.segments.insert(
                first,
                Segment {
                    last,
                    parts: SmallVec::from_slice(&[part]),
                },
            );
            changed.push(first);
        }
    }

    /// Takes `pool` out of `span`.
    pub fn subtract(&mut self, span: &Span, pool: PoolId, changed: &mut Vec<u128>) {
        self.cut_out(span, changed);
        let mut empty = Vec::new();
        for (first, segment) in self.segments.range_mut(span.first..=span.last) {
            segment.parts.retain(|part| part.pool != pool);
            if segment.parts.is_empty() {
                empty.push(*first);
            }
            changed.push(*first);
        }
        for first in empty {
            self.segments.remove(&first);
        }
        // Segments that became alike are joined, so that edits do not fragment the space.
        let alike: Vec<u128> = self
            .segments
            .range(span.first..=span.last)
            .map(|(first, _)| *first)
            .collect();
        let after = span.last.checked_add(1);
        for first in alike.into_iter().chain(after) {
            self.join_below(first, changed);
        }
    }

    /// Joins the segment at `first` to the one that ends just below, if both have the same pools.
    fn join_below(&mut self, first: u128, changed: &mut Vec<u128>) {
        let Some(segment) = self.segments.get(&first) else {
            return;
        };
        let Some((below_first, below)) = self.segments.range(..first).next_back() else {
            return;
        };
        if below.last.checked_add(1) != Some(first) || below.parts != segment.parts {
            return;
        }
        let (below_first, last) = (*below_first, segment.last);
        self.segments.remove(&first);
        if let Some(below) = self.segments.get_mut(&below_first) {
            below.last = last;
        }
        changed.extend([below_first, first]);
    }
}
