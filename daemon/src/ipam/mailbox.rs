//! What waits for the writer, and when it is worth starting a commit.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fipd_core::{Answer, Decision, Request, Ticket};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::IpamError;

/// The most decisions of one commit, and the most requests planned in one go.
pub(super) const BATCH: usize = 512;
/// While a commit is in flight requests are planned this many at a time, or after [`LINGER`].
const HANDFUL: usize = 32;
const LINGER: Duration = Duration::from_micros(100);
/// A batch that waits for callers to come back waits for this part of the last commit's time at most.
const PATIENCE_PART: u32 = 4;
/// However long the last commit took.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

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

/// A batch; `decisions` and `tentative` run in parallel.
#[derive(Default)]
pub(super) struct Batch {
    pub decisions: Vec<Decision>,
    pub tentative: Vec<Tentative>,
}

/// What the planning worker does next.
pub(super) enum Next {
    /// Plan these; `again`: and those that were busy. `idle`: no other worker has decisions in flight.
    Plan {
        fresh: Vec<Waiting>,
        again: bool,
        idle: bool,
    },
    /// The store is free and the caller's to commit its batch to.
    Commit,
    /// Nothing will come any more.
    End,
}

#[derive(Default)]
struct Inner {
    fresh: VecDeque<Waiting>,
    /// How many fresh requests are worth waking the planning worker.
    wake_at: usize,
    /// A batch is being committed.
    committing: bool,
    /// Counts commits that have ended, and what of it the planning worker has seen.
    ended: u64,
    seen: u64,
    /// Decisions in the batch of the planning worker.
    ready: usize,
    /// How many took part in the last commit or waited at its end.
    crowd: usize,
    patience: Duration,
    /// The planning worker has nothing that the end of a commit could move.
    idle: bool,
    closed: bool,
    dead: bool,
}

/// The queue and the state of the store.
#[derive(Default)]
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    /// Only the planning worker waits here.
    planner: Condvar,
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
        self.planner.notify_one();
    }

    /// Waits for something to do. `ready`: decisions of the caller's batch; `busy`: it keeps requests that wait for a
    /// commit to end.
    ///
    /// Callers that were just answered often ask again at once. A commit that starts without them makes them wait for
    /// all of it, and commits split in two halves that take turns. So a batch that has not everybody yet is given a
    /// part of the last commit's time to fill.
    pub fn next(&self, ready: usize, busy: bool) -> Next {
        let mut inner = self.inner.lock();
        inner.ready = ready;
        let began = Instant::now();
        loop {
            if inner.dead {
                return Next::End;
            }
            let free = !inner.committing;
            let patient = ready < BATCH.min(inner.crowd - inner.crowd / 8) && !inner.closed;
            let waited = began.elapsed();
            if ready > 0 && free && (!patient || waited >= inner.patience) {
                inner.committing = true;
                inner.ready = 0;
                return Next::Commit;
            }
            let again = busy && (inner.ended != inner.seen || (free && ready == 0));
            let handful = inner.fresh.len() >= HANDFUL || waited >= LINGER || (free && ready == 0);
            if ready < BATCH && (again || (handful && !inner.fresh.is_empty())) {
                return inner.plan(again, free && ready == 0);
            }
            if inner.closed && inner.fresh.is_empty() && ready == 0 && !busy {
                return Next::End;
            }
            inner.idle = ready == 0 && !busy && inner.fresh.is_empty();
            self.wait(&mut inner, began, ready, free);
        }
    }

    /// Waits until something may have changed what [`Self::next`] says.
    fn wait(&self, inner: &mut MutexGuard<'_, Inner>, began: Instant, ready: usize, free: bool) {
        let full = ready >= BATCH;
        let lingering = !full && !inner.fresh.is_empty();
        inner.wake_at = match (full, lingering || ready > 0) {
            (true, _) => usize::MAX,
            (false, true) => HANDFUL,
            (false, false) => 1,
        };
        let patience = (ready > 0 && free).then_some(inner.patience);
        let linger = (lingering || (ready > 0 && !full)).then_some(LINGER);
        match [patience, linger]
            .into_iter()
            .flatten()
            .filter(|end| *end > began.elapsed())
            .min()
        {
            Some(end) => {
                self.planner.wait_until(inner, began + end);
            }
            None => {
                inner.wake_at = inner.wake_at.min(inner.fresh.len() + 1);
                self.planner.wait(inner);
            }
        }
    }

    /// The batch that took `took` has ended with `count` decisions: the store is free, and busy requests are worth
    /// another try.
    pub fn batch_ended(&self, count: usize, took: Duration) {
        let mut inner = self.inner.lock();
        inner.committing = false;
        inner.ended += 1;
        inner.crowd = count + inner.ready + inner.fresh.len();
        inner.patience = took.min(PATIENCE_MAX * PATIENCE_PART) / PATIENCE_PART;
        let wake = !inner.idle;
        drop(inner);
        if wake {
            self.planner.notify_one();
        }
    }
}

impl Inner {
    fn plan(&mut self, again: bool, idle: bool) -> Next {
        self.seen = self.ended;
        let count = self.fresh.len().min(BATCH);
        Next::Plan {
            fresh: self.fresh.drain(..count).collect(),
            again,
            idle,
        }
    }
}
