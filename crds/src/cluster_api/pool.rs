//! Pools of addresses: of a namespace, and of the whole cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, integer, is_default, optional_integer, or_default};

/// The addresses of a pool and how they are allocated.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "InClusterIPPool",
    plural = "inclusterippools",
    namespaced,
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of addresses for the IPAddressClaims of its namespace.",
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses"),
    printcolumn(
        name = "Total",
        type_ = "integer",
        json_path = ".status.ipAddresses.total"
    ),
    printcolumn(
        name = "Free",
        type_ = "integer",
        json_path = ".status.ipAddresses.free"
    ),
    printcolumn(
        name = "Used",
        type_ = "integer",
        json_path = ".status.ipAddresses.used"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
#[schemars(extend("required" = ["addresses", "prefix"]))]
pub struct InClusterIPPoolSpec {
    /// Single addresses, ranges (`10.0.0.10-10.0.0.20`) and CIDRs: all of one family and inside one network of length `prefix`.
    #[serde(deserialize_with = "or_default")]
    #[schemars(length(min = 1))]
    pub addresses: Vec<String>,
    /// Prefix length that goes with each address.
    #[serde(deserialize_with = "integer")]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i64,
    /// Gateway that goes with each address; never allocated. It may lie outside the network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub gateway: String,
    /// Single addresses, ranges and CIDRs that are never allocated.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub excluded_addresses: Vec<String>,
    /// Also allocates the first address of the network and, for IPv4, the last one.
    #[serde(
        rename = "allocateReservedIPAddresses",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub allocate_reserved_ip_addresses: bool,
    /// How long a released address stays unused. Left out or 0: not at all.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub address_reuse_grace_period_seconds: Option<i64>,
    /// How long a claim that is made again gets the address it had before. Left out: not at all. Only fipd has this field.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub sticky_seconds: Option<i64>,
    /// Allocates all addresses of a network of length 31 (RFC 3021), 32, 127 (RFC 6164) or 128. Only fipd has this field.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub usable_ends: bool,
}
lenient::absent_is_default!(InClusterIPPoolSpec);

/// The addresses of a pool of the whole cluster, like those of a namespaced one.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(transparent)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "GlobalInClusterIPPool",
    plural = "globalinclusterippools",
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of addresses for the IPAddressClaims of every namespace.",
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses"),
    printcolumn(
        name = "Total",
        type_ = "integer",
        json_path = ".status.ipAddresses.total"
    ),
    printcolumn(
        name = "Free",
        type_ = "integer",
        json_path = ".status.ipAddresses.free"
    ),
    printcolumn(
        name = "Used",
        type_ = "integer",
        json_path = ".status.ipAddresses.used"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
pub struct GlobalInClusterIPPoolSpec {
    /// The spec; on the wire there is no field of this name.
    pub pool: InClusterIPPoolSpec,
}

/// How a pool of addresses or prefixes is doing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InClusterPoolStatus {
    /// Counts of addresses; of prefixes in a prefix pool.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "or_default"
    )]
    pub ip_addresses: Option<InClusterPoolCounts>,
    /// Name of the pool in fipd.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub pool: String,
    /// Network (routing domain) of the pool in fipd.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub network: String,
    /// Released addresses or prefixes that stay unused for a while.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    pub quarantined: Option<i64>,
    /// Generation of the object that the status describes.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    pub observed_generation: Option<i64>,
    /// How the pool is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Counts of addresses or prefixes. Larger ones than fit are the largest that does.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["free", "outOfRange", "total", "used"]))]
pub struct InClusterPoolCounts {
    /// All that can be allocated.
    #[serde(deserialize_with = "integer")]
    pub total: i64,
    /// Free ones, never below zero: what is out of range takes nothing away.
    #[serde(deserialize_with = "integer")]
    pub free: i64,
    /// Allocated ones.
    #[serde(deserialize_with = "integer")]
    pub used: i64,
    /// Allocated ones that the spec does not contain any more.
    #[serde(deserialize_with = "integer")]
    pub out_of_range: i64,
}

/// What the namespaced and the cluster-scoped kind of a pool have in common.
pub trait InClusterPool: kube::Resource<DynamicType = ()> {
    /// The spec that both kinds share.
    type Spec;

    /// The spec.
    fn pool_spec(&self) -> &Self::Spec;
    /// The status, once there is one.
    fn pool_status(&self) -> Option<&InClusterPoolStatus>;
}

impl InClusterPool for InClusterIPPool {
    type Spec = InClusterIPPoolSpec;

    fn pool_spec(&self) -> &InClusterIPPoolSpec {
        &self.spec
    }
    fn pool_status(&self) -> Option<&InClusterPoolStatus> {
        self.status.as_ref()
    }
}

impl InClusterPool for GlobalInClusterIPPool {
    type Spec = InClusterIPPoolSpec;

    fn pool_spec(&self) -> &InClusterIPPoolSpec {
        &self.spec.pool
    }
    fn pool_status(&self) -> Option<&InClusterPoolStatus> {
        self.status.as_ref()
    }
}

#[cfg(test)]
mod tests;
