//! Puts a backup in the place of the store, while no daemon has it.
//!
//! ```text
//!  backup --copy--> NAME.restore-PID --check, new epoch, check--> rename to NAME
//!                                        NAME --link--> NAME.before-restore-TIME
//! ```
//!
//! Until the rename the old file is in place, from then on the new one: an end at any point leaves one of them.

use std::{
    fs, io,
    ops::Bound,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use fipd_core::{Actor, Epoch, Text, Timestamp};
use redb::{Database, ReadableDatabase as _, StorageBackend as _, backends::FileBackend};

use super::{
    builder,
    check::check,
    error::{FileError, OpenError, ReadError, RestoreError},
    high_water::{HighWater, RecordFile},
    host_id::HostId,
    inspect::inspect,
    load, medium,
    medium::{Disk, Medium as _, directory},
    new_epoch::NewEpoch,
    open,
    seal::{self, Seal},
};
use crate::private_file;

/// A restore as it is asked for.
#[derive(Clone, Debug)]
pub struct Restore<'a> {
    pub backup: &'a Path,
    /// The store whose place it takes; need not be there.
    pub store: &'a Path,
    /// Why no hold is needed; `None`: free addresses are held.
    pub no_hold: Option<Text>,
    pub actor: Actor,
    /// The wall clock where the kernel vouches for it, else 0: time goes on as the backup has it then.
    pub now: Timestamp,
    /// This host, to which the store belongs then.
    pub host: Option<HostId>,
}

/// What was put in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub epoch: Epoch,
    /// What the backup says of itself; `None` for a plain copy of a store.
    pub seal: Option<Seal>,
    /// The name that the old file has now.
    pub kept: Option<PathBuf>,
}

impl Restore<'_> {
    /// Verifies the backup and puts it in place as the first file of a new epoch. Blocks for long.
    ///
    /// # Errors
    /// When a daemon has the store, the backup is not whole, or something cannot be written. The store is as it was then.
    pub fn run(&self) -> Result<Restored, RestoreError> {
        let store = fs::canonicalize(self.store).unwrap_or_else(|_| self.store.to_owned());
        let record = RecordFile::beside(&store, self.host);
        let reached = record.read().map_err(FileError::of(&store, "read"))?;
        let reached = reached.map_or(0, |found| found.reached.epoch);
        let last = last_epoch(&store)?.max(reached);
        let lock = lock(&store)?;
        let new = Partial::copy(self.backup, &store)?;
        self.whole(&new.0)?;
        let (epoch, seal) = self.renew(&new.0, last)?;
        self.whole(&new.0)?;
        let store = store.as_path();
        let io = |doing| FileError::of(store, doing);
        owner_as(&new.0, store).map_err(io("given its owner"))?;
        let kept = match &lock {
            Some(_) => Some(keep(store, self.now).map_err(io("kept under another name"))?),
            None => None,
        };
        let placed = match &lock {
            Some(_) => fs::rename(&new.0, store)
                .and_then(|()| fs::File::open(directory(store))?.sync_all()),
            None => medium::publish(&new.0, store),
        };
        placed.map_err(io("put in place"))?;
        // An end before this leaves the record of an earlier epoch, which is behind and no harm.
        let restored = HighWater {
            epoch: epoch.number,
            ..HighWater::default()
        };
        let noted = record.write(restored).and_then(|()| record.sync());
        let noted = noted.and_then(|()| owner_as(record.path(), store));
        noted.map_err(io("recorded"))?;
        Ok(Restored { epoch, seal, kept })
    }

    /// Fails with the first problem of the file.
    fn whole(&self, file: &Path) -> Result<(), RestoreError> {
        let problems = check(file).map_err(|error| self.unusable(&error))?;
        match problems.first() {
            None => Ok(()),
            Some(problem) => Err(self.unusable(problem)),
        }
    }

    fn unusable(&self, reason: &impl ToString) -> RestoreError {
        RestoreError::Unusable {
            path: self.backup.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Begins the new epoch in the copy: no marker of an adoption is worth anything any more.
    fn renew(&self, file: &Path, last: u64) -> Result<(Epoch, Option<Seal>), RestoreError> {
        let disk = Disk::new(file, 0);
        let database = disk
            .open(&builder())
            .map_err(|error| self.unusable(&error))?;
        open::prepare(&disk, &database).map_err(|error| self.unusable(&error))?;
        let renewed = self.write(&database, last);
        drop(database);
        let renewed = renewed.map_err(|error| self.unusable(&error))?;
        fs::File::open(file)
            .and_then(|file| file.sync_all())
            .map_err(FileError::of(file, "written"))?;
        Ok(renewed)
    }

    fn write(&self, database: &Database, last: u64) -> Result<(Epoch, Option<Seal>), ReadError> {
        let seal = seal::read(&database.begin_read()?)?;
        let from = match &seal {
            Some(seal) => format!("the backup of {}", seal.created),
            None => "a copy of a store".to_owned(),
        };
        let new = NewEpoch {
            last,
            from: &from,
            no_hold: self.no_hold.as_ref(),
            actor: &self.actor,
            now: self.now,
        };
        Ok((new.begin(database)?, seal))
    }
}

/// The epoch of the store in place, as far as it can be read: it may be damaged, which is why it is replaced.
fn last_epoch(store: &Path) -> Result<u64, RestoreError> {
    if !store.exists() {
        return Ok(0);
    }
    let read = inspect(store, |file| {
        let epoch = file
            .database
            .begin_read()
            .map_err(ReadError::from)
            .and_then(|txn| load::epoch(&txn));
        Ok(epoch.ok().flatten().map_or(0, |epoch| epoch.number))
    });
    match read {
        Err(OpenError::Locked(path)) => Err(RestoreError::Running(path)),
        Err(error) => {
            tracing::warn!(%error, "the store in place cannot be read");
            Ok(0)
        }
        Ok(number) => Ok(number),
    }
}

/// Keeps daemons out of the store in place, if there is one.
fn lock(store: &Path) -> Result<Option<FileBackend>, RestoreError> {
    let file = match fs::OpenOptions::new().read(true).write(true).open(store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(FileError::of(store, "locked"))?,
    };
    let running = || RestoreError::Running(store.to_owned());
    let backend = FileBackend::new(file).map_err(|_| running())?;
    match backend.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
        Ok(true) => Ok(Some(backend)),
        Ok(false) => Err(running()),
        Err(error) => {
            let error = io::Error::other(format!("{error:?}"));
            Err(FileError::of(store, "locked")(error).into())
        }
    }
}

/// Another name for the old file; both names are durable.
fn keep(store: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let now = match now {
        Timestamp(0) => crate::clock::now(),
        now => now,
    };
    let stamp = crate::clock::rfc3339(now).replace(['-', ':'], "");
    let kept = store.with_added_extension(format!("before-restore-{stamp}"));
    match fs::hard_link(store, &kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) => {}
        // A file system without links.
        Err(_) => {
            fs::copy(store, &kept)?;
            fs::File::open(&kept)?.sync_all()?;
        }
    }
    fs::File::open(directory(store))?.sync_all()?;
    Ok(kept)
}

/// The new file belongs to whom the old one does, else to whom the directory does: the daemon may be another user.
pub(super) fn owner_as(new: &Path, store: &Path) -> io::Result<()> {
    let like = fs::metadata(store).or_else(|_| fs::metadata(directory(store)))?;
    let own = fs::metadata(new)?;
    if (own.uid(), own.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(new, Some(like.uid()), Some(like.gid()))
}

/// A copy that is not in place yet; removed when dropped before it is.
struct Partial(PathBuf);

impl Partial {
    fn copy(backup: &Path, store: &Path) -> Result<Self, RestoreError> {
        let mut from = fs::File::open(backup).map_err(FileError::of(backup, "read"))?;
        let new = Self(medium::beside(store, medium::RESTORE));
        let write = || FileError::of(&new.0, "written");
        let mut to = private_file::create(&new.0).map_err(write())?;
        io::copy(&mut from, &mut to).map_err(write())?;
        to.sync_all().map_err(write())?;
        Ok(new)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Mostly in place by now. One that stays is swept by a later start.
        let _ = fs::remove_file(&self.0);
    }
}
