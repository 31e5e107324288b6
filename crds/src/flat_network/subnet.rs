//! Subnets.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fipd_io::ADDRESSES;
use crate::lenient::{self, integer, is_default, optional_integer, or_default};

/// What is said of a subnet. Everything may be missing, empty or wrong here.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "flatnetwork.pandaria.io",
    version = "v1",
    kind = "FlatNetworkSubnet",
    plural = "flatnetworksubnets",
    namespaced,
    status = "FlatNetworkSubnetStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "flatnetworksubnet",
    shortname = "flsubnet",
    shortname = "flsubnets",
    category = "fipd",
    annotation("helm.sh/resource-policy", "keep"),
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "Addresses for pods on one VLAN of the nodes; in namespace cattle-flat-network.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.flatMode"),
    printcolumn(name = "Master", type_ = "string", json_path = ".spec.master"),
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.vlan"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.usedIPCount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
pub struct FlatNetworkSubnetSpec {
    /// `macvlan` or `ipvlan`.
    #[serde(deserialize_with = "or_default")]
    pub flat_mode: String,
    /// Interface of the nodes.
    #[serde(deserialize_with = "or_default")]
    pub master: String,
    /// VLAN on it, 1 to 4094; 0: none.
    #[serde(deserialize_with = "integer")]
    pub vlan: i64,
    /// The network, as a CIDR.
    #[serde(deserialize_with = "or_default")]
    pub cidr: String,
    /// macvlan: `bridge` (also when empty), `vepa`, `private` or `passthru`; ipvlan: `l2` (also when empty), `l3` or `l3s`.
    #[serde(deserialize_with = "or_default")]
    pub mode: String,
    /// ipvlan: `bridge` (also when empty), `private` or `vepa`; macvlan: empty.
    #[serde(deserialize_with = "or_default")]
    pub ipvlan_flag: String,
    /// Never given, and inside the network. Empty: there is none.
    #[serde(deserialize_with = "or_default")]
    pub gateway: String,
    /// Which addresses are given. None: all of the network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub ranges: Vec<FlatRange>,
    /// Routes of the pods.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub routes: Vec<FlatRoute>,
    /// Routes of the pods that the node knows.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub route_settings: RouteSettings,
    /// The spelling of 2024 of two of the settings of routes; taken, and written back as those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_default_gateway: Option<PodDefaultGateway>,
    /// Addresses that are never given: CIDRs, ranges (`10.0.0.10-10.0.0.20`) and single addresses.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(
        length(max = 1000),
        inner(length(min = 1, max = 100), regex(pattern = ADDRESSES))
    )]
    pub exclusions: Vec<String>,
    /// Also gives the first and the last address of the network.
    #[serde(
        rename = "allocateReservedIPAddresses",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub allocate_reserved_ip_addresses: bool,
    /// How long an address cools after its release. Left out: not at all.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub quarantine_seconds: Option<i64>,
    /// How long the address of a pod of a StatefulSet waits for the pod that comes in its place. Left out: not at all.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub sticky_seconds: Option<i64>,
    /// Name of the subnet of the other family on the same interface: pods with the annotation `fipd.io/dual-stack` get an
    /// address of both.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(length(max = 253))]
    pub partner: String,
}
lenient::absent_is_default!(FlatNetworkSubnetSpec);

/// Addresses from one to another, both inclusive.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatRange {
    #[serde(deserialize_with = "or_default")]
    pub from: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub to: String,
    /// The spelling of 2024 of `to`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub end: String,
}

/// A route of the pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatRoute {
    /// Interface of the pod.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub dev: String,
    /// CIDR of the destination.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub dst: String,
    /// Source address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub src: String,
    /// The next hop, inside the subnet. Empty: the destination is on the link.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub via: String,
    /// 0 to 2147483647.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub priority: i64,
    /// The spelling of 2024 of `dst`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub destination: String,
    /// The spelling of 2024 of `via`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub gateway: String,
    /// The spelling of 2024 of `dev`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub interface: String,
}

/// Routes that the node knows.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteSettings {
    /// To the pods of the cluster, by the pod's own default gateway.
    #[serde(
        rename = "addClusterCIDR",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub add_cluster_cidr: bool,
    /// To the Services of the cluster.
    #[serde(
        rename = "addServiceCIDR",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub add_service_cidr: bool,
    /// To the networks of the node.
    #[serde(
        rename = "addNodeCIDR",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub add_node_cidr: bool,
    /// From the node to the pod.
    #[serde(
        rename = "addPodIPToHost",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub add_pod_ip_to_host: bool,
    /// The pod's default route is by the flat network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub flat_network_default_gateway: bool,
}

/// The spelling of 2024.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDefaultGateway {
    #[serde(deserialize_with = "or_default")]
    pub enable: bool,
    #[serde(
        rename = "serviceCIDR",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub service_cidr: String,
}

/// How a subnet is doing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlatNetworkSubnetStatus {
    /// Empty, `Active` or `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// Why it is `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub failure_message: String,
    #[serde(deserialize_with = "or_default")]
    pub gateway: String,
    /// Addresses in use and the gateway: sorted, and joined where they touch.
    #[serde(
        rename = "usedIP",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub used_ip: Vec<FlatRange>,
    /// How many those are.
    #[serde(rename = "usedIPCount", deserialize_with = "integer")]
    pub used_ip_count: i64,
    /// MACs in use that somebody chose.
    #[serde(
        rename = "usedMac",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub used_mac: Vec<String>,
    /// Addresses that are kept for workloads, by `Kind/namespace/name`.
    #[serde(
        rename = "reservedIP",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub reserved_ip: BTreeMap<String, Vec<FlatRange>>,
    /// The spec that was accepted last: it is in force, whatever is written since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<FlatNetworkSubnetSpec>,
    /// How the subnet is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
