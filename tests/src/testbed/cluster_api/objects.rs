//! Objects of Cluster API in one namespace, written and read as JSON, as users and controllers do.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::classes::Class;
use super::providers::StandIn;
use crate::testbed::control_plane::ControlPlane;
use crate::testbed::manifests;
use crate::versions;
use crate::wait::{wait_object, wait_until};

pub(super) const CORE: &str = "cluster.x-k8s.io";
pub(super) const IPAM: &str = "ipam.cluster.x-k8s.io";
const DEADLINE: Duration = Duration::from_secs(60);

/// An API version of Cluster API's own kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVersion {
    V1Beta1,
    V1Beta2,
}

impl ApiVersion {
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// The `apiVersion` of a group.
    pub fn of(self, group: &str) -> String {
        format!("{group}/{}", self.name())
    }

    /// A Cluster of a class in the same namespace, without workers.
    pub fn cluster(self, name: &str, class: &str) -> Value {
        let mut topology =
            json!({ "version": versions::KUBERNETES, "controlPlane": { "replicas": 1 } });
        match self {
            Self::V1Beta1 => topology["class"] = json!(class),
            Self::V1Beta2 => topology["classRef"] = json!({ "name": class }),
        }
        json!({
            "apiVersion": self.of(CORE), "kind": "Cluster", "metadata": { "name": name },
            "spec": { "topology": topology },
        })
    }

    /// An IPAddressClaim for a pool, which need not exist.
    pub fn claim(self, name: &str, (kind, pool): (&str, &str)) -> Value {
        let pool = json!({ "apiGroup": IPAM, "kind": kind, "name": pool });
        json!({
            "apiVersion": self.of(IPAM), "kind": "IPAddressClaim", "metadata": { "name": name },
            "spec": { "poolRef": pool },
        })
    }
}

/// The objects of one namespace.
pub struct ClusterApiObjects {
    pub client: Client,
    pub namespace: String,
}

impl ClusterApiObjects {
    /// Creates the namespace if it does not exist.
    pub async fn of(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let object =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        plane.apply(&object.to_string()).await?;
        Ok(Self {
            client: plane.client().await?,
            namespace: namespace.to_owned(),
        })
    }

    pub fn clusters(&self, version: ApiVersion) -> Api<DynamicObject> {
        self.api(&resource(CORE, version, "Cluster"))
    }

    pub fn classes(&self, version: ApiVersion) -> Api<DynamicObject> {
        self.api(&resource(CORE, version, "ClusterClass"))
    }

    pub fn claims(&self, version: ApiVersion) -> Api<DynamicObject> {
        self.api(&resource(IPAM, version, "IPAddressClaim"))
    }

    pub fn addresses(&self, version: ApiVersion) -> Api<DynamicObject> {
        self.api(&resource(IPAM, version, "IPAddress"))
    }

    pub fn machines(&self, version: ApiVersion) -> Api<DynamicObject> {
        self.api(&resource(CORE, version, "Machine"))
    }

    pub fn stand_ins(&self, kind: StandIn) -> Api<DynamicObject> {
        self.api(&kind.resource())
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }

    /// Creates a class with its templates and waits until the core manager has reconciled it.
    pub async fn make_class(&self, class: &Class) -> Result<()> {
        let mut yaml = String::new();
        for mut object in class.objects() {
            object["metadata"]["namespace"] = json!(self.namespace);
            yaml.push_str(&format!("---\n{object}\n"));
        }
        manifests::apply_yaml(&self.client, &yaml).await?;
        let is_ready = |class: &Value| {
            let variables = condition(class, "VariablesReady");
            class["status"]["observedGeneration"] == class["metadata"]["generation"]
                && variables["status"] == "True"
        };
        let classes = self.classes(ApiVersion::V1Beta2);
        let what = format!("ClusterClass {} is ready", class.name);
        wait_object(&what, DEADLINE, (&classes, &class.name), is_ready).await?;
        Ok(())
    }

    /// Creates an object with the field manager of `kubectl create`.
    pub async fn create(&self, api: &Api<DynamicObject>, object: Value) -> Result<Value> {
        let what = format!("create {} {}", object["kind"], object["metadata"]["name"]);
        let params = PostParams {
            field_manager: Some("kubectl-create".to_owned()),
            ..PostParams::default()
        };
        let object = serde_json::from_value(object)?;
        let made = api.create(&params, &object).await.context(what)?;
        Ok(json!(made))
    }

    /// Applies fields server-side and takes them from other field managers.
    pub async fn apply(
        &self,
        api: &Api<DynamicObject>,
        manager: &str,
        object: Value,
    ) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let params = PatchParams::apply(manager).force();
        let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
        Ok(json!(applied.with_context(|| format!("apply {name}"))?))
    }

    /// Waits until the object passes a test.
    pub async fn wait(
        &self,
        what: &str,
        (api, name): (&Api<DynamicObject>, &str),
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        wait_object(&format!("{name}: {what}"), DEADLINE, (api, name), test).await
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete(&self, api: &Api<DynamicObject>, name: &str) -> Result<()> {
        api.delete(name, &DeleteParams::default()).await?;
        wait_until(&format!("{name} is gone"), DEADLINE, || async {
            let found = api.get_opt(name).await;
            match found.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(object) => Err(json!(object).to_string()),
            }
        })
        .await
    }

    /// Waits until a Cluster refers to infrastructure and a control plane; returns their names.
    pub async fn wait_rendered(&self, cluster: &str) -> Result<(String, String)> {
        let clusters = self.clusters(ApiVersion::V1Beta2);
        let is_rendered = |cluster: &Value| {
            let spec = &cluster["spec"];
            spec["infrastructureRef"]["name"].is_string()
                && spec["controlPlaneRef"]["name"].is_string()
        };
        let seen = self.wait("is rendered", (&clusters, cluster), is_rendered);
        let seen = seen.await?;
        let name = |reference: &str| {
            let name = seen["spec"][reference]["name"].as_str();
            name.map(str::to_owned).context("a name")
        };
        Ok((name("infrastructureRef")?, name("controlPlaneRef")?))
    }
}

/// A condition of an object; `Null` if it has none of this type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let one = conditions.find(|one| one["type"] == kind);
    one.unwrap_or(&Value::Null)
}

pub(super) fn resource(group: &str, version: ApiVersion, kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(group, version.name(), kind);
    let end = if kind.ends_with('s') { "es" } else { "s" };
    ApiResource::from_gvk_with_plural(&gvk, &format!("{}{end}", kind.to_lowercase()))
}
