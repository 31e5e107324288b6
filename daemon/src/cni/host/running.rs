//! Containers of pools that run on this host, for an address book that was restored and has forgotten them.
//!
//! A change is a line of a file, which nobody waits for to be on the disk: a process that is killed has written it, and a power cut
//! that loses it ends the containers too. Lines of another boot are left out for the same reason.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use fipd_core::LeaseKey;
use serde::{Deserialize, Serialize};

use super::HostState;
use crate::cni::{netns::is_gone, record::AttachmentKey, refusal::CallRefusal};

/// Beside the journal.
const FILE: &str = "cni-running.jsonl";
/// Lines that are out of date before the file is written anew.
const STALE: usize = 1_000;

/// A container with addresses of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningContainer {
    /// Path of the namespace.
    pub netns: String,
    pub leases: Vec<LeaseKey>,
}

/// A line: the boot, and what the attachment has from then on.
type Line = (String, AttachmentKey, Option<RunningContainer>);

/// See the module.
pub(super) struct RunningContainers {
    path: PathBuf,
    boot: String,
    /// `None` after a write that failed.
    file: Option<File>,
    lines: usize,
    all: BTreeMap<AttachmentKey, RunningContainer>,
}

impl RunningContainers {
    pub fn open(journal: &Path, boot: &str) -> io::Result<Self> {
        let path = journal.with_file_name(FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut all = BTreeMap::new();
        // The last one may be cut off.
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
            match line {
                (of, key, Some(container)) if of == boot => drop(all.insert(key, container)),
                (_, key, _) => drop(all.remove(&key)),
            }
        }
        let mut read = Self {
            path,
            boot: boot.to_owned(),
            file: None,
            lines: 0,
            all,
        };
        read.file = Some(read.rewrite()?);
        Ok(read)
    }

    /// What the attachment has from now on.
    fn set(&mut self, key: &AttachmentKey, container: Option<RunningContainer>) -> io::Result<()> {
        if self.file.is_some() && self.all.get(key) == container.as_ref() {
            return Ok(());
        }
        let line = self.line(key, container.as_ref())?;
        match container {
            Some(container) => drop(self.all.insert(key.clone(), container)),
            None => drop(self.all.remove(key)),
        }
        let is_long = self.lines > 2 * self.all.len() + STALE;
        let file = match self.file.take().filter(|_| !is_long) {
            Some(mut file) => {
                file.write_all(&line)?;
                self.lines += 1;
                file
            }
            None => self.rewrite()?,
        };
        self.file = Some(file);
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<File> {
        let mut text = Vec::new();
        for (key, container) in &self.all {
            text.extend(self.line(key, Some(container))?);
        }
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &self.path)?;
        self.lines = self.all.len();
        File::options().append(true).open(&self.path)
    }

    fn line(
        &self,
        key: &AttachmentKey,
        container: Option<&RunningContainer>,
    ) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&(&self.boot, key, container))?;
        line.push(b'\n');
        Ok(line)
    }
}

impl HostState {
    /// Notes what a container of pools has, before it gets it.
    pub fn note_running(
        &mut self,
        key: &AttachmentKey,
        container: RunningContainer,
    ) -> Result<(), CallRefusal> {
        self.running.set(key, Some(container)).map_err(|error| {
            let path = self.running.path.display();
            CallRefusal::later(format!("{path}: {error}"))
        })
    }

    /// It has nothing any more. A line that stays says no more than that a namespace may be there, which is looked at.
    pub(super) fn forget_running(&mut self, key: &AttachmentKey) {
        if let Err(error) = self.running.set(key, None) {
            let path = self.running.path.display();
            tracing::warn!(%error, "{path} cannot be written; will be written anew");
        }
    }

    /// Containers whose namespaces are not gone.
    pub fn running(&self) -> Vec<AttachmentKey> {
        let all = self.running.all.iter();
        let there = all.filter(|(_, container)| !is_gone(Path::new(&container.netns)));
        there.map(|(key, _)| key.clone()).collect()
    }

    /// What a container of pools has.
    pub fn leases_of_running(&self, key: &AttachmentKey) -> Vec<LeaseKey> {
        let container = self.running.all.get(key);
        let leases = container.map(|container| container.leases.clone());
        leases.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::testing::key_of;

    use super::*;
    use crate::cni::testing::key;

    fn container(address: &str) -> RunningContainer {
        RunningContainer {
            netns: "/proc/0/ns/net".into(),
            leases: vec![key_of(address)],
        }
    }

    #[test]
    fn what_runs_is_found_again_in_the_same_boot() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("cni.redb");
        let open = |boot: &str| RunningContainers::open(&journal, boot).unwrap();
        let mut running = open("b");
        for name in ["a", "b", "c"] {
            running
                .set(&key(name), Some(container("10.0.0.1")))
                .unwrap();
        }
        running.set(&key("b"), Some(container("10.0.0.2"))).unwrap();
        running.set(&key("c"), None).unwrap();
        let expected = BTreeMap::from([
            (key("a"), container("10.0.0.1")),
            (key("b"), container("10.0.0.2")),
        ]);
        assert_eq!(running.all, expected);
        // As a killed process leaves it.
        running
            .file
            .as_mut()
            .unwrap()
            .write_all(b"[\"b\",{")
            .unwrap();
        drop(running);
        assert_eq!(open("b").all, expected);
        assert!(open("another").all.is_empty());
        assert!(open("b").all.is_empty());
    }

    #[test]
    fn the_file_has_no_more_than_it_needs_and_mends_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("cni.redb");
        let mut running = RunningContainers::open(&journal, "b").unwrap();
        for _ in 0..=STALE {
            running.set(&key("a"), Some(container("10.0.0.1"))).unwrap();
            running.set(&key("a"), None).unwrap();
        }
        assert!(running.lines < 2 * STALE, "{}", running.lines);
        running.set(&key("a"), Some(container("10.0.0.1"))).unwrap();
        running.file = Some(File::open(&running.path).unwrap());
        running
            .set(&key("b"), Some(container("10.0.0.2")))
            .unwrap_err();
        running.set(&key("b"), Some(container("10.0.0.2"))).unwrap();
        let again = RunningContainers::open(&journal, "b").unwrap();
        assert_eq!(again.all, running.all);
        assert_eq!(again.all.len(), 2);
    }
}
