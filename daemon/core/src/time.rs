//! Points in time as plain numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC.
///
/// In the ledger it is the time of the book, which never runs backwards: see [`crate::BookTime`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// RFC 3339 in UTC, to the minute.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.0 / 60_000;
        let (days, minute) = (minutes / 1_440, minutes % 1_440);
        // Days to a date in years that begin in March: https://howardhinnant.github.io/date_algorithms.html
        let shifted = days.saturating_add(719_468);
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        let (hour, minute) = (minute / 60, minute % 60);
        let year = era * 400 + year + next;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn times_are_shown_to_the_minute() {
        for (at, text) in [
            (0, "1970-01-01T00:00Z"),
            (951_782_399_999, "2000-02-28T23:59Z"),
            (951_782_400_000, "2000-02-29T00:00Z"),
            (1_767_225_599_999, "2025-12-31T23:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00Z"),
        ] {
            assert_eq!(Timestamp(at).to_string(), text);
        }
        assert!(!Timestamp(u64::MAX).to_string().is_empty());
    }
}
