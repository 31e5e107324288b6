//! Clusters, read only: fipd changes them with patches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::{self, AnyCondition, ConditionsV1Beta2};
use super::names::CLUSTER_GROUP;
use super::object::object;
use crate::lenient::{self, is_default};

object! {
    /// A Kubernetes cluster that Cluster API manages.
    Cluster: CLUSTER_GROUP, "clusters", NamespaceResourceScope,
    "super::object::cluster_version", ClusterSpec, ClusterStatus
}

impl Cluster {
    /// Whether the cluster is made from a `ClusterClass`.
    #[must_use]
    pub fn is_topology(&self) -> bool {
        self.class().is_some()
    }

    /// Namespace and name of the `ClusterClass`. The namespace defaults to that of the cluster.
    #[must_use]
    pub fn class(&self) -> Option<(String, String)> {
        let topology = self.spec.topology.as_ref()?;
        let (namespace, name) = match &topology.class_ref {
            Some(class) => (&class.namespace, &class.name),
            None => (&topology.class_namespace, &topology.class),
        };
        if name.is_empty() {
            return None;
        }
        let namespace = if namespace.is_empty() {
            self.metadata.namespace.clone().unwrap_or_default()
        } else {
            namespace.clone()
        };
        Some((namespace, name.clone()))
    }

    /// Whether the cluster is paused, by its field or by the annotation.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true) || super::has_paused_annotation(&self.metadata)
    }

    /// The control plane endpoint, if it has a host. Its port may still be 0.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Endpoint> {
        let endpoint = self.spec.control_plane_endpoint.as_ref()?;
        (!endpoint.host.is_empty()).then_some(endpoint)
    }

    /// The CIDR blocks of its Services and then those of its pods, as far as it names any. The first one is of the family that
    /// its API server is reached by.
    pub fn blocks(&self) -> impl Iterator<Item = &str> {
        let network = self.spec.cluster_network.iter();
        let ranges = network.flat_map(|network| [&network.services, &network.pods]);
        let ranges = ranges.flatten();
        ranges.flat_map(|ranges| ranges.cidr_blocks.iter().map(String::as_str))
    }

    /// The value of a variable of the topology.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let mut variables = self.spec.topology.as_ref()?.variables.iter();
        let variable = variables.find(|variable| variable.name == name)?;
        Some(&variable.value)
    }

    /// Whether the infrastructure is provisioned, by the field of either version.
    #[must_use]
    pub fn is_infrastructure_ready(&self) -> bool {
        let Some(status) = &self.status else {
            return false;
        };
        let newer = status.initialization.as_ref();
        let newer = newer.and_then(|initialization| initialization.infrastructure_provisioned);
        status.infrastructure_ready == Some(true) || newer == Some(true)
    }

    /// The cluster's conditions of the form of `metav1.Condition`, wherever its version keeps them.
    #[must_use]
    pub fn ready_conditions(&self) -> Vec<Condition> {
        let Some(status) = &self.status else {
            return Vec::new();
        };
        conditions::metav1(
            self.is_v1beta1(),
            &status.conditions,
            status.v1beta2.as_ref(),
        )
    }
}

/// What fipd reads of the desired state.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Stops all controllers that work on the cluster.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub paused: Option<bool>,
    /// Address and port of the API server.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The networks of its pods and Services.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub cluster_network: Option<ClusterNetwork>,
    /// Reference to the infrastructure object, in the form of either version.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub infrastructure_ref: Option<Value>,
    /// Reference to the control plane object, in the form of either version.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub control_plane_ref: Option<Value>,
    /// How the cluster is made from a `ClusterClass`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub topology: Option<Topology>,
}

/// Where an API server listens. v1beta1 writes an empty host and port 0 for none.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Address or DNS name.
    #[serde(deserialize_with = "lenient::any")]
    pub host: String,
    /// Port.
    #[serde(deserialize_with = "lenient::any")]
    pub port: i32,
}

/// The networks of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNetwork {
    /// Those of Services.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub services: Option<NetworkRanges>,
    /// Those of pods.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub pods: Option<NetworkRanges>,
}

/// Ranges of addresses.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkRanges {
    /// One, or one of each family.
    #[serde(deserialize_with = "lenient::any")]
    pub cidr_blocks: Vec<String>,
}

/// How a cluster is made from a `ClusterClass`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// v1beta1: name of the class.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub class: String,
    /// v1beta1: namespace of the class; empty for that of the cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub class_namespace: String,
    /// v1beta2: the class.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub class_ref: Option<ClassRef>,
    /// Values of the class's variables.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub variables: Vec<Variable>,
}

/// A `ClusterClass`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassRef {
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
    /// Namespace; empty for that of the cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub namespace: String,
}

/// The value of a variable.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Variable {
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
    /// Value, of any type.
    pub value: Value,
    /// v1beta1 only: which definition of the variable is meant.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub definition_from: String,
}

/// What fipd reads of the observed state, in the form of either version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed` or `Unknown`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub phase: String,
    /// v1beta1: whether the infrastructure is provisioned.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub infrastructure_ready: Option<bool>,
    /// v1beta1: whether the control plane is ready.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub control_plane_ready: Option<bool>,
    /// v1beta2: how far the first provisioning has come.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub initialization: Option<Initialization>,
    /// v1beta2: `metav1.Condition`s; v1beta1: Cluster API's own.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub conditions: Vec<AnyCondition>,
    /// v1beta1 only: the `metav1.Condition`s.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub v1beta2: Option<ConditionsV1Beta2>,
}

/// How far the first provisioning of a cluster has come.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialization {
    /// Whether the infrastructure is provisioned.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the API server answers.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub control_plane_initialized: Option<bool>,
}
