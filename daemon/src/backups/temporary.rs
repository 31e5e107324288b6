//! Copies of the store that somebody reads once, and that go then.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::OwnedSemaphorePermit;

use super::{Backups, CopyError, called};
use crate::private_file::if_there;

const PREFIX: &str = "backup-";
const SUFFIX: &str = ".tmp";
const PARTIAL: &str = ".tmp.partial";

/// A copy for one reader; its file goes when this is dropped, also where the reader goes away in the middle.
#[derive(Debug)]
pub struct TemporaryBackup {
    path: PathBuf,
    /// Given back after the file is gone.
    _turn: OwnedSemaphorePermit,
}

impl TemporaryBackup {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryBackup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

impl Backups {
    /// A consistent copy of the store for one reader, in a file of this directory. There is one at a time: each takes as
    /// much room as the store. Blocks for long.
    ///
    /// # Errors
    /// While another one is read, when there is no room, and when something cannot be written.
    pub fn make_temporary(&self, directory: &Path) -> Result<TemporaryBackup, CopyError> {
        let turn = Arc::clone(&self.0.lending).try_acquire_owned();
        let turn = turn.map_err(|_| CopyError::Busy)?;
        self.room(directory)?;
        let number = getrandom::u64().map_err(|error| CopyError::Io {
            path: directory.to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        let temporary = TemporaryBackup {
            path: directory.join(format!("{PREFIX}{number:016x}{SUFFIX}")),
            _turn: turn,
        };
        self.0.ipam.reader().backup(&temporary.path)?;
        Ok(temporary)
    }

    /// Removes what an end in the middle of a temporary copy has left in this directory. Only before the first one is made.
    pub fn sweep_lent(directory: &Path) {
        called(directory, PREFIX, &[SUFFIX, PARTIAL]).for_each(|path| remove(&path));
    }
}

fn remove(path: &Path) {
    if let Err(error) = if_there(std::fs::remove_file(path)) {
        tracing::warn!(file = %path.display(), %error, "a temporary file could not be removed");
    }
}
