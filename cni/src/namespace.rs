//! Network namespaces of containers.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    libc::{O_CLOEXEC, O_NONBLOCK},
    sched::{CloneFlags, setns},
    sys::statfs::{NSFS_MAGIC, fstatfs},
};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Why a path cannot be used as a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// After a reboot the plain file is left on which the namespace was mounted.
    #[error("{} is not a network namespace", .0.display())]
    NotNamespace(PathBuf),
    #[error("cannot open {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// An open network namespace. It lives at least as long as this.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// # Errors
    /// See [`NamespaceError`].
    pub fn open(path: &Path) -> Result<Self, NamespaceError> {
        let failed = |source: io::Error| {
            use io::ErrorKind::{NotADirectory, NotFound};
            let path = path.to_owned();
            match matches!(source.kind(), NotFound | NotADirectory) {
                true => NamespaceError::Missing(path),
                false => NamespaceError::Io { path, source },
            }
        };
        // A FIFO would block otherwise.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(O_CLOEXEC | O_NONBLOCK);
        let file = options.open(path).map_err(failed)?;
        let system = fstatfs(&file).map_err(|error| failed(error.into()))?;
        match system.filesystem_type() == NSFS_MAGIC {
            true => Ok(Self(file)),
            false => Err(NamespaceError::NotNamespace(path.to_owned())),
        }
    }

    /// Whether the calling thread is in it.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn is_own(&self) -> io::Result<bool> {
        let (this, own) = (self.0.metadata()?, fs::metadata(OWN)?);
        Ok((this.dev(), this.ino()) == (own.dev(), own.ino()))
    }

    /// Runs `work` with the calling thread inside, which returns to its own namespace afterwards. A panic in `work` leaves the
    /// thread inside.
    ///
    /// # Errors
    /// When the thread may not enter the namespace, or cannot return.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = File::open(OWN)?;
        setns(&self.0, CloneFlags::CLONE_NEWNET)?;
        let done = work();
        setns(own, CloneFlags::CLONE_NEWNET)?;
        Ok(done)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_are_opened() {
        let own = Namespace::open(Path::new(OWN)).unwrap();
        assert!(own.is_own().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        let error = Namespace::open(&plain).unwrap_err();
        assert!(matches!(error, NamespaceError::NotNamespace(_)), "{error}");
        for gone in [dir.path().join("gone"), plain.join("below")] {
            let error = Namespace::open(&gone).unwrap_err();
            assert!(matches!(error, NamespaceError::Missing(_)), "{error}");
        }
    }
}
