//! The core manager, with its admission and conversion webhooks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;

use super::definitions::webhook_port;
use super::objects::{ApiVersion, IPAM, resource};
use crate::process::Process;
use crate::testbed::base64;
use crate::testbed::control_plane::ControlPlane;
use crate::testbed::directory::TestDirectory;
use crate::testbed::http::get_tcp;
use crate::testbed::manifests;
use crate::testbed::ports::free_port;
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;
use crate::toolchain::go::cluster_api_sources;
use crate::wait::wait_until;

const FEATURES: &str = "--feature-gates=ClusterTopology=true,RuntimeSDK=true";
const READY_WITHIN: Duration = Duration::from_secs(120);
/// In the metrics once the caches are filled, from which the webhooks read.
const TOPOLOGY_RUNS: &str =
    "controller_runtime_max_concurrent_reconciles{controller=\"topology/cluster\"}";

/// The real core manager of Cluster API, on a cluster that has its CRDs. Dropping it kills it.
///
/// Its webhooks stay registered while it is down, so the API server refuses all writes of its kinds then.
pub struct CoreManager {
    // Dropped in this order: the process ends before its directory goes.
    process: Option<Process>,
    webhook: u16,
    health: u16,
    diagnostics: u16,
    directory: TestDirectory,
}

impl CoreManager {
    /// Registers the webhooks, starts the manager and waits until it is ready.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let webhook = match webhook_port(plane).await? {
            Some(port) => port,
            None => free_port()?,
        };
        let directory = TestDirectory::new()?;
        let file = |name: &str| directory.path().join(name);
        let authority = plane.foundation().authority();
        authority.write_server_pair(&file("tls.crt"), &file("tls.key"))?;
        register_webhooks(plane, webhook).await?;
        let mut manager = Self {
            process: None,
            webhook,
            health: free_port()?,
            diagnostics: free_port()?,
            directory,
        };
        manager.restart(plane).await?;
        Ok(manager)
    }

    /// Starts it again on the same ports; a running one is killed first.
    pub async fn restart(&mut self, plane: &ControlPlane) -> Result<()> {
        self.kill()?;
        let binary = tokio::task::spawn_blocking(|| Component::ClusterApi.path()).await??;
        let command = self.command(&binary, &plane.kubeconfig_path());
        let name = format!("Cluster API's core manager of {}", plane.name());
        let process = Process::spawn(&name, command, &self.log())?;
        let client = plane.client().await?;
        let version = served_version(&client).await?;
        let what = format!("{name} is ready");
        let ready = wait_until(&what, READY_WITHIN, || async {
            match process.still_running() {
                Ok(()) => self.ready(&client, version).await.map(Ok),
                Err(ended) => Ok(Err(ended)),
            }
        });
        ready.await.with_context(|| process.log_tail())??;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it at once, with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(process) = self.process.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Where its output goes.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("core-manager.log")
    }

    /// Its metrics, as text.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get_tcp(self.diagnostics, "/metrics").await?.body)
    }

    fn command(&self, binary: &Path, kubeconfig: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([FEATURES, "--leader-elect=false", "--insecure-diagnostics"])
            .arg(format!("--webhook-port={}", self.webhook))
            .arg(format!(
                "--webhook-cert-dir={}",
                self.directory.path().display()
            ))
            .arg(format!("--health-addr=127.0.0.1:{}", self.health))
            .arg(format!(
                "--diagnostics-address=127.0.0.1:{}",
                self.diagnostics
            ));
        command
    }

    async fn ready(&self, client: &Client, version: ApiVersion) -> Result<()> {
        let reply = get_tcp(self.health, "/readyz").await?;
        anyhow::ensure!(reply.status == 200, "/readyz: {reply:?}");
        let metrics = self.metrics().await?;
        anyhow::ensure!(metrics.contains(TOPOLOGY_RUNS), "no controllers yet");
        let claim = json!({
            "apiVersion": version.of(IPAM), "kind": "IPAddressClaim",
            "metadata": { "name": "core-manager-is-ready" },
            "spec": { "poolRef": { "apiGroup": "fipd.test", "kind": "None", "name": "none" } },
        });
        let claims: Api<DynamicObject> = Api::namespaced_with(
            client.clone(),
            "default",
            &resource(IPAM, version, "IPAddressClaim"),
        );
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        claims
            .create(&params, &serde_json::from_value(claim)?)
            .await?;
        Ok(())
    }
}

/// v1beta1 where it is served, so that the readiness check includes conversion.
async fn served_version(client: &Client) -> Result<ApiVersion> {
    let group = kube::discovery::group(client, IPAM).await?;
    let served = group.versions().any(|version| version == "v1beta1");
    Ok(match served {
        true => ApiVersion::V1Beta1,
        false => ApiVersion::V1Beta2,
    })
}

/// Registers the admission webhooks of the release, by URL instead of by Service.
async fn register_webhooks(plane: &ControlPlane, port: u16) -> Result<()> {
    let sources = tokio::task::spawn_blocking(cluster_api_sources).await??;
    let file = sources.join("core/config/webhook/manifests.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let authority = base64::encode(plane.foundation().authority().pem().as_bytes());
    let mut yaml = String::new();
    for mut configuration in manifests::documents(&text)? {
        let name = configuration["metadata"]["name"]
            .as_str()
            .context("a name")?;
        configuration["metadata"]["name"] = json!(format!("capi-{name}"));
        let webhooks = configuration["webhooks"].as_array_mut();
        for webhook in webhooks.into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"]
                .as_str()
                .context("a path")?;
            let url = format!("https://127.0.0.1:{port}{path}");
            webhook["clientConfig"] = json!({ "url": url, "caBundle": authority });
        }
        yaml.push_str(&format!("---\n{configuration}\n"));
    }
    plane.apply(&yaml).await
}
