//! Copies of the store on a schedule: made, kept and shown.
//!
//! A copy has its final name only when it has been read back, and an older one goes only after that. Who reads the clock
//! here decides nothing about addresses: a clock that is set makes a copy sooner or later, and no more.

use std::{
    cmp::Reverse,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fipd_core::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    clock, config,
    ipam::Ipam,
    private_file::{self, if_there},
    store::BackupError,
};

mod drill;
mod temporary;

pub use drill::Drill;
pub use temporary::TemporaryBackup;

/// After the start: it has other things to do first.
const FIRST: Duration = Duration::from_secs(300);
/// After a copy that could not be made.
const RETRY: Duration = Duration::from_secs(900);
/// At most without a look at the clock.
const LOOK: Duration = Duration::from_secs(60);
/// Room that must be left beside a copy.
const SPARE: u64 = 64 << 20;

const PREFIX: &str = "fipd-";
const SUFFIX: &str = ".redb";
const PARTIAL: &str = ".redb.partial";

/// What is copied when and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub directory: PathBuf,
    /// `None`: only when asked.
    pub every: Option<Duration>,
    pub keep: usize,
}

/// A copy that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub name: String,
    pub created: Timestamp,
    pub bytes: u64,
    /// The last time that it was tried out.
    pub drill: Option<Drill>,
}

/// Why there is no new copy; the older ones stay.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("another backup is being made or tried out")]
    Busy,
    #[error("no backup is called {0}")]
    Unknown(String),
    #[error(
        "the disk of {} is too full for a backup: {free} bytes free, {needed} needed", .directory.display()
    )]
    Full {
        directory: PathBuf,
        free: u64,
        needed: u64,
    },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] BackupError),
}

/// How it has gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupStatus {
    /// When the newest copy was made.
    pub last: Option<Timestamp>,
    /// Why the last attempt failed, and when that was.
    pub failure: Option<(Timestamp, String)>,
}

/// The copies of this daemon's store; cheap to clone.
#[derive(Clone, Debug)]
pub struct Backups(Arc<BackupState>);

#[derive(Debug)]
struct BackupState {
    ipam: Ipam,
    schedule: watch::Sender<Schedule>,
    standing: Mutex<BackupStatus>,
    /// Held while a copy is made or tried out.
    turn: Mutex<()>,
    /// Held while somebody has a copy that goes when it was read.
    lending: Arc<Semaphore>,
}

impl Schedule {
    /// What the configuration says.
    pub fn new(config: &config::Backup, data_dir: &Path) -> Self {
        let directory = config.directory.clone();
        Self {
            directory: directory.unwrap_or_else(|| data_dir.join("backups")),
            every: config.every.0,
            keep: config.keep.0,
        }
    }
}

impl Backups {
    /// Looks at what is there; makes nothing yet. Blocks on the disk.
    pub fn new(ipam: Ipam, schedule: Schedule) -> Self {
        let standing = BackupStatus {
            last: newest(&list(&schedule.directory)),
            failure: None,
        };
        Self(Arc::new(BackupState {
            ipam,
            schedule: watch::Sender::new(schedule),
            standing: Mutex::new(standing),
            turn: Mutex::new(()),
            lending: Arc::new(Semaphore::new(1)),
        }))
    }

    pub fn schedule(&self) -> Schedule {
        self.0.schedule.borrow().clone()
    }

    /// Another schedule is in force from here on.
    pub fn reschedule(&self, schedule: Schedule) {
        let told = &self.0.schedule;
        told.send_if_modified(|old| std::mem::replace(old, schedule) != *old);
    }

    pub fn standing(&self) -> BackupStatus {
        self.0.standing.lock().clone()
    }

    /// All copies, newest first. Blocks on the disk.
    pub fn list(&self) -> io::Result<Vec<Copy>> {
        list(&self.schedule().directory)
    }

    /// The file of a copy with this name; `None` for any other name.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        created(name)?;
        let path = self.schedule().directory.join(name);
        path.is_file().then_some(path)
    }

    /// Makes a copy, reads it back, and then removes what is too many. Blocks for long.
    ///
    /// # Errors
    /// When there is no room, something cannot be written, or another copy is being made.
    pub fn make(&self) -> Result<Copy, CopyError> {
        let Some(_turn) = self.0.turn.try_lock() else {
            return Err(CopyError::Busy);
        };
        let now = clock::now();
        let made = self.copy(now);
        let mut standing = self.0.standing.lock();
        match &made {
            Ok(copy) => {
                standing.last = Some(copy.created);
                standing.failure = None;
                tracing::info!(name = copy.name, bytes = copy.bytes, "a backup was made");
            }
            Err(error) => {
                standing.failure = Some((now, error.to_string()));
                tracing::error!(%error, "no backup was made");
            }
        }
        drop(standing);
        // Copies of the other host may be in the same directory.
        if let Ok(copy) = &made
            && !self.0.ipam.is_of_another_host()
        {
            self.prune(copy);
        }
        made
    }

    fn copy(&self, now: Timestamp) -> Result<Copy, CopyError> {
        let directory = &self.schedule().directory;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| CopyError::Io { path, source }
        };
        private_file::create_directory(directory).map_err(io(directory))?;
        sweep(directory);
        self.room(directory)?;
        let name = name(now);
        let path = directory.join(&name);
        self.0.ipam.reader().backup(&path)?;
        let bytes = fs::metadata(&path).map_err(io(&path))?.len();
        Ok(Copy {
            name,
            created: now,
            bytes,
            drill: None,
        })
    }

    /// A copy may be as large as the store. Where the file systems do not say, it is tried.
    fn room(&self, directory: &Path) -> Result<(), CopyError> {
        let used = self.0.ipam.reader().disk().map_or(0, |(used, _)| used);
        let needed = used.saturating_add(SPARE);
        let Ok(stat) = nix::sys::statvfs::statvfs(directory) else {
            return Ok(());
        };
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        if free < needed {
            return Err(CopyError::Full {
                directory: directory.to_owned(),
                free,
                needed,
            });
        }
        Ok(())
    }

    /// Those of a clock that was ahead go first, so that the new copy always stays.
    fn prune(&self, made: &Copy) {
        let mut copies = match self.list() {
            Ok(copies) => copies,
            Err(error) => {
                tracing::warn!(%error, "old backups stay: they cannot be listed");
                return;
            }
        };
        copies.sort_by_key(|copy| (copy.created > made.created, Reverse(copy.created)));
        let schedule = self.schedule();
        for old in copies.iter().skip(schedule.keep) {
            let path = schedule.directory.join(&old.name);
            match fs::remove_file(&path) {
                Ok(()) => {
                    drill::forget(&path);
                    tracing::info!(name = old.name, "an old backup was removed");
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an old backup stays");
                }
            }
        }
    }

    /// Makes copies on time until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let work = std::pin::pin!(self.work());
        let _ = stop.run_until_cancelled(work).await;
    }

    async fn work(&self) {
        let mut schedules = self.0.schedule.subscribe();
        let mut wait = FIRST;
        loop {
            let every = schedules.borrow_and_update().every;
            let due = async {
                match every {
                    Some(every) => {
                        tokio::time::sleep(wait).await;
                        every
                    }
                    None => std::future::pending().await,
                }
            };
            let every = tokio::select! {
                every = due => every,
                // The sender lives as long as this.
                _ = schedules.changed() => continue,
            };
            let left = left(clock::now(), self.standing().last, every);
            wait = left.min(LOOK);
            if !left.is_zero() {
                continue;
            }
            let this = self.clone();
            let made = tokio::task::spawn_blocking(move || this.make()).await;
            if !matches!(made, Ok(Ok(_))) {
                wait = RETRY;
            }
        }
    }
}

/// How long until the next copy. One that seems to be of the future is of no known age.
fn left(now: Timestamp, last: Option<Timestamp>, every: Duration) -> Duration {
    let age = last.and_then(|last| now.0.checked_sub(last.0));
    age.map_or(Duration::ZERO, |age| {
        every.saturating_sub(Duration::from_millis(age))
    })
}

fn newest(copies: &io::Result<Vec<Copy>>) -> Option<Timestamp> {
    copies.as_ref().ok()?.first().map(|copy| copy.created)
}

fn list(directory: &Path) -> io::Result<Vec<Copy>> {
    let mut copies = Vec::new();
    for entry in if_there(fs::read_dir(directory))?.into_iter().flatten() {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if let Some(created) = created(&name) {
            let bytes = entry.metadata()?.len();
            copies.push(Copy {
                name,
                created,
                bytes,
                drill: drill::of(&entry.path()),
            });
        }
    }
    copies.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
    Ok(copies)
}

/// Removes what an end in the middle of a copy has left. Only who has the turn.
fn sweep(directory: &Path) {
    for path in called(directory, PREFIX, &[PARTIAL]) {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "half a backup stays");
        }
    }
}

/// The files of a directory whose names begin and end so.
fn called(directory: &Path, prefix: &str, suffixes: &[&str]) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(move |path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| {
            name.starts_with(prefix) && suffixes.iter().any(|end| name.ends_with(end))
        })
    })
}

fn name(at: Timestamp) -> String {
    let stamp = clock::rfc3339(at).replace(['-', ':'], "");
    format!("{PREFIX}{stamp}{SUFFIX}")
}

/// When a copy of this name was made; `None` if no copy is called so.
fn created(name: &str) -> Option<Timestamp> {
    // Without its dashes and colons it is read as well, and so are other spellings.
    let at = clock::parse_rfc3339(name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?)?;
    (self::name(at) == name).then_some(at)
}

#[cfg(test)]
mod tests;
