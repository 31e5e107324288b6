//! A set of addresses of one family, kept as runs.

use std::ops::RangeInclusive;

use rangemap::RangeInclusiveSet;

use crate::Family;

/// A set of numbers kept as maximal runs: disjoint and never adjacent.
///
/// Grows and shrinks one number at a time in O(log runs); a run costs the same whatever its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Runs {
    /// Numbers below 2^32 in a quarter of the room.
    Narrow(RangeInclusiveSet<u32>),
    Wide(RangeInclusiveSet<u128>),
}

impl Runs {
    /// The empty set.
    pub fn new(family: Family) -> Self {
        match family {
            Family::V4 => Self::Narrow(RangeInclusiveSet::new()),
            Family::V6 => Self::Wide(RangeInclusiveSet::new()),
        }
    }

    /// A set of sorted numbers.
    pub fn of_sorted(family: Family, numbers: impl Iterator<Item = u128>) -> Self {
        let mut runs: Vec<RangeInclusive<u128>> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some(run) if number <= run.end().saturating_add(1) => *run = *run.start()..=number,
                Some(_) | None => runs.push(number..=number),
            }
        }
        match family {
            Family::V4 => Self::Narrow(runs.iter().filter_map(narrow).collect()),
            Family::V6 => Self::Wide(runs.into_iter().collect()),
        }
    }

    /// Whether `at` is in the set.
    pub fn contains(&self, at: u128) -> bool {
        match self {
            Self::Narrow(set) => u32::try_from(at).is_ok_and(|at| set.contains(&at)),
            Self::Wide(set) => set.contains(&at),
        }
    }

    /// Adds `at`; false if it was there.
    pub fn insert(&mut self, at: u128) -> bool {
        let new = !self.contains(at);
        match self {
            Self::Narrow(set) => match narrow(&(at..=at)) {
                Some(run) => set.insert(run),
                None => return false,
            },
            Self::Wide(set) => set.insert(at..=at),
        }
        new
    }

    /// Removes `at`; false if it was not there.
    pub fn remove(&mut self, at: u128) -> bool {
        let known = self.contains(at);
        match self {
            Self::Narrow(set) => narrow(&(at..=at))
                .into_iter()
                .for_each(|run| set.remove(run)),
            Self::Wide(set) => set.remove(at..=at),
        }
        known
    }

    /// The lowest numbers within the run that are not in the set; `None` if all are.
    pub fn gap(&self, within: &RangeInclusive<u128>) -> Option<RangeInclusive<u128>> {
        match self {
            Self::Narrow(set) => {
                let gap = set.gaps(&narrow(within)?).next()?;
                Some((*gap.start()).into()..=(*gap.end()).into())
            }
            Self::Wide(set) => set.gaps(within).next(),
        }
    }

    /// Whether all of the run is in the set.
    pub fn covers(&self, run: &RangeInclusive<u128>) -> bool {
        self.gap(run).is_none()
    }
}

fn narrow(run: &RangeInclusive<u128>) -> Option<RangeInclusive<u32>> {
    let [first, last] = [run.start(), run.end()].map(|number| u32::try_from(*number).ok());
    Some(first?..=last?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn behaves_as_a_set(family: Family, base: u128) {
        let mut runs = Runs::new(family);
        let mut naive = BTreeSet::new();
        let mut seed = 7_u64;
        for _ in 0..10_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = base + u128::from(seed >> 58);
            if seed & (1 << 20) == 0 {
                assert_eq!(runs.insert(at), naive.insert(at));
            } else {
                assert_eq!(runs.remove(at), naive.remove(&at));
            }
            let is_free = |n: &u128| !naive.contains(n);
            let lowest = runs.gap(&(at..=family.max())).map(|gap| *gap.start());
            assert_eq!(lowest, (at..=family.max()).find(is_free));
            let within = at..=base + 63;
            let gap = within.clone().find(is_free).map(|first| {
                let rest = (first..=base + 63).take_while(is_free);
                first..=rest.last().unwrap_or(first)
            });
            assert_eq!(runs.gap(&within), gap);
            assert_eq!(runs.covers(&within), gap.is_none());
            assert!((base..base + 64).all(|n| runs.contains(n) == naive.contains(&n)));
            assert_eq!(
                runs,
                Runs::of_sorted(family, naive.iter().copied()),
                "runs are maximal"
            );
        }
    }

    #[test]
    fn numbers_come_and_go_as_in_a_set() {
        behaves_as_a_set(Family::V4, 0);
        behaves_as_a_set(Family::V4, Family::V4.max() - 63);
        behaves_as_a_set(Family::V6, 0);
        behaves_as_a_set(Family::V6, u128::MAX - 64);
    }

    #[test]
    fn the_highest_number_is_no_special_case() {
        let mut runs = Runs::new(Family::V6);
        assert!(runs.insert(u128::MAX));
        assert!(runs.insert(u128::MAX - 1));
        assert_eq!(runs.gap(&(u128::MAX - 1..=u128::MAX)), None);
        assert!(runs.covers(&(u128::MAX - 1..=u128::MAX)));
        assert!(runs.remove(u128::MAX));
        let last = u128::MAX..=u128::MAX;
        assert_eq!(runs.gap(&(u128::MAX - 1..=u128::MAX)), Some(last));
    }
}
