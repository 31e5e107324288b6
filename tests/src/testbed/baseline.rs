//! What a cluster has at one time, and the way back to it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::stream::{self, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::discovery::{Discovery, verbs};
use serde_json::json;

use super::control_plane::ControlPlane;
use crate::wait::wait_until;

const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Objects that are deleted at once.
const REMOVERS: usize = 16;
const DEFINITION: &str = "CustomResourceDefinition";
const NAMESPACE: &str = "Namespace";
const WEBHOOKS: &str = "admissionregistration.k8s.io";
/// The same objects as the Events of the core group.
const EVENTS: &str = "events.k8s.io";
/// What the API server makes of definitions and Services.
const DERIVED: [&str; 3] = ["APIService", "IPAddress", "ServiceCIDR"];

/// The objects of a cluster: revisions by UID.
pub struct Baseline(BTreeMap<String, String>);

/// One object of a cluster.
struct Found {
    resource: ApiResource,
    meta: ObjectMeta,
}

impl ControlPlane {
    pub async fn baseline(&self) -> Result<Baseline> {
        let all = list(&self.client().await?).await?;
        let revisions = all.iter().map(|one| (one.uid(), one.revision()));
        Ok(Baseline(revisions.collect()))
    }

    /// Deletes all objects that were not there then, with whatever finalizers. An error: not all is as it was, since an object is
    /// changed or gone, or there is another definition.
    pub async fn return_to(&self, baseline: &Baseline) -> Result<()> {
        let client = self.client().await?;
        let what = format!("{} is as it was", self.name());
        wait_until(&what, BACK_WITHIN, || async {
            let all = match list(&client).await {
                Ok(all) => all,
                Err(error) => return Ok(Err(error)),
            };
            let is_new = |one: &&Found| !baseline.0.contains_key(&one.uid());
            let new: Vec<&Found> = all.iter().filter(is_new).collect();
            if new.is_empty() {
                return Ok(unchanged(&all, baseline));
            }
            if new.iter().any(|one| one.resource.kind == DEFINITION) {
                return Ok(Err(anyhow!("there are other definitions")));
            }
            delete(&client, &new).await;
            Err(format!("{} objects are left", new.len()))
        })
        .await?
    }
}

impl Found {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.meta.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> String {
        self.meta.uid.clone().unwrap_or_default()
    }

    /// Is made, and made again, by the controller manager.
    fn is_default_account(&self) -> bool {
        let in_system = self.meta.namespace.as_deref() == Some("kube-system");
        self.resource.kind == "ServiceAccount" && (in_system || self.name() == "default")
    }

    fn is_namespace(&self) -> bool {
        self.resource.kind == NAMESPACE
    }

    /// Another one after each change by somebody else than the API server.
    fn revision(&self) -> String {
        match &*self.resource.kind {
            "Lease" => String::new(),
            DEFINITION => format!("{:?}", self.meta.generation),
            _ => self.meta.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Deletes it, whoever holds it. Whether it worked is seen by the next look.
    async fn delete(&self, client: &Client) {
        let (api, name) = (self.api(client), self.name());
        if self.meta.finalizers.is_some() {
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let _gone = api.patch(name, &PatchParams::default(), &free).await;
        }
        let _gone = api.delete(name, &DeleteParams::default()).await;
        if self.is_namespace() {
            // Mostly there is no namespace controller that does.
            let free = json!({
                "apiVersion": "v1", "kind": NAMESPACE, "metadata": { "name": name }, "spec": { "finalizers": [] },
            });
            let by = PostParams::default();
            let _gone = api.replace_subresource("finalize", name, &by, &free).await;
        }
    }
}

/// All objects of a cluster but those that it keeps by itself.
async fn list(client: &Client) -> Result<Vec<Found>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut all = Vec::new();
    for group in discovery.groups_alphabetical() {
        for (resource, can) in group.resources_by_stability() {
            let counts = can.supports_operation(verbs::LIST)
                && can.supports_operation(verbs::DELETE)
                && resource.group != EVENTS
                && !DERIVED.contains(&&*resource.kind);
            if !counts {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let listed = api.list_metadata(&ListParams::default()).await;
            let listed = listed.with_context(|| format!("list {}", resource.plural))?;
            let found = listed.into_iter().map(|object| Found {
                resource: resource.clone(),
                meta: object.metadata,
            });
            all.extend(found.filter(|one| !one.is_default_account()));
        }
    }
    Ok(all)
}

/// Webhooks go first, since they may keep others from going, and namespaces once nothing is in them.
async fn delete(client: &Client, new: &[&Found]) {
    let only_namespaces = new.iter().all(|one| one.is_namespace());
    let (webhooks, others): (Vec<&Found>, Vec<&Found>) = new
        .iter()
        .copied()
        .filter(|one| only_namespaces || !one.is_namespace())
        .partition(|one| one.resource.group == WEBHOOKS);
    for those in [webhooks, others] {
        stream::iter(those)
            .for_each_concurrent(REMOVERS, |one| one.delete(client))
            .await;
    }
}

fn unchanged(all: &[Found], baseline: &Baseline) -> Result<()> {
    for one in all {
        let same = baseline.0.get(&one.uid()) == Some(&one.revision());
        ensure!(same, "{} {} is changed", one.resource.kind, one.name());
    }
    ensure!(all.len() == baseline.0.len(), "something is gone");
    Ok(())
}
