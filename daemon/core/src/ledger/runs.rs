//! A set of addresses, kept as runs.

use std::collections::BTreeMap;

/// A set of numbers kept as maximal runs: `first -> last`, disjoint and never adjacent.
///
/// Grows and shrinks one number at a time in O(log runs); a run costs the same whatever its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(BTreeMap<u128, u128>);

impl Runs {
    /// The run around `at`, if `at` is in the set.
    pub fn around(&self, at: u128) -> Option<(u128, u128)> {
        let (&first, &last) = self.0.range(..=at).next_back()?;
        (at <= last).then_some((first, last))
    }

    /// Adds `at`; false if it was there.
    pub fn insert(&mut self, at: u128) -> bool {
        let below = self.0.range_mut(..=at).next_back();
        let touching = match below {
            Some((_, last)) if at <= *last => return false,
            Some((first, last)) if last.checked_add(1) == Some(at) => Some((*first, last)),
            Some(_) | None => None,
        };
        match touching {
            Some((first, last)) => {
                *last = at;
                if let Some(above) = self.remove_at(at.checked_add(1)) {
                    self.0.insert(first, above);
                }
            }
            None => {
                let last = self.remove_at(at.checked_add(1)).unwrap_or(at);
                self.0.insert(at, last);
            }
        }
        true
    }

    /// Removes `at`; false if it was not there.
    pub fn remove(&mut self, at: u128) -> bool {
        let Some((first, last)) = self.around(at) else { return false };
        if at < last {
            self.0.insert(at + 1, last);
        }
        if first < at {
            self.0.insert(first, at - 1);
        } else {
            self.0.remove(&first);
        }
        true
    }

    /// The lowest number from `from` on that is not in the set; `None` if all up to the highest are.
    pub fn first_gap(&self, from: u128) -> Option<u128> {
        self.around(from).map_or(Some(from), |(_, last)| last.checked_add(1))
    }

    /// Whether all of `first..=last` is in the set.
    pub fn covers(&self, first: u128, last: u128) -> bool {
        self.around(first).is_some_and(|(_, end)| end >= last)
    }

    fn remove_at(&mut self, first: Option<u128>) -> Option<u128> {
        first.and_then(|first| self.0.remove(&first))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn behaves_as_a_set_of_numbers() {
        let mut runs = Runs::default();
        let mut naive = BTreeSet::new();
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = u128::from(seed >> 58);
            if seed & (1 << 20) == 0 {
                assert_eq!(runs.insert(at), naive.insert(at));
            } else {
                assert_eq!(runs.remove(at), naive.remove(&at));
            }
            assert_eq!(runs.first_gap(at), (at..).find(|n| !naive.contains(n)));
            let flat: Vec<u128> = runs.0.iter().flat_map(|(first, last)| *first..=*last).collect();
            assert!(flat.iter().eq(naive.iter()));
            assert!(runs.0.iter().zip(runs.0.iter().skip(1)).all(|(a, b)| a.1 + 1 < *b.0), "{runs:?}");
        }
    }

    #[test]
    fn the_highest_number_is_no_special_case() {
        let mut runs = Runs::default();
        assert!(runs.insert(u128::MAX));
        assert!(runs.insert(u128::MAX - 1));
        assert_eq!(runs.first_gap(u128::MAX - 1), None);
        assert!(runs.covers(u128::MAX - 1, u128::MAX));
        assert!(runs.remove(u128::MAX));
        assert_eq!(runs.first_gap(u128::MAX - 1), Some(u128::MAX));
    }
}
