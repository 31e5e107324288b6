//! The rule for one source.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{integer, is_default, or_default};

/// Made by the controller alone; what others write is put right.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "api.operator.brtrm.dev",
    version = "v1alpha1",
    kind = "IPRuleConfig",
    plural = "ipruleconfigs",
    status = "IPRuleConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "iprc",
    doc = "The policy-routing rule for one source address, made of IPRules and Services. Not to be edited.",
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.serviceIP"),
    printcolumn(name = "Table", type_ = "integer", json_path = ".spec.table"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.applied"),
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.priority",
        priority = 1
    )
)]
pub struct IPRuleConfigSpec {
    /// The source address of the rule: the ClusterIP of a Service, or what the IPRule's `source` says.
    #[serde(rename = "serviceIP", deserialize_with = "or_default")]
    pub service_ip: String,
    /// The routing table; 0 with `vrf`.
    #[serde(deserialize_with = "integer")]
    pub table: i64,
    /// The priority; 0: fipd chooses.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub priority: i64,
    /// `present` or `absent`.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// As the IPRule has it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub fail_closed: bool,
    /// As the IPRule has it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub mode: String,
    /// As the IPRule has it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub vrf: String,
}

/// Where the rule is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPRuleConfigStatus {
    /// The nodes that have the rule as it is to be.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub applied: i64,
    /// Some of these nodes, by name.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub nodes: Vec<String>,
    /// How it is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
