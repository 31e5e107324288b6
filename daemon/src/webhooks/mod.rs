//! Webhooks out: the audit log, told to receivers as it grows.
//!
//! ```text
//!  audit log --batch--> wanted? --> signed POST --2xx--> cursor (file)
//!     ^                                 `-- else: again, later and later
//!     `------------- the ledger grew, or some seconds passed
//! ```
//!
//! Each receiver has a task and a place of its own: one that is dead holds up neither others nor decisions, and has at most
//! one batch in memory. What was received is noted afterwards, so that each event arrives at least once, and in the order of
//! the log; receivers know one that comes again by its `webhook-id`. Format and signatures are those of Standard Webhooks.

pub mod cursor;
pub mod event;
mod send;
pub mod sign;
mod standing;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use fipd_core::{Action, AuditEntry, PoolId, Text, Timestamp};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    config::{self, Hook},
    ipam::Ipam,
    store::{AuditFilter, AuditFound, ReadError, StoreReader},
};
use cursor::{Cursor, CursorFile};
pub use event::EntryView;
use event::Message;
use send::Sender;
pub use standing::{HookStanding, HookView};

/// Entries that are read at once.
const BATCH: usize = 100;
/// How often the log is looked at without a sign that it grew.
const LOOK: Duration = Duration::from_secs(5);
/// How often at most a cursor is written while events go out.
const NOTE: Duration = Duration::from_secs(1);
/// Names of gone pools that are kept in memory.
const GONE: usize = 1_000;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// All receivers; cheap to clone.
#[derive(Clone, Default)]
pub struct Webhooks(Arc<Vec<One>>);

/// One receiver.
struct One {
    hook: Hook,
    place: CursorFile,
    sender: Sender,
    view: EntryView,
    standing: HookStanding,
    /// The last names of pools that are gone, as the log has them.
    gone: Mutex<BTreeMap<PoolId, Option<Text>>>,
}

/// Why an event is not with its receiver.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("the audit log cannot be read: {0}")]
    Log(#[from] ReadError),
    #[error("how far it came cannot be read or written: {0}")]
    Cursor(#[from] std::io::Error),
    #[error("{0}")]
    Refused(String),
}

impl Webhooks {
    /// Those of the configuration, which are sent entries as `view` makes them.
    pub fn new(hooks: &[Hook], data_dir: &Path, view: EntryView) -> Self {
        let one = |hook: &Hook| One {
            place: CursorFile::new(data_dir, &hook.name.0),
            sender: Sender::new(hook),
            view,
            standing: HookStanding::default(),
            gone: Mutex::default(),
            hook: hook.clone(),
        };
        Self(Arc::new(hooks.iter().map(one).collect()))
    }

    /// Tells them until it is told to stop.
    pub async fn run(self, ipam: Ipam, stop: CancellationToken) {
        let each = self.0.iter().map(|one| one.run(&ipam));
        let _ = stop.run_until_cancelled(join_all(each)).await;
        for one in self.0.iter() {
            // What is not noted is sent again.
            if let Err(error) = one.note(true).await {
                tracing::warn!(webhook = %one.hook.name.0, %error, "some events will be sent again");
            }
        }
        // Who has none runs as long as all others.
        stop.cancelled().await;
    }

    /// How each is doing.
    pub fn views(&self, ipam: &Ipam) -> Vec<HookView> {
        let last = last_entry(ipam);
        self.0
            .iter()
            .map(|one| one.standing.view(&one.hook, last))
            .collect()
    }

    /// Sends one of that name a test, now and once. `None`: there is none of that name.
    pub async fn test(&self, name: &str) -> Option<Result<u16, String>> {
        let one = self.0.iter().find(|one| &*one.hook.name.0 == name)?;
        Some(one.sender.send(&Message::test(name)).await)
    }
}

/// Whether the files of one can be used. Blocks on the disk.
///
/// # Errors
/// Which cannot, and why.
pub async fn check(hook: &Hook) -> Result<(), String> {
    Sender::new(hook).ready().await?;
    sign::HookSecret::read(&hook.secret_file).await.map(drop)
}

/// The number of the newest entry.
fn last_entry(ipam: &Ipam) -> u64 {
    ipam.reader().stats().audit_next.saturating_sub(1)
}

fn epoch(ipam: &Ipam) -> u64 {
    ipam.read(|ledger| ledger.epoch().map_or(0, |epoch| epoch.number))
}

/// The entry that says that a backup took the store's place.
async fn restored(ipam: &Ipam) -> Result<Option<u64>, DeliveryError> {
    let restored = AuditFilter {
        action: Some(Action::Restored),
        ..AuditFilter::default()
    };
    let search = move |log: &StoreReader| log.audit_search(&restored, None, 1, usize::MAX);
    let found = searched(ipam, search).await?;
    Ok(found.first().map(|(number, _)| *number))
}

/// When the entry of that number was written; `None` where it is not there.
async fn written(ipam: &Ipam, number: u64) -> Result<Option<Timestamp>, DeliveryError> {
    let all = AuditFilter::default();
    let search = move |log: &StoreReader| log.audit_search(&all, number.checked_add(1), 1, 1);
    let found = searched(ipam, search).await?;
    let entry = found.first().filter(|(found, _)| *found == number);
    Ok(entry.map(|(_, entry)| entry.at))
}

/// The entries that a search of the audit log finds.
async fn searched(
    ipam: &Ipam,
    search: impl FnOnce(&StoreReader) -> Result<AuditFound, ReadError> + Send + 'static,
) -> Result<Vec<(u64, AuditEntry)>, DeliveryError> {
    let reader = ipam.reader().clone();
    let found = tokio::task::spawn_blocking(move || search(&reader)).await;
    let found = found.map_err(|error| DeliveryError::Refused(error.to_string()))?;
    Ok(found?.entries)
}

impl One {
    async fn run(&self, ipam: &Ipam) {
        let mut revisions = ipam.revisions();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            revisions.borrow_and_update();
            let before = self.standing.cursor();
            match self.step(ipam).await {
                Ok(true) => backoff.reset(),
                Ok(false) => {
                    backoff.reset();
                    // Ended senders end this with the daemon.
                    let _ = tokio::time::timeout(LOOK, revisions.changed()).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(trouble) => {
                    // One that takes some fails anew each time.
                    if self.standing.cursor() != before {
                        backoff.reset();
                    }
                    let pause = backoff.pause();
                    self.standing.failed(&trouble.to_string(), pause);
                    tracing::warn!(
                        webhook = %self.hook.name.0, error = %trouble, again_in = ?pause,
                        "a receiver of events was not reached"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Sends a batch. Whether there may be more.
    async fn step(&self, ipam: &Ipam) -> Result<bool, DeliveryError> {
        let mut at = self.here(ipam).await?;
        // Not only once there is something to send.
        self.sender.ready().await.map_err(DeliveryError::Refused)?;
        let (all, after) = (AuditFilter::default(), Some(at.after));
        let next = move |log: &StoreReader| log.audit_search_up(&all, after, BATCH, BATCH);
        let entries = searched(ipam, next).await?;
        let next = at.after.saturating_add(1);
        if let Some((first, _)) = entries.first().filter(|(first, _)| *first > next) {
            let missed = first - next;
            tracing::error!(
                webhook = %self.hook.name.0, missed,
                "the audit log was trimmed before all of it was sent; raise [audit] keep, or mend the receiver sooner"
            );
            self.send(&Message::gap(at, next, first - 1)).await?;
            (at.after, at.written) = (first - 1, None);
            self.standing.missed(missed);
            self.standing.reached(at);
            self.note(true).await?;
        }
        let full = entries.len() == BATCH;
        for (number, entry) in entries {
            if let Some(message) = self.wanted(ipam, at, number, &entry).await? {
                self.send(&message).await?;
                self.standing.delivered();
            }
            (at.after, at.written) = (number, Some(entry.at));
            self.standing.reached(at);
            self.note(false).await?;
        }
        self.note(!full).await?;
        self.standing.idle();
        Ok(full)
    }

    /// How far it has come: as it was noted, from now on where it is new, or nowhere where the log is another one.
    async fn here(&self, ipam: &Ipam) -> Result<Cursor, DeliveryError> {
        let epoch = epoch(ipam);
        if let Some(at) = self.standing.cursor().filter(|at| at.epoch == epoch) {
            return Ok(at);
        }
        let place = self.place.clone();
        let noted = blocking(move || place.read()).await?;
        let last = last_entry(ipam);
        let there = match noted {
            Some(at) => written(ipam, at.after).await?,
            None => None,
        };
        // What was noted is on the disk, so that only another log can be shorter, or have another entry there.
        let differs =
            |at: &Cursor| there.is_some() && at.written.is_some_and(|one| Some(one) != there);
        let is_other =
            |at: &Cursor| at.epoch > epoch || at.epoch == epoch && (at.after > last || differs(at));
        let other_log = noted.filter(is_other);
        let instance = match noted.map_or(0, |at| at.instance) {
            drawn if drawn != 0 && other_log.is_none() => drawn,
            _ => getrandom::u64().map_err(std::io::Error::other)?,
        };
        let after = match noted {
            Some(before) if other_log.is_some() => {
                tracing::error!(
                    webhook = %self.hook.name.0, told = before.after, last,
                    "the audit log is another one than that which was told; all of it is told"
                );
                self.send(&Message::other_log(before)).await?;
                0
            }
            Some(at) if at.epoch == epoch => at.after,
            Some(before) => {
                // A backup took the store's place: its numbers begin again after the entry that says so.
                let from = restored(ipam).await?;
                let from = from.unwrap_or_else(|| last.saturating_add(1));
                before.after.min(from.saturating_sub(1))
            }
            None => last,
        };
        let at = Cursor {
            instance,
            epoch,
            after,
            written: written(ipam, after).await?,
        };
        self.standing.reached(at);
        self.note(true).await?;
        Ok(at)
    }

    async fn wanted(
        &self,
        ipam: &Ipam,
        at: Cursor,
        number: u64,
        entry: &AuditEntry,
    ) -> Result<Option<Message>, DeliveryError> {
        let name = config::event_names::name(entry.action);
        if !self.hook.events.have(name) {
            return Ok(None);
        }
        let gone = match entry.pool.filter(|_| !self.hook.pools.is_empty()) {
            Some(id) => self.gone(ipam, id).await?,
            None => None,
        };
        Ok(ipam.read(|ledger| {
            let pool = entry.pool.and_then(|id| ledger.pool(id));
            let pool = pool.map(|pool| Text::clone(&pool.spec.name)).or(gone);
            let network = entry.network.and_then(|id| ledger.network(id));
            let network = network.map(|network| Text::clone(&network.name));
            let among = |names: &std::collections::BTreeSet<Text>, one: Option<Text>| {
                names.is_empty() || one.is_some_and(|one| names.contains(&one))
            };
            let fits = among(&self.hook.pools, pool) && among(&self.hook.networks, network);
            fits.then(|| Message::of(at, number, entry, &(self.view)(ledger, number, entry)))
        }))
    }

    /// The name that a pool had when it was deleted; `None` for one that is there, and where the log has forgotten it.
    async fn gone(&self, ipam: &Ipam, id: PoolId) -> Result<Option<Text>, DeliveryError> {
        if ipam.read(|ledger| ledger.pool(id).is_some()) {
            return Ok(None);
        }
        if let Some(known) = self.gone.lock().get(&id) {
            return Ok(known.clone());
        }
        let deleted = AuditFilter {
            action: Some(Action::PoolDeleted),
            pool: Some(id),
            ..AuditFilter::default()
        };
        let search = move |log: &StoreReader| log.audit_search(&deleted, None, 1, usize::MAX);
        let found = searched(ipam, search).await?;
        let name = found.into_iter().next().map(|(_, entry)| entry.detail);
        let mut all = self.gone.lock();
        if all.len() >= GONE {
            all.clear();
        }
        all.insert(id, name.clone());
        Ok(name)
    }

    async fn send(&self, message: &Message) -> Result<(), DeliveryError> {
        let sent = self.sender.send(message).await;
        sent.map_err(DeliveryError::Refused)?;
        self.standing.succeeded();
        Ok(())
    }

    /// Writes down how far it came, at most once a [`NOTE`] unless it is the end.
    async fn note(&self, now: bool) -> Result<(), DeliveryError> {
        let Some(cursor) = self.standing.to_note(now, NOTE) else {
            return Ok(());
        };
        let place = self.place.clone();
        blocking(move || place.write(cursor)).await?;
        self.standing.noted(cursor);
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::other)?
}
