//! Ranges of addresses for guest clusters.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fipd_io::{ADDRESSES, PoolStatus};
use crate::floating_ip::ADDRESS_OR_EMPTY;
use crate::lenient::{self, is_default, or_default};

/// What is said of a range. Every text may be empty or wrong here.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kubefip.k8s.binbash.org",
    version = "v1",
    kind = "FloatingIPRange",
    plural = "floatingipranges",
    status = "PoolStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "fiprange",
    shortname = "fipranges",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "Addresses for the guest clusters on one network of a Harvester cluster.",
    printcolumn(name = "Range", type_ = "string", json_path = ".spec.iprange"),
    printcolumn(
        name = "Harvester",
        type_ = "string",
        description = "Display name of the Harvester cluster",
        json_path = ".metadata.annotations.harvesterClusterName"
    ),
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".metadata.annotations.harvesterNetworkName"
    ),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
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
pub struct FloatingIPRangeSpec {
    /// The addresses in CIDR form. Host bits may be set; what they mean is said by fipd's configuration.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(regex(pattern = RANGE))]
    pub iprange: String,
    /// Not used.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub region: String,
    /// The gateway of the network; never given. Left out: the one that the network has in Harvester, where it is known there.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(length(max = 45), regex(pattern = ADDRESS_OR_EMPTY))]
    pub gateway: String,
    /// Addresses that are never given: CIDRs, ranges (`10.0.0.10-10.0.0.20`) and single addresses.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(
        length(max = 1000),
        inner(length(min = 1, max = 100), regex(pattern = ADDRESSES))
    )]
    pub exclusions: Vec<String>,
    /// How long an address cools after its release. Left out: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub quarantine_seconds: Option<i64>,
    /// How long a floating IP that is made anew gets the address that it had before. Left out: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub sticky_seconds: Option<i64>,
}
lenient::absent_is_default!(FloatingIPRangeSpec);

/// An IPv4 CIDR as the original has it, which also takes prefix lengths that there are not; what can only be an IPv6 one; or nothing.
const RANGE: &str = concat!(
    r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}/[0-9]{1,2}",
    r"|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*/[0-9]{1,3}|)$"
);
