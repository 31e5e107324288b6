//! What goes between callers, the planner and the committer.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use fipd_core::{Answer, Decision, Outcome, Request};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Guard, IpamError};
use crate::liveness::BEAT;

/// The most decisions of one commit.
pub(super) const BATCH: usize = 512;
/// Fewer decisions are not worth another thread, and fewer requests not a wake-up while a commit is in flight.
pub(super) const HANDFUL: usize = 32;

/// How long the planner looks out for the next request before it sleeps.
const LOOK_OUT: Duration = Duration::from_micros(100);

/// A request whose caller waits.
pub(super) struct Waiting {
    pub request: Request,
    pub guard: Option<Guard>,
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
pub(super) enum PlannerTask {
    /// Plan these.
    Fresh(Vec<Waiting>),
    /// The committer is done with some of what it was given, oldest first.
    Committed(Committed),
    /// Nothing will come any more.
    End,
}

/// What became of the `of` oldest decisions in flight; of fewer when the rest is unknown.
pub(super) struct Committed {
    pub outcomes: Vec<Outcome>,
    pub of: usize,
}

#[derive(Default)]
struct MailboxState {
    fresh: VecDeque<Waiting>,
    /// How many fresh requests are worth waking the planner.
    wake_at: usize,
    /// For the committer.
    decisions: Vec<Decision>,
    /// From the committer.
    committed: VecDeque<Committed>,
    closed: bool,
    dead: bool,
}

#[derive(Default)]
pub(super) struct Mailbox {
    inner: Mutex<MailboxState>,
    planner: Condvar,
    /// The planner was called, whether it slept or not.
    called: AtomicBool,
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
            self.wake_planner();
        }
        true
    }

    /// Takes nothing more; what is queued is still worked off.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.wake_planner();
    }

    /// Nothing can be decided any more: whoever waits is let go.
    pub fn die(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.dead = true;
        inner.fresh.clear();
        drop(inner);
        self.wake_planner();
        self.committer.notify_one();
    }

    /// Waits for something to do. `committing`: a batch is with the committer; `room`: how many more requests fit into
    /// the planner's batch. Calls `beat` at once, and each [`BEAT`] while there is nothing to do.
    pub fn next(&self, committing: bool, room: usize, beat: impl Fn()) -> PlannerTask {
        let mut looked_out = false;
        let mut inner = self.inner.lock();
        loop {
            beat();
            if inner.dead {
                return PlannerTask::End;
            }
            if let Some(committed) = inner.committed.pop_front() {
                return PlannerTask::Committed(committed);
            }
            let worth = if committing { HANDFUL } else { 1 };
            let count = inner.fresh.len().min(room);
            if count > 0 && inner.fresh.len() >= worth {
                return PlannerTask::Fresh(inner.fresh.drain(..count).collect());
            }
            if inner.closed && inner.fresh.is_empty() && !committing {
                return PlannerTask::End;
            }
            inner.wake_at = if room == 0 { usize::MAX } else { worth };
            if !committing && !looked_out {
                self.look_out(&mut inner);
                looked_out = true;
                continue;
            }
            self.planner.wait_for(&mut inner, BEAT);
            inner.wake_at = usize::MAX;
        }
    }

    fn wake_planner(&self) {
        self.called.store(true, Ordering::Release);
        self.planner.notify_one();
    }

    /// Looks out for a call before the planner sleeps: who asks one by one asks again as soon as there is an answer, and
    /// waking a thread takes longer than that.
    fn look_out(&self, inner: &mut MutexGuard<'_, MailboxState>) {
        self.called.store(false, Ordering::Relaxed);
        MutexGuard::unlocked(inner, || {
            let began = Instant::now();
            while !self.called.load(Ordering::Acquire) && began.elapsed() < LOOK_OUT {
                std::hint::spin_loop();
            }
        });
    }

    /// Gives the committer more to do.
    pub fn deliver(&self, decisions: Vec<Decision>) {
        self.inner.lock().decisions.extend(decisions);
        self.committer.notify_one();
    }

    /// Waits for decisions; `None` at the end, and no decisions once it is `due`. At most half of who waits, if `waiting`
    /// do: while the others are committed, these hear, ask again and are planned. Without that a large batch follows on
    /// each small one, and the disk waits for it.
    pub fn next_batch(&self, waiting: impl Fn() -> usize, due: Instant) -> Option<Vec<Decision>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.dead {
                return None;
            }
            if !inner.decisions.is_empty() {
                let share = (waiting() / 2).clamp(HANDFUL, BATCH);
                let share = share.min(inner.decisions.len());
                let rest = inner.decisions.split_off(share);
                return Some(std::mem::replace(&mut inner.decisions, rest));
            }
            if self.committer.wait_until(&mut inner, due).timed_out() && inner.decisions.is_empty()
            {
                return (!inner.dead).then(Vec::new);
            }
        }
    }

    /// The committer's answer to [`Self::next_batch`].
    pub fn committed(&self, committed: Committed) {
        self.inner.lock().committed.push_back(committed);
        self.wake_planner();
    }
}
