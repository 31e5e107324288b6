//! Claims: one address of a pool each.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::floating_ip::ADDRESS_OR_EMPTY;
use crate::lenient::{is_default, or_default};

/// What is asked for. Never changes: a claim that is to be another one is made anew.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "fipd.io",
    version = "v1alpha1",
    kind = "AddressClaim",
    plural = "addressclaims",
    namespaced,
    status = "AddressClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "aclaim",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "A claim on one address of a pool, charged to its namespace and kept until it is deleted.",
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".status.pool"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Requested",
        type_ = "string",
        json_path = ".spec.address",
        priority = 1
    )
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "a claim cannot be changed; delete it and make another one",
}]))]
pub struct AddressClaimSpec {
    /// The pool. Left out: the default one that fipd's configuration names for the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
    /// This address and no other. Left out: any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(length(max = 45), regex(pattern = ADDRESS_OR_EMPTY))]
    pub address: String,
}

/// A pool as the objects of its cluster call it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct PoolRef {
    /// `Pool` (also when left out) or `NamespacedPool`, which is one of the claim's own namespace.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("enum" = ["Pool", "NamespacedPool"]))]
    pub kind: String,
    /// The name of the object.
    #[serde(deserialize_with = "or_default")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What a claim, or another object that uses an address, has.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressClaimStatus {
    /// The address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub address: String,
    /// The prefix length that goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<i64>,
    /// The gateway of the link, where the pool names one.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub gateway: String,
    /// The name in fipd of the pool that the address is of.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub pool: String,
    /// The network (routing domain) of the address.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub network: String,
    /// Since when the object has the address (RFC 3339).
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub since: String,
    /// How the object is doing; one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
