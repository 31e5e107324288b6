//! Subnets.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// Addresses for pods on one VLAN of the nodes.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "macvlan.cluster.cattle.io",
    version = "v1",
    kind = "MacvlanSubnet",
    plural = "macvlansubnets",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "Addresses for pods on one VLAN of the nodes; in namespace kube-system."
)]
pub struct MacvlanSubnetSpec {
    /// Interface of the nodes.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub master: String,
    /// VLAN on it; 0: none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub vlan: i64,
    /// The network, as a CIDR.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cidr: String,
    /// `bridge` (also when empty), `vepa`, `private` or `passthru`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub mode: String,
    /// Never given. Empty: there is none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub gateway: String,
    /// Which addresses are given. None: all of the network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub ranges: Vec<MacvlanRange>,
    /// Routes of the pods.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub routes: Vec<MacvlanRoute>,
    /// Whether the pod's default route is by this network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub pod_default_gateway: MacvlanDefaultGateway,
    /// How long a released address is not given again, in seconds.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub ip_delay_reuse: i64,
}
lenient::absent_is_default!(MacvlanSubnetSpec);

/// Addresses from one to another, both inclusive.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MacvlanRange {
    /// The first.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub range_start: String,
    /// The last.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub range_end: String,
}

/// A route of the pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MacvlanRoute {
    /// CIDR of the destination.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub dst: String,
    /// The next hop.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub gw: String,
    /// Interface of the pod.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub iface: String,
}

/// The default route of the pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MacvlanDefaultGateway {
    /// It is by this network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub enable: bool,
    /// Addresses of Services, which stay on the cluster's network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub service_cidr: String,
}
