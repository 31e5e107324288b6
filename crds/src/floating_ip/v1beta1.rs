//! `v1beta1`: served, deprecated. Its pools and quotas are those of `v1beta2`; its floating IPs name one Service each.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::ADDRESS_OR_EMPTY;
use crate::lenient::{self, is_default, or_default};

/// What is asked for.
#[derive(
    Clone, CustomResource, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "rancher.k8s.binbash.org",
    version = "v1beta1",
    kind = "FloatingIP",
    plural = "floatingips",
    namespaced,
    status = "FloatingIPStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rfip",
    category = "fipd",
    label("app.kubernetes.io/managed-by", "fipd"),
    doc = "One floating IP of a Rancher project, assigned to a cluster or kept for the project.",
    printcolumn(name = "Address", type_ = "string", json_path = ".status.ipAddr"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.floatingIPPool"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Project",
        type_ = "string",
        json_path = ".status.assigned.projectName"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".status.assigned.clusterName"
    ),
    printcolumn(
        name = "Service",
        type_ = "string",
        json_path = ".status.assigned.serviceName",
        priority = 1
    ),
    printcolumn(
        name = "Requested",
        type_ = "string",
        json_path = ".spec.ipAddr",
        priority = 1
    )
)]
#[schemars(extend("required" = ["floatingIPPool"]))]
pub struct FloatingIPSpec {
    /// The name of the pool.
    #[serde(rename = "floatingIPPool", deserialize_with = "or_default")]
    #[schemars(length(min = 1, max = 253))]
    pub floating_ip_pool: String,
    /// The wanted address; later the one that was given. Empty means any.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    #[schemars(regex(pattern = ADDRESS_OR_EMPTY))]
    pub ip_addr: String,
}
lenient::absent_is_default!(FloatingIPSpec);

/// What was given.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FloatingIPStatus {
    /// The address this object has. It, not the spec, says what is taken.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub ip_addr: String,
    /// `Allocated` or `Error`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub state: String,
    /// Who uses the address at present; absent while it is only kept for the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned: Option<Assigned>,
    /// A log, oldest first, of at most 30 entries, not one entry per type.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// Who uses an address.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assigned {
    /// Management id of the cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub cluster_name: String,
    /// Id of the project.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub project_name: String,
    /// Namespace of the Service.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub service_namespace: String,
    /// Name of the Service.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "or_default")]
    pub service_name: String,
}
