//! Rancher's objects as typed input: where a guest runs, and what its machines are connected to.

use fipd_crds::{
    labels::{HARVESTER_CONFIG_KIND, PROJECT_ID},
    machine_config::HarvesterConfig,
    provisioning::{Cluster, MachinePool},
};
use k8s_openapi::api::core::v1::Namespace;

use crate::systems::rancher_fip::names::rancher_project;

/// How Rancher made a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provisioned {
    /// Rancher's id of the cluster, once there is one.
    pub id: Option<String>,
    pub hosting: Hosting,
}

/// What a cluster's machines are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    #[default]
    BareMetal,
    Harvester {
        /// Namespace and name of the cloud credential's Secret.
        credential: (String, String),
        /// Name of the HarvesterConfig of the first pool with control-plane machines.
        machine: Option<String>,
    },
    /// The reference to the cloud credential is not `NAMESPACE:NAME`.
    Unclear(String),
}

/// The machines of a pool on Harvester.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The namespace in the Harvester cluster.
    pub namespace: String,
    /// Their networks, without namespace, in order.
    pub networks: Vec<String>,
}

impl Provisioned {
    /// Name of the HarvesterConfig that says where the machines run.
    pub fn machine(&self) -> Option<&str> {
        match &self.hosting {
            Hosting::Harvester { machine, .. } => machine.as_deref(),
            Hosting::BareMetal | Hosting::Unclear(_) => None,
        }
    }

    pub fn slim(object: Cluster) -> Self {
        let hosting = match object.cloud_credential() {
            Some((namespace, name)) => Hosting::Harvester {
                credential: (namespace.to_owned(), name.to_owned()),
                machine: object.machine_pools().iter().find_map(harvester_config),
            },
            None if object.spec.cloud_credential_secret_name.is_empty() => Hosting::BareMetal,
            None => Hosting::Unclear(object.spec.cloud_credential_secret_name.clone()),
        };
        Self {
            id: object.management_id().map(str::to_owned),
            hosting,
        }
    }
}

fn harvester_config(pool: &MachinePool) -> Option<String> {
    let machine = pool.machine_config_ref.as_ref()?;
    let harvester = pool.control_plane_role && machine.kind == HARVESTER_CONFIG_KIND;
    (harvester && !machine.name.is_empty()).then(|| machine.name.clone())
}

impl Machine {
    pub fn slim(object: HarvesterConfig) -> Self {
        let interfaces = object.spec.interfaces().into_iter();
        Self {
            namespace: object.spec.vm_namespace,
            networks: interfaces.map(|interface| interface.network).collect(),
        }
    }
}

/// The project that a namespace of a Harvester cluster belongs to.
pub fn project_of(namespace: &Namespace) -> Option<String> {
    let annotations = namespace.metadata.annotations.as_ref()?;
    let (_, project) = rancher_project(annotations.get(PROJECT_ID)?);
    (!project.is_empty()).then(|| project.to_owned())
}
