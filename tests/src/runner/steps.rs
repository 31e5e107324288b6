//! Running one command of a suite: its output goes on to the user, its test results are counted, and neither Ctrl-C nor a
//! deadline leaves anything of it behind.

use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::{checkout, forget_own_package};
use crate::say::say;

/// How many lines of [`Tally::failures`] are kept.
const MOST_FAILURE_LINES: usize = 150;

/// Results of tests, as cargo's test harness reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// What the harness says of the failed tests: the last lines of what each printed, and their names.
    pub(super) failures: Vec<String>,
}

impl Tally {
    pub(super) fn new(passed: u64, failed: u64) -> Self {
        Self {
            passed,
            failed,
            failures: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.keep(other.failures);
    }

    /// Keeps the last of what failed tests printed.
    fn keep(&mut self, failures: impl IntoIterator<Item = String>) {
        self.failures.extend(failures);
        let surplus = self.failures.len().saturating_sub(MOST_FAILURE_LINES);
        self.failures.drain(..surplus);
    }

    /// Reads `test result: ok. 3 passed; 0 failed; ...`.
    fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |name: &str| {
            let part = counts.split("; ").find(|part| part.ends_with(name))?;
            part.split_once(' ')?.0.parse().ok()
        };
        Some(Self::new(count("passed")?, count("failed")?))
    }
}

/// Reads the output of a test harness line by line.
#[derive(Debug, Default)]
struct HarnessReader {
    tally: Tally,
    /// Whether the harness is listing its failed tests.
    in_failures: bool,
}

impl HarnessReader {
    fn read(&mut self, line: &str) {
        if let Some(tally) = Tally::of_line(line) {
            self.in_failures = false;
            self.tally.add(tally);
        } else if self.in_failures {
            self.tally.keep([line.to_string()]);
        } else {
            self.in_failures = line == "failures:";
        }
    }
}

/// One command with its arguments, environment and deadline.
#[derive(Debug, Clone)]
pub(super) struct Step {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    deadline: Duration,
    output: Output,
}

/// What becomes of a command's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    /// The user sees each line as it comes.
    Shown,
    /// The user sees it in one piece at the end, so that commands beside each other do not mix theirs.
    AtTheEnd,
    Dropped,
}

impl Step {
    pub(super) fn new(program: impl Into<OsString>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            deadline: Duration::from_secs(45 * 60),
            output: Output::Shown,
        }
    }

    pub(super) fn cargo(arguments: &[&str]) -> Self {
        Self::new("cargo", arguments)
    }

    pub(super) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_string(), value.into()));
        self
    }

    /// More arguments, after all others.
    pub(super) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(OsString::from));
        self
    }

    pub(super) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Keeps its output from the user.
    pub(super) fn quietly(mut self) -> Self {
        self.output = Output::Dropped;
        self
    }

    /// Shows its output when it has ended, in one piece.
    pub(super) fn beside_others(mut self) -> Self {
        self.output = Output::AtTheEnd;
        self
    }

    /// Runs it to its end. A failing command is an error unless its tests say what failed.
    pub(super) async fn run(&self) -> Result<Tally> {
        let shown = self.shown();
        let mut child = self.start().with_context(|| format!("start {shown}"))?;
        let group = child.id().context("the command ended before it began")?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut held = Vec::new();
        let ended = tokio::select! {
            ended = follow(&mut child, self.output, &mut held) => Some(ended?),
            () = tokio::time::sleep(self.deadline) => None,
            _ = interrupt.recv() => { end_group(group, &mut child).await; bail!("interrupted") }
            _ = terminate.recv() => { end_group(group, &mut child).await; bail!("terminated") }
        };
        held.iter().for_each(say);
        let Some((tally, status)) = ended else {
            end_group(group, &mut child).await;
            bail!("{shown}: not done within {:?}", self.deadline);
        };
        if !status.success() && tally.failed == 0 {
            bail!("{shown}: {status}");
        }
        Ok(tally)
    }

    fn start(&self) -> Result<Child> {
        let mut command = Command::new(&self.program);
        forget_own_package(command.as_std_mut());
        command
            .args(&self.arguments)
            // The panic message names the place; a backtrace would bury it.
            .env("RUST_BACKTRACE", "0")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
            .current_dir(checkout())
            .process_group(0)
            .kill_on_drop(true);
        if self.output == Output::Dropped {
            command.stderr(Stdio::null());
        }
        Ok(command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?)
    }

    fn shown(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Hands the output on line by line until the command has ended; `held` gets what is not to be seen yet.
async fn follow(
    child: &mut Child,
    output: Output,
    held: &mut Vec<String>,
) -> Result<(Tally, ExitStatus)> {
    let stdout = child
        .stdout
        .take()
        .context("the command's output is piped")?;
    let mut lines = BufReader::new(stdout).split(b'\n');
    let mut reader = HarnessReader::default();
    while let Some(line) = lines.next_segment().await? {
        let line = String::from_utf8_lossy(&line);
        reader.read(&line);
        match output {
            Output::Shown => say(line),
            Output::AtTheEnd => held.push(line.into_owned()),
            Output::Dropped => {}
        }
    }
    Ok((reader.tally, child.wait().await?))
}

/// Ends the command with all it started: cargo's compilers and test binaries are in its process group.
async fn end_group(group: u32, child: &mut Child) {
    if let Ok(group) = i32::try_from(group) {
        let _already_gone = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _reaped = child.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn counts_what_the_harness_reports() {
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.13s";
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 53.00s";
        assert_eq!(Tally::of_line(ok), Some(Tally::new(12, 0)));
        assert_eq!(Tally::of_line(bad), Some(Tally::new(3, 2)));
        assert_eq!(Tally::of_line("test a::b ... ok"), None);
    }

    #[test]
    fn failures_are_kept_with_what_they_said() {
        let mut reader = HarnessReader::default();
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nno pod\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored\nmore";
        output.lines().for_each(|line| reader.read(line));
        let Tally {
            passed,
            failed,
            failures,
        } = reader.tally;
        assert_eq!((passed, failed), (1, 1));
        let kept = failures.iter().filter(|line| !line.is_empty());
        let kept = kept.map(String::as_str).collect::<Vec<_>>();
        assert_eq!(kept, ["---- b stdout ----", "no pod", "failures:", "    b"]);
    }

    #[test]
    fn no_more_of_the_failures_than_a_page_is_kept() {
        let mut reader = HarnessReader::default();
        reader.read("failures:");
        (0..1_000).for_each(|line| reader.read(&line.to_string()));
        let failures = reader.tally.failures;
        assert_eq!(failures.len(), MOST_FAILURE_LINES);
        assert_eq!(failures.last().map(String::as_str), Some("999"));
    }

    #[tokio::test]
    async fn a_failing_command_without_failed_tests_is_an_error() {
        assert!(Step::new("false", &[]).run().await.is_err());
        let reported = "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101";
        let tally = Step::new("sh", &["-c", reported])
            .quietly()
            .run()
            .await
            .unwrap();
        assert_eq!(tally, Tally::new(1, 1));
    }

    #[tokio::test]
    async fn a_deadline_ends_grandchildren_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let late = Step::new("sh", &["-c", &script])
            .within(Duration::from_millis(500))
            .run()
            .await;
        assert!(late.unwrap_err().to_string().contains("not done within"));
        let pid = std::fs::read_to_string(file).unwrap();
        // Killed, but ended only when it next runs, and then it waits for init to reap it.
        let stat = format!("/proc/{}/stat", pid.trim());
        wait_until("the grandchild is gone", Duration::from_secs(10), || {
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
}
