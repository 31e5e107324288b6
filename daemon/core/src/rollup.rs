//! How full a pool was hour by hour, what of that is kept, and when the pool will be full at this pace.
//!
//! A row says how an hour ended. An hour in which nothing happened in a pool has no row: it was as the row before says.

use serde::{Deserialize, Serialize};

use crate::{PoolId, Timestamp};

/// Hours since the Unix epoch, UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Hour(pub u32);

impl Hour {
    const MILLIS: u64 = 3_600_000;

    /// The hour of a point in time.
    pub fn of(at: Timestamp) -> Self {
        Self(u32::try_from(at.0 / Self::MILLIS).unwrap_or(u32::MAX))
    }

    /// When it begins.
    pub fn begin(self) -> Timestamp {
        Timestamp(u64::from(self.0) * Self::MILLIS)
    }

    /// When it is over.
    pub fn end(self) -> Timestamp {
        Timestamp((u64::from(self.0) + 1) * Self::MILLIS)
    }

    /// The first hour of its day.
    pub fn day(self) -> Self {
        Self(self.0 - self.0 % 24)
    }

    pub fn before(self, hours: u32) -> Self {
        Self(self.0.saturating_sub(hours))
    }
}

/// How an hour of a pool ended, and what happened in it. Counts saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollup {
    pub pool: PoolId,
    pub hour: Hour,
    /// Assignable addresses.
    pub size: u128,
    /// Of these, leased, through whatever pool.
    pub used: u64,
    /// Leases attributed to the pool that cooled after a release.
    pub quarantined: u64,
    /// The highest `used` of the hour.
    pub highest: u64,
    /// Addresses that got a holder.
    pub given: u64,
    /// Addresses that lost their last holder.
    pub released: u64,
    /// Requests refused because the pool was full; one that asks again is counted again.
    pub refused: u64,
}

impl Rollup {
    /// Whether nothing happened in the hour, and it ended as `before` did.
    pub(crate) fn idle_since(&self, before: &Self) -> bool {
        let quiet = Self {
            hour: self.hour,
            highest: before.used,
            given: 0,
            released: 0,
            refused: 0,
            ..*before
        };
        *self == quiet
    }

    /// This row and those of later hours as one.
    pub fn and(self, later: &Self) -> Self {
        Self {
            highest: self.highest.max(later.highest),
            given: self.given.saturating_add(later.given),
            released: self.released.saturating_add(later.released),
            refused: self.refused.saturating_add(later.refused),
            ..*later
        }
    }
}

/// How long rows are kept, in days, counted back from the latest row of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Each hour; of older days only the last row.
    pub hourly: u32,
    pub daily: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            hourly: 35,
            daily: 400,
        }
    }
}

impl Retention {
    /// Rows before it are thinned: the begin of a day.
    pub fn thin_before(self, latest: Hour) -> Hour {
        latest.before(self.hourly.saturating_mul(24)).day()
    }

    /// Rows before it go: the begin of a day.
    pub fn drop_before(self, latest: Hour) -> Hour {
        let kept = self.daily.max(self.hourly);
        latest.before(kept.saturating_mul(24)).day()
    }

    /// Of rows of whole days, latest first: those that are not the last of their day.
    pub fn thinned(latest_first: impl IntoIterator<Item = Hour>) -> Vec<Hour> {
        let mut day = None;
        let mut go = Vec::new();
        for hour in latest_first {
            if day.replace(hour.day()) == Some(hour.day()) {
                go.push(hour);
            }
        }
        go
    }
}

/// When a pool is full, if it goes on as in the last seven days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forecast {
    /// Its history is shorter than a day.
    TooLittle,
    /// Not within ten years.
    NotAtThisPace,
    /// In about so many hours; 0: it is full.
    FullIn { hours: u32 },
}

impl Forecast {
    /// Hours that are looked at.
    pub const WINDOW: u32 = 7 * 24;
    /// Hours of history below which nothing is said.
    pub const LEAST: u32 = 24;
    const MOST: u32 = 10 * 365 * 24;

    /// From how the hours ended, `(hour, used)` in the order of time; one that is missing was as the one before. Least
    /// squares over the hours up to `last`, the last that is over.
    pub fn new(ends: impl IntoIterator<Item = (Hour, u64)>, last: Hour, free: u128) -> Self {
        if free == 0 {
            return Self::FullIn { hours: 0 };
        }
        let Some((given, within)) = pace(ends, last) else {
            return Self::TooLittle;
        };
        // So many that they cannot be multiplied are not given out in ten years.
        let hours = free.checked_mul(within).filter(|_| given > 0);
        let hours = hours.map(|all| all.div_ceil(given.unsigned_abs()));
        match hours.and_then(|hours| u32::try_from(hours).ok()) {
            Some(hours) if hours <= Self::MOST => Self::FullIn { hours },
            Some(_) | None => Self::NotAtThisPace,
        }
    }

    /// Hours until it is full; `None` where nobody can say.
    pub fn hours(self) -> Option<u32> {
        match self {
            Self::FullIn { hours } => Some(hours),
            Self::TooLittle | Self::NotAtThisPace => None,
        }
    }
}

/// Addresses, and in how many hours they are given: the slope of the line, exactly. `None` for too little history.
///
/// Goes from row to row, not from hour to hour: of many pools few have a row of each hour. With the hours counted from the
/// middle of the span, the mean of `used` falls out of the sum.
fn pace(ends: impl IntoIterator<Item = (Hour, u64)>, last: Hour) -> Option<(i128, u128)> {
    let mut ends = ends.into_iter().peekable();
    let (begin, _) = *ends.peek()?;
    let begin = begin.max(last.before(Forecast::WINDOW - 1));
    let hours = i64::from(last.0) - i64::from(begin.0) + 1;
    if hours < i64::from(Forecast::LEAST) {
        return None;
    }
    // At most the window, so products of three of them are far from overflowing.
    let since = |hour: Hour| (i64::from(hour.0) - i64::from(begin.0)).clamp(0, hours);
    let mut along = 0;
    while let Some((hour, used)) = ends.next() {
        let from = since(hour);
        let to = ends.peek().map_or(hours, |(next, _)| since(*next));
        along += i128::from(used) * i128::from((to - from) * (from + to - hours));
    }
    let spread = hours * (hours * hours - 1);
    Some((6 * along, spread.unsigned_abs().into()))
}

#[cfg(test)]
mod tests;
