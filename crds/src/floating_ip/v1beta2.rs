//! `v1beta2`: served and stored.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, integer, integers, is_default, or_default};

/// What an administrator says about a pool.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "rancher.k8s.binbash.org",
    version = "v1beta2",
    kind = "FloatingIPPool",
    plural = "floatingippools",
    status = "PoolStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rfippool",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A pool of floating IPs for one network of one cluster.",
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.ipConfig.subnet"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.available"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        description = "Display name of the target cluster",
        json_path = ".spec.targetCluster"
    ),
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.targetNetwork"),
    printcolumn(
        name = "Start",
        type_ = "string",
        json_path = ".spec.ipConfig.pool.start",
        priority = 1
    ),
    printcolumn(
        name = "End",
        type_ = "string",
        json_path = ".spec.ipConfig.pool.end",
        priority = 1
    ),
    printcolumn(
        name = "Interface",
        type_ = "string",
        json_path = ".spec.targetNetworkInterface",
        priority = 1
    )
)]
pub struct FloatingIPPoolSpec {
    /// The addresses. A pool without it gives nothing out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_config: Option<IpConfig>,
    /// Display name of the cluster the pool is for.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub target_cluster: String,
    /// Name of the network, without a namespace.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub target_network: String,
    /// The interface of that network in the nodes of the downstream clusters.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub target_network_interface: String,
}
lenient::absent_is_default!(FloatingIPPoolSpec);

/// How much a project may have. The object is named by the project id.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "rancher.k8s.binbash.org",
    version = "v1beta2",
    kind = "FloatingIPProjectQuota",
    plural = "floatingipprojectquotas",
    status = "QuotaStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rfipquota",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "How many floating IPs a Rancher project may have. Named by the project id.",
    printcolumn(
        name = "Display Name",
        type_ = "string",
        json_path = ".spec.displayName"
    ),
    printcolumn(
        name = "Quota",
        type_ = "string",
        description = "Pool name to the most addresses of it",
        json_path = ".spec.floatingIPQuota"
    )
)]
pub struct FloatingIPProjectQuotaSpec {
    /// Display name of the project.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub display_name: String,
    /// Pool name to the most addresses of it. A pool that is not here is denied.
    #[serde(
        rename = "floatingIPQuota",
        skip_serializing_if = "is_default",
        deserialize_with = "integers"
    )]
    pub floating_ip_quota: BTreeMap<String, i64>,
}
lenient::absent_is_default!(FloatingIPProjectQuotaSpec);

/// What is asked for.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "rancher.k8s.binbash.org",
    version = "v1beta2",
    kind = "FloatingIP",
    plural = "floatingips",
    namespaced,
    status = "FloatingIPStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rfip",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "One floating IP of a Rancher project, assigned to a cluster or kept for the project.",
    printcolumn(name = "Address", type_ = "string", json_path = ".status.ipAddr"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.floatingIPPool"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Project",
        type_ = "string",
        json_path = ".status.assigned.projectName"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".status.assigned.clusterName"
    ),
    printcolumn(
        name = "Group",
        type_ = "string",
        json_path = ".status.assigned.floatingIPGroup",
        priority = 1
    ),
    printcolumn(
        name = "Requested",
        type_ = "string",
        json_path = ".spec.ipAddr",
        priority = 1
    )
)]
#[schemars(extend("required" = ["floatingIPPool"]))]
pub struct FloatingIPSpec {
    /// The name of the pool.
    #[serde(rename = "floatingIPPool", deserialize_with = "or_default")]
    #[schemars(length(min = 1, max = 253))]
    pub floating_ip_pool: String,
    /// The wanted address; later the one that was given. Empty means any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(regex(pattern = ADDRESS_OR_EMPTY))]
    pub ip_addr: String,
}
lenient::absent_is_default!(FloatingIPSpec);

/// What was given.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FloatingIPStatus {
    /// The address this object has. It, not the spec, says what is taken.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub ip_addr: String,
    /// `Allocated` or `Error`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub state: String,
    /// Who uses the address at present; absent while it is only kept for the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned: Option<Assigned>,
    /// In the schema of the original but never written; the group is in `assigned`.
    #[serde(
        rename = "floatingipGroup",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub floatingip_group: String,
    /// In the schema of the original but never written; the key is in `assigned`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub shared_key: String,
    /// A log, oldest first, of at most 30 entries, not one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// Who uses an address.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assigned {
    /// Management id of the cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub cluster_name: String,
    /// Id of the project.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub project_name: String,
    /// The Services that share the address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub services: Vec<ServiceRef>,
    /// The sharing group, if any.
    #[serde(
        rename = "floatingIPGroup",
        skip_serializing_if = "is_default",
        deserialize_with = "or_default"
    )]
    pub floating_ip_group: String,
    /// What the load balancer of the cluster needs to let several Services use one address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub shared_key: String,
}

/// Where a pool's addresses come from. Every text may be empty or wrong here.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["subnet", "pool"]))]
pub struct IpConfig {
    /// `IPv4` or `IPv6`. Only shown; the family that counts is the one of the subnet.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub family: String,
    /// The subnet in CIDR form; host bits may be set.
    #[serde(deserialize_with = "or_default")]
    #[schemars(regex(pattern = SUBNET))]
    pub subnet: String,
    /// The part of the subnet that is given out.
    #[serde(deserialize_with = "or_default")]
    pub pool: AddressRange,
}

/// First to last address, both included, minus single addresses.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["start", "end"]))]
pub struct AddressRange {
    /// The first address that is given out.
    #[serde(deserialize_with = "or_default")]
    #[schemars(regex(pattern = ADDRESS))]
    pub start: String,
    /// The last address that is given out. The IPv4 broadcast address is never given out.
    #[serde(deserialize_with = "or_default")]
    #[schemars(regex(pattern = ADDRESS))]
    pub end: String,
    /// Single addresses between start and end that are never given out.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(inner(regex(pattern = ADDRESS)))]
    pub exclude: Vec<String>,
}

/// What a pool's addresses are used for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// Address to `<project> [<display name>]`; `excluded` for excluded addresses.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub allocated: BTreeMap<String, String>,
    /// Addresses in use, the excluded ones among them.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub used: i64,
    /// Addresses that can still be given out.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub available: i64,
    /// How the pool is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What a project uses.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaStatus {
    /// Pool name to what the project has of it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub fips: BTreeMap<String, QuotaUsage>,
    /// How the quota is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What a project has of one pool.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaUsage {
    /// The family text of the pool.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub family: String,
    /// Address to the id of the cluster that has it, or `Unassigned`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub allocated: BTreeMap<String, String>,
    /// Addresses charged to the project, also those that no cluster has at present.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "integer")]
    pub used: i64,
}

/// A Service in a downstream cluster.
#[derive(
    Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceRef {
    /// The namespace of the Service.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub service_namespace: String,
    /// The name of the Service.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub service_name: String,
}

// The patterns admit whatever the family's own webhook parsed: any IPv4 text without leading zeros, any text that could be IPv6
// (upper case, not shortened, with an IPv4 tail), and prefix lengths with leading zeros. Whether the text is an address at all is the
// controllers' business. They are written out because an attribute takes no expression that joins them.

/// An IPv4 address, or something that can only be an IPv6 one.
const ADDRESS: &str = concat!(
    r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}",
    r"|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)$"
);
/// [`ADDRESS`] or nothing.
pub(crate) const ADDRESS_OR_EMPTY: &str = concat!(
    r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}",
    r"|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*|)$"
);
/// A CIDR of either family.
const SUBNET: &str = concat!(
    r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}/0*(3[0-2]|[12]?[0-9])",
    r"|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*/0*(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$"
);
