//! A machine of one's own with a real systemd and a real journal: Debian in a container, booted by `systemd-nspawn`. It has
//! this machine's kernel, and nothing else of it; no packet leaves it.
//!
//! ```text
//!  Machine::run --> nsenter --> the namespaces of systemd
//!  root: the cached Debian or a copy, read-only, under a layer in memory that goes with the machine
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::directory::TestDirectory;
use super::image::run;
use crate::process::{Process, run_bound};
use crate::say::progress;
use crate::toolchain::debian_root::debian_root;
use crate::wait::wait_until;

const BOOTS_WITHIN: Duration = Duration::from_secs(60);
/// In seconds; a command that hangs is ended, and fails.
const COMMAND_WITHIN: &str = "90";
/// Where a folder of this machine is, read-only.
pub const SHARED: &str = "/shared";

/// A running machine. Dropping it ends it, and nothing of it is left.
pub struct Machine {
    nspawn: Process,
    /// Of its systemd, as seen from here.
    first: u32,
    _directory: TestDirectory,
}

impl Machine {
    /// Boots one that has `shared` at [`SHARED`].
    pub async fn boot(shared: &Path) -> Result<Self> {
        let root = tokio::task::spawn_blocking(debian_root).await??;
        Self::start(&root, shared, TestDirectory::new()?).await
    }

    /// The same after a command of a shell was run on its disk, with no systemd there.
    pub async fn boot_after(shared: &Path, command: &str) -> Result<Self> {
        let cached = tokio::task::spawn_blocking(debian_root).await??;
        let directory = TestDirectory::new()?;
        let root = directory.path().join("root");
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto"])
            .arg(cached)
            .arg(&root);
        run(copy).await?;
        let mut before = container(&root, shared, &directory);
        before.args(["sh", "-ec", command]);
        run(before).await?;
        Self::start(&root, shared, directory).await
    }

    async fn start(root: &Path, shared: &Path, directory: TestDirectory) -> Result<Self> {
        let mut command = container(root, shared, &directory);
        command.args(["--boot", "--volatile=overlay"]);
        let log = directory.path().join("nspawn.log");
        let nspawn = Process::spawn("systemd-nspawn", command, &log)?;
        let first = wait_until("systemd is there", BOOTS_WITHIN, || async {
            Ok::<_, String>(match nspawn.still_running() {
                Ok(()) => Ok(first_of(nspawn.pid())?),
                Err(ended) => Err(ended),
            })
        });
        let machine = Self {
            first: first.await??,
            nspawn,
            _directory: directory,
        };
        let up = wait_until("the machine is up", BOOTS_WITHIN, || async {
            let state = machine.said("systemctl is-system-running").await?;
            match state.as_str() {
                "running" => Ok(()),
                // A unit of Debian's own may fail on a busy machine; who needs it says so.
                "degraded" => {
                    let failed = machine
                        .said("systemctl --failed --plain --no-legend")
                        .await?;
                    progress(format_args!("the machine is up without {failed}"));
                    Ok(())
                }
                _ => bail!(state),
            }
        });
        up.await.with_context(|| machine.nspawn.log_tail())?;
        Ok(machine)
    }

    /// Runs a command of a shell as root, and gives back what it prints; an error with all it says where it fails.
    pub async fn run(&self, command: &str) -> Result<String> {
        let output = self.output(command).await?;
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if !output.status.success() {
            bail!("in the machine, {command}: {}: {out}{err}", output.status);
        }
        Ok(out.trim_end().to_owned())
    }

    /// The same with standard error, whether it fails or not.
    pub async fn said(&self, command: &str) -> Result<String> {
        let output = self.output(&format!("exec 2>&1; {command}")).await?;
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// A path inside, as it is reached from here.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.first))
    }

    async fn output(&self, command: &str) -> Result<Output> {
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--target={}", self.first));
        enter.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--"]);
        enter.args(["timeout", COMMAND_WITHIN, "sh", "-c", command]);
        enter.env_clear().envs([
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("LC_ALL", "C.UTF-8"),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ]);
        run_bound(enter).await.context("start nsenter")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // nspawn that is killed leaves it behind. All that runs inside ends with it; it may have ended by itself.
        if let Ok(first) = i32::try_from(self.first) {
            let _ = kill(Pid::from_raw(first), Signal::SIGKILL);
        }
    }
}

/// What runs in a container of this root.
fn container(root: &Path, shared: &Path, directory: &TestDirectory) -> Command {
    let mut command = Command::new("systemd-nspawn");
    command
        .arg("--directory")
        .arg(root)
        .arg(format!("--bind-ro={}:{SHARED}", shared.display()));
    command.args([
        "--quiet",
        "--private-network",
        "--hostname=machine",
        "--console=pipe",
        // There is no systemd here that could know of it.
        "--register=no",
        "--keep-unit",
        // nspawn denies it without CAP_SYS_TIME even for reading; the units inside are what is tested.
        "--system-call-filter=adjtimex clock_adjtime",
    ]);
    // Where nspawn keeps what is of this machine on its host: by its name.
    let name = directory.path().file_name().unwrap_or_default();
    let name: String = (name.to_string_lossy().chars())
        .filter(char::is_ascii_alphanumeric)
        .collect();
    command.arg(format!("--machine={name}"));
    // Several may have the same root, since none writes to it.
    command.env("SYSTEMD_NSPAWN_LOCK", "0");
    command
}

/// The one child of nspawn, once it is systemd.
fn first_of(nspawn: u32) -> Result<u32, String> {
    let read =
        |path: String| std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
    let children = read(format!("/proc/{nspawn}/task/{nspawn}/children"))?;
    for child in children.split_whitespace() {
        if read(format!("/proc/{child}/comm"))?.trim_end() == "systemd" {
            return child.parse().map_err(|_| format!("{child:?} is no pid"));
        }
    }
    Err(format!("children of {nspawn}: {children:?}"))
}
