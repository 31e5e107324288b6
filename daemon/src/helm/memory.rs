//! What came of the last attempt at a release, and for how long that stands.

use std::time::Duration;

use fipd_core::Timestamp;

use super::{error::HelmError, release::Release};

/// For how long a release that was found as it should be is not looked at again.
const TRUSTED: Duration = Duration::from_secs(300);
/// The pauses after failures, while nothing else is wanted.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const MOST_PAUSE: Duration = Duration::from_secs(600);

/// What came of the last attempt at the same.
pub(super) struct Memory {
    pub wanted: Option<Release>,
    pub outcome: Result<(), HelmError>,
    pub failures: u32,
    pub at: Timestamp,
    /// The state, as the caller names it, in which nothing had to be done.
    pub found_at: Option<String>,
}

impl Memory {
    /// For how long the outcome stands without a new look.
    pub fn lasts(&self) -> Duration {
        match &self.outcome {
            Ok(()) => TRUSTED,
            // Helm may be installed, or a chart put in its place, at any time; to see that is cheap.
            Err(error) if !error.is_transient() => FIRST_PAUSE,
            Err(_) => {
                let doublings = self.failures.saturating_sub(1).min(16);
                (FIRST_PAUSE * 2_u32.pow(doublings)).min(MOST_PAUSE)
            }
        }
    }
}
