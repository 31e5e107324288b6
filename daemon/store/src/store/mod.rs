//! The redb file: makes decisions durable and gives them back after a start.
//!
//! ```text
//!  ipam --Authority::commit(&[Decision])--> Batch --one transaction, one fsync--> file
//!                                             failed? close, settle, reopen, read the commit number, answer by it
//! ```
//!
//! Owns the file, its ballast and its schema. Decides nothing and keeps no index: those live in the ledger.
//! [`rows`] is the format on disk, [`tables`] where it lies, [`codec`] the only place where both meet the core.
//!
//! # Which repair mode, and why
//! After a crash redb either walks all pages (normal) or reads an allocator state saved by each commit
//! (quick-repair, which also commits in two phases). Measured side by side on a virtual disk with a lease and an
//! audit row a decision, 160 and 140 bytes, 16 MB of cache, the file in the page cache:
//!
//! | rows | mode | one decision a commit | 256 a commit | open after kill -9 |
//! |---|---|---|---|---|
//! | 100k leases, 1M audit | normal | 0.41 ms | 6.7 ms | 0.28 s |
//! | | two-phase | 0.51 ms | 6.3 ms | 0.26 s |
//! | | quick-repair | 0.71 ms | 7.3 ms | 0.11 s |
//! | 1M leases, 1M audit | normal | 0.38 ms | 10.9 ms | 0.84 s |
//! | | two-phase | 0.62 ms | 11.2 ms | 0.86 s |
//! | | quick-repair | 0.75 ms | 11.1 ms | 0.38 s |
//!
//! Every decision would pay 75 % more for a start that is a fraction of a second sooner, so commits are **normal**:
//! one phase, full repair. With the audit log at its limit of a million entries both starts keep far below what
//! is allowed (1 s and 4 s); a larger limit would be paid at each start after a crash.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{Authority, Decision, Outcome, Refused};
use parking_lot::{Condvar, Mutex, RwLock};
use redb::{Builder, Database};

use crate::clock;

mod audit_search;
mod backup;
mod batch;
mod check;
mod claim;
mod codec;
mod create;
mod envelope;
mod error;
mod health;
mod high_water;
mod host_id;
mod inspect;
mod load;
mod medium;
mod missing;
mod new_epoch;
mod null;
mod open;
mod options;
mod overlay;
mod reader;
mod reopen;
mod reset_clock;
mod restore;
mod rewrite;
mod rollups;
mod room;
mod rows;
mod schema;
mod seal;
mod tables;
mod upgrade;

pub use audit_search::{AuditFilter, AuditFound};
pub use check::{StoreFault, check};
pub use claim::ClaimStore;
pub use codec::DecodeError;
pub use create::Create;
pub use error::{
    BackupError, ClaimError, CreateError, OpenError, ReadError, ResetError, RestoreError,
};
pub use health::{Condition, StoreStats};
pub use high_water::{HighWater, RecordFile};
pub use host_id::HostId;
pub use load::Loaded;
pub use medium::Medium;
pub use null::Nowhere;
pub use options::StoreOptions;
pub use reader::StoreReader;
pub use reset_clock::{ClockWasReset, ResetClock};
pub use restore::{Restore, Restored};
pub use rollups::HistoryAsk;
use room::DiskRoom;
pub use seal::Seal;

use batch::Batch;
use medium::Disk;
use open::Opened;
use rows::StateV1;

/// What redb may keep in memory.
const CACHE_BYTES: usize = 16 << 20;
/// Room that one row may need: its leaf page and a share of the branches above, copied on write.
const ROW_BYTES: u64 = 8 << 10;
/// From so many on, rows share pages.
const MANY_ROWS: u64 = 1_000;
/// Room that one of many rows may need beside the pages that are there already.
const NEW_ROW_BYTES: u64 = 2 << 10;
/// The longest pause between two attempts to reopen the file.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The one writer of the file.
///
/// Invariant: `state` is what the file holds as long as the database is open.
#[derive(Debug)]
pub struct Store {
    shared: Arc<StoreState>,
    options: StoreOptions,
    state: StateV1,
    /// When older rows may be rewritten next; `None`: none is left, or one of them is damaged.
    rewrite: Option<Instant>,
    /// The number of the epoch that the file is of.
    epoch: u64,
    /// Whether the high-water record has to be synced.
    unsynced: bool,
    /// It belongs to another host: nothing is written.
    is_foreign: bool,
}

/// What the writer and the readers have in common.
struct StoreState {
    medium: Arc<dyn Medium>,
    /// `None` while it is being reopened and after the end.
    database: RwLock<Option<Database>>,
    stats: Mutex<StoreStats>,
    room: DiskRoom,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

impl std::fmt::Debug for StoreState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreState")
            .field("medium", &self.medium)
            .finish_non_exhaustive()
    }
}

/// Ends a store's attempts to reopen its file, from another thread.
#[derive(Clone, Debug)]
pub struct StoreStop {
    shared: Arc<StoreState>,
}

impl StoreStop {
    /// A commit whose outcome cannot be had now returns without one.
    pub fn stop(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.stopped.notify_all();
    }

    /// Notes that nothing is decided any more. A reason that is known already stays.
    pub(crate) fn note_end(&self, reason: &str) {
        let condition = &mut self.shared.stats.lock().condition;
        if !matches!(condition, Condition::Stopped { .. }) {
            *condition = Condition::Stopped {
                reason: reason.to_owned(),
            };
        }
    }
}

impl Store {
    /// Opens the file, makes it where there is none, brings its schema up to date and loads it.
    ///
    /// # Errors
    /// When another process has it open, a newer fipd wrote it, it cannot be read or it contradicts itself.
    pub fn open(path: &Path, options: StoreOptions) -> Result<(Self, Loaded), OpenError> {
        missing::refuse(path, options.backups.as_deref())?;
        upgrade::before_open(path, clock::now())?;
        let disk = Arc::new(Disk::on_host(path, options.ballast, options.host));
        let opened = Self::open_medium(Arc::clone(&disk) as Arc<dyn Medium>, options)?;
        // Only who has the store: another may be making it.
        disk.sweep();
        Ok(opened)
    }

    /// As [`Self::open`], on any medium.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_medium(
        medium: Arc<dyn Medium>,
        options: StoreOptions,
    ) -> Result<(Self, Loaded), OpenError> {
        let Opened {
            database,
            loaded,
            state,
            is_foreign,
        } = open::open(&*medium, options.history)?;
        let is_older = !is_foreign && open::has_older_rows(&*medium, &database)?;
        let rewrite = is_older.then(Instant::now);
        medium.keep_ballast();
        medium.note_own_write();
        let condition = match is_foreign {
            true => Condition::OtherHost,
            false => Condition::Serving,
        };
        let stats = StoreStats {
            condition,
            high_water: HighWater::of(loaded.epoch, &state),
            audit_first: state.audit_first,
            audit_next: state.audit_next,
            ..StoreStats::default()
        };
        let shared = Arc::new(StoreState {
            medium,
            database: RwLock::new(Some(database)),
            stats: Mutex::new(stats),
            room: DiskRoom::default(),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
        });
        Ok((
            Self {
                shared,
                options,
                epoch: loaded.epoch,
                unsynced: false,
                is_foreign,
                state,
                rewrite,
            },
            loaded,
        ))
    }

    /// About how many audit entries are kept, from the next commit on.
    pub fn keep_audit(&mut self, limit: u64) {
        self.options.audit_limit = limit;
    }

    /// Does what is due beside decisions, and says when there is more to do; `None`: nothing is left. Blocks on the
    /// disk for some milliseconds.
    pub fn upkeep(&mut self, now: Instant) -> Option<Instant> {
        let due = self.rewrite?;
        if now < due {
            return Some(due);
        }
        if self.is_replaced() {
            return None;
        }
        self.rewrite = self.rewrite_some(now);
        self.shared.medium.note_own_write();
        self.rewrite
    }

    /// What has to be done each second, with or without decisions: compares the file with what this process wrote last, and
    /// makes the high-water record durable.
    pub fn watch(&mut self) {
        if !self.is_replaced() {
            self.sync_record();
        }
    }

    /// Stops deciding where the file is not the one that this process wrote.
    fn is_replaced(&mut self) -> bool {
        if self.shared.database.read().is_none() {
            return true;
        }
        let Some(why) = self.shared.medium.replaced() else {
            return false;
        };
        let reason = format!(
            "the store {} is not the one that this fipd serves: {why}; put the right one in place and start fipd again",
            self.shared.medium.path().display()
        );
        tracing::error!("{reason}");
        // Closing it would write to whatever is there now.
        std::mem::forget(self.shared.database.write().take());
        self.shared.stats.lock().condition = Condition::Stopped { reason };
        true
    }

    /// Notes how far the file has come, before anybody is answered.
    fn write_record(&mut self) {
        let reached = HighWater::of(self.epoch, &self.state);
        self.shared.stats.lock().high_water = reached;
        let Some(record) = self.shared.medium.record() else {
            return;
        };
        match record.write(reached) {
            Ok(()) => self.unsynced = true,
            Err(error) => {
                tracing::warn!(%error, "the high-water record beside the store cannot be written; it is tried again with the next commit");
            }
        }
    }

    fn sync_record(&mut self) {
        let record = self.shared.medium.record().filter(|_| self.unsynced);
        if let Some(record) = record {
            match record.sync() {
                Ok(()) => self.unsynced = false,
                Err(error) => {
                    tracing::warn!(%error, "the high-water record beside the store cannot be synced; tried again");
                }
            }
        }
    }

    /// One step of the rewrite of older rows; says when the next is due.
    fn rewrite_some(&mut self, began: Instant) -> Option<Instant> {
        let pause = began + RETRY_MAX;
        // Nobody waits for it: not with the room that is kept for decisions.
        if self.room(rewrite::STEP).is_err() {
            return Some(pause);
        }
        let stepped = match self.shared.database.read().as_ref() {
            Some(database) => rewrite::step(database, &self.state, rewrite::STEP),
            None => return None,
        };
        match stepped {
            Ok((state, more)) => {
                self.state = state;
                if !more {
                    tracing::info!("every row of the store has a checksum now");
                }
                more.then(|| rewrite::next_step(began, began.elapsed()))
            }
            Err(error) if error.is_of_row() => {
                tracing::error!(%error, "the rewrite of older rows ends here: see `fipd check`, and restore a backup");
                None
            }
            // The numbers of decisions are as they were, whether or not the step is in the file.
            Err(error) => self.look_up(self.state.sequence, &error).map(|_| pause),
        }
    }

    /// A handle for reading.
    pub fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.shared))
    }

    /// A handle for ending.
    pub fn stop_handle(&self) -> StoreStop {
        StoreStop {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Refuses on another host, and when the disk is too full for `rows`.
    fn may_write(&self, rows: usize) -> Result<(), Refused> {
        if self.is_foreign {
            return Err(Refused::OtherHost);
        }
        self.room(rows)
    }

    /// Refuses when the disk is too full for `rows`.
    fn room(&self, rows: usize) -> Result<(), Refused> {
        let needed = self.options.reserve + self.copied(rows as u64);
        match self.shared.medium.free() {
            Ok(free) if free < needed => {
                self.shared.stats.lock().condition = Condition::Full { free, needed };
                Err(Refused::DiskFull { free, needed })
            }
            // A file system that does not say is asked by writing.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The most bytes that writing so many rows takes.
    fn copied(&self, rows: u64) -> u64 {
        let each = rows * ROW_BYTES;
        if rows < MANY_ROWS {
            return each;
        }
        // However many rows, no page of the file is copied twice.
        let file = std::fs::metadata(self.shared.medium.path());
        file.map_or(each, |file| each.min(file.len() + rows * NEW_ROW_BYTES))
    }

    fn write(&self, batch: &mut Batch) -> Result<StateV1, ReadError> {
        let slot = self.shared.database.read();
        let database = slot.as_ref().ok_or(ReadError::Reopening)?;
        let txn = database.begin_write()?;
        let after = batch.write(&txn, &self.state, self.options.keep())?;
        txn.commit().map_err(redb::Error::from)?;
        Ok(after)
    }

    fn note(&self, decisions: usize, began: Instant) {
        let mut stats = self.shared.stats.lock();
        stats.condition = Condition::Serving;
        stats.commits += 1;
        stats.decisions += decisions as u64;
        stats.commit_nanos += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        stats.audit_first = self.state.audit_first;
        stats.audit_next = self.state.audit_next;
    }
}

/// All decisions that can be written go into one transaction.
///
/// An answer that is **shorter than the question** means that the outcome of the rest is unknown: the store was
/// stopped while it could not reopen its file, or the file is no longer the one it was. Nothing more is decided
/// then by this process.
impl Authority for Store {
    fn commit(&mut self, decisions: &[Decision]) -> Vec<Outcome> {
        if self.is_replaced() {
            return Vec::new();
        }
        let began = Instant::now();
        let (mut batch, mut outcomes) = batch_of(decisions);
        if batch.rows() == 0 {
            return outcomes;
        }
        let refused = |why: &Refused, outcomes: &mut Vec<Outcome>| {
            for outcome in outcomes
                .iter_mut()
                .filter(|outcome| **outcome == Outcome::Committed)
            {
                *outcome = Outcome::Refused(why.clone());
            }
        };
        if let Err(why) = self.may_write(batch.rows()) {
            refused(&why, &mut outcomes);
            return outcomes;
        }
        match self.write(&mut batch) {
            Ok(after) => {
                self.state = after;
                self.epoch = batch.epoch_number.unwrap_or(self.epoch);
                self.shared.medium.note_own_write();
                self.write_record();
                // It may have been given up, and there may be room again.
                self.shared.medium.keep_ballast();
            }
            Err(error) => match self.look_up(self.state.sequence + 1, &error) {
                Some(true) => {
                    self.epoch = batch.epoch_number.unwrap_or(self.epoch);
                    self.write_record();
                }
                Some(false) => refused(&Refused::Failed(error.to_string()), &mut outcomes),
                None => return Vec::new(),
            },
        }
        self.note(decisions.len(), began);
        outcomes
    }
}

/// The rows of all decisions that have a row form, and the outcome of each if those are written.
fn batch_of(decisions: &[Decision]) -> (Batch, Vec<Outcome>) {
    let mut outcomes = vec![Outcome::Committed; decisions.len()];
    loop {
        let mut batch = Batch::default();
        let bad = decisions
            .iter()
            .zip(&mut outcomes)
            .find_map(|(decision, outcome)| {
                let error = (*outcome == Outcome::Committed)
                    .then(|| batch.add(decision).err())
                    .flatten();
                error.map(|error| (outcome, error))
            });
        // A decision without a row form leaves half of itself behind: the batch is made again without it.
        match bad {
            None => return (batch, outcomes),
            Some((outcome, error)) => {
                *outcome = Outcome::Refused(Refused::Failed(error.to_string()))
            }
        }
    }
}

/// Closing writes what makes the next start need no repair.
impl Drop for Store {
    fn drop(&mut self) {
        if !self.is_replaced() {
            self.sync_record();
        }
        *self.shared.database.write() = None;
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

#[cfg(test)]
mod tests;
