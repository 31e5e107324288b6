//! A work queue of keys: a key waits at most once, is worked on by one worker at a time, and is worked on
//! again when it was added meanwhile. Owns the retry schedule; knows nothing of what the keys mean.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    task::{Id, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

/// The first pause after a failure; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is to happen with a key after it was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until it is added again.
    Done,
    /// Again after this time.
    After(Duration),
    /// It failed: again after an exponentially growing pause.
    Retry,
}

/// See the module.
pub struct Queue<K> {
    state: Mutex<QueueState<K>>,
    wake: Notify,
}

struct QueueState<K> {
    ready: VecDeque<K>,
    waiting: BTreeSet<K>,
    working: BTreeSet<K>,
    again: BTreeSet<K>,
    later: BTreeMap<(Instant, u64), K>,
    due: BTreeMap<K, (Instant, u64)>,
    failures: BTreeMap<K, Backoff>,
    sequence: u64,
}

impl<K: Ord + Clone> Queue<K> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState {
                ready: VecDeque::new(),
                waiting: BTreeSet::new(),
                working: BTreeSet::new(),
                again: BTreeSet::new(),
                later: BTreeMap::new(),
                due: BTreeMap::new(),
                failures: BTreeMap::new(),
                sequence: 0,
            }),
            wake: Notify::new(),
        })
    }

    /// To be worked on as soon as a worker is free. A pending pause of the key ends.
    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.wake.notify_one();
    }

    /// To be worked on after `pause`, unless it is due earlier anyway.
    pub fn add_after(&self, key: K, pause: Duration) {
        self.state.lock().add_later(key, Instant::now() + pause);
        self.wake.notify_one();
    }

    /// Whether nothing is waiting to be worked on right now (pauses do not count).
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.ready.is_empty() && state.working.is_empty()
    }

    /// For who works on a key: whether there are others, waiting or in work.
    pub fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        !state.ready.is_empty() || state.working.len() > 1
    }

    pub(super) fn take(&self) -> Result<K, Option<Instant>> {
        let mut state = self.state.lock();
        state.ripen(Instant::now());
        match state.ready.pop_front() {
            Some(key) => {
                state.waiting.remove(&key);
                state.working.insert(key.clone());
                Ok(key)
            }
            None => Err(state.later.keys().next().map(|(at, _)| *at)),
        }
    }

    pub(super) fn finish(&self, key: K, next: Next) {
        let mut state = self.state.lock();
        state.working.remove(&key);
        let again = state.again.remove(&key);
        match next {
            Next::Done => {
                state.failures.remove(&key);
            }
            Next::After(pause) => {
                state.failures.remove(&key);
                state.add_later(key.clone(), Instant::now() + pause);
            }
            Next::Retry => {
                let pauses = state.failures.entry(key.clone()).or_insert_with(retries);
                let pause = pauses.pause();
                state.add_later(key.clone(), Instant::now() + pause);
            }
        }
        if again {
            state.add(key);
        }
        drop(state);
        self.wake.notify_one();
    }
}

impl<K: Ord + Clone> QueueState<K> {
    fn add(&mut self, key: K) {
        if let Some(at) = self.due.remove(&key) {
            self.later.remove(&at);
        }
        if self.working.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_later(&mut self, key: K, at: Instant) {
        if self.waiting.contains(&key) || self.due.get(&key).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        if let Some(old) = self.due.remove(&key) {
            self.later.remove(&old);
        }
        self.sequence += 1;
        self.later.insert((at, self.sequence), key.clone());
        self.due.insert(key, (at, self.sequence));
    }

    fn ripen(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.add(key);
        }
    }
}

/// Works on the keys of `queue`, `width` at once, until cancelled; work begun is finished first.
/// A panic of the work counts as its failure.
pub async fn run<K, W, F>(queue: Arc<Queue<K>>, width: usize, cancel: CancellationToken, work: W)
where
    K: Ord + Clone + Send + 'static,
    W: Fn(K) -> F,
    F: Future<Output = Next> + Send + 'static,
{
    let mut tasks: JoinSet<Next> = JoinSet::new();
    let mut keys: BTreeMap<Id, K> = BTreeMap::new();
    loop {
        let mut due = None;
        while tasks.len() < width && !cancel.is_cancelled() {
            match queue.take() {
                Ok(key) => {
                    let handle = tasks.spawn(work(key.clone()));
                    keys.insert(handle.id(), key);
                }
                Err(at) => {
                    due = at;
                    break;
                }
            }
        }
        if cancel.is_cancelled() && tasks.is_empty() {
            return;
        }
        tokio::select! {
            () = cancel.cancelled(), if !cancel.is_cancelled() => {}
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let (id, next) = match ended {
                    Ok((id, next)) => (id, next),
                    Err(error) => {
                        tracing::error!(%error, "a reconcile ended abnormally; it is tried again");
                        (error.id(), Next::Retry)
                    }
                };
                if let Some(key) = keys.remove(&id) {
                    queue.finish(key, next);
                }
            }
            () = queue.wake.notified(), if tasks.len() < width => {}
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// The pauses after failures.
pub fn retries() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_worked_on_once_and_again_when_added_meanwhile() {
        let queue = Queue::new();
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.take(), Ok(1));
        assert_eq!(queue.take(), Err(None));
        queue.add(1);
        assert_eq!(queue.take(), Err(None), "it is in work");
        assert!(!queue.is_crowded());
        queue.add(2);
        assert!(queue.is_crowded(), "another one waits");
        assert_eq!(queue.take(), Ok(2));
        assert!(queue.is_crowded(), "another one is in work");
        queue.finish(2, Next::Done);
        assert!(!queue.is_crowded());
        queue.finish(1, Next::Done);
        assert_eq!(queue.take(), Ok(1));
        queue.finish(1, Next::Done);
        assert_eq!(queue.take(), Err(None));
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_end_when_the_key_is_added() {
        let queue = Queue::new();
        queue.add("a");
        for _ in 0..12 {
            assert_eq!(queue.take(), Ok("a"));
            queue.finish("a", Next::Retry);
            let due = queue
                .take()
                .expect_err("it pauses")
                .expect("it is due some day");
            tokio::time::advance(due - Instant::now()).await;
        }
        queue.add("a");
        assert_eq!(queue.take(), Ok("a"));
        queue.finish("a", Next::After(Duration::from_secs(5)));
        assert_eq!(
            queue.take(),
            Err(Some(Instant::now() + Duration::from_secs(5)))
        );
        queue.add("a");
        assert_eq!(queue.take(), Ok("a"), "an addition ends the pause");
        let mut pauses = retries();
        assert!((1..40).all(|_| pauses.pause() <= LONGEST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_pauses_counts() {
        let queue = Queue::new();
        queue.add_after(7, Duration::from_secs(9));
        queue.add_after(7, Duration::from_secs(3));
        queue.add_after(7, Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(queue.take(), Ok(7));
        queue.finish(7, Next::Done);
        assert_eq!(queue.take(), Err(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_and_others_go_on() {
        let queue = Queue::new();
        let cancel = CancellationToken::new();
        let done = Arc::new(AtomicU32::new(0));
        for key in 0..10 {
            queue.add(key);
        }
        let (counter, token) = (Arc::clone(&done), cancel.clone());
        run(queue, 3, cancel.clone(), move |key| {
            let (counter, token) = (Arc::clone(&counter), token.clone());
            async move {
                assert!(
                    key != 4 || counter.load(Ordering::SeqCst) >= 9,
                    "the first time it fails"
                );
                if counter.fetch_add(1, Ordering::SeqCst) == 9 {
                    token.cancel();
                }
                Next::Done
            }
        })
        .await;
        assert_eq!(done.load(Ordering::SeqCst), 10);
    }
}
