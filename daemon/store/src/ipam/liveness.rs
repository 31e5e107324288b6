//! Whether the writer gets on, for the watchdog of the service manager.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::liveness::Heartbeat;

/// Counted by the writer's threads.
#[derive(Debug, Default)]
pub(super) struct Beats {
    /// Things that the planner did.
    pub turns: AtomicU64,
    pub begun: AtomicU64,
    pub ended: AtomicU64,
    /// The planner went round, with or without something to do.
    pub planner: Heartbeat,
    /// The latest commit began.
    pub commit: Heartbeat,
}

/// The writer at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    turns: u64,
    /// Commits begun and ended.
    begun: u64,
    ended: u64,
    /// Requests without an answer.
    pub waiting: usize,
    /// The store is known to be in trouble and tried again: that is no hang.
    troubled: bool,
}

impl Beats {
    /// How long the latest commit has waited for the disk; `None`: none does.
    pub fn waits_for_disk(&self) -> Option<Duration> {
        let count = |beats: &AtomicU64| beats.load(Ordering::Acquire);
        let ended = count(&self.ended);
        (count(&self.begun) != ended).then(|| self.commit.silent_for())
    }

    /// How long the planner is silent. A planner that waits for the disk is not.
    pub fn silent_for(&self) -> Duration {
        let silent = self.planner.silent_for();
        self.waits_for_disk().map_or(silent, |_| Duration::ZERO)
    }

    pub fn pulse(&self, waiting: usize, troubled: bool) -> Pulse {
        let count = |beats: &AtomicU64| beats.load(Ordering::Acquire);
        Pulse {
            // Ended first: what begins in between counts as under way.
            ended: count(&self.ended),
            begun: count(&self.begun),
            turns: count(&self.turns),
            waiting,
            troubled,
        }
    }
}

impl Pulse {
    /// Whether the writer did something since `before`, or has nothing to do: no request waits for a planner that stands still,
    /// and no commit has been under way for all that time.
    pub fn beats_after(&self, before: &Self) -> bool {
        let planner = self.waiting == 0 || before.waiting == 0 || self.turns != before.turns;
        let under_way = self.begun != self.ended && before.begun != before.ended;
        let committer = !under_way || self.ended != before.ended;
        self.troubled || (planner && committer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(turns: u64, (begun, ended): (u64, u64), waiting: usize) -> Pulse {
        Pulse {
            turns,
            begun,
            ended,
            waiting,
            troubled: false,
        }
    }

    #[test]
    fn a_writer_that_stands_still_is_seen_and_an_idle_one_is_not_taken_for_it() {
        let idle = pulse(4, (2, 2), 0);
        assert!(idle.beats_after(&idle));
        let hangs = pulse(4, (3, 2), 1);
        assert!(hangs.beats_after(&idle), "it has just begun");
        assert!(!hangs.beats_after(&hangs), "the disk hangs");
        let others = pulse(9, (3, 2), 5);
        assert!(!others.beats_after(&hangs), "the planner alone gets on");
        let stuck = pulse(4, (2, 2), 3);
        assert!(!stuck.beats_after(&stuck), "the planner hangs");
        let works = pulse(8, (9, 8), 3);
        assert!(works.beats_after(&stuck) && works.beats_after(&hangs));
        let known = Pulse {
            troubled: true,
            ..hangs
        };
        assert!(known.beats_after(&hangs), "the store is being reopened");
    }
}
