//! Child processes that cannot outlive the testbed.
//!
//! Each child is in a process group of its own (so that Ctrl-C in a terminal reaches only us and we decide the order), gets
//! SIGKILL from the kernel when this process dies in whatever way, and is killed and reaped by pid on drop.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use crate::namespace;
use crate::wait::wait_until;

/// How much of a log a failure message repeats.
const TAIL_BYTES: u64 = 6_000;

/// A running child whose standard output and error go to one log file. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let err = out.try_clone()?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = spawn_bound(command).with_context(|| format!("start {name} ({program})"))?;
        Ok(Self {
            name: name.to_string(),
            pid: child.id(),
            child: Mutex::new(child),
            log: log.to_path_buf(),
        })
    }

    /// The name it was started under, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("VmRSS in /proc")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Its exit status once it has ended.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }

    /// An error with the tail of the log when it has ended already.
    pub fn still_running(&self) -> Result<()> {
        match self.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended early, {status}; its last words:\n{}",
                self.name,
                self.log_tail()
            ),
        }
    }

    /// Sends a signal; the child has not been reaped, so the pid is still its own.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid)?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// Waits until it has ended by itself.
    pub async fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        let ended = wait_until(&format!("{} ends", self.name), deadline, || {
            std::future::ready(match self.try_wait() {
                Ok(Some(status)) => Ok(Ok(status)),
                Ok(None) => Err("still running"),
                Err(error) => Ok(Err(error)),
            })
        })
        .await;
        match ended {
            Ok(status) => status,
            Err(missed) => Err(anyhow!("{missed}; its last words:\n{}", self.log_tail())),
        }
    }

    /// Asks it to end with SIGTERM, and kills it after `patience`.
    pub async fn stop(&self, patience: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM)?;
        match self.wait(patience).await {
            Ok(status) => Ok(status),
            Err(_too_slow) => self.kill(),
        }
    }

    /// SIGKILL, and reaps it.
    pub fn kill(&self) -> Result<ExitStatus> {
        let mut child = self.child();
        child.kill()?;
        Ok(child.wait()?)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.kill();
    }
}

/// The end of a text file, or why it could not be read.
pub fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("({}: {error})", path.display()))
}

type SpawnJob = (Command, Sender<io::Result<Child>>);

/// Starts `command` bound to this process, in the network namespace of this thread.
///
/// The kernel sends the parent-death signal when the *thread* that forked ends, and test threads end early. So all children
/// are forked by one thread that lives as long as the process.
pub fn spawn_bound(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<(PathBuf, Sender<SpawnJob>)> = OnceLock::new();
    let here = std::fs::read_link(namespace::OWN)?;
    let parent = Pid::this();
    command.process_group(0);
    // SAFETY: prctl, getppid and the construction of an error from a number are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() == parent {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
    let (there, jobs) = SPAWNER.get_or_init(|| {
        let (sender, receiver) = channel::<SpawnJob>();
        std::thread::spawn(move || {
            for (mut command, answer) in receiver {
                let _nobody_waits = answer.send(command.spawn());
            }
        });
        (here.clone(), sender)
    });
    if *there != here {
        namespace::enter_in_child(&mut command)?;
    }
    let (answer, result) = channel();
    let gone = |_| io::Error::other("the thread that starts children has ended");
    jobs.send((command, answer))
        .map_err(|_| io::Error::other("the thread that starts children has ended"))?;
    result.recv().map_err(gone)?
}

/// Runs `command` to its end, bound to this process.
pub async fn run_bound(mut command: Command) -> io::Result<Output> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || spawn_bound(command)?.wait_with_output());
    ended.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(log: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", "echo awake; exec sleep 600"]);
        Process::spawn("sleeper", command, log).unwrap()
    }

    #[test]
    fn outlives_the_thread_that_asked_for_it_and_dies_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let process = std::thread::spawn(move || sleeper(&log)).join().unwrap();
        process.still_running().unwrap();
        let proc_entry = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(proc_entry.exists());
        drop(process);
        assert!(!proc_entry.exists(), "killed and reaped");
    }

    const HOLDER: &str = "process::tests::holds_a_child_until_killed";

    /// The other half of the test below: says its child's pid in a file, then waits.
    #[test]
    #[ignore = "is run by the test of a killed parent"]
    fn holds_a_child_until_killed() {
        let Some(file) = std::env::var_os("FIPD_TEST_PID_FILE").map(PathBuf::from) else {
            return;
        };
        let held = sleeper(&file.with_extension("log"));
        let half = file.with_extension("half");
        std::fs::write(&half, held.pid().to_string()).unwrap();
        std::fs::rename(half, file).unwrap();
        std::thread::park();
    }

    #[tokio::test]
    async fn a_killed_parent_takes_its_children_along() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", HOLDER, "--ignored"])
            .env("FIPD_TEST_PID_FILE", &file);
        let holder = Process::spawn("holder", command, &dir.path().join("holder.log")).unwrap();
        let seconds = Duration::from_secs(10);
        let read = || std::future::ready(std::fs::read_to_string(&file));
        let child = wait_until("the holder has a child", seconds, read)
            .await
            .unwrap();
        holder.kill().unwrap();
        let stat = PathBuf::from(format!("/proc/{child}/stat"));
        wait_until("the child of the killed holder is gone", seconds, || {
            let seen = std::fs::read_to_string(&stat).unwrap_or_default();
            std::future::ready(if seen.is_empty() || seen.contains(") Z ") {
                Ok(())
            } else {
                Err(seen)
            })
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_child_that_ends_early_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out of luck >&2; exit 3"]);
        let process = Process::spawn("unlucky", command, &dir.path().join("log")).unwrap();
        assert_eq!(
            process.wait(Duration::from_secs(5)).await.unwrap().code(),
            Some(3)
        );
        let text = process.still_running().unwrap_err().to_string();
        assert!(
            text.contains("unlucky") && text.contains("out of luck"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn stop_uses_sigterm_first() {
        use std::os::unix::process::ExitStatusExt;
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(&dir.path().join("log"));
        let status = process.stop(Duration::from_secs(5)).await.unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    }
}
