//! What waits between the callers, the planner and the committer.

use std::collections::VecDeque;

use fipd_core::{Answer, Decision, Request, Ticket};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::IpamError;

/// The most decisions of one commit, and the most requests planned in one go.
pub(super) const BATCH: usize = 512;

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

/// A planned decision on its way to the disk.
pub(super) struct Tentative {
    pub waiting: Waiting,
    pub ticket: Ticket,
    pub answer: Answer,
}

/// The next batch; `decisions` and `tentative` run in parallel.
#[derive(Default)]
pub(super) struct Batch {
    pub decisions: Vec<Decision>,
    pub tentative: Vec<Tentative>,
}

/// Work for the planner.
pub(super) enum Plan {
    /// New requests; whether requests that were busy are worth another try; whether nothing is in flight.
    Work {
        fresh: Vec<Waiting>,
        again: bool,
        idle: bool,
    },
    /// Nothing will come any more.
    End,
}

#[derive(Default)]
struct Inner {
    fresh: VecDeque<Waiting>,
    ready: Batch,
    /// Decisions handed over and not ended yet, the ready ones among them.
    in_flight: usize,
    /// Counts commits that have ended.
    ended: u64,
    /// The value of `ended` that the planner has seen.
    seen: u64,
    closed: bool,
    planner_gone: bool,
}

/// Two queues and who waits at them.
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
        if inner.fresh.len() == 1 {
            self.planner.notify_one();
        }
        true
    }

    /// Takes nothing more; what is queued is still worked off.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.planner.notify_one();
        self.committer.notify_one();
    }

    /// Waits for work. `busy`: the planner keeps requests that wait for a commit to end.
    pub fn next_plan(&self, busy: bool) -> Plan {
        let mut inner = self.inner.lock();
        loop {
            let again = busy && (inner.ended != inner.seen || inner.in_flight == 0);
            let room = inner.ready.decisions.len() < BATCH;
            if room && (again || !inner.fresh.is_empty()) {
                inner.seen = inner.ended;
                let count = inner.fresh.len().min(BATCH);
                let idle = inner.in_flight == 0;
                return Plan::Work {
                    fresh: inner.fresh.drain(..count).collect(),
                    again,
                    idle,
                };
            }
            if inner.closed && inner.fresh.is_empty() && !busy {
                return Plan::End;
            }
            self.planner.wait(&mut inner);
        }
    }

    /// Adds to the next batch.
    pub fn hand_over(&self, mut batch: Batch) {
        let mut inner = self.inner.lock();
        inner.in_flight += batch.decisions.len();
        inner.ready.decisions.append(&mut batch.decisions);
        inner.ready.tentative.append(&mut batch.tentative);
        self.committer.notify_one();
    }

    /// The planner will hand over nothing more. Whoever still waits to be planned is let go.
    pub fn planner_ends(&self) {
        let mut inner = self.inner.lock();
        inner.planner_gone = true;
        inner.closed = true;
        inner.fresh.clear();
        self.committer.notify_one();
    }

    /// Waits for a batch; `None` when none will come any more.
    pub fn next_batch(&self) -> Option<Batch> {
        let mut inner = self.inner.lock();
        loop {
            if !inner.ready.decisions.is_empty() {
                let batch = std::mem::take(&mut inner.ready);
                // The planner may have stopped for lack of room.
                self.planner.notify_one();
                return Some(batch);
            }
            if inner.planner_gone {
                return None;
            }
            self.committer.wait(&mut inner);
        }
    }

    /// A batch of `count` decisions has ended: busy requests are worth another try.
    pub fn batch_ended(&self, count: usize) {
        let mut inner = self.inner.lock();
        inner.in_flight -= count.min(inner.in_flight);
        inner.ended += 1;
        self.planner.notify_one();
    }
}
