//! Addresses: the answers to claims.

use serde::{Deserialize, Serialize};

use super::claim::PoolRef;
use super::names::IPAM_GROUP;
use super::object::object;
use crate::lenient;

object! {
    /// An allocated address, or prefix. The provider of its pool makes it, with the name of the claim; the kind has no status.
    IPAddress: IPAM_GROUP, "ipaddresses", NamespaceResourceScope,
    "super::object::ipam_version", IPAddressSpec
}

/// What was allocated. The API server refuses every change of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressSpec {
    /// The claim, in the same namespace.
    #[serde(deserialize_with = "lenient::any")]
    pub claim_ref: ClaimRef,
    /// The pool that the claim names.
    #[serde(deserialize_with = "lenient::any")]
    pub pool_ref: PoolRef,
    /// The address; the first one of an allocated prefix.
    #[serde(deserialize_with = "lenient::any")]
    pub address: String,
    /// Prefix length.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::any"
    )]
    pub prefix: Option<i32>,
    /// Gateway; the API server refuses an empty one, so it is left out.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "lenient::any"
    )]
    pub gateway: String,
}

/// A claim in the namespace of the address.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRef {
    /// Name.
    #[serde(deserialize_with = "lenient::any")]
    pub name: String,
}
