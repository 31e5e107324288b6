//! `fipd support-bundle`: what somebody needs who is to help, in one file, without secrets.
//!
//! Nothing is copied that holds a secret (kubeconfigs, secret files, keys, the store), and all that is copied goes through
//! [`mask`] once more. A part that is not to be had is named with the reason; the bundle is made all the same.

mod mask;

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use clap::Args;
use flate2::{Compression, write::GzEncoder};
use http::Method;
use serde_json::Value;

use super::{CliSession, exit::Failure, output};
use crate::{clock, config::DEFAULT_PATH};

/// How long a program of the host may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Lines of the log.
const LINES: &str = "5000";

/// What the daemon is asked.
const ASKED: [(&str, &str); 9] = [
    ("check.json", "/api/v1/check"),
    ("clusters.json", "/api/v1/clusters"),
    ("guests.json", "/api/v1/guests"),
    ("pools.json", "/api/v1/pools?limit=1000"),
    ("rules.json", "/api/v1/rules"),
    ("backups.json", "/api/v1/backups"),
    ("restore-hold.json", "/api/v1/restore-hold"),
    ("webhooks.json", "/api/v1/webhooks"),
    ("metrics.txt", "/metrics"),
];

#[derive(Debug, Args)]
pub struct SupportBundle {
    /// Where to write it; must not be there yet [default: fipd-support-TIME.tar.gz here]
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// The daemon's configuration file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
}

/// The name of a file of the bundle, and its text or why there is none.
type Part = (&'static str, Result<String, String>);

impl SupportBundle {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        let mut parts: Vec<Part> = vec![
            ("versions.txt", versions().await),
            ("config.toml", configuration(&self.config)),
            ("log.txt", log().await),
        ];
        for (name, path) in ASKED {
            parts.push((name, asked(session, path).await));
        }
        let made = clock::rfc3339(clock::now()).replace([':', '.'], "-");
        let file = self
            .file
            .unwrap_or_else(|| format!("fipd-support-{made}.tar.gz").into());
        write(&file, &parts)?;
        let mut said = format!(
            "{}\nLook at it before you send it on: names, addresses and owners are in it; secrets are not.\n",
            file.display()
        );
        for (name, text) in &parts {
            if let Err(why) = text {
                said.push_str(&format!("without {name}: {why}\n"));
            }
        }
        output::print(&said)
    }
}

async fn asked(session: &CliSession, path: &str) -> Result<String, String> {
    let reply = session.client.send(Method::GET, path, None).await;
    let body = reply.map_err(|failure| failure.to_string())?;
    let text = String::from_utf8_lossy(&body).into_owned();
    match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            mask::urls(&mut value);
            serde_json::to_string_pretty(&value).map_err(|error| error.to_string())
        }
        // The metrics.
        Err(_) => Ok(text),
    }
}

/// The keys of the file without its comments.
fn configuration(path: &Path) -> Result<String, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    // An error would show the line.
    let mut table: toml::Table = toml::from_str(&text).map_err(|_| {
        format!(
            "{} is no TOML; fipd check --config says where",
            path.display()
        )
    })?;
    mask::table(&mut table);
    toml::to_string_pretty(&table).map_err(|error| error.to_string())
}

async fn versions() -> Result<String, String> {
    let mut text = format!("fipd {}\n", env!("CARGO_PKG_VERSION"));
    for (program, arguments) in [
        ("uname", ["-a"].as_slice()),
        ("cat", &["/etc/os-release"]),
        (
            "systemctl",
            &[
                "show",
                "fipd",
                "-p",
                "ActiveState,SubState,NRestarts,ExecMainStartTimestamp",
            ],
        ),
        ("nft", &["--version"]),
        ("helm", &["version", "--short"]),
    ] {
        let said = run(program, arguments).await;
        let said = said.unwrap_or_else(|why| format!("not to be had: {why}\n"));
        text.push_str(&format!("\n# {program}\n{said}"));
    }
    Ok(text)
}

async fn log() -> Result<String, String> {
    let arguments = ["-u", "fipd", "-n", LINES, "--no-pager", "-o", "short-iso"];
    run("journalctl", &arguments).await
}

async fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output
        .map_err(|_| format!("{program} did not end within {} s", PATIENCE.as_secs()))?
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("{program}: {}", said.trim()))
    }
}

/// Readable by its owner alone.
fn write(path: &Path, parts: &[Part]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let now = clock::now().0 / 1_000;
    for (name, text) in parts {
        let (name, text) = match text {
            Ok(text) => ((*name).to_owned(), mask::text(text)),
            Err(why) => (format!("{name}.missing"), mask::text(why)),
        };
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        let name = format!("fipd-support/{name}");
        archive
            .append_data(&mut header, name, text.as_bytes())
            .map_err(failed)?;
    }
    let mut file = archive
        .into_inner()
        .and_then(GzEncoder::finish)
        .map_err(failed)?;
    file.flush().map_err(failed)
}
