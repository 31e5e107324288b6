//! One etcd without fsync, shared by the API servers of a group.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::http::{Method, call_tcp, get_tcp};
use super::ports::free_port;
use crate::process::Process;
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;
use crate::wait::wait_until;

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running etcd on loopback. Dropping it kills it.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    port: u16,
}

impl Etcd {
    /// Starts etcd with its data and log below `directory` and waits until it is healthy.
    pub async fn start(directory: &Path) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(|| Component::Etcd.path()).await??;
        let (port, peer) = (free_port()?, format!("http://127.0.0.1:{}", free_port()?));
        let client = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .args([
                "--name=testbed",
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--max-request-bytes=8388608",
            ])
            .arg(format!("--data-dir={}", directory.join("etcd").display()))
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
            ])
            .args([
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
            ])
            .arg(format!("--initial-cluster=testbed={peer}"));
        let process = Process::spawn("etcd", command, &directory.join("etcd.log"))?;
        wait_until("etcd is healthy", READY_WITHIN, || async {
            if let Err(ended) = process.still_running() {
                return Ok(Err(ended));
            }
            let reply = get_tcp(port, "/health")
                .await
                .map_err(|error| format!("{error:#}"))?;
            if reply.status == 200 {
                Ok(Ok(()))
            } else {
                Err(format!("{reply:?}"))
            }
        })
        .await??;
        Ok(Self { process, port })
    }

    /// What API servers connect to.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The process id, for tests that look whether it is gone.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// Keys read by one request, so that an answer stays below the limits of gRPC.
const PAGE: usize = 100;

impl Etcd {
    /// Makes all that is below one prefix equal to what is below another, as restoring a snapshot does. No API server may use
    /// the target meanwhile.
    pub async fn copy(&self, from: &str, to: &str) -> Result<()> {
        let all = json!({ "key": STANDARD.encode(to), "range_end": STANDARD.encode(after(to)) });
        self.call("deleterange", &all).await?;
        let mut begin = from.as_bytes().to_vec();
        loop {
            let page = json!({
                "key": STANDARD.encode(&begin), "range_end": STANDARD.encode(after(from)), "limit": PAGE,
            });
            let page = self.call("range", &page).await?;
            let rows = page["kvs"].as_array().cloned().unwrap_or_default();
            for row in &rows {
                let key = STANDARD.decode(row["key"].as_str().unwrap_or_default())?;
                let rest = key.strip_prefix(from.as_bytes()).unwrap_or_default();
                let target = [to.as_bytes(), rest].concat();
                let put = json!({ "key": STANDARD.encode(target), "value": row["value"] });
                self.call("put", &put).await?;
                begin = [key.as_slice(), &[0]].concat();
            }
            if rows.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn call(&self, what: &str, body: &Value) -> Result<Value> {
        let path = format!("/v3/kv/{what}");
        let reply = call_tcp(self.port, Method::POST, &path, Some(body)).await?;
        ensure!(reply.status == 200, "{path}: {reply:?}");
        Ok(serde_json::from_str(&reply.body)?)
    }
}

/// The first key behind all that begin with a prefix; it ends with a slash.
fn after(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}
