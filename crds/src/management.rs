//! `management.cattle.io/v3`: Rancher's clusters and projects, read only.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// A cluster that Rancher manages; the object's name is the cluster id.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "management.cattle.io",
    version = "v3",
    kind = "Cluster",
    plural = "clusters",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A cluster that Rancher manages; its name is the cluster id."
)]
pub struct ManagedClusterSpec {
    /// The name people see.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub display_name: String,
}
lenient::absent_is_default!(ManagedClusterSpec);

/// A project of a cluster; the object's name is the project id, its namespace the cluster id.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "management.cattle.io",
    version = "v3",
    kind = "Project",
    plural = "projects",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A project of a cluster; its name is the project id."
)]
pub struct ProjectSpec {
    /// The id of the cluster that owns the project.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cluster_name: String,
    /// The name people see.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub display_name: String,
}
lenient::absent_is_default!(ProjectSpec);
