//! A store that is missing or empty where there was one: starting with an empty address book would give addresses twice.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{error::OpenError, high_water::RecordFile, medium::directory};

/// Refuses a missing or empty store in a directory that was used: its record says that there were commits, or there is a
/// backup. `backups`: where those are, if not in `backups` beside the store.
///
/// # Errors
/// It was used, or the record cannot be read.
pub(super) fn refuse(path: &Path, backups: Option<&Path>) -> Result<(), OpenError> {
    if fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        return Ok(());
    }
    let record = RecordFile::beside(path, None);
    let reached = record.read();
    let reached = reached.map_err(OpenError::io(record.path(), "read"))?;
    let beside = directory(path).join("backups");
    let newest = newest(backups.unwrap_or(&beside));
    // A damaged record is one of a store that was used.
    let used = match reached {
        Some(found) => found.reached.commit > 0 || found.reached.epoch > 0,
        None => record.path().exists(),
    };
    let was = match (used, &newest) {
        (true, _) => "the record beside it says that it held decisions",
        (false, Some(_)) => "there are backups of it",
        (false, None) => return Ok(()),
    };
    let path = path.to_owned();
    Err(OpenError::Missing { path, was, newest })
}

/// The backup that was written last.
fn newest(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let backups = entries.filter_map(|entry| {
        let path = entry.path();
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let is_backup = path
            .extension()
            .is_some_and(|extension| extension == "redb");
        is_backup.then(|| (meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path))
    });
    backups.max().map(|(_, path)| path)
}
