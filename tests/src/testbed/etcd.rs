//! One etcd without fsync, shared by the API servers of a group.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::http::get_tcp;
use super::ports::free_port;
use crate::process::Process;
use crate::toolchain::Component;
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
