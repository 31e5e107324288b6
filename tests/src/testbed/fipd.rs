//! fipd as users run it: the built binary, started as `fipd serve`, spoken to through its socket and its CLI.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::sync::OnceCell;

use super::directory::TestDirectory;
use super::http::{Reply, get_unix};
use super::ports::free_port;
use crate::namespace::enter_mounts_in_child;
use crate::process::{Process, spawn_bound};
use crate::wait::wait_until;

const HEALTHY_WITHIN: Duration = Duration::from_secs(30);
const CLI_WITHIN: Duration = Duration::from_secs(60);

/// The daemon's binary: `FIPD_BIN`, else built here once per process.
pub async fn fipd_binary() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    if let Some(given) = std::env::var_os("FIPD_BIN") {
        let path = PathBuf::from(given);
        return path
            .canonicalize()
            .with_context(|| format!("FIPD_BIN={}", path.display()));
    }
    let build = || async { tokio::task::spawn_blocking(crate::runner::build_daemon).await? };
    BUILT.get_or_try_init(build).await.cloned()
}

/// How to start the daemon.
#[derive(Debug, Clone, Default)]
pub struct FipdOptions {
    /// The text of `fipd.toml`; without it the daemon runs without a config file.
    pub config: Option<String>,
    /// Environment variables, e.g. for the log filter.
    pub environment: Vec<(String, String)>,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// The process whose mounts the daemon sees, if not those of this one.
    pub mounts_of: Option<u32>,
}

/// What a CLI call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliOutput {
    /// The exit code; 128 + n when signal n ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CliOutput {
    /// Standard output, or an error when the call failed.
    pub fn success(self) -> Result<String> {
        if self.code != 0 {
            bail!(
                "fipd exited with {}: {}{}",
                self.code,
                self.stderr,
                self.stdout
            );
        }
        Ok(self.stdout)
    }

    /// Standard output as JSON, or an error when the call failed.
    pub fn json(self) -> Result<serde_json::Value> {
        let text = self.success()?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }
}

/// A daemon with a data directory of its own. Dropping it kills the daemon and removes the directory.
pub struct Fipd {
    process: Option<Process>,
    binary: PathBuf,
    options: FipdOptions,
    port: u16,
    directory: TestDirectory,
}

impl Fipd {
    /// Starts the daemon and waits until it answers `/healthz` on its socket.
    pub async fn start(options: FipdOptions) -> Result<Self> {
        let mut fipd = Self::prepare(options).await?;
        fipd.spawn().await?;
        Ok(fipd)
    }

    /// Everything but the process, for tests that prepare the data directory first and then call [`Fipd::restart`].
    pub async fn prepare(options: FipdOptions) -> Result<Self> {
        let binary = fipd_binary().await?;
        let directory = TestDirectory::new()?;
        let mut fipd = Self {
            process: None,
            binary,
            options,
            port: free_port()?,
            directory,
        };
        if let Some(config) = fipd.options.config.clone() {
            fipd.write_config(&config)?;
        }
        Ok(fipd)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("fipd.sock")
    }

    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("fipd.toml")
    }

    /// A directory for files of the test, e.g. kubeconfigs; it goes with this value.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where UI and REST API listen; the same over restarts.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn log_path(&self) -> PathBuf {
        self.directory.path().join("fipd.log")
    }

    /// Everything the daemon logged so far, over all its starts.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log_path())?)
    }

    /// The process id while it runs.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.process()?.pid())
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        self.process()?.resident_kib()
    }

    /// Adds an argument of `serve`; it counts from the next start.
    pub fn add_argument(&mut self, argument: &str) {
        self.options.arguments.push(argument.to_owned());
    }

    /// Replaces the config file; it counts from the next start, and in a running daemon for what is reloaded.
    pub fn write_config(&mut self, text: &str) -> Result<()> {
        let half = self.config_path().with_extension("new");
        fs::write(&half, text)?;
        fs::rename(half, self.config_path())?;
        self.options.config = Some(text.to_string());
        Ok(())
    }

    /// Writes a file beside the config, where the config can name it by its name alone.
    pub fn write_file(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.path().join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// The end of the log, for failure messages.
    pub fn log_tail(&self) -> String {
        crate::process::tail(&self.log_path())
    }

    /// GET over the socket, without login.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        get_unix(&self.socket(), path).await
    }

    /// Waits until `/readyz` says yes; the error repeats the reasons it gave last.
    pub async fn wait_ready(&self, deadline: Duration) -> Result<()> {
        let process = self.process()?;
        let ready = wait_until("fipd is ready", deadline, || async {
            if let Err(ended) = process.still_running() {
                return Ok(Err(ended));
            }
            let reply = self
                .get("/readyz")
                .await
                .map_err(|error| format!("{error:#}"))?;
            if reply.status == 200 {
                Ok(Ok(()))
            } else {
                Err(format!("{}: {}", reply.status, reply.body))
            }
        });
        ready.await.with_context(|| process.log_tail())?
    }

    /// SIGKILL, as by the kernel or a power loss; the data stays.
    pub fn kill9(&mut self) -> Result<()> {
        self.process
            .take()
            .map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// SIGTERM, and waits for the end; an error when it takes longer than `patience`.
    pub async fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        let process = self
            .process
            .take()
            .ok_or_else(|| anyhow!("fipd does not run"))?;
        process.signal(nix::sys::signal::Signal::SIGTERM)?;
        process.wait(patience).await
    }

    /// Starts it again with the same data, socket and port, killing it first when it runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.spawn().await
    }

    /// Runs `fipd --socket ... ARGUMENTS` to its end.
    pub async fn cli<I>(&self, arguments: I) -> Result<CliOutput>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.binary);
        command.arg("--socket").arg(self.socket()).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        run_cli(command).await
    }

    /// Runs `fipd ARGUMENTS` as it is, e.g. for offline commands or to see a bad config refused.
    pub async fn run<I>(&self, arguments: I) -> Result<CliOutput>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        run_cli(command).await
    }

    fn process(&self) -> Result<&Process> {
        self.process
            .as_ref()
            .ok_or_else(|| anyhow!("fipd does not run"))
    }

    async fn spawn(&mut self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.data_dir())
            .arg("--socket")
            .arg(self.socket());
        command
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port));
        if self.options.config.is_some() {
            command.arg("--config").arg(self.config_path());
        }
        command.args(&self.options.arguments);
        command.envs(
            self.options
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
        if let Some(pid) = self.options.mounts_of {
            enter_mounts_in_child(&mut command, pid)?;
        }
        let process = Process::spawn("fipd", command, &self.log_path())?;
        let healthy = wait_until("fipd is healthy", HEALTHY_WITHIN, || async {
            if let Err(ended) = process.still_running() {
                return Ok(Err(ended));
            }
            let reply = self
                .get("/healthz")
                .await
                .map_err(|error| format!("{error:#}"))?;
            if reply.status == 200 {
                Ok(Ok(()))
            } else {
                Err(format!("{}: {}", reply.status, reply.body))
            }
        });
        healthy.await.with_context(|| process.log_tail())??;
        self.process = Some(process);
        Ok(())
    }
}

async fn run_cli(command: Command) -> Result<CliOutput> {
    use std::os::unix::process::ExitStatusExt;
    let shown = format!("{command:?}");
    let ended = tokio::task::spawn_blocking(move || spawn_bound(command)?.wait_with_output());
    let output = tokio::time::timeout(CLI_WITHIN, ended)
        .await
        .with_context(|| format!("{shown}: not done within {CLI_WITHIN:?}"))?
        .with_context(|| shown.clone())?
        .with_context(|| shown)?;
    let code = output
        .status
        .code()
        .or_else(|| output.status.signal().map(|signal| 128 + signal));
    Ok(CliOutput {
        code: code.unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
