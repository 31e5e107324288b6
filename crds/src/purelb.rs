//! `purelb.io/v1`: the service group of one floating IP.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// Addresses PureLB may give to Services that name the group.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "purelb.io",
    version = "v1",
    kind = "ServiceGroup",
    plural = "servicegroups",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "Addresses PureLB may give to Services that name the group."
)]
pub struct ServiceGroupSpec {
    /// Addresses PureLB announces itself; absent for the other sources it knows.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub local: Option<LocalAddresses>,
}
lenient::absent_is_default!(ServiceGroupSpec);

/// Addresses per family.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalAddresses {
    /// IPv4.
    #[serde(
        rename = "v4pools",
        skip_serializing_if = "is_default",
        deserialize_with = "lenient::any"
    )]
    pub v4_pools: Vec<AddressPool>,
    /// IPv6.
    #[serde(
        rename = "v6pools",
        skip_serializing_if = "is_default",
        deserialize_with = "lenient::any"
    )]
    pub v6_pools: Vec<AddressPool>,
}

/// Addresses of one subnet.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    /// The subnet the addresses lie in, which decides the announcing interface.
    #[serde(deserialize_with = "lenient::any")]
    pub subnet: String,
    /// A CIDR or a range; ours are one address, `<address>/32` or `/128`.
    #[serde(deserialize_with = "lenient::any")]
    pub pool: String,
    /// `default`, or the prefix length of the announced route.
    #[serde(deserialize_with = "lenient::any")]
    pub aggregation: String,
}

#[cfg(test)]
mod tests;
