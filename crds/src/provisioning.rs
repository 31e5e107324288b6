//! `provisioning.cattle.io/v1`: how Rancher made a cluster, read only.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::lenient::{self, is_default};

/// A cluster that Rancher provisions.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "provisioning.cattle.io",
    version = "v1",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    status = "ClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    doc = "A cluster that Rancher provisions."
)]
pub struct ClusterSpec {
    /// `<namespace>:<name>` of the cloud credential; empty on bare metal.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cloud_credential_secret_name: String,
    /// How the nodes are made; absent for imported clusters.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub rke_config: Option<RkeConfig>,
}
lenient::absent_is_default!(ClusterSpec);

impl Cluster {
    /// The machine pools in the order they are listed.
    #[must_use]
    pub fn machine_pools(&self) -> &[MachinePool] {
        self.spec
            .rke_config
            .as_ref()
            .map_or(&[], |config| &config.machine_pools)
    }

    /// Namespace and name of the cloud credential.
    #[must_use]
    pub fn cloud_credential(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.spec.cloud_credential_secret_name.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
    }

    /// The management cluster's id, once there is one.
    #[must_use]
    pub fn management_id(&self) -> Option<&str> {
        let id = self.status.as_ref()?.cluster_name.as_str();
        (!id.is_empty()).then_some(id)
    }
}

/// How RKE2 or K3s nodes are made.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RkeConfig {
    /// Groups of equal machines.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub machine_pools: Vec<MachinePool>,
}

/// A group of equal machines.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachinePool {
    /// The pool's name within the cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub name: String,
    /// Whether its machines run the control plane.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub control_plane_role: bool,
    /// What the machines are made from.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub machine_config_ref: Option<MachineConfigRef>,
}

/// Which object describes the machines of a pool.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineConfigRef {
    /// `HarvesterConfig` for machines on Harvester.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub kind: String,
    /// Its name, in the namespace of the provisioning cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub name: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The id of the management cluster.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "lenient::any")]
    pub cluster_name: String,
}

#[cfg(test)]
mod tests;
