//! A set of addresses of one family, kept as runs.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::Family;

/// A set of numbers kept as maximal runs: disjoint and never adjacent.
///
/// Grows and shrinks one number at a time in O(log runs); a run costs the same whatever its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Runs {
    /// Numbers below 2^32 in a quarter of the room.
    Narrow(Line<u32>),
    Wide(Line<u128>),
}

/// `first -> last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Line<N>(BTreeMap<N, N>);

/// The number types of a [`Line`].
pub(in crate::ledger) trait Number:
    Copy + Ord + Into<u128> + TryFrom<u128>
{
    fn narrow(number: u128) -> Option<Self> {
        number.try_into().ok()
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn up(self) -> Option<Self> {
        self.wide().checked_add(1).and_then(Self::narrow)
    }

    fn down(self) -> Option<Self> {
        self.wide().checked_sub(1).and_then(Self::narrow)
    }
}

impl Number for u32 {}
impl Number for u128 {}

impl Runs {
    /// The empty set.
    pub fn new(family: Family) -> Self {
        match family {
            Family::V4 => Self::Narrow(Line(BTreeMap::new())),
            Family::V6 => Self::Wide(Line(BTreeMap::new())),
        }
    }

    /// A set of sorted numbers.
    pub fn of_sorted(family: Family, numbers: impl Iterator<Item = u128>) -> Self {
        match family {
            Family::V4 => Self::Narrow(Line::of_sorted(numbers)),
            Family::V6 => Self::Wide(Line::of_sorted(numbers)),
        }
    }

    /// Whether `at` is in the set.
    pub fn contains(&self, at: u128) -> bool {
        match self {
            Self::Narrow(line) => line.contains(at),
            Self::Wide(line) => line.contains(at),
        }
    }

    /// Adds `at`; false if it was there.
    pub fn insert(&mut self, at: u128) -> bool {
        match self {
            Self::Narrow(line) => u32::narrow(at).is_some_and(|at| line.insert(at)),
            Self::Wide(line) => line.insert(at),
        }
    }

    /// Removes `at`; false if it was not there.
    pub fn remove(&mut self, at: u128) -> bool {
        match self {
            Self::Narrow(line) => u32::narrow(at).is_some_and(|at| line.remove(at)),
            Self::Wide(line) => line.remove(at),
        }
    }

    /// The lowest numbers within the run that are not in the set; `None` if all are.
    pub fn gap(&self, within: &RangeInclusive<u128>) -> Option<RangeInclusive<u128>> {
        match self {
            Self::Narrow(line) => line.gap(within),
            Self::Wide(line) => line.gap(within),
        }
    }

    /// Whether all of the run is in the set.
    pub fn covers(&self, run: &RangeInclusive<u128>) -> bool {
        match self {
            Self::Narrow(line) => line.covers(run),
            Self::Wide(line) => line.covers(run),
        }
    }
}

impl<N: Number> Line<N> {
    fn of_sorted(numbers: impl Iterator<Item = u128>) -> Self {
        let mut runs: Vec<(N, N)> = Vec::new();
        for number in numbers.filter_map(N::narrow) {
            match runs.last_mut() {
                Some((_, last)) if *last >= number => {}
                Some((_, last)) if last.up() == Some(number) => *last = number,
                Some(_) | None => runs.push((number, number)),
            }
        }
        Self(runs.into_iter().collect())
    }

    /// The run around `at`, if `at` is in the set.
    fn around(&self, at: N) -> Option<(N, N)> {
        let (&first, &last) = self.0.range(..=at).next_back()?;
        (at <= last).then_some((first, last))
    }

    fn contains(&self, at: u128) -> bool {
        N::narrow(at).is_some_and(|at| self.around(at).is_some())
    }

    fn insert(&mut self, at: N) -> bool {
        let below = self.0.range_mut(..=at).next_back();
        let touching = match below {
            Some((_, last)) if at <= *last => return false,
            Some((first, last)) if last.up() == Some(at) => Some((*first, last)),
            Some(_) | None => None,
        };
        match touching {
            Some((first, last)) => {
                *last = at;
                if let Some(above) = self.remove_at(at.up()) {
                    self.0.insert(first, above);
                }
            }
            None => {
                let last = self.remove_at(at.up()).unwrap_or(at);
                self.0.insert(at, last);
            }
        }
        true
    }

    fn remove(&mut self, at: N) -> bool {
        let Some((first, last)) = self.around(at) else {
            return false;
        };
        if let Some(next) = at.up().filter(|next| *next <= last) {
            self.0.insert(next, last);
        }
        match at.down().filter(|_| first < at) {
            Some(below) => self.0.insert(first, below),
            None => self.0.remove(&first),
        };
        true
    }

    fn gap(&self, within: &RangeInclusive<u128>) -> Option<RangeInclusive<u128>> {
        let from = N::narrow(*within.start())?;
        let first = match self.around(from) {
            Some((_, last)) => last.up()?,
            None => from,
        };
        let next = self.0.range(first..).next();
        let before = next.and_then(|(next, _)| next.down()).map(N::wide);
        let last = before.map_or(*within.end(), |last| last.min(*within.end()));
        (first.wide() <= last).then(|| first.wide()..=last)
    }

    fn covers(&self, run: &RangeInclusive<u128>) -> bool {
        let around = N::narrow(*run.start()).and_then(|first| self.around(first));
        around.is_some_and(|(_, last)| last.wide() >= *run.end())
    }

    fn remove_at(&mut self, first: Option<N>) -> Option<N> {
        first.and_then(|first| self.0.remove(&first))
    }
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
