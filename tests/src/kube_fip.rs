//! Ranges and FloatingIPs of `kubefip.k8s.binbash.org` in a Rancher, written and read as JSON, as users and the original do.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::testbed::{wait_object, wait_until};

const GROUP: &str = "kubefip.k8s.binbash.org";
const DEADLINE: Duration = Duration::from_secs(60);

/// The objects of one Rancher. A FloatingIP is named `NAMESPACE/NAME`, a range by its name.
pub struct KubeFipObjects {
    pub client: Client,
}

impl KubeFipObjects {
    pub fn ranges(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("FloatingIPRange"))
    }

    /// Those of one namespace.
    pub fn fips(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource("FloatingIP"))
    }

    pub fn all_fips(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("FloatingIP"))
    }

    /// The API for the kind of `path`, and the name there.
    fn of<'a>(&self, path: &'a str) -> (Api<DynamicObject>, &'a str) {
        match path.split_once('/') {
            Some((namespace, name)) => (self.fips(namespace), name),
            None => (self.ranges(), path),
        }
    }

    /// Creates a range for network `vlan-1` of the Harvester cluster called `harvester`.
    pub async fn make_range(&self, name: &str, spec: Value) -> Result<()> {
        let annotations = json!({
            "harvesterClusterName": "harvester", "harvesterNetworkName": "vlan-1",
        });
        let object = json!({
            "metadata": { "name": name, "annotations": annotations }, "spec": spec,
        });
        self.create(name, object).await
    }

    /// Creates a FloatingIP of a range; `address` may be empty.
    pub async fn make_fip(&self, path: &str, range: &str, address: &str) -> Result<()> {
        self.create(path, self.fip(range, address)).await
    }

    /// A FloatingIP of the guest `guest` without its name.
    pub fn fip(&self, range: &str, address: &str) -> Value {
        let annotations = json!({ "clustername": "guest", "fiprange": range });
        let spec = match address {
            "" => json!({}),
            address => json!({ "ipaddress": address }),
        };
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "FloatingIP",
            "metadata": { "annotations": annotations }, "spec": spec,
        })
    }

    /// Creates the object called `path`.
    pub async fn create(&self, path: &str, mut object: Value) -> Result<()> {
        let (api, name) = self.of(path);
        let kind = if path.contains('/') {
            "FloatingIP"
        } else {
            "FloatingIPRange"
        };
        object["apiVersion"] = json!(format!("{GROUP}/v1"));
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("create {kind} {path}"))?;
        Ok(())
    }

    pub async fn merge(&self, path: &str, patch: Value) -> Result<()> {
        let (api, name) = self.of(path);
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("patch {path}"))?;
        Ok(())
    }

    /// Asks for another address; empty: for any.
    pub async fn want(&self, path: &str, address: &str) -> Result<()> {
        self.merge(path, json!({ "spec": { "ipaddress": address } }))
            .await
    }

    /// Asks for an address of another range.
    pub async fn name_range(&self, path: &str, range: &str) -> Result<()> {
        let annotations = json!({ "fiprange": range });
        self.merge(path, json!({ "metadata": { "annotations": annotations } }))
            .await
    }

    /// Gives a range other addresses.
    pub async fn edit_range(&self, name: &str, cidr: &str) -> Result<()> {
        self.merge(name, json!({ "spec": { "iprange": cidr } }))
            .await
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let (api, name) = self.of(path);
        Ok(json!(api.get(name).await?))
    }

    pub async fn delete(&self, path: &str) -> Result<()> {
        let (api, name) = self.of(path);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the object passes a test.
    pub async fn wait(
        &self,
        path: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let (api, name) = self.of(path);
        let what = format!("{path}: {what}");
        wait_object(&what, DEADLINE, (&api, name), test).await
    }

    /// Waits until the FloatingIP has this address and all say so.
    pub async fn wait_address(&self, path: &str, address: &str) -> Result<Value> {
        let has = |fip: &Value| {
            fip["status"]["address"] == *address
                && fip["spec"]["ipaddress"] == *address
                && reason(fip) == "Allocated"
        };
        self.wait(path, &format!("has {address}"), has).await
    }

    /// Waits until `Ready` has this reason; its message.
    pub async fn wait_reason(&self, path: &str, wanted: &str) -> Result<String> {
        let object = self
            .wait(path, &format!("says {wanted}"), |object| {
                reason(object) == wanted
            })
            .await?;
        let message = &condition(&object, "Ready")["message"];
        Ok(message.as_str().unwrap_or_default().to_owned())
    }

    pub async fn wait_gone(&self, path: &str) -> Result<()> {
        let (api, name) = self.of(path);
        wait_until(&format!("{path} is gone"), DEADLINE, || async {
            let found = api.get_opt(name).await;
            match found.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(object) => Err(json!(object).to_string()),
            }
        })
        .await
    }

    /// Waits for an Event on exactly this object; its text.
    pub async fn wait_event(&self, kind: &str, path: &str, wanted: &str) -> Result<String> {
        let what = format!("Event {wanted} on {kind} {path}");
        wait_until(&what, DEADLINE, || async {
            let told = self.events(kind, path).await;
            let told = told.map_err(|error| error.to_string())?;
            let of_reason = |one: &&Event| one.reason.as_deref() == Some(wanted);
            let found = told.iter().find(of_reason);
            let note = found.map(|one| one.note.clone().unwrap_or_default());
            let texts = || told.iter().map(|one| (&one.reason, &one.note));
            note.ok_or_else(|| format!("{:?}", texts().collect::<Vec<_>>()))
        })
        .await
    }

    /// The warnings on a FloatingIP: reason and text.
    pub async fn warnings(&self, path: &str) -> Result<Vec<String>> {
        let all = self.events("FloatingIP", path).await?.into_iter();
        let warnings = all.filter(|one| one.type_.as_deref() == Some("Warning"));
        let text = |one: Event| {
            let (reason, note) = (one.reason.unwrap_or_default(), one.note.unwrap_or_default());
            format!("{reason}: {note}")
        };
        Ok(warnings.map(text).collect())
    }

    async fn events(&self, kind: &str, path: &str) -> Result<Vec<Event>> {
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        let events: Api<Event> = Api::all(self.client.clone());
        let mut all = events.list(&ListParams::default()).await?.items;
        all.retain(|one| {
            let on = one.regarding.clone().unwrap_or_default();
            on.kind.as_deref() == Some(kind)
                && on.name.as_deref() == Some(name)
                && on.namespace.as_deref().unwrap_or_default() == namespace
        });
        Ok(all)
    }

    /// Removes what tests left, whoever keeps it.
    pub async fn remove_all(&self) -> Result<()> {
        for api in [self.all_fips(), self.ranges()] {
            let left = api.list(&ListParams::default()).await?;
            for object in left {
                let path = match object.namespace() {
                    Some(namespace) => format!("{namespace}/{}", object.name_any()),
                    None => object.name_any(),
                };
                let free = json!({ "metadata": { "finalizers": null } });
                self.merge(&path, free).await?;
                if object.metadata.deletion_timestamp.is_none() {
                    self.delete(&path).await?;
                }
            }
        }
        Ok(())
    }
}

/// Waits until another second begins: times of creation are whole seconds.
pub async fn next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let into = now.map_or(Duration::ZERO, |now| {
        Duration::from_nanos(now.subsec_nanos().into())
    });
    tokio::time::sleep(Duration::from_secs(1).saturating_sub(into)).await;
}

fn resource(kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(GROUP, "v1", kind);
    ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()))
}

/// The condition of an object; `Null`: it has none.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let one = conditions.find(|one| one["type"] == kind);
    one.unwrap_or(&Value::Null)
}

/// The reason of `Ready`.
pub fn reason(object: &Value) -> &str {
    condition(object, "Ready")["reason"].as_str().unwrap_or("")
}
