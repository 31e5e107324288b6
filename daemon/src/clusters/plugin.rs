//! One run of the program that a kubeconfig names: bounded in time and output, without fipd's environment and privileges.
//!
//! What it prints is for the API server alone: neither output is in an error or the log.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use kube::config::{AuthProviderConfig, ExecConfig};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, process::Command};

use crate::child::{self, Group};

/// Until it has ended.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// The most it may print, in bytes.
const MOST: u64 = 1 << 20;
/// Groups of versions of what it prints.
const GROUP: &str = "client.authentication.k8s.io/";
/// As errors call it.
const PROGRAM: &str = "the program that its kubeconfig names (exec)";

/// A program and how it is called.
#[derive(Clone)]
pub(super) struct Program {
    command: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    prints: Prints,
    home: PathBuf,
}

/// What it prints.
#[derive(Clone)]
enum Prints {
    /// An `ExecCredential`.
    Credential,
    /// A token, or JSON with one there and the time when it expires there.
    Token {
        token: Option<String>,
        expires: Option<String>,
    },
}

/// What it has printed.
#[derive(Default)]
pub(super) struct Printed {
    pub token: Option<String>,
    /// Certificate and key in PEM.
    pub certificate: Option<(String, String)>,
    pub expires: Option<Timestamp>,
}

/// Why it gave nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum PluginError {
    #[error("{PROGRAM} is not named: command is missing")]
    Unnamed,
    #[error("{PROGRAM} cannot be started: {0}")]
    Start(String),
    #[error("{PROGRAM} has failed, {0}; run by hand, as user fipd, it says why")]
    Failed(ExitStatus),
    #[error(
        "{PROGRAM} has not ended within {} s and was killed; run by hand, as user fipd, it shows what it waits for",
        DEADLINE.as_secs()
    )]
    Late,
    #[error("{PROGRAM} has printed more than {MOST} bytes and was killed")]
    Long,
    #[error("{PROGRAM} has not printed what it should")]
    Unread,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    status: Option<Status>,
    #[serde(rename = "spec")]
    _spec: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl Program {
    /// The one of `exec`.
    ///
    /// # Errors
    /// [`PluginError::Unnamed`].
    pub fn of_exec(exec: ExecConfig, home: &Path) -> Result<Self, PluginError> {
        let cluster = exec.cluster.filter(|_| exec.provide_cluster_info);
        let mut spec = json!({ "interactive": false });
        if let Some(cluster) = cluster.and_then(|cluster| serde_json::to_value(cluster).ok()) {
            spec["cluster"] = cluster;
        }
        let version = exec.api_version.unwrap_or_else(|| format!("{GROUP}v1"));
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
        let given = exec.env.into_iter().flatten();
        let mut environment: BTreeMap<String, String> = given
            .filter_map(|mut one| Some((one.remove("name")?, one.remove("value")?)))
            .collect();
        environment.insert("KUBERNETES_EXEC_INFO".to_owned(), info.to_string());
        Ok(Self {
            command: exec.command.ok_or(PluginError::Unnamed)?,
            arguments: exec.args.unwrap_or_default(),
            environment,
            prints: Prints::Credential,
            home: home.to_owned(),
        })
    }

    /// The one of `auth-provider`, where it names one.
    pub fn of_provider(provider: &AuthProviderConfig, home: &Path) -> Result<Self, PluginError> {
        let value = |name: &str| provider.config.get(name).cloned();
        let arguments = value("cmd-args").unwrap_or_default();
        Ok(Self {
            command: value("cmd-path").ok_or(PluginError::Unnamed)?,
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            environment: BTreeMap::new(),
            prints: Prints::Token {
                token: value("token-key"),
                expires: value("expiry-key"),
            },
            home: home.to_owned(),
        })
    }

    /// Runs it to its end, and ends with it whatever it has started.
    ///
    /// # Errors
    /// It gave nothing.
    pub async fn run(&self) -> Result<Printed, PluginError> {
        let start = |error: io::Error| PluginError::Start(error.to_string());
        let mut child = self
            .command()
            .await
            .map_err(start)?
            .spawn()
            .map_err(start)?;
        // Dropped before the child, whatever happens: killed while the number is still its own.
        let group = Group::of(&child);
        let stdout = child.stdout.take();
        let work = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MOST + 1).read_to_end(&mut output).await?;
            }
            if let Some(group) = group.as_ref().filter(|_| output.len() as u64 <= MOST) {
                group.ended().await?;
            }
            Ok::<_, io::Error>(output)
        };
        let output = match tokio::time::timeout(DEADLINE, work).await {
            Ok(output) => output.map_err(start)?,
            Err(_) => return Err(PluginError::Late),
        };
        if output.len() as u64 > MOST {
            return Err(PluginError::Long);
        }
        drop(group);
        let status = child.wait().await.map_err(start)?;
        match status.success() {
            true => self.prints.parse(&output),
            false => Err(PluginError::Failed(status)),
        }
    }

    async fn command(&self) -> io::Result<Command> {
        let mut directory = tokio::fs::DirBuilder::new();
        directory.recursive(true).mode(0o700);
        directory.create(&self.home).await?;
        let mut command = Command::new(&self.command);
        child::prepared(&mut command);
        let own = ["PATH", "LANG"].into_iter();
        command
            .args(&self.arguments)
            .envs(own.filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("HOME", &self.home)
            .envs(&self.environment)
            .current_dir(&self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        Ok(command)
    }
}

impl Prints {
    fn parse(&self, output: &[u8]) -> Result<Printed, PluginError> {
        match self {
            Self::Credential => parse_credential(output),
            Self::Token { token, expires } => parse_token(output, token, expires),
        }
    }
}

fn parse_credential(output: &[u8]) -> Result<Printed, PluginError> {
    let unread = |_| PluginError::Unread;
    // YAML, as kubectl takes it; JSON is some of that.
    let credential: ExecCredential = serde_saphyr::from_slice(output).map_err(unread)?;
    let version = credential.api_version.as_deref();
    if version.is_some_and(|version| !version.starts_with(GROUP)) {
        return Err(PluginError::Unread);
    }
    let status = credential.status.ok_or(PluginError::Unread)?;
    let printed = Printed {
        token: status.token,
        certificate: status.client_certificate_data.zip(status.client_key_data),
        expires: time(status.expiration_timestamp.as_deref())?,
    };
    match printed.token.is_none() && printed.certificate.is_none() {
        true => Err(PluginError::Unread),
        false => Ok(printed),
    }
}

fn parse_token(
    output: &[u8],
    token: &Option<String>,
    expires: &Option<String>,
) -> Result<Printed, PluginError> {
    let Some(token) = token else {
        let text = std::str::from_utf8(output).map_err(|_| PluginError::Unread)?;
        return Ok(Printed {
            token: Some(text.trim().to_owned()),
            ..Printed::default()
        });
    };
    let value: Value = serde_json::from_slice(output).map_err(|_| PluginError::Unread)?;
    let expires = match expires {
        Some(path) => Some(at(&value, path).ok_or(PluginError::Unread)?),
        None => None,
    };
    Ok(Printed {
        token: Some(at(&value, token).ok_or(PluginError::Unread)?.to_owned()),
        expires: time(expires)?,
        certificate: None,
    })
}

/// The text at a path such as `{.credential.access_token}`.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    let path = path.trim_matches(['"', '{', '}', '$', '.']);
    let mut names = path.split('.');
    names
        .try_fold(value, |value, name| value.get(name))?
        .as_str()
}

fn time(text: Option<&str>) -> Result<Option<Timestamp>, PluginError> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|_| PluginError::Unread)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(home: &Path, script: &str) -> Program {
        let exec: ExecConfig = serde_json::from_value(json!({
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "sh", "args": ["-c", script],
            "env": [{ "name": "PROFILE", "value": "site" }],
        }))
        .unwrap();
        Program::of_exec(exec, home).unwrap()
    }

    fn is_gone(pid: &Path) -> bool {
        let pid = std::fs::read_to_string(pid).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    }

    async fn until_gone(pid: &Path) {
        let began = Instant::now();
        while !is_gone(pid) {
            assert!(began.elapsed() < DEADLINE, "the process lives");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Real time, since the program has its own: [`DEADLINE`] passes.
    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_has_started() {
        let home = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; sleep 600 & echo $! > child; echo $$ > own; wait; wait";
        let began = Instant::now();
        let late = shell(home.path(), script).run().await;
        assert!(matches!(late, Err(PluginError::Late)));
        assert!(began.elapsed() < 2 * DEADLINE);
        until_gone(&home.path().join("child")).await;
        until_gone(&home.path().join("own")).await;
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_is_killed_with_what_it_has_started() {
        let home = tempfile::tempdir().unwrap();
        let child = home.path().join("child");
        let program = shell(home.path(), "sleep 600 & echo $! > new; mv new child; wait");
        let running = tokio::spawn(async move { program.run().await.map(drop) });
        while !child.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        running.abort();
        until_gone(&child).await;
    }

    #[tokio::test]
    async fn what_it_leaves_behind_ends_with_it() {
        let home = tempfile::tempdir().unwrap();
        let script =
            "sleep 600 > /dev/null & echo $! > child; echo '{\"status\": {\"token\": \"t\"}}'";
        let printed = shell(home.path(), script).run().await.unwrap();
        assert_eq!(printed.token.as_deref(), Some("t"));
        until_gone(&home.path().join("child")).await;
    }

    #[tokio::test]
    async fn endless_output_is_cut() {
        let home = tempfile::tempdir().unwrap();
        let long = shell(home.path(), "yes").run().await;
        assert!(matches!(long, Err(PluginError::Long)));
    }

    #[tokio::test]
    async fn its_environment_is_its_own() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().join("programs");
        let script = "env > seen; grep Cap /proc/self/status > caps; echo '{\"status\": {\"token\": \"t\"}}'";
        shell(&home, script).run().await.unwrap();
        let seen = std::fs::read_to_string(home.join("seen")).unwrap();
        let value = |name: &str| {
            let mut lines = seen.lines().filter_map(|line| line.split_once('='));
            lines.find(|(one, _)| *one == name).map(|(_, value)| value)
        };
        assert_eq!(value("HOME"), home.to_str());
        assert_eq!(value("PROFILE"), Some("site"));
        let info: Value = serde_json::from_str(value("KUBERNETES_EXEC_INFO").unwrap()).unwrap();
        assert_eq!(info["apiVersion"], "client.authentication.k8s.io/v1beta1");
        assert_eq!(info["spec"]["interactive"], false);
        let shells = ["PWD", "OLDPWD", "_", "SHLVL"];
        let allowed = ["PATH", "HOME", "LANG", "PROFILE", "KUBERNETES_EXEC_INFO"];
        for (name, _) in seen.lines().filter_map(|line| line.split_once('=')) {
            assert!(allowed.contains(&name) || shells.contains(&name), "{name}");
        }
        let caps = std::fs::read_to_string(home.join("caps")).unwrap();
        let effective = caps.lines().find(|line| line.starts_with("CapEff:"));
        assert!(effective.unwrap().ends_with("0000000000000000"), "{caps}");
    }

    #[test]
    fn both_versions_json_and_yaml_are_read() {
        for text in [
            r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#,
            "apiVersion: client.authentication.k8s.io/v1beta1\nkind: ExecCredential\nstatus:\n  token: t\n  expirationTimestamp: \"2030-01-01T00:00:00Z\"\n",
        ] {
            let printed = parse_credential(text.as_bytes()).unwrap();
            assert_eq!(printed.token.as_deref(), Some("t"));
            assert_eq!(
                printed.expires,
                Some("2030-01-01T00:00:00Z".parse().unwrap())
            );
        }
        let certificate =
            r#"{"status":{"clientCertificateData":"C","clientKeyData":"K","token":null}}"#;
        let printed = parse_credential(certificate.as_bytes()).unwrap();
        assert_eq!(printed.certificate, Some(("C".to_owned(), "K".to_owned())));
        for wrong in [
            "",
            "hunter2",
            "{}",
            r#"{"status":{}}"#,
            r#"{"apiVersion":"v1","status":{"token":"t"}}"#,
            r#"{"status":{"token":"t","expirationTimestamp":"soon"}}"#,
        ] {
            let read = parse_credential(wrong.as_bytes());
            assert!(matches!(read, Err(PluginError::Unread)), "{wrong}");
        }
    }

    #[test]
    fn a_provider_prints_a_token_or_json_with_one() {
        let plain = parse_token(b"t\n", &None, &None).unwrap();
        assert_eq!(plain.token.as_deref(), Some("t"));
        let text = br#"{"credential":{"access_token":"t","token_expiry":"2030-01-01T00:00:00Z"}}"#;
        let path = |path: &str| Some(format!("{{.credential.{path}}}"));
        let read = parse_token(text, &path("access_token"), &path("token_expiry")).unwrap();
        assert_eq!(read.token.as_deref(), Some("t"));
        assert!(read.expires.is_some());
        assert!(parse_token(text, &path("other"), &None).is_err());
    }
}
