//! Addresses of pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default, or_default};

/// What a pod asks for.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "flatnetwork.pandaria.io",
    version = "v1",
    kind = "FlatNetworkIP",
    plural = "flatnetworkips",
    namespaced,
    status = "FlatNetworkIPStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "flatnetworkip",
    shortname = "flip",
    shortname = "flips",
    category = "fipd",
    annotation("helm.sh/resource-policy", "keep"),
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "The address of the pod of the same name and namespace on a flat network.",
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.addr"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".status.mac"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
pub struct FlatNetworkIPSpec {
    /// Name of the subnet.
    #[serde(deserialize_with = "or_default")]
    pub subnet: String,
    /// Addresses of which the pod gets one. None: any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub addrs: Vec<String>,
    /// MACs of which the pod gets one. None: any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub macs: Vec<String>,
    /// UID of the pod.
    #[serde(deserialize_with = "or_default")]
    pub pod_id: String,
}
lenient::absent_is_default!(FlatNetworkIPSpec);

/// What the pod has.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatNetworkIPStatus {
    /// Empty; `Pending` once it has an address; `Active` once the pod has it; `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Why it is `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub failure_message: String,
    /// When the address was given, in UTC.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub allocated_time_stamp: String,
    /// The address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub addr: String,
    /// The MAC; empty until the pod has one.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub mac: String,
    /// How it is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
