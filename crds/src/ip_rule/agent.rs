//! The nodes that have no fipd installed.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{integer, is_default, or_default};

/// One of a cluster counts: the one whose name, of those that may be, is the least.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "api.operator.brtrm.dev",
    version = "v1alpha1",
    kind = "Agent",
    plural = "agents",
    namespaced,
    status = "AgentStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "ipragent",
    doc = "Runs fipd as a DaemonSet on nodes that have no package of it, to program their rules. Named default or agent.",
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredNumberScheduled"
    ),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.numberReady"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    )
)]
pub struct AgentSpec {
    /// The image of fipd. Left out: the one that the deciding fipd was told.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub image: String,
    /// Labels that a node must have. Left out: all nodes.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that it may run on all the same.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub tolerations: Vec<Toleration>,
}

/// What the DaemonSet says.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStatus {
    /// The generation that this is about.
    #[serde(deserialize_with = "integer")]
    pub observed_generation: i64,
    /// Nodes that are to run it.
    #[serde(deserialize_with = "integer")]
    pub desired_number_scheduled: i64,
    /// Nodes of these that have a pod of it.
    #[serde(deserialize_with = "integer")]
    pub current_number_scheduled: i64,
    /// Nodes whose pod is ready.
    #[serde(deserialize_with = "integer")]
    pub number_ready: i64,
    /// How it is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
