//! Addresses of pods.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// The address of the pod of the same name and namespace.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "macvlan.cluster.cattle.io",
    version = "v1",
    kind = "MacvlanIP",
    plural = "macvlanips",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "The address of the pod of the same name and namespace on a macvlan network."
)]
pub struct MacvlanIPSpec {
    /// Name of the subnet.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub subnet: String,
    /// UID of the pod.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub pod_id: String,
    /// The address and the length of its network.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cidr: String,
    /// The MAC.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub mac: String,
}
lenient::absent_is_default!(MacvlanIPSpec);
