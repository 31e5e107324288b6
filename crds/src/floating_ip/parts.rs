//! What both versions have in common.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient::{integer, is_default, or_default};

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
