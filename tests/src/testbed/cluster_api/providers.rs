//! Stand-ins for infrastructure, bootstrap and control plane providers: CRDs that satisfy the v1beta2 contract of Cluster
//! API, and a loop that reports every object as provisioned.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, ObjectMeta};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::objects::{ApiVersion, CORE, resource};
use crate::say::progress;
use crate::testbed::control_plane::{ControlPlane, client_of};

const VERSION: &str = "v1beta1";
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
const PAUSE: Duration = Duration::from_millis(200);

/// A kind of the stand-ins; each has a template beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandIn {
    /// Infrastructure of a cluster.
    Cluster,
    /// Infrastructure of a machine.
    Machine,
    /// Bootstrap data of a machine.
    Config,
    ControlPlane,
}

impl StandIn {
    pub const ALL: [Self; 4] = [
        Self::Cluster,
        Self::Machine,
        Self::Config,
        Self::ControlPlane,
    ];

    pub fn kind(self) -> &'static str {
        match self {
            Self::Cluster => "StandInCluster",
            Self::Machine => "StandInMachine",
            Self::Config => "StandInConfig",
            Self::ControlPlane => "StandInControlPlane",
        }
    }

    pub fn api_version(self) -> String {
        format!("{}/{VERSION}", self.group())
    }

    pub fn resource(self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group(), VERSION, self.kind());
        ApiResource::from_gvk_with_plural(&gvk, &plural(self.kind()))
    }

    fn group(self) -> &'static str {
        match self {
            Self::Cluster | Self::Machine => "infrastructure.cluster.x-k8s.io",
            Self::Config => "bootstrap.cluster.x-k8s.io",
            Self::ControlPlane => "controlplane.cluster.x-k8s.io",
        }
    }

    /// The fields of spec and status that a provider would set; `None`: it would still wait.
    fn provisioned(self, object: &DynamicObject, cluster: &Value) -> Option<(Value, Value)> {
        let name = object.metadata.name.as_deref()?;
        let spec = &object.data["spec"];
        match self {
            // The contract: a provider without an endpoint of its own waits for that of the Cluster.
            Self::Cluster => {
                let has_endpoint = is_endpoint(&spec["controlPlaneEndpoint"])
                    || is_endpoint(&cluster["spec"]["controlPlaneEndpoint"]);
                let status = json!({ "initialization": { "provisioned": true } });
                has_endpoint.then(|| (json!({}), status))
            }
            Self::Machine => {
                let spec = json!({ "providerID": format!("stand-in:///{name}") });
                Some((spec, json!({ "initialization": { "provisioned": true } })))
            }
            Self::Config => {
                let initialization = json!({ "dataSecretCreated": true });
                let status = json!({ "initialization": initialization, "dataSecretName": name });
                Some((json!({}), status))
            }
            Self::ControlPlane => {
                let initialization = &cluster["status"]["initialization"];
                let has_infrastructure = initialization["infrastructureProvisioned"] == true;
                let replicas = spec["replicas"].as_u64().unwrap_or(0);
                let status = json!({
                    "initialization": { "controlPlaneInitialized": true },
                    "version": spec["version"], "observedGeneration": object.metadata.generation,
                    "replicas": replicas, "readyReplicas": replicas,
                    "availableReplicas": replicas, "upToDateReplicas": replicas,
                });
                has_infrastructure.then(|| (json!({}), status))
            }
        }
    }
}

fn plural(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

fn is_endpoint(endpoint: &Value) -> bool {
    let host = endpoint["host"].as_str().unwrap_or_default();
    !host.is_empty() && endpoint["port"].as_u64().is_some_and(|port| port > 0)
}

/// Installs the CRDs of the stand-ins and waits until they are served.
pub async fn install_stand_ins(plane: &ControlPlane) -> Result<()> {
    let mut yaml = String::new();
    for stand_in in StandIn::ALL {
        for kind in [
            stand_in.kind().to_owned(),
            format!("{}Template", stand_in.kind()),
        ] {
            let definition = definition(stand_in.group(), (VERSION, "v1beta2"), &kind);
            yaml.push_str(&format!("---\n{definition}\n"));
        }
    }
    plane.install_crds(&yaml).await
}

/// A CRD that takes any spec and status, whose version satisfies this contract of Cluster API.
pub(super) fn definition(group: &str, (version, contract): (&str, &str), kind: &str) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": any, "status": any } });
    let versions = json!([{
        "name": version, "served": true, "storage": true,
        "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
    }]);
    let plural = plural(kind);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Names the version of the kind that satisfies the contract.
            "labels": { format!("{CORE}/{contract}"): version },
        },
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() },
        },
    })
}

/// Plays the providers on one cluster until it is dropped: a Cluster of a class is provisioned once it has an endpoint,
/// and its machines once their infrastructure exists; no node joins. Runs in a thread of its own, so it can outlive the
/// runtime of a test.
pub struct StandInProviders {
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for StandInProviders {
    fn drop(&mut self) {
        // The loop ends when its side of the channel sees the sender gone.
        drop(std::mem::replace(&mut self.stop, watch::Sender::new(())));
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl StandInProviders {
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let (stop, mut stopped) = watch::channel(());
        let kubeconfig = plane.kubeconfig_yaml().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = provide_all(&kubeconfig) => {}
                    _ = stopped.changed() => {}
                }
            });
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

async fn provide_all(kubeconfig: &str) {
    let client = match client_of(kubeconfig).await {
        Ok(client) => client,
        Err(error) => return progress(format_args!("the stand-in for providers: {error:#}")),
    };
    loop {
        for kind in StandIn::ALL {
            if let Err(error) = provide(&client, kind).await {
                progress(format_args!("the stand-in for providers: {error:#}"));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn provide(client: &Client, kind: StandIn) -> Result<()> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    for object in all.list(&ListParams::default()).await? {
        let ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            labels: Some(labels),
            deletion_timestamp: None,
            ..
        } = &object.metadata
        else {
            continue;
        };
        let Some(cluster) = labels.get(CLUSTER_NAME) else {
            continue;
        };
        let clusters = resource(CORE, ApiVersion::V1Beta2, "Cluster");
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &clusters);
        let Some(cluster) = clusters.get_opt(cluster).await? else {
            continue;
        };
        let Some((spec, status)) = kind.provisioned(&object, &json!(cluster)) else {
            continue;
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &kind.resource());
        let params = PatchParams::default();
        if !includes(&object.data["spec"], &spec) {
            let patch = Patch::Merge(json!({ "spec": spec }));
            api.patch(name, &params, &patch).await?;
        }
        if !includes(&object.data["status"], &status) {
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(name, &params, &patch).await?;
        }
    }
    Ok(())
}

/// Whether `whole` has all fields of `part` with the same values.
fn includes(whole: &Value, part: &Value) -> bool {
    match part.as_object() {
        Some(fields) => fields
            .iter()
            .all(|(name, value)| includes(&whole[name], value)),
        None => whole == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_differ_are_written() {
        let whole = json!({ "a": { "b": 1, "c": 2 } });
        assert!(includes(&whole, &json!({ "a": { "b": 1 } })) && includes(&whole, &json!({})));
        assert!(!includes(&whole, &json!({ "a": { "b": 2 } })));
        assert!(!includes(&Value::Null, &json!({ "a": 1 })));
    }
}
