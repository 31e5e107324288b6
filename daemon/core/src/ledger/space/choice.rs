//! Choosing one of a pool's free addresses, without looking at one after the other.

use std::{
    collections::BTreeSet,
    ops::{Bound, RangeInclusive},
};

use super::{dice::Dice, runs::Runs, segments::Space};
use crate::layout::Layout;

/// What a pool can choose from: its assignable addresses that are not in `filled`.
#[derive(Clone, Copy)]
pub(in crate::ledger) struct Choice<'a> {
    pub layout: &'a Layout,
    pub space: &'a Space,
    pub filled: &'a Runs,
    /// Starts of the pool's segments with an address that is not in `filled`.
    pub open: &'a BTreeSet<u128>,
}

impl Choice<'_> {
    /// How often an address is drawn before the rest of the way is taken in one step.
    const DRAWS: usize = 8;

    /// The lowest.
    pub fn lowest(self) -> Option<u128> {
        let from = *self.open.first()?..=self.layout.family.max();
        self.filled.gap(&from).map(|gap| *gap.start())
    }

    /// Any of them, all alike while the pool is not nearly full. Else one of the next gap after an address that is
    /// drawn, so that it never takes longer.
    pub fn random(self, dice: &mut Dice) -> Option<u128> {
        let mut at = *self.open.first()?;
        for _ in 0..Self::DRAWS {
            at = self.layout.nth(dice.below(self.layout.size.assignable))?;
            if !self.filled.contains(at) {
                return Some(at);
            }
        }
        let (first, last) = self.gap_after(at)?.into_inner();
        let unit = self.layout.unit();
        let many = ((last - first) / unit).saturating_add(1);
        first.checked_add(dice.below(many) * unit)
    }

    /// The next gap of the pool from `at` on; behind the last one comes the first.
    fn gap_after(self, at: u128) -> Option<RangeInclusive<u128>> {
        self.gap_in_segment(at).or_else(|| {
            let after = (Bound::Excluded(at), Bound::Unbounded);
            let next = self.open.range(after).next().or(self.open.first())?;
            self.gap_in_segment(*next)
        })
    }

    /// The next gap from `at` on in the segment around it.
    fn gap_in_segment(self, at: u128) -> Option<RangeInclusive<u128>> {
        let (run, _) = self.space.segments.get_key_value(&at)?;
        let gap = self.filled.gap(&(at..=*run.end()));
        gap.filter(|_| self.open.contains(run.start()))
    }
}
