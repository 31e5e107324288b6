//! What can go wrong with the file, by what one does about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use fipd_core::{Refused, Timestamp, Violation};

use super::codec::DecodeError;

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the store {} is in use by another fipd; stop that one, or talk to it over its socket", .0.display()
    )]
    Locked(PathBuf),
    #[error(
        "the store {} has schema version {found}, this fipd knows up to {known}; install the fipd that wrote it, \
         or restore a backup of an older one", .path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error(
        "the store {} has schema version {found} and is not rewritten without a backup, which cannot be made: \
         {reason}; the store is unchanged: make room beside it and start fipd again, or install the fipd that wrote it",
        .path.display()
    )]
    NoBackup {
        path: PathBuf,
        found: u32,
        reason: String,
    },
    #[error("the store {} cannot be {doing}: {source}", .path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: io::Error,
    },
    #[error(
        "the store {} is a backup, which is not served: put it in place with `fipd restore FILE`", .0.display()
    )]
    Sealed(PathBuf),
    #[error(
        "the store {} is missing or empty, and {was}: restore the newest backup ({}), put the store back, or begin \
         anew with `fipd store create --reason TEXT`",
        .path.display(), .newest.as_ref().map_or_else(|| "none is in its usual place".to_owned(), |file| file.display().to_string())
    )]
    Missing {
        path: PathBuf,
        /// How it is known that there was one.
        was: &'static str,
        newest: Option<PathBuf>,
    },
    #[error("the store {} is damaged: {error}; restore a backup", .path.display())]
    Damaged { path: PathBuf, error: ReadError },
    #[error(
        "the store {} is damaged: {reason}; nothing was changed: restore a backup (`fipd backup list`, `fipd restore`)",
        .path.display()
    )]
    Pages { path: PathBuf, reason: String },
    #[error(
        "the store {} contradicts itself in {} places, first: {}; see `fipd check`, or restore a backup",
        .path.display(), .violations.len(), .violations.first().map(ToString::to_string).unwrap_or_default()
    )]
    Inconsistent {
        path: PathBuf,
        violations: Vec<Violation>,
    },
}

/// Why something could not be read from the store.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("table {table}, row {row}: {error}")]
    Row {
        table: String,
        row: String,
        error: DecodeError,
    },
    #[error("{0}")]
    Storage(#[from] redb::Error),
    #[error("the store is being reopened after a failed write; ask again in a moment")]
    Reopening,
}

impl ReadError {
    /// That `row` of the table cannot be read, or cannot be made.
    pub(super) fn of_row<E: Into<DecodeError>>(
        table: &str,
        row: impl ToString,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Row {
            table: table.to_owned(),
            row: row.to_string(),
            error: error.into(),
        }
    }

    /// Whether just one row cannot be read, and others can.
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::Row { .. } => true,
            Self::Storage(_) | Self::Reopening => false,
        }
    }
}

/// Why a backup was not made. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} exists already; choose another name", .0.display())]
    Exists(PathBuf),
    #[error("the backup {} cannot be {doing}: {source}", .path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: io::Error,
    },
    #[error("the store cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the backup {} cannot be written: {error}", .path.display())]
    Write { path: PathBuf, error: redb::Error },
    #[error("the backup {} does not read back: {reason}", .path.display())]
    Verify { path: PathBuf, reason: String },
}

/// What could not be done with a file beside a store.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be {doing}: {source}", .path.display())]
pub struct FileError {
    path: PathBuf,
    doing: &'static str,
    source: io::Error,
}

impl FileError {
    pub(super) fn of(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            path: path.to_owned(),
            doing,
            source,
        }
    }
}

/// Why an empty store was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("there is a store {}; nothing was changed: fipd starts with it", .0.display())]
    Exists(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why book time was not taken back. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    #[error(
        "book time is {book} and not ahead of the host's clock, {wall}; nothing was changed: a clock that is ahead is \
         confirmed with `fipd clock accept` while fipd runs"
    )]
    NotAhead { book: Timestamp, wall: Timestamp },
    #[error("{}", Refused::OtherHost)]
    OtherHost,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store cannot be changed: {0}")]
    Store(#[from] ReadError),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why the store was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(
        "the store {} belongs to this host already, or to none: fipd decides by it here, and there is nothing to claim",
        .0.display()
    )]
    NotForeign(PathBuf),
    #[error(
        "this host has no lasting machine id in /etc/machine-id, so no store can belong to it; see systemd-machine-id-setup(1), \
         and in a container mount the host's file read-only"
    )]
    UnknownHost,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store cannot be changed: {0}")]
    Store(#[from] ReadError),
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why a backup was not put in place. The store is as it was then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the store {} is in use by a running fipd; stop that one first", .0.display())]
    Running(PathBuf),
    #[error("the backup {} cannot be restored: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error(transparent)]
    Io(#[from] FileError),
}

macro_rules! into_read_error {
    ($($error:ty),*) => {
        $(impl From<$error> for ReadError {
            fn from(error: $error) -> Self {
                Self::Storage(error.into())
            }
        })*
    };
}

into_read_error!(redb::StorageError, redb::TableError, redb::TransactionError);

impl OpenError {
    /// That what is read of the store at `path` is damaged.
    pub(super) fn damaged<E: Into<ReadError>>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self::Damaged {
            path: path.to_owned(),
            error: error.into(),
        }
    }

    /// That the file at `path` cannot be so.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            doing,
            source,
        }
    }

    /// Whether there was no room to write.
    pub(super) fn is_full_disk(&self) -> bool {
        let source = if let Self::Io { source, .. } = self {
            source
        } else if let Self::Damaged {
            error: ReadError::Storage(redb::Error::Io(source)),
            ..
        } = self
        {
            source
        } else {
            return false;
        };
        source.kind() == io::ErrorKind::StorageFull
    }

    /// A full disk is no damage, wherever it was noticed.
    pub(super) fn of_full_disk(self) -> Self {
        if !self.is_full_disk() {
            return self;
        }
        if let Self::Damaged {
            path,
            error: ReadError::Storage(redb::Error::Io(source)),
        } = self
        {
            return Self::io(&path, "written")(source);
        }
        self
    }

    pub(super) fn from_redb(path: &Path, error: redb::DatabaseError) -> Self {
        if let redb::DatabaseError::DatabaseAlreadyOpen = error {
            return Self::Locked(path.to_owned());
        }
        if let redb::DatabaseError::Storage(redb::StorageError::Io(source)) = error {
            return Self::io(path, "opened")(source);
        }
        Self::damaged(path)(redb::Error::from(error))
    }
}
