//! The backup that is made before the first row of an older store is written anew.

use std::{fs, os::unix::fs::DirBuilderExt as _, path::Path};

use fipd_core::Timestamp;
use redb::ReadableDatabase as _;

use super::{
    backup::backup,
    builder,
    error::{OpenError, ReadError},
    medium::directory,
    overlay::Overlay,
    schema,
    tables::{META, existing},
};
use crate::clock;

/// Makes and verifies a backup of a store of an older schema in `backups` beside it, as the fipd reads it that wrote the
/// store. Does nothing to a store of this schema.
///
/// # Errors
/// When the store cannot be read or the backup cannot be made: the store is as it was then.
pub(super) fn back_up_older(path: &Path, now: Timestamp) -> Result<(), OpenError> {
    if fs::metadata(path).is_err() {
        return Ok(());
    }
    let damaged = |error: ReadError| OpenError::Damaged {
        path: path.to_owned(),
        error,
    };
    // Through a layer in memory: nothing of the store is changed before the backup is there.
    let overlay = Overlay::open(path).map_err(|error| OpenError::from_redb(path, error))?;
    let database = builder()
        .create_with_backend(overlay)
        .map_err(|error| OpenError::from_redb(path, error))?;
    let read = || -> Result<_, ReadError> {
        let txn = database.begin_read()?;
        let found = match existing(&txn, META)? {
            Some(meta) => schema::version(&meta)?,
            None => 0,
        };
        Ok((txn, found))
    };
    let (txn, found) = read().map_err(damaged)?;
    if found == 0 || found >= schema::known() {
        return Ok(());
    }
    let failed = |reason: String| OpenError::NoBackup {
        path: path.to_owned(),
        found,
        reason,
    };
    let directory = directory(path).join("backups");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|error| failed(format!("{} cannot be made: {error}", directory.display())))?;
    let stamp = clock::rfc3339(now).replace(['-', ':'], "");
    let copy = directory.join(format!("fipd-{stamp}.redb"));
    backup(&txn, &copy, now).map_err(|error| failed(error.to_string()))?;
    tracing::warn!(
        backup = %copy.display(),
        schema = found,
        "the store is of an older schema; it was backed up, and its rows are rewritten while it serves"
    );
    Ok(())
}
