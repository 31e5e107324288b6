//! Pools of IPv6 prefixes: of a namespace, and of the whole cluster. A claim on one gets a whole prefix.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::{InClusterPool, InClusterPoolStatus};
use crate::lenient::{self, is_default, optional_integer, or_default};

/// Length of the allocated prefixes of a pool that names none. The API server writes it into the object.
pub const DEFAULT_ALLOCATION_PREFIX_LENGTH: i64 = 64;

/// The prefixes of a pool and how they are allocated.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "InClusterPrefixPool",
    plural = "inclusterprefixpools",
    namespaced,
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of IPv6 prefixes for the IPAddressClaims of its namespace.",
    printcolumn(name = "Prefixes", type_ = "string", json_path = ".spec.prefixes"),
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
#[schemars(extend("required" = ["prefixes"]))]
pub struct InClusterPrefixPoolSpec {
    /// IPv6 CIDRs without host bits, none of them longer than `allocationPrefixLength`.
    #[serde(deserialize_with = "or_default")]
    #[schemars(length(min = 1))]
    pub prefixes: Vec<String>,
    /// Length of each allocated prefix. Must not change.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 1, max = 128))]
    pub allocation_prefix_length: Option<i64>,
    /// IPv6 gateway that goes with each prefix. It keeps no prefix from being allocated.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub gateway: String,
    /// Single addresses, ranges and CIDRs. A prefix that overlaps one is never allocated.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub excluded_prefixes: Vec<String>,
    /// How long a released prefix stays unused. Left out or 0: not at all. Only fipd has this field.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub address_reuse_grace_period_seconds: Option<i64>,
    /// How long a claim that is made again gets the prefix it had before. Left out: not at all. Only fipd has this field.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_integer"
    )]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub sticky_seconds: Option<i64>,
}
lenient::absent_is_default!(InClusterPrefixPoolSpec);

impl InClusterPrefixPoolSpec {
    /// Length of each allocated prefix.
    #[must_use]
    pub fn allocation_length(&self) -> i64 {
        let length = self.allocation_prefix_length;
        length.unwrap_or(DEFAULT_ALLOCATION_PREFIX_LENGTH)
    }
}

/// The prefixes of a pool of the whole cluster, like those of a namespaced one.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(transparent)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "GlobalInClusterPrefixPool",
    plural = "globalinclusterprefixpools",
    status = "InClusterPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of IPv6 prefixes for the IPAddressClaims of every namespace.",
    printcolumn(name = "Prefixes", type_ = "string", json_path = ".spec.prefixes"),
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
pub struct GlobalInClusterPrefixPoolSpec {
    /// The spec; on the wire there is no field of this name.
    pub pool: InClusterPrefixPoolSpec,
}

impl InClusterPool for InClusterPrefixPool {
    type Spec = InClusterPrefixPoolSpec;

    fn pool_spec(&self) -> &InClusterPrefixPoolSpec {
        &self.spec
    }
    fn pool_status(&self) -> Option<&InClusterPoolStatus> {
        self.status.as_ref()
    }
}

impl InClusterPool for GlobalInClusterPrefixPool {
    type Spec = InClusterPrefixPoolSpec;

    fn pool_spec(&self) -> &InClusterPrefixPoolSpec {
        &self.spec.pool
    }
    fn pool_status(&self) -> Option<&InClusterPoolStatus> {
        self.status.as_ref()
    }
}
