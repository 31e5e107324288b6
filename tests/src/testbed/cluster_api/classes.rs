//! Classes of clusters whose providers are the stand-ins.

use serde_json::{Value, json};

use super::objects::{ApiVersion, CORE};
use super::providers::StandIn;

/// The variable that carries the address of the control plane.
pub const CLUSTER_VIP: &str = "clusterVip";
/// The variable that carries the address of the control plane in the second family.
pub const SECOND_CLUSTER_VIP: &str = "clusterSecondVip";
/// The annotation of a Cluster that every class copies to `spec.ingressVip` of the infrastructure.
pub const INGRESS_VIP: &str = "vip.capi.gorizond.io/ingress-vip";

/// A ClusterClass and its templates.
#[derive(Debug, Clone)]
pub struct Class {
    pub name: String,
    /// Declares [`CLUSTER_VIP`] and copies it to `spec.controlPlaneEndpoint.host` of the infrastructure.
    pub cluster_vip: bool,
    /// Declares [`SECOND_CLUSTER_VIP`].
    pub second_vip: bool,
}

impl Class {
    /// A class with the variable `clusterVip`.
    pub fn with_cluster_vip(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cluster_vip: true,
            second_vip: false,
        }
    }

    /// The same with `clusterSecondVip` as well.
    pub fn with_both_vips(name: &str) -> Self {
        Self {
            second_vip: true,
            ..Self::with_cluster_vip(name)
        }
    }

    /// A class whose infrastructure waits for the endpoint of the Cluster.
    pub fn without_endpoint(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cluster_vip: false,
            second_vip: false,
        }
    }

    /// All objects, the class at the end.
    pub fn objects(&self) -> Vec<Value> {
        let infrastructure = match self.cluster_vip {
            true => json!({ "controlPlaneEndpoint": { "host": "", "port": 6443 } }),
            false => json!({}),
        };
        vec![
            self.template(StandIn::Cluster, infrastructure),
            self.template(StandIn::Machine, json!({})),
            self.template(StandIn::Config, json!({})),
            self.template(StandIn::ControlPlane, json!({})),
            self.class(),
        ]
    }

    fn template(&self, kind: StandIn, spec: Value) -> Value {
        let mut template = self.template_ref(kind);
        template["metadata"] = json!({ "name": self.name });
        template["spec"] = json!({ "template": { "spec": spec } });
        if let Some(object) = template.as_object_mut() {
            object.remove("name");
        }
        template
    }

    fn template_ref(&self, kind: StandIn) -> Value {
        json!({
            "apiVersion": kind.api_version(), "kind": format!("{}Template", kind.kind()), "name": self.name,
        })
    }

    fn class(&self) -> Value {
        let of = |kind| json!({ "templateRef": self.template_ref(kind) });
        let workers = json!({
            "class": "workers", "bootstrap": of(StandIn::Config), "infrastructure": of(StandIn::Machine),
        });
        let mut variables = vec![variable("region")];
        let mut patches = vec![self.ingress_patch()];
        if self.cluster_vip {
            variables.push(variable(CLUSTER_VIP));
            patches.push(self.endpoint_patch());
        }
        if self.second_vip {
            variables.push(variable(SECOND_CLUSTER_VIP));
        }
        json!({
            "apiVersion": ApiVersion::V1Beta2.of(CORE), "kind": "ClusterClass",
            "metadata": { "name": self.name },
            "spec": {
                "infrastructure": of(StandIn::Cluster), "controlPlane": of(StandIn::ControlPlane),
                "workers": { "machineDeployments": [workers] },
                "variables": variables, "patches": patches,
            },
        })
    }

    fn endpoint_patch(&self) -> Value {
        json!({ "name": "endpoint", "definitions": [self.infrastructure_patch(json!({
            "op": "replace", "path": "/spec/template/spec/controlPlaneEndpoint/host",
            "valueFrom": { "variable": CLUSTER_VIP },
        }))] })
    }

    /// Guarded, because `index` fails on a Cluster without annotations.
    fn ingress_patch(&self) -> Value {
        let annotations = ".builtin.cluster.metadata.annotations";
        let value = format!("index {annotations} {INGRESS_VIP:?}");
        let given =
            format!("{{{{ if {annotations} }}}}{{{{ if {value} }}}}true{{{{ end }}}}{{{{ end }}}}");
        json!({ "name": "ingress", "enabledIf": given, "definitions": [self.infrastructure_patch(json!({
            "op": "add", "path": "/spec/template/spec/ingressVip",
            "valueFrom": { "template": format!("{{{{ {value} | quote }}}}") },
        }))] })
    }

    fn infrastructure_patch(&self, patch: Value) -> Value {
        let kind = StandIn::Cluster;
        json!({
            "selector": {
                "apiVersion": kind.api_version(), "kind": format!("{}Template", kind.kind()),
                "matchResources": { "infrastructureCluster": true },
            },
            "jsonPatches": [patch],
        })
    }
}

fn variable(name: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "string", "default": "" } });
    json!({ "name": name, "required": false, "schema": schema })
}
