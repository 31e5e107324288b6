//! Temporary directories that are removed on drop, and those of dead runs that could not remove theirs.

use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "fipd-testbed.";

/// A directory of this run. Kept when `FIPD_TESTBED_KEEP` is set, for looking at logs afterwards.
#[derive(Debug)]
pub struct TestDirectory {
    path: PathBuf,
    _removed_on_drop: Option<TempDir>,
}

impl TestDirectory {
    pub fn new() -> Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&std::env::temp_dir()));
        let prefix = format!("{PREFIX}{}.", std::process::id());
        let mut dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir()
            .context("make a temporary directory")?;
        let keep = std::env::var_os("FIPD_TESTBED_KEEP").is_some();
        dir.disable_cleanup(keep);
        Ok(Self {
            path: dir.path().to_path_buf(),
            _removed_on_drop: Some(dir),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directories of processes that are no more (killed before they could clean up).
fn sweep(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        if owner(&entry.file_name().to_string_lossy())
            .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        {
            let _someone_else_was_first = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_processes_are_swept() {
        let root = tempfile::tempdir().unwrap();
        let mine = root
            .path()
            .join(format!("{PREFIX}{}.abc", std::process::id()));
        let dead = root.path().join(format!("{PREFIX}{}.abc", u32::MAX));
        let foreign = root.path().join("something-else");
        for dir in [&mine, &dead, &foreign] {
            std::fs::create_dir(dir).unwrap();
        }
        sweep(root.path());
        assert!(mine.exists() && foreign.exists() && !dead.exists());
    }
}
