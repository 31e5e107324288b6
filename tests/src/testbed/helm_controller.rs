//! The helm-controller of RKE2 and K3s, and who does its Jobs where no kubelet is.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinHandle;

use super::charts::HelmCli;
use super::control_plane::ControlPlane;
use super::directory::TestDirectory;
use super::ports::free_port;
use crate::process::Process;
use crate::say::progress;
use crate::toolchain::Component;
use crate::toolchain::go::GARBAGE;

const NAMESPACE: &str = "kube-system";
/// On the pods of its Jobs.
const CHART: &str = "helmcharts.helm.cattle.io/chart";
/// In the Secret of its pods.
const VALUES: &str = "HelmChartValuesContent";
/// Label on the release.
const HASH: &str = "helmcharts.helm.cattle.io/configHash";
const PAUSE: Duration = Duration::from_millis(200);

/// The real helm-controller on one cluster, which needs a controller manager for its Jobs. Dropping it ends it.
///
/// There is no kubelet: a stand-in takes the place of the pods with `klipper-helm`, runs the real helm as they would, and
/// says of them what came of it.
pub struct HelmController {
    _process: Process,
    pods: JoinHandle<()>,
    _directory: TestDirectory,
}

impl Drop for HelmController {
    fn drop(&mut self) {
        self.pods.abort();
    }
}

impl HelmController {
    pub async fn start(plane: &ControlPlane, helm: HelmCli) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(|| Component::HelmController.path()).await??;
        let directory = TestDirectory::new()?;
        let mut command = Command::new(binary);
        command
            .env(GARBAGE.0, GARBAGE.1)
            .arg(format!(
                "--kubeconfig={}",
                plane.kubeconfig_path().display()
            ))
            .arg(format!("--namespace={NAMESPACE}"))
            .arg(format!("--pprof-port={}", free_port()?));
        let log = directory.path().join("helm-controller.log");
        let process = Process::spawn("helm-controller", command, &log)?;
        let work = Work {
            client: plane.client().await?,
            kubeconfig: plane.kubeconfig_path().display().to_string(),
            helm,
            values: directory.path().join("values.yaml").display().to_string(),
        };
        Ok(Self {
            _process: process,
            pods: tokio::spawn(work.run()),
            _directory: directory,
        })
    }
}

/// The stand-in for the pods.
struct Work {
    client: Client,
    kubeconfig: String,
    helm: HelmCli,
    /// A file of its own.
    values: String,
}

impl Work {
    async fn run(self) {
        loop {
            if let Err(error) = self.work().await {
                progress(format_args!("the stand-in for klipper-helm: {error:#}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn work(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let all = pods.list(&ListParams::default().labels(CHART)).await?;
        for pod in all {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            if phase.is_some_and(|phase| phase != "Pending")
                || pod.metadata.deletion_timestamp.is_some()
            {
                continue;
            }
            let name = pod.metadata.name.clone().context("a pod without a name")?;
            let done = self.helm(&pod).await;
            let phase = match &done {
                Ok(()) => "Succeeded",
                Err(error) => {
                    progress(format_args!("pod {name}: {error:#}"));
                    "Failed"
                }
            };
            let status = json!({ "status": { "phase": phase } });
            let params = PatchParams::default();
            pods.patch_status(&name, &params, &Patch::Merge(&status))
                .await?;
        }
        Ok(())
    }

    /// What `klipper-helm` does with its arguments and environment.
    async fn helm(&self, pod: &Pod) -> Result<()> {
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        let container = spec.containers.first().context("a pod without container")?;
        let name = environment(container, "NAME");
        let namespace = environment(container, "TARGET_NAMESPACE");
        let place = ["--namespace", &namespace, "--kubeconfig", &self.kubeconfig];
        let action = container.args.iter().flatten().next().map(String::as_str);
        let uninstall = [&["uninstall", &*name][..], &place].concat();
        if action == Some("delete") {
            return self.helm.run(&uninstall).await.map(drop);
        }
        let policy = environment(container, "FAILURE_POLICY");
        if self.has_failed(&namespace, &name).await? {
            match &*policy {
                "retry" => {}
                "reinstall" => drop(self.helm.run(&uninstall).await?),
                _ => bail!("the release failed and the policy is {policy:?}: it is left to people"),
            }
        }
        self.write_values(&name).await?;
        let mut arguments = vec!["upgrade", "--install", "--create-namespace", &name];
        let (chart, repo) = (
            environment(container, "CHART"),
            environment(container, "REPO"),
        );
        let version = environment(container, "VERSION");
        // By it the controller knows that the release is what the object says.
        let hash = format!("{HASH}={}", environment(container, "CONFIG_HASH"));
        // With a repository its alias, which is the object's name, goes before the chart's.
        let bare = chart.strip_prefix(&format!("{name}/")).unwrap_or(&chart);
        arguments.extend([bare, "--version", &version, "--values", &self.values]);
        arguments.extend(["--labels", &hash]);
        if !repo.is_empty() {
            arguments.extend(["--repo", &repo]);
        }
        arguments.extend(place);
        match self.helm.run(&arguments).await {
            // What came of it is for the controller to see by the release.
            Err(error) if policy == "retry" => {
                progress(format_args!("{name}: {error:#}"));
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// Whether the newest revision failed.
    async fn has_failed(&self, namespace: &str, name: &str) -> Result<bool> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let stored = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let all = secrets.list(&stored).await?.items.into_iter();
        let labels = all.filter_map(|secret| secret.metadata.labels);
        let newest = labels.max_by_key(|all| all.get("version")?.parse::<u64>().ok());
        Ok(newest.is_some_and(|all| all.get("status").is_some_and(|status| status == "failed")))
    }

    async fn write_values(&self, name: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get(&format!("chart-values-{name}")).await?;
        let values = secret.data.unwrap_or_default().remove(VALUES);
        std::fs::write(&self.values, values.unwrap_or_default().0)?;
        Ok(())
    }
}

fn environment(container: &Container, name: &str) -> String {
    let all = container.env.iter().flatten();
    let mut named = all.filter(|one| one.name == name);
    named
        .next()
        .and_then(|one| one.value.clone())
        .unwrap_or_default()
}
