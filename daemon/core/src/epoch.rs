//! What a ledger knows of having been restored from a backup.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The rows come from a restored file: others may use addresses that it knows nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Grows with every restore.
    pub number: u64,
    /// When the file was restored.
    pub began: Timestamp,
    /// `None`: free addresses are given as ever.
    pub hold: Option<RestoreHold>,
}

/// Free addresses are given to nobody new meanwhile. Who uses one is adopted as ever.
///
/// It is measured by the time that fipd runs, in which clusters can be adopted: no clock that is set, forward or back,
/// ends it sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreHold {
    /// Milliseconds that fipd has yet to run; never 0.
    pub left: u64,
    /// About when that will be; for people.
    pub until: Timestamp,
}

impl Epoch {
    /// How long free addresses are held after a restore, in milliseconds.
    pub const HOLD: u64 = 24 * 3_600 * 1_000;
}

impl RestoreHold {
    /// How far `until` may be from what it would be if it were worked out again.
    const ABOUT: u64 = 120_000;

    /// A hold of [`Epoch::HOLD`] from `now` on.
    pub fn starting(now: Timestamp) -> Self {
        let left = Epoch::HOLD;
        Self {
            left,
            until: Timestamp(now.0.saturating_add(left)),
        }
    }

    /// What is left of it after fipd has run for `elapsed` milliseconds. `until` stays while it is about right.
    pub(crate) fn after(self, elapsed: u64, now: Timestamp) -> Option<Self> {
        let left = self.left.checked_sub(elapsed).filter(|left| *left > 0)?;
        let until = now.0.saturating_add(left);
        let until = if until.abs_diff(self.until.0) > Self::ABOUT {
            Timestamp(until)
        } else {
            self.until
        };
        Some(Self { left, until })
    }
}
