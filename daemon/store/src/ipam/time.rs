//! The time of the address book beside the host's clock.

use std::{sync::atomic::Ordering, time::Duration};

use fipd_core::{Action, Actor, Timestamp};

use super::{Ipam, IpamError, IpamState};
use crate::clock::Synchronised;

/// What an admin should know of: a clock that is corrected by less is nothing unusual.
const FAR_AHEAD: Duration = Duration::from_secs(3_600);
/// The same of time that is held back.
pub(super) const HELD_BACK: Duration = Duration::from_secs(60);

/// How the time of the address book differs from the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStatus {
    pub book: Timestamp,
    /// How far the wall clock is ahead without being believed.
    pub held_back: Duration,
    /// How far book time is ahead of the wall clock.
    pub ahead: Duration,
    pub kernel: Synchronised,
}

impl TimeStatus {
    /// How the time of the address book differs from the clock, where that is far, and what to do.
    pub fn warning(&self) -> Option<String> {
        if self.held_back >= HELD_BACK {
            return Some(format!(
                "the host's clock is {} ahead of the address book's time, and {}: quarantines end so much later; see that the \
                 host synchronises its time, or confirm the clock with `fipd clock accept`",
                length(self.held_back),
                match &self.kernel {
                    Synchronised::Unknown(reason) =>
                        format!("the kernel cannot be asked whether it is right ({reason})"),
                    Synchronised::Yes | Synchronised::No =>
                        "the kernel does not say that it is synchronised".to_owned(),
                }
            ));
        }
        (self.ahead >= FAR_AHEAD).then(|| {
            format!(
                "the address book's time is {} ahead of the clock: quarantines keep their length, but times in it are in the \
                 future; if the clock is right, stop fipd and take that time back with `fipd clock reset --reason TEXT`",
                length(self.ahead)
            )
        })
    }
}

fn length(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let (days, hours) = (minutes / 1_440, minutes / 60 % 24);
    match (days, hours) {
        (0, 0) => format!("{minutes} minutes"),
        (days, hours) => format!("{days} days and {hours} hours"),
    }
}

/// What an admin should know of.
fn is_far_off(held_back: Duration, ahead: Duration) -> bool {
    held_back >= HELD_BACK || ahead >= FAR_AHEAD
}

impl IpamState {
    /// Book time: never runs backwards, not even over a restart.
    pub(super) fn now(&self) -> Timestamp {
        let mut time = self.time.lock();
        // Inside the lock: a reading that waited would look like a clock that ran back.
        let reading = self.clock.read();
        let now = time.at(&reading, || {
            // The clock may have been set back between the reading and the kernel's word for it.
            self.clock.synchronised() == Synchronised::Yes && self.clock.read().wall >= reading.wall
        });
        let (held_back, ahead) = (time.held_back(), time.ahead());
        drop(time);
        let [held_back, ahead] = [held_back, ahead].map(Duration::from_millis);
        let wrong = is_far_off(held_back, ahead);
        if self.wrong.swap(wrong, Ordering::AcqRel) != wrong && wrong {
            tracing::warn!(
                held_back_seconds = held_back.as_secs(),
                ahead_seconds = ahead.as_secs(),
                "the wall clock and the time of the address book differ; `fipd clock show` says what to do"
            );
        }
        now
    }
}

impl Ipam {
    /// The current time as the ledger sees it.
    pub fn now(&self) -> Timestamp {
        self.shared.now()
    }

    /// The wall clock as it is: what tokens and sessions go by.
    pub fn wall(&self) -> Timestamp {
        self.shared.clock.read().wall
    }

    /// How the time of the address book differs from the wall clock.
    pub fn time(&self) -> TimeStatus {
        let book = self.shared.now();
        let time = self.shared.time.lock();
        TimeStatus {
            book,
            held_back: Duration::from_millis(time.held_back()),
            ahead: Duration::from_millis(time.ahead()),
            kernel: self.shared.clock.synchronised(),
        }
    }

    /// Lets the wall clock count as it is, however far it jumped: an admin's word, for the audit log.
    ///
    /// # Errors
    /// Those of [`Ipam::submit`]; book time then follows the clock all the same until fipd ends.
    pub async fn accept_clock(&self, actor: Actor) -> Result<(), IpamError> {
        let before = self.now();
        let after = {
            let mut time = self.shared.time.lock();
            time.accept(&self.shared.clock.read())
        };
        let what = format!("book time moved from {before} to {after}");
        self.note(Action::ClockAccepted, what, actor).await
    }
}
