//! The private directory of helm: its homes, and one directory per call with the kubeconfig and the values.
//!
//! ```text
//! DATA_DIR/helm            0700
//!     home/                HELM_*_HOME, TMPDIR
//!     run/SERIAL/          one call; gone after it, swept at the start
//!         call.json        which release, and what was done to it
//!         process          pid and start time of helm
//!         kubeconfig       0600
//!         values.json      0600
//! ```

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::private_file;

/// A release of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReleaseTarget {
    pub cluster: String,
    pub namespace: String,
    pub name: String,
}

impl ReleaseTarget {
    pub fn new(cluster: &str, namespace: &str, name: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What is remembered of a call, should the daemon be killed during it.
#[derive(Serialize, Deserialize)]
struct CallFile {
    target: ReleaseTarget,
    changes: bool,
}

/// `DATA_DIR/helm`.
#[derive(Debug)]
pub struct Workplace {
    root: PathBuf,
    serial: AtomicU64,
}

/// The files of one call; removed on drop.
#[derive(Debug)]
pub struct RunDirectory(PathBuf);

impl Workplace {
    /// Makes the directories, ends what a killed daemon left running and removes its files. The releases that it was
    /// changing come back.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn open(data_dir: &Path) -> io::Result<(Self, Vec<ReleaseTarget>)> {
        let root = data_dir.join("helm");
        for directory in [root.clone(), root.join("home"), root.join("run")] {
            private_file::create_directory(&directory)?;
            // One that was there keeps its mode otherwise.
            fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        }
        let interrupted = sweep(&root.join("run"))?;
        let serial = AtomicU64::new(0);
        Ok((Self { root, serial }, interrupted))
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The directory of one call.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(&self, target: &ReleaseTarget, changes: bool) -> io::Result<RunDirectory> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("run").join(serial.to_string());
        DirBuilder::new().mode(0o700).create(&path)?;
        let run = RunDirectory(path);
        let call = CallFile {
            target: target.clone(),
            changes,
        };
        run.write("call.json", &serde_json::to_string(&call)?)?;
        Ok(run)
    }
}

impl RunDirectory {
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub fn values(&self) -> PathBuf {
        self.0.join("values.json")
    }

    pub fn write_kubeconfig(&self, text: &str) -> io::Result<()> {
        self.write("kubeconfig", text)
    }

    pub fn write_values(&self, json: &str) -> io::Result<()> {
        self.write("values.json", json)
    }

    /// Notes the process, so that the next daemon can end it.
    pub fn note_process(&self, pid: i32) -> io::Result<()> {
        let started = start_time(pid).unwrap_or_default();
        self.write("process", &format!("{pid} {started}"))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.0.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::error!(path = %self.0.display(), %error, "files of helm could not be removed; they may hold credentials");
        }
    }
}

fn sweep(runs: &Path) -> io::Result<Vec<ReleaseTarget>> {
    let mut interrupted = Vec::new();
    for entry in fs::read_dir(runs)? {
        let path = entry?.path();
        end_process(&path.join("process"));
        let call = fs::read(path.join("call.json")).ok();
        let call = call.and_then(|text| serde_json::from_slice::<CallFile>(&text).ok());
        interrupted.extend(call.filter(|call| call.changes).map(|call| call.target));
        fs::remove_dir_all(&path)?;
    }
    Ok(interrupted)
}

/// Ends the process group that the file names, if its leader is still the one that was noted.
fn end_process(file: &Path) {
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    let Some((pid, started)) = text.split_once(' ') else {
        return;
    };
    if let Ok(pid) = pid.parse::<i32>()
        && start_time(pid).is_some_and(|now| now == started)
    {
        tracing::warn!(pid, "a helm of the daemon before this one is ended");
        let _gone_already = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// When a living process was started, in ticks since the boot: with the pid it names one process.
fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name, in parentheses, and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    fn target() -> ReleaseTarget {
        ReleaseTarget {
            cluster: "east".into(),
            namespace: "lb".into(),
            name: "purelb".into(),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_and_gone_after_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let (workplace, _) = Workplace::open(dir.path()).unwrap();
        let run = workplace.begin(&target(), true).unwrap();
        run.write_kubeconfig("token: geheim").unwrap();
        assert_eq!(mode(&dir.path().join("helm")), 0o700);
        assert_eq!(mode(&run.kubeconfig()), 0o600);
        let path = run.kubeconfig();
        drop(run);
        assert!(!path.exists());
        assert_eq!(
            fs::read_dir(dir.path().join("helm/run")).unwrap().count(),
            0
        );
    }

    #[test]
    fn a_start_ends_and_removes_what_a_killed_daemon_left() {
        let dir = tempfile::tempdir().unwrap();
        let (workplace, none) = Workplace::open(dir.path()).unwrap();
        assert!(none.is_empty());
        let mut sleeper = std::process::Command::new("sleep");
        let mut sleeper = sleeper.arg("600").process_group(0).spawn().unwrap();
        let run = workplace.begin(&target(), true).unwrap();
        run.note_process(i32::try_from(sleeper.id()).unwrap())
            .unwrap();
        run.write_kubeconfig("token: geheim").unwrap();
        let reading = workplace.begin(&target(), false).unwrap();
        let path = run.kubeconfig();
        std::mem::forget(run);
        std::mem::forget(reading);

        let (_, interrupted) = Workplace::open(dir.path()).unwrap();
        assert_eq!(interrupted, [target()], "reading leaves nothing to recover");
        assert!(!path.exists());
        let ended = sleeper.wait().unwrap();
        assert!(!ended.success(), "{ended:?}");
    }

    #[test]
    fn a_process_that_has_the_pid_by_chance_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("process");
        fs::write(&file, format!("{} 1", std::process::id())).unwrap();
        end_process(&file);
    }
}
