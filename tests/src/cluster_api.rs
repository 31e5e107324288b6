//! Pools, claims and addresses of Cluster API in a management cluster, written and read as JSON, as providers do.

mod claim_bed;

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::testbed::{ControlPlane, wait_until};

pub use claim_bed::{ClaimBed, ManagementPlane, management_config};

const GROUP: &str = "ipam.cluster.x-k8s.io";
const DEADLINE: Duration = Duration::from_secs(60);
/// How many objects are removed at once.
const REMOVERS: usize = 8;
/// Namespaces of the Leases that fipd holds.
const LEASES: [&str; 2] = ["capi-ipam-in-cluster-system", "capi-system"];

/// The objects of one management cluster.
#[derive(Clone)]
pub struct IpamObjects {
    pub client: Client,
    /// Version of claims and addresses.
    pub version: &'static str,
}

impl IpamObjects {
    pub fn of(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Cluster" => ("cluster.x-k8s.io", self.version),
            "IPAddressClaim" | "IPAddress" => (GROUP, self.version),
            _ => (GROUP, "v1alpha2"),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        let mut resource = ApiResource::from_gvk(&kind);
        if kind.kind == "IPAddress" {
            "ipaddresses".clone_into(&mut resource.plural);
        }
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// The API of the kind in the namespace of `path`, and the name there.
    fn at<'a>(&self, kind: &str, path: &'a str) -> (Api<DynamicObject>, &'a str) {
        match path.split_once('/') {
            Some((namespace, name)) => (self.of(kind, Some(namespace)), name),
            None => (self.of(kind, None), path),
        }
    }

    /// Creates the object, which is named `[NAMESPACE/]NAME`.
    pub async fn make(&self, kind: &str, path: &str, mut object: Value) -> Result<()> {
        let (api, name) = self.at(kind, path);
        let (group, version) = match kind {
            "Cluster" => ("cluster.x-k8s.io", self.version),
            "IPAddressClaim" | "IPAddress" => (GROUP, self.version),
            _ => (GROUP, "v1alpha2"),
        };
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object)?;
        let create = api.create(&PostParams::default(), &object).await;
        create.with_context(|| format!("create {kind} {path}"))?;
        Ok(())
    }

    /// A namespaced pool with these addresses.
    pub async fn pool(&self, path: &str, spec: Value) -> Result<()> {
        let kind = if path.contains('/') {
            "InClusterIPPool"
        } else {
            "GlobalInClusterIPPool"
        };
        self.make(kind, path, json!({ "spec": spec })).await
    }

    /// A claim on the pool of this kind and name.
    pub async fn claim(&self, path: &str, pool: (&str, &str)) -> Result<()> {
        self.claim_with(path, pool, json!({})).await
    }

    /// The same with these fields beside the reference.
    pub async fn claim_with(&self, path: &str, pool: (&str, &str), rest: Value) -> Result<()> {
        let (kind, name) = pool;
        let group = if kind == "Pool" || kind == "NamespacedPool" {
            "fipd.io"
        } else {
            GROUP
        };
        let mut object = rest;
        object["spec"]["poolRef"] = json!({ "apiGroup": group, "kind": kind, "name": name });
        self.make("IPAddressClaim", path, object).await
    }

    /// A claim and its IPAddress as the in-cluster provider leaves them, in a network of 24 bits.
    pub async fn fulfilled(&self, path: &str, pool: (&str, &str), address: &str) -> Result<()> {
        self.claim_with(path, pool, json!({})).await?;
        self.fulfil(path, address).await
    }

    /// Serves a claim as the in-cluster provider does.
    pub async fn fulfil(&self, path: &str, address: &str) -> Result<()> {
        let release = json!({ "metadata": { "finalizers": [format!("{GROUP}/ReleaseAddress")] } });
        self.merge("IPAddressClaim", path, release).await?;
        let claim = self.get("IPAddressClaim", path).await?;
        let claim = claim.with_context(|| format!("no claim {path}"))?;
        let name = &claim["metadata"]["name"];
        let mut there = json!({
            "metadata": {
                "finalizers": [format!("{GROUP}/ProtectAddress")],
                "ownerReferences": [{
                    "apiVersion": format!("{GROUP}/{}", self.version), "kind": "IPAddressClaim",
                    "name": name, "uid": claim["metadata"]["uid"],
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "claimRef": { "name": name }, "address": address, "prefix": 24,
                "poolRef": claim["spec"]["poolRef"],
            },
        });
        let cluster = &claim["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"];
        if cluster.is_string() {
            there["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": cluster });
        }
        self.make("IPAddress", path, there).await?;
        let status = Patch::Merge(json!({ "status": { "addressRef": { "name": name } } }));
        let (api, name) = self.at("IPAddressClaim", path);
        let params = PatchParams::default();
        api.patch_status(name, &params, &status).await?;
        Ok(())
    }

    pub async fn get(&self, kind: &str, path: &str) -> Result<Option<Value>> {
        let (api, name) = self.at(kind, path);
        Ok(api.get_opt(name).await?.map(|object| json!(object)))
    }

    pub async fn merge(&self, kind: &str, path: &str, patch: Value) -> Result<()> {
        let (api, name) = self.at(kind, path);
        let write = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        write.with_context(|| format!("patch {kind} {path}"))?;
        Ok(())
    }

    pub async fn annotate(&self, kind: &str, path: &str, key: &str, value: Value) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.merge(kind, path, patch).await
    }

    pub async fn delete(&self, kind: &str, path: &str) -> Result<()> {
        let (api, name) = self.at(kind, path);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the claim refers to an IPAddress; the address.
    pub async fn wait_address(&self, path: &str) -> Result<String> {
        wait_until(&format!("the address of {path}"), DEADLINE, || async {
            let claim = self
                .get("IPAddressClaim", path)
                .await
                .map_err(|e| e.to_string())?;
            let claim = claim.unwrap_or_default();
            let name = claim["status"]["addressRef"]["name"].as_str();
            let name = name.ok_or_else(|| claim["status"].to_string())?;
            let namespace = path.split_once('/').map_or("", |(namespace, _)| namespace);
            let there = self.get("IPAddress", &format!("{namespace}/{name}")).await;
            let there = there
                .map_err(|e| e.to_string())?
                .ok_or_else(|| "no IPAddress".to_owned())?;
            Ok::<_, String>(
                there["spec"]["address"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })
        .await
    }

    /// Waits until the claim is not ready for this reason; the message.
    pub async fn wait_reason(&self, kind: &str, path: &str, reason: &str) -> Result<String> {
        wait_until(&format!("{reason} of {kind} {path}"), DEADLINE, || async {
            let object = self.get(kind, path).await.map_err(|e| e.to_string())?;
            let object = object.unwrap_or_default();
            let conditions = match object["status"]["v1beta2"]["conditions"].as_array() {
                Some(newer) => newer.clone(),
                None => object["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default(),
            };
            let ready = conditions.iter().find(|one| one["type"] == "Ready");
            match ready.filter(|ready| ready["reason"] == reason) {
                Some(ready) => Ok(ready["message"].as_str().unwrap_or_default().to_owned()),
                None => Err(object["status"].to_string()),
            }
        })
        .await
    }

    /// Waits until there is no such object.
    pub async fn wait_gone(&self, kind: &str, path: &str) -> Result<()> {
        wait_until(&format!("{kind} {path} gone"), DEADLINE, || async {
            match self.get(kind, path).await.map_err(|e| e.to_string())? {
                None => Ok(()),
                Some(object) => Err(object.to_string()),
            }
        })
        .await
    }

    /// Waits for an Event of this reason about the object, in any namespace where `path` names none; what it says.
    pub async fn wait_event(&self, kind: &str, path: &str, reason: &str) -> Result<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        wait_until(
            &format!("Event {reason} of {kind} {path}"),
            DEADLINE,
            || async {
                let all = events
                    .list(&ListParams::default())
                    .await
                    .map_err(|e| e.to_string())?;
                let about = |event: &Event| {
                    let object = event.regarding.clone().unwrap_or_default();
                    event.reason.as_deref() == Some(reason)
                        && object.kind.as_deref() == Some(kind)
                        && object.name.as_deref() == Some(name)
                        && (namespace.is_none() || object.namespace.as_deref() == namespace)
                };
                let found = all.items.iter().find(|event| about(event));
                let reasons: Vec<_> = all
                    .items
                    .iter()
                    .filter_map(|one| one.reason.clone())
                    .collect();
                found
                    .map(|event| event.note.clone().unwrap_or_default())
                    .ok_or_else(|| format!("{reasons:?}"))
            },
        )
        .await
    }

    /// The definition of this name.
    pub async fn definition(&self, name: &str) -> Result<Value> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        Ok(json!(api.get(name).await?))
    }

    /// Deletes the definition of this name, and waits until it is gone.
    pub async fn delete_definition(&self, name: &str) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await?;
        wait_until(&format!("{name} gone"), DEADLINE, || async {
            match api.get_opt(name).await.map_err(|e| e.to_string())? {
                None => Ok(()),
                Some(_) => Err("it is there".to_owned()),
            }
        })
        .await
    }

    /// Removes all claims, addresses and pools of earlier tests, whoever holds them.
    pub async fn remove_all(&self) -> Result<()> {
        for kind in [
            "IPAddressClaim",
            "IPAddress",
            "InClusterIPPool",
            "GlobalInClusterIPPool",
            "InClusterPrefixPool",
            "GlobalInClusterPrefixPool",
            "Cluster",
        ] {
            let all = self.of(kind, None).list(&ListParams::default()).await?;
            let gone = all.into_iter().map(|object| self.remove(kind, object));
            stream::iter(gone)
                .for_each_concurrent(REMOVERS, |gone| gone)
                .await;
        }
        Ok(())
    }

    /// Removes one object, unless that is gone already.
    async fn remove(&self, kind: &str, object: DynamicObject) {
        let api = self.of(kind, object.namespace().as_deref());
        let name = object.name_any();
        let none = json!({ "metadata": { "finalizers": null } });
        let _gone = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(&none))
            .await;
        let _gone = api.delete(&name, &DeleteParams::default()).await;
    }
}

impl ControlPlane {
    /// Gives the user without rights what the system "cluster-api" needs.
    pub async fn restrict_cluster_api(&self) -> Result<()> {
        for name in LEASES {
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            self.apply(&namespace.to_string()).await?;
        }
        self.apply(include_str!("../../packaging/rbac/cluster-api.yaml"))
            .await?;
        self.bind_role("fipd-cluster-api", None).await?;
        self.bind_role("fipd-cluster-api-pools", None).await?;
        self.bind_role("fipd-cluster-api-vips", None).await?;
        for name in LEASES {
            self.bind_role("fipd-cluster-api-leases", Some(name))
                .await?;
        }
        self.grant_identity().await
    }
}
