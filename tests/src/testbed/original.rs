//! The programs of the originals, as fipd sees them: Deployments that are to have pods, which nothing runs here, and Leases that
//! are renewed.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::{ControlPlane, Fipd, wait_until};

const DEADLINE: Duration = Duration::from_secs(60);

/// How often an original renews its Lease.
const RENEWED: Duration = Duration::from_secs(2);

/// Renews a Lease as an original does.
pub async fn renew_lease(leases: &Api<Lease>, name: &str, holder: &str) -> Result<()> {
    let now = MicroTime(Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now },
    });
    let params = PatchParams::apply("original").force();
    leases.patch(name, &params, &Patch::Apply(&lease)).await?;
    Ok(())
}

/// The same for as long as the task runs.
pub async fn keep_renewing(leases: Api<Lease>, name: &'static str) -> Result<()> {
    loop {
        renew_lease(&leases, name, "original").await?;
        tokio::time::sleep(RENEWED).await;
    }
}

impl ControlPlane {
    /// Has the Deployment of an original be there, with so many pods that it is to have.
    pub async fn scale_original(&self, namespace: &str, name: &str, replicas: i32) -> Result<()> {
        let labels = json!({ "app": name });
        let pod =
            json!({ "containers": [{ "name": "main", "image": "stand-in.invalid/original" }] });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        });
        self.apply(&deployment.to_string()).await
    }
}

impl Fipd {
    /// Waits until `fipd adopt SYSTEM --cluster CLUSTER` is refused with all of these texts.
    pub async fn wait_adopt_refused(
        &self,
        (system, cluster): (&str, &str),
        texts: &[&str],
    ) -> Result<()> {
        let adopt = ["adopt", system, "--cluster", cluster];
        wait_until("adopting is refused", DEADLINE, || async {
            let answer = self
                .cli(adopt)
                .await
                .map_err(|error| format!("{error:#}"))?;
            let says = |text: &&str| answer.stderr.contains(*text);
            match answer.code != 0 && texts.iter().all(says) {
                true => Ok(()),
                false => Err(format!("{answer:?}")),
            }
        })
        .await
    }

    /// Waits until `fipd adopt SYSTEM --cluster CLUSTER` is done; what it prints.
    pub async fn wait_adopted(&self, (system, cluster): (&str, &str)) -> Result<String> {
        let adopt = ["adopt", system, "--cluster", cluster];
        wait_until("adopting is done", DEADLINE, || async {
            let answer = self
                .cli(adopt)
                .await
                .map_err(|error| format!("{error:#}"))?;
            match answer.code {
                0 => Ok(answer.stdout),
                _ => Err(format!("{answer:?}")),
            }
        })
        .await
    }
}
