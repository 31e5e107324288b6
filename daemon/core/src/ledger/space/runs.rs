//! A set of addresses of one family, kept as runs.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::Family;

/// A set of numbers kept as maximal runs: disjoint and never adjacent.
///
/// Grows and shrinks a run at a time in O(log runs), whatever its length.
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

    fn run(run: &RangeInclusive<u128>) -> Option<(Self, Self)> {
        Self::narrow(*run.start()).zip(Self::narrow(*run.end()))
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

    /// A set of runs in the order of their starts.
    pub fn of_sorted(family: Family, runs: impl Iterator<Item = RangeInclusive<u128>>) -> Self {
        match family {
            Family::V4 => Self::Narrow(Line::of_sorted(runs)),
            Family::V6 => Self::Wide(Line::of_sorted(runs)),
        }
    }

    /// Whether `at` is in the set.
    pub fn contains(&self, at: u128) -> bool {
        match self {
            Self::Narrow(line) => line.contains(at),
            Self::Wide(line) => line.contains(at),
        }
    }

    /// Adds the run; false, and nothing is added, if any of it was there.
    pub fn insert(&mut self, run: &RangeInclusive<u128>) -> bool {
        match self {
            Self::Narrow(line) => line.insert(run),
            Self::Wide(line) => line.insert(run),
        }
    }

    /// Adds the run, whatever of it was there. Costs as much as there are runs that it touches.
    pub fn fill(&mut self, run: &RangeInclusive<u128>) {
        match self {
            Self::Narrow(line) => line.fill(run),
            Self::Wide(line) => line.fill(run),
        }
    }

    /// Removes the run; false, and nothing is removed, if any of it was not there.
    pub fn remove(&mut self, run: &RangeInclusive<u128>) -> bool {
        match self {
            Self::Narrow(line) => line.remove(run),
            Self::Wide(line) => line.remove(run),
        }
    }

    /// Whether none of the run is in the set.
    pub fn misses(&self, run: &RangeInclusive<u128>) -> bool {
        if run.start() == run.end() {
            return !self.contains(*run.start());
        }
        self.gap(run).is_some_and(|gap| gap == *run)
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
    fn of_sorted(all: impl Iterator<Item = RangeInclusive<u128>>) -> Self {
        let mut runs: Vec<(N, N)> = Vec::new();
        for (first, last) in all.filter_map(|run| N::run(&run)) {
            match runs.last_mut() {
                Some((_, end)) if *end >= first => *end = last.max(*end),
                Some((_, end)) if end.up() == Some(first) => *end = last,
                Some(_) | None => runs.push((first, last)),
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

    fn insert(&mut self, run: &RangeInclusive<u128>) -> bool {
        let Some((first, last)) = N::run(run) else {
            return false;
        };
        let mut near = self.0.range_mut(..=last);
        let touching = match near.next_back() {
            Some((_, end)) if first <= *end => return false,
            Some((start, end)) if end.up() == Some(first) => Some((*start, end)),
            Some(_) | None => None,
        };
        match touching {
            Some((start, end)) => {
                *end = last;
                if let Some(above) = self.remove_at(last.up()) {
                    self.0.insert(start, above);
                }
            }
            None => {
                let end = self.remove_at(last.up()).unwrap_or(last);
                self.0.insert(first, end);
            }
        }
        true
    }

    fn fill(&mut self, run: &RangeInclusive<u128>) {
        let Some((mut first, mut last)) = N::run(run) else {
            return;
        };
        while let Some((&start, &end)) = self.0.range(..=last).next_back()
            && end >= first
        {
            self.0.remove(&start);
            (first, last) = (start.min(first), end.max(last));
        }
        self.insert(&(first.wide()..=last.wide()));
    }

    fn remove(&mut self, run: &RangeInclusive<u128>) -> bool {
        let Some((from, to)) = N::run(run) else {
            return false;
        };
        let Some((first, last)) = self.around(from).filter(|(_, last)| to <= *last) else {
            return false;
        };
        if let Some(next) = to.up().filter(|next| *next <= last) {
            self.0.insert(next, last);
        }
        match from.down().filter(|_| first < from) {
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
            if seed & (0b11 << 20) == 0 {
                let all = at..=at.saturating_add(u128::from(seed >> 8 & 15)).min(base + 63);
                runs.fill(&all);
                naive.extend(all);
            } else if seed & (1 << 20) == 0 {
                let all = at..=at.saturating_add(u128::from(seed >> 8 & 3)).min(base + 63);
                let free = all.clone().all(|at| !naive.contains(&at));
                assert_eq!(runs.misses(&all), free);
                assert_eq!(runs.insert(&all), free);
                naive.extend(all.filter(|_| free));
            } else {
                let all = at..=at.saturating_add(u128::from(seed >> 8 & 3)).min(base + 63);
                let there = all.clone().all(|at| naive.contains(&at));
                assert_eq!(runs.remove(&all), there);
                naive.retain(|at| !there || !all.contains(at));
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
                Runs::of_sorted(family, naive.iter().map(|at| *at..=*at)),
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
        assert!(runs.insert(&(u128::MAX..=u128::MAX)));
        assert!(runs.insert(&(u128::MAX - 1..=u128::MAX - 1)));
        assert_eq!(runs.gap(&(u128::MAX - 1..=u128::MAX)), None);
        assert!(runs.covers(&(u128::MAX - 1..=u128::MAX)));
        assert!(runs.remove(&(u128::MAX..=u128::MAX)));
        let last = u128::MAX..=u128::MAX;
        assert_eq!(runs.gap(&(u128::MAX - 1..=u128::MAX)), Some(last));
    }
}
