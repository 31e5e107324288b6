//! A consistent copy of the store while it is in use.

use std::{fs, io, path::Path};

use fipd_core::Timestamp;
use redb::{Database, Durability, Key, ReadOnlyTable, ReadTransaction, TableDefinition};

use super::{
    batch::read_state,
    builder,
    check::check,
    codec,
    error::{BackupError, ReadError},
    medium::publish,
    schema,
    seal::{ROW, Seal},
    tables::{self, META, SEAL, Visit, existing},
};
use crate::private_file;

/// Rows copied in one transaction: bounds the memory of the copy.
const CHUNK: usize = 20_000;

/// Copies what the transaction sees. The file has its final name only once it is complete and verified.
pub(super) fn backup(
    from: &ReadTransaction,
    path: &Path,
    now: Timestamp,
) -> Result<(), BackupError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(BackupError::Exists(path.to_owned()));
    }
    let partial = path.with_added_extension("partial");
    let done = fill(from, &partial, path, now).and_then(|()| {
        publish(&partial, path).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                return BackupError::Exists(path.to_owned());
            }
            BackupError::Io {
                path: path.to_owned(),
                doing: "named",
                source,
            }
        })
    });
    if done.is_err() && fs::remove_file(&partial).is_err() {
        tracing::debug!(path = %partial.display(), "no partial backup to remove");
    }
    done
}

fn fill(
    from: &ReadTransaction,
    partial: &Path,
    path: &Path,
    now: Timestamp,
) -> Result<(), BackupError> {
    let io = |doing| {
        move |source| BackupError::Io {
            path: path.to_owned(),
            doing,
            source,
        }
    };
    let file = private_file::create(partial).map_err(io("created"))?;
    let write = |error: redb::Error| BackupError::Write {
        path: path.to_owned(),
        error,
    };
    let database = builder().create_file(file);
    let database = database.map_err(|error| write(error.into()))?;
    copy_all(from, &database, path)?;
    seal(from, &database, path, now)?;
    // Closing writes the state that makes opening it need no repair.
    drop(database);
    fs::File::open(partial)
        .and_then(|file| file.sync_all())
        .map_err(io("written"))?;
    let problems = check(partial).map_err(|error| BackupError::Verify {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    match problems.first() {
        None => Ok(()),
        Some(problem) => Err(BackupError::Verify {
            path: path.to_owned(),
            reason: problem.to_string(),
        }),
    }
}

fn copy_all(from: &ReadTransaction, to: &Database, path: &Path) -> Result<(), BackupError> {
    struct Copy<'a>(&'a ReadTransaction, &'a Database, &'a Path);
    impl Visit for Copy<'_> {
        type Error = BackupError;
        fn table<K: Key + 'static>(
            &mut self,
            definition: TableDefinition<'static, K, &'static [u8]>,
        ) -> Result<(), BackupError> {
            match existing(self.0, definition).map_err(ReadError::from)? {
                Some(table) => copy(&table, self.1, self.2, definition),
                None => Ok(()),
            }
        }
    }
    tables::each(&mut Copy(from, to, path))
}

/// What the backup says of itself; with it, all of it becomes durable.
fn seal(
    from: &ReadTransaction,
    to: &Database,
    path: &Path,
    now: Timestamp,
) -> Result<(), BackupError> {
    let meta = from.open_table(META).map_err(ReadError::from)?;
    let seal = Seal::of(from, &read_state(&meta)?, schema::version(&meta)?, now)?;
    let row = codec::encode_seal(&seal).map_err(|error| BackupError::Verify {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let write = || -> Result<(), redb::Error> {
        let txn = to.begin_write()?;
        txn.open_table(SEAL)?.insert(ROW, row.as_slice())?;
        Ok(txn.commit()?)
    };
    write().map_err(|error| BackupError::Write {
        path: path.to_owned(),
        error,
    })
}

fn copy<K: Key + 'static>(
    table: &ReadOnlyTable<K, &'static [u8]>,
    to: &Database,
    path: &Path,
    definition: TableDefinition<'static, K, &'static [u8]>,
) -> Result<(), BackupError> {
    let write = |error: redb::Error| BackupError::Write {
        path: path.to_owned(),
        error,
    };
    let mut rows = table
        .range::<K::SelfType<'static>>(..)
        .map_err(ReadError::from)?
        .peekable();
    loop {
        let mut txn = to.begin_write().map_err(|error| write(error.into()))?;
        txn.set_durability(Durability::None)
            .map_err(|error| write(error.into()))?;
        {
            let mut into = txn
                .open_table(definition)
                .map_err(|error| write(error.into()))?;
            for item in rows.by_ref().take(CHUNK) {
                let (key, value) = item.map_err(ReadError::from)?;
                into.insert(key.value(), value.value())
                    .map_err(|error| write(error.into()))?;
            }
        }
        txn.commit().map_err(|error| write(error.into()))?;
        if rows.peek().is_none() {
            return Ok(());
        }
    }
}
