//! What goes between callers, the planner and the committer.

use std::collections::VecDeque;

use fipd_core::{Answer, Decision, Outcome, Request};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::IpamError;

/// The most decisions of one commit.
pub(super) const BATCH: usize = 512;
/// Fewer decisions are not worth another thread, and fewer requests not a wake-up while a commit is in flight.
pub(super) const HANDFUL: usize = 32;

/// A request whose caller waits.
pub(super) struct Waiting {
    pub request: Request,
    pub reply: oneshot::Sender<Result<Answer, IpamError>>,
    /// Given back with the answer.
    pub place: OwnedSemaphorePermit,
}

impl Waiting {
    /// Answers; a caller that is gone does not mind.
    pub fn answer(self, answer: Result<Answer, IpamError>) {
        drop(self.place);
        self.reply.send(answer).ok();
    }
}

/// What the planner does next.
pub(super) enum Next {
    /// Plan these.
    Fresh(Vec<Waiting>),
    /// The committer is done with what it was given.
    Committed(Vec<Outcome>),
    /// Nothing will come any more.
    End,
}

#[derive(Default)]
struct Inner {
    fresh: VecDeque<Waiting>,
    /// How many fresh requests are worth waking the planner.
    wake_at: usize,
    /// For the committer.
    batch: Option<Vec<Decision>>,
    /// From the committer.
    outcomes: Option<Vec<Outcome>>,
    closed: bool,
    dead: bool,
}

#[derive(Default)]
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    planner: Condvar,
    committer: Condvar,
}

impl Mailbox {
    /// Queues a request; `false` when nothing is taken any more.
    pub fn push(&self, waiting: Waiting) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.fresh.push_back(waiting);
        let wake = inner.fresh.len() == inner.wake_at;
        drop(inner);
        if wake {
            self.planner.notify_one();
        }
        true
    }

    /// Takes nothing more; what is queued is still worked off.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.planner.notify_one();
    }

    /// Nothing can be decided any more: whoever waits is let go.
    pub fn die(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.dead = true;
        inner.fresh.clear();
        drop(inner);
        self.planner.notify_one();
        self.committer.notify_one();
    }

    /// Waits for something to do. `committing`: a batch is with the committer; `room`: how many more requests fit into
    /// the planner's batch.
    pub fn next(&self, committing: bool, room: usize) -> Next {
        let mut inner = self.inner.lock();
        loop {
            if inner.dead {
                return Next::End;
            }
            if let Some(outcomes) = inner.outcomes.take() {
                return Next::Committed(outcomes);
            }
            let worth = if committing { HANDFUL } else { 1 };
            let count = inner.fresh.len().min(room);
            if count > 0 && inner.fresh.len() >= worth {
                return Next::Fresh(inner.fresh.drain(..count).collect());
            }
            if inner.closed && inner.fresh.is_empty() && !committing {
                return Next::End;
            }
            inner.wake_at = if room == 0 { usize::MAX } else { worth };
            self.planner.wait(&mut inner);
            inner.wake_at = usize::MAX;
        }
    }

    /// Gives the committer a batch; it has none.
    pub fn hand_over(&self, decisions: Vec<Decision>) {
        self.inner.lock().batch = Some(decisions);
        self.committer.notify_one();
    }

    /// Waits for a batch; `None` at the end.
    pub fn next_batch(&self) -> Option<Vec<Decision>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.dead {
                return None;
            }
            if let Some(batch) = inner.batch.take() {
                return Some(batch);
            }
            self.committer.wait(&mut inner);
        }
    }

    /// The committer's answer to [`Self::next_batch`].
    pub fn committed(&self, outcomes: Vec<Outcome>) {
        self.inner.lock().outcomes = Some(outcomes);
        self.planner.notify_one();
    }
}
