//! What is looked at before a store is opened for writing: its pages, and whether its schema is older. Of an older
//! store a backup is made before the first row is written anew.

use std::{fs, path::Path};

use fipd_core::Timestamp;
use redb::{ReadTransaction, ReadableDatabase as _};

use super::{
    backup::backup,
    error::{OpenError, ReadError},
    inspect::{Inspected, inspect},
    medium::directory,
    restore::owner_as,
    schema, seal,
    tables::{META, existing},
};
use crate::{clock, private_file};

/// Checks the pages of the store at `path`, if there is one, and backs up one of an older schema. Nothing of the store is
/// changed.
///
/// # Errors
/// When the store is in use or damaged, or the backup cannot be made.
pub(super) fn before_open(path: &Path, now: Timestamp) -> Result<(), OpenError> {
    // One that nothing was ever written to is about to be made.
    if fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    inspect(path, |file| {
        if let Some(reason) = file.pages() {
            let path = path.to_owned();
            return Err(OpenError::Pages { path, reason });
        }
        let damaged = OpenError::damaged::<ReadError>(path);
        let (txn, found) = schema_of(file).map_err(&damaged)?;
        // Before a byte of it changes: it is to be restored.
        if found > 0 && found <= schema::known() && seal::read(&txn).map_err(&damaged)?.is_some() {
            return Err(OpenError::Sealed(path.to_owned()));
        }
        if found > 0
            && let Some(reason) = file.lost_commit(path).map_err(&damaged)?
        {
            let path = path.to_owned();
            return Err(OpenError::Pages { path, reason });
        }
        if found == 0 || found >= schema::known() {
            return Ok(());
        }
        back_up_older(path, (&txn, found), now)
    })
}

fn schema_of(file: &Inspected) -> Result<(ReadTransaction, u32), ReadError> {
    let txn = file.database.begin_read()?;
    let found = match existing(&txn, META)? {
        Some(meta) => schema::version(&meta)?,
        None => 0,
    };
    Ok((txn, found))
}

/// Makes and verifies a backup in `backups` beside the store, as the fipd reads it that wrote the store.
fn back_up_older(
    path: &Path,
    (txn, found): (&ReadTransaction, u32),
    now: Timestamp,
) -> Result<(), OpenError> {
    let failed = |reason: String| OpenError::NoBackup {
        path: path.to_owned(),
        found,
        reason,
    };
    let directory = directory(path).join("backups");
    let is_new = !directory.exists();
    private_file::create_directory(&directory)
        .map_err(|error| failed(format!("{} cannot be made: {error}", directory.display())))?;
    let stamp = clock::rfc3339(now).replace(['-', ':'], "");
    let copy = directory.join(format!("fipd-{stamp}.redb"));
    backup(txn, &copy, now).map_err(|error| failed(error.to_string()))?;
    // Root may do this for the daemon's user, who has to reach it.
    let owned = match is_new {
        true => owner_as(&directory, path),
        false => Ok(()),
    };
    let owned = owned.and_then(|()| owner_as(&copy, path));
    owned.map_err(|error| failed(error.to_string()))?;
    tracing::warn!(
        backup = %copy.display(),
        schema = found,
        "the store is of an older schema; it was backed up, and its rows are rewritten while it serves"
    );
    Ok(())
}
