//! A consistent copy of the store while it is in use.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use redb::{Builder, Database, Durability, Key, ReadTransaction, TableDefinition};

use super::{
    CACHE_BYTES,
    check::check,
    error::{BackupError, ReadError},
    medium::publish,
    tables::{
        ACCOUNTS, ADOPTIONS, AUDIT, CLUSTERS, LEASES, META, NETWORKS, POOLS, QUOTAS, TOKENS,
        existing,
    },
};

/// Rows copied in one transaction: bounds the memory of the copy.
const CHUNK: usize = 20_000;

/// Copies what the transaction sees. The file has its final name only once it is complete and verified.
pub(super) fn backup(from: &ReadTransaction, path: &Path) -> Result<(), BackupError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(BackupError::Exists(path.to_owned()));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let done = fill(from, &partial, path).and_then(|()| {
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

fn fill(from: &ReadTransaction, partial: &Path, path: &Path) -> Result<(), BackupError> {
    let io = |doing| {
        move |source| BackupError::Io {
            path: path.to_owned(),
            doing,
            source,
        }
    };
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600);
    let file = options.open(partial).map_err(io("created"))?;
    let write = |error: redb::Error| BackupError::Write {
        path: path.to_owned(),
        error,
    };
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder
        .create_file(file)
        .map_err(|error| write(error.into()))?;
    copy_all(from, &database, path)?;
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
    copy(from, to, path, NETWORKS)?;
    copy(from, to, path, POOLS)?;
    if existing(from, QUOTAS).map_err(ReadError::from)?.is_some() {
        copy(from, to, path, QUOTAS)?;
    }
    copy(from, to, path, LEASES)?;
    copy(from, to, path, CLUSTERS)?;
    copy(from, to, path, ADOPTIONS)?;
    copy(from, to, path, ACCOUNTS)?;
    copy(from, to, path, TOKENS)?;
    copy(from, to, path, AUDIT)?;
    // Last: a copy without it would not open.
    copy(from, to, path, META)?;
    let write = |error: redb::Error| BackupError::Write {
        path: path.to_owned(),
        error,
    };
    let txn = to.begin_write().map_err(|error| write(error.into()))?;
    txn.commit().map_err(|error| write(error.into()))
}

fn copy<K: Key + 'static>(
    from: &ReadTransaction,
    to: &Database,
    path: &Path,
    definition: TableDefinition<'static, K, &'static [u8]>,
) -> Result<(), BackupError> {
    let write = |error: redb::Error| BackupError::Write {
        path: path.to_owned(),
        error,
    };
    let table = from.open_table(definition).map_err(ReadError::from)?;
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
