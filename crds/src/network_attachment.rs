//! `k8s.cni.cncf.io/v1`: the networks that virtual machines and pods can be attached to.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient;

/// A network that virtual machines and pods can be attached to.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, remote = "Self")]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    namespaced,
    schema = "disabled",
    doc = "A network that virtual machines and pods can be attached to."
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// The CNI configuration, as JSON.
    #[serde(deserialize_with = "lenient::or_default")]
    pub config: String,
}
lenient::absent_is_default!(NetworkAttachmentDefinitionSpec);
