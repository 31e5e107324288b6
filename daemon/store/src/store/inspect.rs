//! Looks at a file without writing to it: every page against its checksum, then whatever the caller reads.

use std::{
    fs::File,
    ops::RangeInclusive,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redb::Database;

use super::{
    builder,
    error::{OpenError, ReadError},
    high_water::{FileAge, RecordFile},
    overlay::Overlay,
};

/// redb reports so much of a repair only once the newest commit turned out to be damaged; 0 and 0.6 of any other.
const FELL_BACK: RangeInclusive<f64> = 0.1..=0.5;

/// A file as redb reads it, in memory from the first byte that redb would change.
pub(super) struct Inspected {
    pub database: Database,
    /// The file was not closed: its last commit may be half on the disk.
    unclean: bool,
    /// The newest commit is damaged, and the one before it is what is read.
    pub fell_back: bool,
}

impl Inspected {
    /// Checks the pages, and says what is wrong with them. A file that was not closed was checked in being opened.
    pub(super) fn pages(&mut self) -> Option<String> {
        if self.unclean {
            return None;
        }
        match self.database.check_integrity() {
            Ok(true) => None,
            Ok(false) => Some("the page allocation did not match the tables".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// That the newest commit is damaged although it was answered: the record beside the store is of it, and redb would go
    /// back to the one before. A torn commit was never answered, and an older file has no damage.
    pub(super) fn lost_commit(&self, path: &Path) -> Result<Option<String>, ReadError> {
        if !self.fell_back {
            return Ok(None);
        }
        let record = RecordFile::beside(path, None).read();
        let record = record.map_err(|error| ReadError::Storage(redb::Error::Io(error)))?;
        let file = FileAge::of(&self.database)?.reached;
        let record = record.map(|record| record.reached);
        Ok(record.filter(|record| *record > file).map(|record| {
            format!(
                "commit {} is damaged, and decisions up to it were answered; commit {} is whole",
                record.commit, file.commit
            )
        }))
    }

    /// As [`Self::pages`], of a file that is in use: whatever its last commit, it is whole.
    pub(super) fn wrong_now(&mut self) -> Option<String> {
        match self.pages() {
            None if self.fell_back => Some("the last commit is damaged".to_owned()),
            found => found,
        }
    }
}

/// Opens the file at `path` behind a layer in memory, and gives it to `read`. Keeps a daemon out meanwhile.
///
/// # Errors
/// When the file is missing, in use or no store, what `read` fails with, and where redb panics over damaged pages.
pub(super) fn inspect<T>(
    path: &Path,
    read: impl FnOnce(&mut Inspected) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let overlay = Overlay::open(path).map_err(|error| OpenError::from_redb(path, error))?;
    guarded(path, overlay, read)
}

/// A file that this process itself has the database of open, and the first page that it had at one moment.
pub(super) struct Snapshot {
    pub file: File,
    pub header: Vec<u8>,
}

/// As [`inspect`], of the state that the first page of a snapshot names.
pub(super) fn inspect_snapshot<T>(
    path: &Path,
    Snapshot { file, header }: Snapshot,
    read: impl FnOnce(&mut Inspected) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let overlay =
        Overlay::of_snapshot(file, header).map_err(|error| OpenError::from_redb(path, error))?;
    guarded(path, overlay, read)
}

/// redb asserts what only a damaged file breaks. Nothing outlives the panic that could be half changed: the database
/// and the layer that took its writes are made and dropped in here, and the file is only read.
fn guarded<T>(
    path: &Path,
    overlay: Overlay,
    read: impl FnOnce(&mut Inspected) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let inspected = || {
        let (unclean, fell_back) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (repairs, falls) = (Arc::clone(&unclean), Arc::clone(&fell_back));
        let mut builder = builder();
        builder.set_repair_callback(move |session| {
            repairs.store(true, Ordering::Relaxed);
            falls.fetch_or(FELL_BACK.contains(&session.progress()), Ordering::Relaxed);
        });
        let database = builder
            .create_with_backend(overlay)
            .map_err(|error| OpenError::from_redb(path, error))?;
        read(&mut Inspected {
            database,
            unclean: unclean.load(Ordering::Relaxed),
            fell_back: fell_back.load(Ordering::Relaxed),
        })
    };
    catch_unwind(AssertUnwindSafe(inspected)).unwrap_or_else(|_| {
        Err(OpenError::Pages {
            path: path.to_owned(),
            reason: "its pages contradict each other".to_owned(),
        })
    })
}
