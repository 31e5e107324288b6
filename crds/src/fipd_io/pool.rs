//! Pools: of a cluster, and of one of its namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::floating_ip::ADDRESS_OR_EMPTY;
use crate::lenient::{integer, is_default, or_default};

/// What is said of a pool. Every text may be empty or wrong here.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "fipd.io",
    version = "v1alpha1",
    kind = "Pool",
    plural = "pools",
    status = "PoolStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "fpool",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of addresses for claims of every namespace. One with the label app.kubernetes.io/managed-by=fipd mirrors a pool of fipd and is written by fipd alone.",
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.network"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".spec.addresses",
        priority = 1
    )
)]
#[schemars(extend("required" = ["addresses"]))]
pub struct PoolSpec {
    /// CIDRs, ranges (`10.0.0.10-10.0.0.20`) and single addresses, all of one family.
    #[serde(deserialize_with = "or_default")]
    #[schemars(
        length(min = 1, max = 1000),
        inner(length(min = 1, max = 100), regex(pattern = ADDRESSES)),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(a, a.contains(':')) || self.all(a, !a.contains(':'))",
            "message": "all addresses of a pool are of one family",
        }])
    )]
    pub addresses: Vec<String>,
    /// CIDRs, ranges and single addresses that are never given.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(
        length(max = 1000),
        inner(length(min = 1, max = 100), regex(pattern = ADDRESSES))
    )]
    pub exclusions: Vec<String>,
    /// The gateway of the link; never given, shown to claims.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(length(max = 45), regex(pattern = ADDRESS_OR_EMPTY))]
    pub gateway: String,
    /// Prefix length that goes with an address. Left out: that of the CIDR around it, else 32 or 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub prefix_length: Option<i64>,
    /// The network (routing domain) in which the addresses are unique. Left out: by fipd's configuration, which alone decides
    /// for a NamespacedPool.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(length(max = 63))]
    pub network: String,
    /// How many addresses at the ends are never given. Left out: the network and broadcast address for IPv4, the first
    /// address for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_ends: Option<ReservedEnds>,
    /// How long an address cools after its release.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub quarantine_seconds: i64,
    /// A closed pool gives nothing more; what it gave stays.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub closed: bool,
}

/// What is said of a pool for the claims of one namespace.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "fipd.io",
    version = "v1alpha1",
    kind = "NamespacedPool",
    plural = "namespacedpools",
    namespaced,
    status = "PoolStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "nspool",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of addresses for the claims of its own namespace.",
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".spec.addresses",
        priority = 1
    )
)]
pub struct NamespacedPoolSpec {
    #[serde(flatten)]
    pub pool: PoolSpec,
}

/// Addresses at the ends that are never given.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedEnds {
    /// How many at the beginning.
    #[serde(deserialize_with = "integer")]
    #[schemars(range(min = 0, max = 65_536))]
    pub first: i64,
    /// How many at the end.
    #[serde(deserialize_with = "integer")]
    #[schemars(range(min = 0, max = 65_536))]
    pub last: i64,
    /// What they are the ends of: `Prefix` (the network that the prefix length makes; also when left out) or `EachCidr`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("enum" = ["Prefix", "EachCidr"]))]
    pub of: String,
}

/// How a pool is doing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// The name of the pool in fipd.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub pool: String,
    /// Addresses that can be given.
    #[serde(deserialize_with = "integer")]
    pub total: i64,
    /// Of these, held or cooling.
    #[serde(deserialize_with = "integer")]
    pub used: i64,
    /// Of these, free.
    #[serde(deserialize_with = "integer")]
    pub free: i64,
    /// Addresses of the pool that are never given: gateway and reserved ends.
    #[serde(deserialize_with = "integer")]
    pub reserved: i64,
    /// Addresses that cool after a release.
    #[serde(deserialize_with = "integer")]
    pub quarantined: i64,
    /// How the pool is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What can be a CIDR, a range or an address of either family. Whether it is one is the controllers' business.
pub(crate) const ADDRESSES: &str = r"^[0-9A-Fa-f.:]+([/-][0-9A-Fa-f.:]+)?$";
