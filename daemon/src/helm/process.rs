//! One run of the CLI: bounded in time and output, alone in its process group, in a clean environment.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::files::RunDirectory;
use crate::child::{self, Group};

/// How long helm has after SIGTERM to note the failure in the release.
const GRACE: Duration = Duration::from_secs(5);
/// What is read of its output. The status of a big chart is a megabyte.
const MOST_OUTPUT: u64 = 32 << 20;
/// What is kept of its errors.
const MOST_SAID: usize = 2_000;
/// What it gets of the daemon's environment; HELM_* and KUBECONFIG would point it elsewhere.
const PASSED_ON: [&str; 10] = [
    "PATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "LANG",
];

/// Where the CLI and its homes are.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub program: PathBuf,
    pub home: PathBuf,
    /// Trusted beside the system's directory of certificates.
    pub ca_file: Option<PathBuf>,
}

/// Why a run gave no answer.
#[derive(Debug)]
pub(super) enum RunError {
    /// It exited with an error and said this.
    Said(String),
    Deadline,
    Stopped,
    Io(io::Error),
}

/// Runs it to its end; gives back its standard output.
pub(super) async fn run(
    surroundings: &Surroundings,
    arguments: Vec<OsString>,
    directory: Option<&RunDirectory>,
    deadline: Duration,
    stop: &CancellationToken,
) -> Result<String, RunError> {
    let mut child = start(surroundings, arguments).map_err(RunError::Io)?;
    let group = Group::of(&child);
    if let (Some(directory), Some(group)) = (directory, &group)
        && let Err(error) = directory.note_process(group.pid().as_raw())
    {
        tracing::warn!(%error, "a helm that outlives a killed fipd would not be found");
    }
    let ended = tokio::select! {
        ended = timeout(deadline, follow(&mut child)) => ended.map_err(|_| RunError::Deadline),
        () = stop.cancelled() => Err(RunError::Stopped),
    };
    let (status, stdout, stderr) = match ended {
        Ok(done) => done.map_err(RunError::Io)?,
        Err(why) => {
            end(&mut child, group.as_ref()).await;
            return Err(why);
        }
    };
    // It has been waited for: its number may be another's.
    std::mem::forget(group);
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    } else {
        Err(RunError::Said(presentable(&stderr, status)))
    }
}

fn start(surroundings: &Surroundings, arguments: Vec<OsString>) -> io::Result<Child> {
    let home = &surroundings.home;
    let mut command = Command::new(&surroundings.program);
    child::prepared(&mut command).args(arguments);
    let passed = PASSED_ON
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(passed);
    command
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"));
    if let Some(file) = &surroundings.ca_file {
        command.env("SSL_CERT_FILE", file);
    }
    command
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn()
}

async fn follow(child: &mut Child) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(whole(stdout), last(stderr))?;
    Ok((child.wait().await?, stdout, stderr))
}

async fn whole(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MOST_OUTPUT).read_to_end(&mut all).await?;
    }
    Ok(all)
}

/// The end of it, in whole lines: warnings come first, the error last.
async fn last(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut cut = false;
    let Some(mut pipe) = pipe else {
        return Ok(kept);
    };
    while pipe.read_buf(&mut kept).await? > 0 {
        let beyond = kept.len().saturating_sub(2 * MOST_SAID);
        cut |= beyond > 0;
        kept.drain(..beyond);
    }
    if cut && let Some(line) = kept.iter().position(|byte| *byte == b'\n') {
        kept.drain(..=line);
    }
    Ok(kept)
}

/// SIGTERM first: helm then notes the failure in the release, which is pending otherwise.
async fn end(child: &mut Child, group: Option<&Group>) {
    if let Some(group) = group {
        group.signal(Signal::SIGTERM);
        if timeout(GRACE, child.wait()).await.is_ok() {
            return;
        }
        group.signal(Signal::SIGKILL);
    }
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "helm could not be waited for");
    }
}

/// What helm said, fit for a condition: its last lines, without what terminals and credentials in URLs bring along.
fn presentable(stderr: &[u8], status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("WARNING:") && !line.starts_with("level=WARN")
    });
    let joined = lines
        .map(|line| line.trim_start_matches("Error: "))
        .collect::<Vec<_>>()
        .join("; ");
    let plain: String = without_users(&joined)
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    if plain.is_empty() {
        return status.to_string();
    }
    let beyond = plain.chars().count().saturating_sub(MOST_SAID);
    plain.chars().skip(beyond).collect()
}

/// `https://user:secret@host` becomes `https://host`.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str("://");
        let end = part
            .find(|c: char| c.is_whitespace() || "/?#\"'".contains(c))
            .unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        clean.push_str(host);
        clean.push_str(rest);
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    struct Place {
        directory: tempfile::TempDir,
        surroundings: Surroundings,
    }

    fn shell() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let surroundings = Surroundings {
            program: "/bin/sh".into(),
            home: directory.path().to_owned(),
            ca_file: None,
        };
        Place {
            directory,
            surroundings,
        }
    }

    async fn run_script(
        place: &Place,
        script: &str,
        deadline: Duration,
    ) -> Result<String, RunError> {
        let arguments = vec!["-c".into(), script.into()];
        run(
            &place.surroundings,
            arguments,
            None,
            deadline,
            &CancellationToken::new(),
        )
        .await
    }

    /// Whether the process that a script noted is gone or waits to be reaped.
    fn is_gone(place: &Place) -> bool {
        let pid = std::fs::read_to_string(place.directory.path().join("pid")).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    async fn until_gone(place: &Place) {
        for _ in 0..500 {
            if is_gone(place) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the process lives");
    }

    #[tokio::test]
    async fn the_environment_is_clean() {
        let place = shell();
        let said = run_script(&place, "env | sort", LONG).await.unwrap();
        let names: Vec<_> = said
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect();
        for name in &names {
            let own = name.starts_with("HELM_") && name.ends_with("_HOME");
            let shells = ["HOME", "TMPDIR", "PWD", "OLDPWD", "_", "SHLVL"];
            assert!(
                own || shells.contains(name) || PASSED_ON.contains(name),
                "{name}"
            );
        }
        assert!(said.contains(&format!(
            "HELM_CACHE_HOME={}",
            place.directory.path().display()
        )));
    }

    #[tokio::test]
    async fn it_has_none_of_the_daemons_capabilities() {
        let place = shell();
        let said = run_script(&place, "grep CapEff /proc/self/status", LONG).await;
        assert!(said.unwrap().trim().ends_with("0000000000000000"));
    }

    #[tokio::test]
    async fn a_deadline_ends_the_whole_group_after_a_word() {
        let place = shell();
        let script = "trap 'echo noted > trap; exit 1' TERM; sleep 600 & echo $! > pid; wait";
        let late = run_script(&place, script, Duration::from_millis(500)).await;
        assert!(matches!(late, Err(RunError::Deadline)), "{late:?}");
        assert!(
            place.directory.path().join("trap").exists(),
            "SIGTERM came first"
        );
        until_gone(&place).await;
    }

    #[tokio::test]
    async fn who_does_not_listen_is_killed() {
        let place = shell();
        let script = "trap '' TERM; sleep 600 & echo $! > pid; while :; do wait; done";
        let late = run_script(&place, script, Duration::from_millis(300)).await;
        assert!(matches!(late, Err(RunError::Deadline)), "{late:?}");
        until_gone(&place).await;
    }

    #[tokio::test]
    async fn a_dropped_run_leaves_no_orphan() {
        let place = shell();
        let script = "sleep 600 & echo $! > pid; wait";
        let noted = async {
            let pid = place.directory.path().join("pid");
            while std::fs::read(&pid).unwrap_or_default().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            ended = run_script(&place, script, LONG) => panic!("{ended:?}"),
            () = noted => {}
        }
        until_gone(&place).await;
    }

    #[tokio::test]
    async fn errors_are_bounded_and_hold_no_credentials() {
        let place = shell();
        let script = "yes 'WARNING: chatter' | head -n 20000 >&2; echo 'Error: get \"https://me:geheim@host/x\": no' >&2; exit 1";
        let Err(RunError::Said(said)) = run_script(&place, script, LONG).await else {
            panic!("it failed");
        };
        assert_eq!(said, "get \"https://host/x\": no");
        let long = "x".repeat(10_000);
        let kept = presentable(long.as_bytes(), ExitStatus::from_raw(256));
        assert_eq!(kept.len(), MOST_SAID);
        assert_eq!(
            presentable(b"", ExitStatus::from_raw(256)),
            "exit status: 1"
        );
    }

    #[tokio::test]
    async fn a_daemon_that_stops_ends_it() {
        let place = shell();
        let stop = CancellationToken::new();
        stop.cancel();
        let arguments = vec!["-c".into(), "sleep 600".into()];
        let ended = run(&place.surroundings, arguments, None, LONG, &stop).await;
        assert!(matches!(ended, Err(RunError::Stopped)));
    }
}
