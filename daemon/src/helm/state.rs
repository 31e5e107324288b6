//! What helm says about a release, parsed.

use std::str::FromStr;

use fipd_core::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::values::{Digest, Values};
use crate::clock;

/// The last revision of a release.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub revision: u64,
    pub phase: Phase,
    /// Name of the chart, which is not always the release's.
    pub chart: String,
    pub version: String,
    pub values: Digest,
    /// It carries fipd's label, and that of the system that asks.
    pub ours: bool,
}

/// How far helm is with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Deployed,
    Failed,
    /// An operation runs, or died.
    Pending {
        since: Timestamp,
    },
    /// Is being removed, or the removal died.
    Uninstalling {
        since: Timestamp,
    },
    /// Removed, with its history kept.
    Uninstalled,
}

/// Helm's answer is not what its version promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("helm {command} answered something else than expected: {what}")]
pub struct Unreadable {
    pub command: &'static str,
    pub what: String,
}

/// `helm status NAME -o json`, as far as it counts. The rest, such as the manifest, may hold secrets.
#[derive(Deserialize)]
struct Status {
    version: u64,
    info: Info,
    #[serde(default)]
    config: Value,
}

/// How far a revision is.
#[derive(Deserialize)]
pub(super) struct Info {
    pub(super) status: String,
    #[serde(default)]
    last_deployed: String,
    #[serde(default)]
    deleted: Option<String>,
    #[serde(default)]
    pub description: String,
}

/// `helm get metadata NAME -o json`
#[derive(Deserialize)]
struct Metadata {
    chart: String,
    version: String,
}

/// One row of `helm list -o json`.
#[derive(Deserialize)]
struct HelmListRow {
    name: String,
}

/// One row of `helm history -o json`.
#[derive(Deserialize)]
struct Revision {
    revision: u64,
    status: String,
}

impl Observed {
    /// Puts together what `helm status`, `helm get metadata` and `helm list --selector` with fipd's label say.
    ///
    /// # Errors
    /// Where one of them cannot be read.
    pub fn parse(name: &str, status: &str, metadata: &str, ours: &str) -> Result<Self, Unreadable> {
        let status: Status = json("status", status)?;
        let metadata: Metadata = json("get metadata", metadata)?;
        let ours: Vec<HelmListRow> = json("list", ours)?;
        let values = Values::of(&status.config).ok_or_else(|| Unreadable {
            command: "status",
            what: "config is no object".to_owned(),
        })?;
        Ok(Self {
            revision: status.version,
            phase: phase(&status.info)?,
            chart: metadata.chart,
            version: metadata.version,
            values: values.digest(),
            ours: ours.iter().any(|row| row.name == name),
        })
    }
}

/// The revision that a dead operation is rolled back to, out of `helm history -o json`: the newest that was in use,
/// else the newest there is, whose objects are then written once more.
///
/// # Errors
/// Where there is none.
pub fn revision_to_restore(history: &str) -> Result<u64, Unreadable> {
    let all: Vec<Revision> = json("history", history)?;
    let newest = |wanted: fn(&str) -> bool| {
        let some = all.iter().filter(|one| wanted(&one.status));
        some.map(|one| one.revision).max()
    };
    newest(|status| matches!(status, "deployed" | "superseded"))
        .or_else(|| newest(|_| true))
        .ok_or_else(|| Unreadable {
            command: "history",
            what: "no revision".to_owned(),
        })
}

pub(super) fn phase(info: &Info) -> Result<Phase, Unreadable> {
    // A time that cannot be read is long ago: better a release recovered too early than stuck for ever.
    let at = |text: &str| clock::parse_rfc3339(text).unwrap_or(Timestamp(0));
    Ok(match info.status.as_str() {
        "deployed" => Phase::Deployed,
        "pending-install" | "pending-upgrade" | "pending-rollback" => Phase::Pending {
            since: at(&info.last_deployed),
        },
        "uninstalling" => Phase::Uninstalling {
            since: at(info.deleted.as_deref().unwrap_or_default()),
        },
        "uninstalled" => Phase::Uninstalled,
        // A last revision that is superseded or unknown was cut off by hand; an upgrade puts it right, as a failed one.
        "failed" | "superseded" | "unknown" => Phase::Failed,
        other => {
            return Err(Unreadable {
                command: "status",
                what: format!("status {other:?}"),
            });
        }
    })
}

fn json<T: DeserializeOwned>(command: &'static str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| Unreadable {
        command,
        what: category(&error),
    })
}

/// Category and place only: the text of the error may repeat values.
pub(super) fn category(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    format!(
        "{:?} error in line {line}, column {column}",
        error.classify()
    )
}

/// The version of the CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CliVersion {
    pub major: u32,
    pub minor: u32,
}

impl CliVersion {
    /// Labels on releases came with 3.13.
    pub fn is_supported(self) -> bool {
        let least = Self {
            major: 3,
            minor: 13,
        };
        (3..=4).contains(&self.major) && self >= least
    }
}

impl FromStr for CliVersion {
    type Err = Unreadable;

    /// Reads `v3.22.0+g144a6c6`, and `v4.3` of a helm that was built by hand.
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let bare = text.trim().trim_start_matches('v');
        let mut parts = bare.split(['.', '+', '-']);
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) => Ok(Self { major, minor }),
            _ => Err(Unreadable {
                command: "version",
                what: format!("{:?}", text.chars().take(60).collect::<String>()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"name":"purelb","chart":"purelb","version":"0.14.1","appVersion":"1","namespace":"n","revision":3,"status":"deployed","deployedAt":"2026-01-01T00:00:00Z"}"#;

    fn status(status: &str) -> String {
        format!(
            r#"{{"name":"purelb","info":{{"first_deployed":"2026-01-01T00:00:00.5+01:00","last_deployed":"2026-01-01T01:00:00.123456789+01:00","deleted":"","description":"x","status":"{status}","notes":"n"}},"config":{{"a":1}},"manifest":"---","version":3,"namespace":"n"}}"#
        )
    }

    #[test]
    fn what_helm_says_is_read() {
        let ours = r#"[{"name":"purelb","namespace":"n","revision":"3","updated":"x","status":"deployed","chart":"purelb-0.14.1","app_version":"1"}]"#;
        let seen = Observed::parse("purelb", &status("deployed"), METADATA, ours).unwrap();
        assert_eq!(
            (seen.revision, seen.phase, seen.ours),
            (3, Phase::Deployed, true)
        );
        assert_eq!(seen.values, Values::parse("a: 1").unwrap().digest());
        let theirs = Observed::parse("purelb", &status("pending-upgrade"), METADATA, "[]").unwrap();
        let since = clock::parse_rfc3339("2026-01-01T00:00:00.123Z").unwrap();
        assert_eq!(
            (theirs.phase, theirs.ours),
            (Phase::Pending { since }, false)
        );
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_no_secret_in_a_log() {
        let broken = status("deployed").replace("{\"a\":1}", "\"geheim\"");
        let said = Observed::parse("purelb", &broken, METADATA, "[]")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("helm status") && !said.contains("geheim"),
            "{said}"
        );
        let odd = Observed::parse("purelb", &status("sleeping"), METADATA, "[]").unwrap_err();
        assert!(odd.to_string().contains("sleeping"));
    }

    #[test]
    fn a_dead_operation_goes_back_to_what_was_in_use() {
        let row = |revision: u64, status: &str| {
            format!(
                r#"{{"revision":{revision},"updated":"x","status":"{status}","chart":"c-1","app_version":"","description":""}}"#
            )
        };
        let history = |rows: &[String]| format!("[{}]", rows.join(","));
        let upgrade = [
            row(1, "superseded"),
            row(2, "deployed"),
            row(3, "failed"),
            row(4, "pending-upgrade"),
        ];
        assert_eq!(revision_to_restore(&history(&upgrade)), Ok(2));
        assert_eq!(
            revision_to_restore(&history(&[row(1, "pending-install")])),
            Ok(1)
        );
        assert!(revision_to_restore("[]").is_err());
    }

    #[test]
    fn versions_of_the_cli() {
        let version = |text: &str| text.parse::<CliVersion>();
        assert!(version("v3.22.0+g144a6c6\n").unwrap().is_supported());
        assert!(version("v4.3").unwrap().is_supported());
        assert!(!version("v3.12.3+g1").unwrap().is_supported());
        assert!(!version("v2.17.0").unwrap().is_supported());
        assert!(!version("v5.0.0").unwrap().is_supported());
        assert!(version("command not found").is_err());
    }
}
