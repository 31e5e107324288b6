//! The one writer: takes requests, lets the ledger decide, makes decisions durable, and only then answers.
//!
//! ```text
//!  submit --> mailbox --> planner: plan --batch--> committer: one fsync
//!                ^           ^   `-- busy --.           |
//!              answer <-- confirm | abort <-'<-outcomes-'
//! ```
//!
//! Two threads: the planner has the ledger, the committer the disk, and the next batch is planned while one is committed.
//! Few decisions are committed by the planner itself. A request that stands on a decision in flight is planned again
//! once a commit has ended. Outcomes are per request.
//!
//! Owns the ledger and the store's only writer. Decides nothing itself, and answers nothing that is not durable.
//!
//! **Readers** share a lock with the planner: hold it for at most 1,000 rows, clone the `Arc`s out, and ask again
//! for the next page. Never wait for anything inside [`Ipam::read`].

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fipd_core::{
    Action, Actor, Answer, BookTime, ClusterId, Expectation, Identity, Ledger, Lookout, Refusal,
    Refused, Request, System, Text, count_rows,
};
use parking_lot::{Mutex, RwLock};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot, watch},
};

pub use crate::clock::Clock;
use crate::{
    clock::{HostClock, WallClock},
    private_file,
    store::{Condition, Loaded, OpenError, Store, StoreOptions, StoreReader, StoreStop},
};

mod committer;
mod liveness;
mod mailbox;
mod planner;
mod time;
mod walk;

use liveness::Beats;
pub use liveness::Pulse;
use mailbox::{Mailbox, Waiting};
pub use time::TimeStatus;

/// Requests that may wait at once; one more waits outside.
const QUEUE: usize = 4_096;
/// How long a stop waits for a store that cannot write.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for a disk that hangs, after that.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// How long a lone caller looks out for its answer before it sleeps: waking its thread takes a fifth of what a good disk
/// takes for a commit.
const LOOK_OUT: Duration = Duration::from_micros(500);
/// The name of the database in the data directory.
pub const DATABASE: &str = "fipd.redb";

/// Looks at the ledger whenever the request is decided, before it is: an error is its answer.
pub type Guard = Box<dyn Fn(&Ledger, &Request) -> Result<(), IpamError> + Send>;

/// Why there is no answer.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum IpamError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Store(#[from] Refused),
    /// The asker's [`Guard`] says so.
    #[error("{0}")]
    Forbidden(String),
    /// What was read and what is to be written do not belong together, says the asker's [`Guard`].
    #[error("{0} was changed by someone else; read it again")]
    Stale(String),
    #[error("fipd is stopping and took no decision it could tell; ask again")]
    Stopping,
}

/// The address book, for everybody in the daemon; cheap to clone.
#[derive(Clone)]
pub struct Ipam {
    shared: Arc<IpamState>,
}

impl fmt::Debug for Ipam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ipam").finish_non_exhaustive()
    }
}

/// The writer's threads; ends when [`Ipam::shutdown`] is called and everything taken before is answered.
#[derive(Debug)]
pub struct Writer {
    threads: [thread::JoinHandle<()>; 2],
}

impl Writer {
    /// Waits for the end; blocks.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a writer thread of the address book has panicked");
            }
        }
    }
}

struct IpamState {
    ledger: RwLock<Ledger>,
    mailbox: Mailbox,
    /// Held by who commits; `None` after the end.
    store: Mutex<Option<Store>>,
    /// Threads that are not gone.
    threads: AtomicUsize,
    /// Whether the end was asked for.
    asked: AtomicBool,
    /// Keeps the queue bounded: a permit per request that has no answer yet.
    places: Arc<Semaphore>,
    beats: Beats,
    revisions: watch::Sender<u64>,
    growth: watch::Sender<u64>,
    ended: watch::Sender<bool>,
    reader: StoreReader,
    stop: StoreStop,
    clock: Arc<dyn HostClock>,
    time: Mutex<BookTime>,
    /// Nothing is decided here.
    of_another_host: bool,
    /// Whether the log says that the clock is wrong.
    wrong: AtomicBool,
    /// The last small commit took less than [`LOOK_OUT`].
    quick: AtomicBool,
    /// Where the callers are.
    runtime: Option<Handle>,
}

/// Says that a thread is gone, also when it panics: neither goes on without the other. The last one closes the store.
struct Gone<'a>(&'a IpamState);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.mailbox.die();
        if thread::panicking() {
            // The other thread may be trying to reopen the file for ever.
            self.0.stop.stop();
        }
        if self.0.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.0.asked.load(Ordering::Acquire) {
                let reason = "the writer of the address book ended unasked";
                self.0.stop.note_end(reason);
            }
            self.0.places.close();
            drop(self.0.store.lock().take());
            self.0.ended.send_replace(true);
        }
    }
}

impl IpamState {
    /// Requests that have no answer yet.
    fn waiting(&self) -> usize {
        QUEUE.saturating_sub(self.places.available_permits())
    }

    fn publish(&self) {
        let ledger = self.ledger.read();
        let (revision, growth) = (ledger.revision(), ledger.latest_growth());
        drop(ledger);
        for (sender, new) in [(&self.revisions, revision), (&self.growth, growth)] {
            sender.send_if_modified(|old| std::mem::replace(old, new) != new);
        }
    }
}

impl Ipam {
    /// [`Self::start_on`] with the default options and a wall clock alone.
    ///
    /// # Errors
    /// As [`Self::start_on`].
    pub fn start(data_dir: &Path, clock: Clock) -> Result<(Self, Writer), OpenError> {
        let clock = Arc::new(WallClock(clock));
        Self::start_on(data_dir, StoreOptions::default(), clock)
    }

    /// Starts the writer on an open store.
    ///
    /// # Errors
    /// When a thread cannot be made, or the system has no random number.
    pub fn with_store(store: Store, loaded: Loaded, clock: Clock) -> io::Result<(Self, Writer)> {
        Self::with_clock(store, loaded, Arc::new(WallClock(clock)))
    }

    /// Opens the store in `data_dir` (made with mode 0700 where missing) and starts the writer.
    ///
    /// # Errors
    /// What [`Store::open`] says, or when the directory or a thread cannot be made.
    pub fn start_on(
        data_dir: &Path,
        options: StoreOptions,
        clock: Arc<dyn HostClock>,
    ) -> Result<(Self, Writer), OpenError> {
        let io = OpenError::io(data_dir, "made");
        private_file::create_directory(data_dir).map_err(&io)?;
        let (store, loaded) = Store::open(&data_dir.join(DATABASE), options)?;
        Self::with_clock(store, loaded, clock).map_err(io)
    }

    fn with_clock(
        store: Store,
        mut loaded: Loaded,
        clock: Arc<dyn HostClock>,
    ) -> io::Result<(Self, Writer)> {
        loaded
            .ledger
            .seed(getrandom::u64().map_err(io::Error::other)?);
        let reader = store.reader();
        let shared = Arc::new(IpamState {
            of_another_host: reader.stats().condition == Condition::OtherHost,
            revisions: watch::Sender::new(loaded.ledger.revision()),
            growth: watch::Sender::new(0),
            ended: watch::Sender::new(false),
            ledger: RwLock::new(loaded.ledger),
            mailbox: Mailbox::default(),
            places: Arc::new(Semaphore::new(QUEUE)),
            beats: Beats::default(),
            reader,
            stop: store.stop_handle(),
            store: Mutex::new(Some(store)),
            threads: AtomicUsize::new(2),
            asked: AtomicBool::new(false),
            clock,
            time: Mutex::new(BookTime::resume(loaded.clock, loaded.last_time)),
            wrong: AtomicBool::new(false),
            quick: AtomicBool::new(false),
            runtime: Handle::try_current().ok(),
        });
        let start = |name: &str, run: fn(&IpamState)| {
            let working = Arc::clone(&shared);
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn(move || run(&working))
        };
        let threads = [
            start("ipam-planner", planner::run)?,
            start("ipam-committer", committer::run)?,
        ];
        Ok((Self { shared }, Writer { threads }))
    }

    /// Asks, and waits until the answer is durable. A caller that goes away changes nothing: the request is
    /// decided all the same once it is taken.
    ///
    /// # Errors
    /// [`IpamError::Refused`] when the ledger says no, [`IpamError::Store`] when the decision certainly is not in
    /// the file, [`IpamError::Stopping`] when nobody can tell: asking again is free.
    pub async fn submit(&self, request: Request) -> Result<Answer, IpamError> {
        self.ask(request, None).await
    }

    /// Has it in the audit log what was done to things beside the address book.
    ///
    /// # Errors
    /// Those of [`Ipam::submit`].
    pub async fn note(
        &self,
        action: Action,
        what: impl Into<Text>,
        actor: impl Into<Actor>,
    ) -> Result<(), IpamError> {
        let (what, actor) = (what.into(), actor.into());
        let note = Request::Note {
            action,
            what,
            actor,
        };
        self.submit(note).await.map(drop)
    }

    /// As [`Ipam::submit`], if the guard has nothing against it.
    ///
    /// # Errors
    /// Those of [`Ipam::submit`], and what the guard says.
    pub async fn submit_if(&self, request: Request, guard: Guard) -> Result<Answer, IpamError> {
        self.ask(request, Some(guard)).await
    }

    async fn ask(&self, request: Request, guard: Option<Guard>) -> Result<Answer, IpamError> {
        // An answer from a copy is a decision as well: the other host may have released the lease and allocated its address.
        if self.is_of_another_host() {
            return Err(Refused::OtherHost.into());
        }
        let place = Arc::clone(&self.shared.places)
            .acquire_owned()
            .await
            .map_err(|_| IpamError::Stopping)?;
        let (reply, answer) = oneshot::channel();
        let lone = self.shared.waiting() == 1 && self.shared.quick.load(Ordering::Relaxed);
        let waiting = Waiting {
            request,
            guard,
            reply,
            place,
        };
        if !self.shared.mailbox.push(waiting) {
            return Err(IpamError::Stopping);
        }
        if lone {
            look_out(&answer);
        }
        answer.await.unwrap_or(Err(IpamError::Stopping))
    }

    /// About how many audit entries are kept from here on.
    pub async fn keep_audit(&self, limit: u64) {
        let shared = Arc::clone(&self.shared);
        // Who commits has the store.
        let set = tokio::task::spawn_blocking(move || {
            if let Some(store) = shared.store.lock().as_mut() {
                store.keep_audit(limit);
            }
        });
        // It cannot panic, and a commit that hangs is not waited for.
        let _ = tokio::time::timeout(LAST_PATIENCE, set).await;
    }

    /// Reads the committed state. Keep it short: no waiting, and at most [`Ledger::SCAN`] rows and one that tells that there are
    /// more. Debug builds panic at more.
    #[track_caller]
    pub fn read<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R {
        let (result, rows) = count_rows(|| look(&self.shared.ledger.read()));
        debug_assert!(
            rows <= Ledger::SCAN + 1,
            "{rows} rows of the ledger are read in one step"
        );
        result
    }

    /// The revision of the ledger, as it grows. What changed: [`Ledger::changes_page`].
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revisions.subscribe()
    }

    /// The file beside the writer: audit log, backup, figures.
    pub fn reader(&self) -> &StoreReader {
        &self.shared.reader
    }

    /// Whether the store takes decisions.
    pub fn health(&self) -> Condition {
        self.shared.reader.stats().condition
    }

    /// Whether the store belongs to another host, so that nothing is decided here.
    pub fn is_of_another_host(&self) -> bool {
        self.shared.of_another_host
    }

    /// Requests that have no answer yet.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// How the writer gets on.
    pub fn pulse(&self) -> Pulse {
        let troubled = matches!(self.health(), Condition::Reopening { .. });
        self.shared.beats.pulse(self.waiting(), troubled)
    }

    /// How long the writer is silent though it does not wait for the disk; an idle one beats each second.
    pub fn silent_for(&self) -> Duration {
        self.shared.beats.silent_for()
    }

    /// How long the latest commit has waited for the disk; `None`: none does.
    pub fn waits_for_disk(&self) -> Option<Duration> {
        self.shared.beats.waits_for_disk()
    }

    /// Replaces what the configuration maps to networks; in memory only.
    pub fn set_expectations(&self, expectations: Vec<Expectation>) {
        self.shared.ledger.write().set_expectations(expectations);
        self.shared.publish();
    }

    /// Changes when a pool has addresses that it had not: [`Ledger::latest_growth`].
    pub fn growth(&self) -> watch::Receiver<u64> {
        self.shared.growth.subscribe()
    }

    /// As [`Ledger::look_out`].
    pub fn look_out(&self, cluster: &ClusterId, system: &System, lookout: Lookout) {
        let mut ledger = self.shared.ledger.write();
        ledger.look_out(cluster, system, lookout);
        drop(ledger);
        self.shared.publish();
    }

    /// As [`Ledger::end_look_out`].
    pub fn end_look_out(&self, cluster: &ClusterId, system: &System) {
        self.shared.ledger.write().end_look_out(cluster, system);
        self.shared.publish();
    }

    /// Gives up the identity's places in all queues.
    pub fn forget_waiter(&self, identity: &Identity) {
        self.shared.ledger.write().forget_waiter(identity);
        self.shared.publish();
    }

    /// Gives up the places of a cluster (or of one of its systems) in all queues.
    pub fn forget_waiters_of(&self, cluster: &ClusterId, system: Option<&System>) {
        let mut ledger = self.shared.ledger.write();
        ledger.forget_waiters_of(cluster, system);
        drop(ledger);
        self.shared.publish();
    }

    /// The writer ends unasked.
    #[cfg(any(test, feature = "testing"))]
    pub fn die(&self) {
        self.shared.mailbox.die();
    }

    /// Waits until the writer has ended, asked to or not.
    pub async fn ended(&self) {
        let mut ended = self.shared.ended.subscribe();
        // The sender lives as long as this handle.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Takes nothing more, answers what was taken, closes the store cleanly. A store that cannot write is given
    /// 5 s, one that hangs 1 s more; requests whose outcome it cannot tell are answered [`IpamError::Stopping`].
    pub async fn shutdown(&self) {
        self.shared.asked.store(true, Ordering::Release);
        self.shared.places.close();
        self.shared.mailbox.close();
        let mut ended = self.shared.ended.subscribe();
        if tokio::time::timeout(STOP_PATIENCE, ended.wait_for(|ended| *ended))
            .await
            .is_err()
        {
            tracing::error!("the store cannot write and is given up; some outcomes are unknown");
            self.shared.stop.stop();
            let last = ended.wait_for(|ended| *ended);
            if tokio::time::timeout(LAST_PATIENCE, last).await.is_err() {
                tracing::error!(
                    "the disk does not answer; the writer of the address book is left behind"
                );
            }
        }
    }
}

/// Gives the core to whoever wants it, all the time.
fn look_out<T>(answer: &oneshot::Receiver<T>) {
    let began = Instant::now();
    while answer.is_empty() && began.elapsed() < LOOK_OUT {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests;
