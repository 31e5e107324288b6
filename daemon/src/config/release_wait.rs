//! `release-wait`: how long deletion waits for a use to end.

use std::time::Duration;

use fipd_core::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::checked::{checked, time};

/// How long a finalizer waits for the end of a use; 1 s to 1 h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct ReleaseWait(pub Duration);

impl ReleaseWait {
    /// What is left of it for an object that is being deleted since then; `None`: nothing. A clock that was set back counts as
    /// no time.
    pub fn left(self, since: Timestamp, now: Timestamp) -> Option<Duration> {
        let gone = Duration::from_millis(now.0.saturating_sub(since.0));
        Some(self.0.saturating_sub(gone)).filter(|left| !left.is_zero())
    }
}

checked!(ReleaseWait(String) = Duration::from_secs(600), |text| {
    time("release-wait", &text, 1..=3600, "1s to 1h, such as 10m")
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_second_to_an_hour() {
        let read = |text: &str| ReleaseWait::try_from(text.to_owned());
        assert_eq!(read("10m"), Ok(ReleaseWait::default()));
        assert!(read("1s").is_ok() && read("1h").is_ok());
        for wrong in ["", "0s", "61m", "2d", "ten minutes", "600"] {
            let why = read(wrong).unwrap_err();
            assert!(
                why.contains("release-wait") && why.contains("1s to 1h"),
                "{why}"
            );
        }
    }

    #[test]
    fn nothing_waits_longer_than_it_says_and_a_clock_set_back_waits_once_more() {
        let (wait, since) = (ReleaseWait::default(), Timestamp(1_000_000));
        let left = |now| {
            wait.left(since, Timestamp(now))
                .map(|left| left.as_millis())
        };
        assert_eq!(left(1_000_000), Some(600_000));
        assert_eq!(left(1_599_999), Some(1));
        assert_eq!(left(1_600_000), None);
        assert_eq!(left(0), Some(600_000));
    }
}
