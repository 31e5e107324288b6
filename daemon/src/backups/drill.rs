//! Whether a kept copy could be restored: it is, in a place of its own, opened and checked there. What came of it is kept
//! beside the copy, and goes with it.

use std::{
    fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use fipd_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Backups, CopyError};
use crate::{
    clock,
    private_file::if_there,
    store::{self, Restore, Store, StoreOptions},
};

const SUFFIX: &str = "drill";
/// Where copies are tried out.
const PLACE: &str = "drill";

/// The last drill of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    pub at: Timestamp,
    /// What was wrong with it; empty where it can be restored.
    pub problems: Vec<String>,
}

impl Backups {
    /// Tries a copy out and notes what came of it. Blocks for long.
    ///
    /// # Errors
    /// When no copy is called so, there is no room, something cannot be written, or a copy is being made or tried.
    pub fn drill(&self, name: &str) -> Result<Drill, CopyError> {
        let Some(copy) = self.path(name) else {
            return Err(CopyError::Unknown(name.to_owned()));
        };
        let Some(_turn) = self.0.turn.try_lock() else {
            return Err(CopyError::Busy);
        };
        let directory = self.schedule().directory;
        self.room(&directory)?;
        let place = DrillDirectory::new(&directory)?;
        let drill = Drill {
            at: clock::now(),
            problems: try_out(&copy, &place.0.join("store.redb")),
        };
        let note = note(&copy);
        let text = serde_json::to_string(&drill).unwrap_or_default();
        fs::write(&note, &text).map_err(|source| CopyError::Io { path: note, source })?;
        match drill.problems.first() {
            None => tracing::info!(name, "the backup can be restored"),
            Some(problem) => tracing::error!(name, problem, "the backup cannot be restored"),
        }
        Ok(drill)
    }
}

/// What was noted of a copy's last drill; nothing where the note cannot be read.
pub(super) fn of(copy: &Path) -> Option<Drill> {
    let text = fs::read_to_string(note(copy)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Removes the note of a copy that is gone.
pub(super) fn forget(copy: &Path) {
    let note = note(copy);
    if let Err(error) = if_there(fs::remove_file(&note)) {
        tracing::warn!(path = %note.display(), %error, "a note on an old backup stays");
    }
}

fn note(copy: &Path) -> PathBuf {
    copy.with_added_extension(SUFFIX)
}

/// What is wrong with the copy.
fn try_out(copy: &Path, place: &Path) -> Vec<String> {
    let restore = Restore {
        backup: copy,
        store: place,
        no_hold: None,
        actor: "drill".into(),
        now: clock::now(),
        host: None,
    };
    if let Err(error) = restore.run() {
        return vec![error.to_string()];
    }
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    match store::check(place) {
        Err(error) => vec![error.to_string()],
        Ok(problems) if !problems.is_empty() => problems.iter().map(ToString::to_string).collect(),
        Ok(_) => {
            let opened = Store::open(place, options);
            opened.err().iter().map(ToString::to_string).collect()
        }
    }
}

/// A directory that goes with this value; an end in the middle of a drill leaves it for the next.
struct DrillDirectory(PathBuf);

impl DrillDirectory {
    fn new(directory: &Path) -> Result<Self, CopyError> {
        let path = directory.join(PLACE);
        let free = if_there(fs::remove_dir_all(&path));
        // Never one that somebody else put there meanwhile.
        let mut private = fs::DirBuilder::new();
        match free.and_then(|_| private.mode(0o700).create(&path)) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(CopyError::Io { path, source }),
        }
    }
}

impl Drop for DrillDirectory {
    fn drop(&mut self) {
        // What stays goes at the next drill.
        let _ = fs::remove_dir_all(&self.0);
    }
}
