//! Floating IPs of guest clusters.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fipd_io::AddressClaimStatus;
use crate::floating_ip::ADDRESS_OR_EMPTY;
use crate::lenient::{self, is_default, or_default};

/// What is asked for.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kubefip.k8s.binbash.org",
    version = "v1",
    kind = "FloatingIP",
    root = "GuestFloatingIP",
    plural = "floatingips",
    namespaced,
    status = "AddressClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "fip",
    shortname = "fips",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "One floating IP of a guest cluster, in the namespace of that cluster.",
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.annotations.clustername"
    ),
    printcolumn(
        name = "Range",
        type_ = "string",
        json_path = ".metadata.annotations.fiprange"
    ),
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
        json_path = ".spec.ipaddress",
        priority = 1
    )
)]
pub struct GuestFloatingIPSpec {
    /// The wanted address; later the one that was given. Empty means any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(regex(pattern = ADDRESS_OR_EMPTY))]
    pub ipaddress: String,
}
lenient::absent_is_default!(GuestFloatingIPSpec);
