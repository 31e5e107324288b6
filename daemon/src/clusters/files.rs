//! Notices that files changed.
//!
//! Polled, not watched: a mounted Secret changes by swapping a symlink two directories up, editors rename over
//! the file, and network file systems send no events at all. One `stat` per file and second sees all of these.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::foreign_file;

/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// A wait without a deadline begins anew this often.
const AGAIN: Duration = Duration::from_secs(3_600);

/// What a file looked like; `None` while it cannot be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(Vec<Option<Stamp>>);

/// Device, inode, size and times: what a change of content or a swapped link cannot leave alone.
type Stamp = (u64, u64, u64, i64, i64);

impl Stamps {
    /// Follows symlinks. Blocks on the disk.
    pub fn of(paths: &[PathBuf]) -> Self {
        Self(paths.iter().map(|path| stamp(path).ok()).collect())
    }

    /// The same beside the caller; a file that does not answer cannot be seen.
    pub async fn look(paths: &[PathBuf]) -> Self {
        let mut stamps = Vec::with_capacity(paths.len());
        for path in paths {
            let of = path.clone();
            stamps.push(foreign_file::run(path, move || stamp(&of)).await.ok());
        }
        Self(stamps)
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = std::fs::metadata(path)?;
    Ok((
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec() ^ meta.ctime_nsec(),
    ))
}

/// A file that is watched from before it was first read, so that no change of it is missed.
#[derive(Clone, Debug)]
pub struct WatchedFile {
    path: PathBuf,
    seen: Stamps,
}

impl WatchedFile {
    /// To be called before the file is read.
    pub fn new(path: PathBuf) -> Self {
        let seen = Stamps::of(std::slice::from_ref(&path));
        Self { path, seen }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file is no longer as it was and stays so for a while, as whoever writes it may not be done; what it is
    /// like then counts as seen.
    pub async fn changed(&mut self) {
        let paths = [self.path.clone()];
        while !changed(&paths, &self.seen, AGAIN).await {}
        loop {
            self.seen = Stamps::look(&paths).await;
            if !changed(&paths, &self.seen, LOOK).await {
                return;
            }
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0)
    }
}

/// Waits until any of the files is no longer as in `seen`, for at most `most`. Whether one changed.
pub(super) async fn changed(paths: &[PathBuf], seen: &Stamps, most: Duration) -> bool {
    let end = tokio::time::Instant::now() + most;
    loop {
        if !paths.is_empty() && Stamps::look(paths).await != *seen {
            return true;
        }
        let now = tokio::time::Instant::now();
        if now >= end {
            return false;
        }
        let pause = if paths.is_empty() {
            end - now
        } else {
            LOOK.min(end - now)
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_rename_over_the_file_and_a_swapped_link_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, "one").unwrap();
        let paths = [file.clone()];
        let seen = Stamps::of(&paths);
        assert!(!changed(&paths, &seen, Duration::ZERO).await);
        std::fs::write(dir.path().join("new"), "two").unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
        assert!(changed(&paths, &seen, SOON).await);

        for (version, text) in [("v1", "a"), ("v2", "b")] {
            std::fs::create_dir(dir.path().join(version)).unwrap();
            std::fs::write(dir.path().join(version).join("value"), text).unwrap();
        }
        let link = dir.path().join("data");
        std::os::unix::fs::symlink("v1", &link).unwrap();
        let paths = [link.join("value")];
        let seen = Stamps::of(&paths);
        std::os::unix::fs::symlink("v2", dir.path().join("next")).unwrap();
        std::fs::rename(dir.path().join("next"), &link).unwrap();
        assert!(changed(&paths, &seen, SOON).await);
    }

    #[tokio::test]
    async fn a_change_before_the_first_wait_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, "one").unwrap();
        let mut file = WatchedFile::new(path.clone());
        std::fs::write(&path, "other").unwrap();
        tokio::time::timeout(SOON, file.changed()).await.unwrap();
        let again = tokio::time::timeout(2 * LOOK, file.changed()).await;
        assert!(again.is_err());
    }

    #[tokio::test]
    async fn a_file_that_appears_or_goes_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("late")];
        let seen = Stamps::of(&paths);
        std::fs::write(&paths[0], "x").unwrap();
        assert!(changed(&paths, &seen, SOON).await);
        let seen = Stamps::of(&paths);
        std::fs::remove_file(&paths[0]).unwrap();
        assert!(changed(&paths, &seen, SOON).await);
    }
}
