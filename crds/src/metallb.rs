//! `metallb.io/v1beta1`: the pool and the announcement of one floating IP.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// Addresses MetalLB may give to Services.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "IPAddressPool",
    plural = "ipaddresspools",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "Addresses MetalLB may give to Services."
)]
pub struct IPAddressPoolSpec {
    /// CIDRs or ranges; ours have one, `<address>/32` or `/128`.
    #[serde(deserialize_with = "lenient::any")]
    pub addresses: Vec<String>,
    /// Whom the pool is for; absent means everyone.
    #[serde(
        rename = "serviceAllocation",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub allocate_to: Option<ServiceAllocation>,
    /// Absent means true.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub auto_assign: Option<bool>,
}
lenient::absent_is_default!(IPAddressPoolSpec);

/// Whom a pool is for.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAllocation {
    /// The namespaces of the Services.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub namespaces: Vec<String>,
    /// The labels of the Services.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub service_selectors: Vec<ServiceSelector>,
}

/// Labels a Service must have.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSelector {
    /// All of them.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub match_labels: BTreeMap<String, String>,
}

/// Which pools are announced by ARP and NDP, and where.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "L2Advertisement",
    plural = "l2advertisements",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "Which pools are announced by ARP and NDP, and where."
)]
pub struct L2AdvertisementSpec {
    /// Names of pools; empty means all.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub ip_address_pools: Vec<String>,
    /// Interfaces of the nodes; empty means all.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub interfaces: Vec<String>,
}
lenient::absent_is_default!(L2AdvertisementSpec);

#[cfg(test)]
mod tests;
