//! Where a guest runs, from Rancher's objects and from the Harvester cluster that its machines are in.

use std::collections::BTreeMap;

use fipd_crds::{
    labels::{HARVESTER_CLUSTER_ID_KEY, HARVESTER_CONFIG_KIND, PROJECT_ID},
    machine_config::HarvesterConfig,
    provisioning::{Cluster, MachinePool},
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt as _;

use super::{
    GuestUnready, Stop,
    access::{GuestAccess, GuestName},
    objects,
    sources::GuestSources,
};
use crate::controller::kind::{NAMESPACE, SECRET};

/// How Rancher made a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provisioned {
    pub uid: String,
    /// Rancher's id of the cluster, once there is one.
    pub id: Option<String>,
    pub hosting: Hosting,
    /// Its labels and annotations of the keys that the system reads.
    pub marks: BTreeMap<&'static str, String>,
}

/// A label or an annotation that a system reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKey {
    Label(&'static str),
    Annotation(&'static str),
}

/// What a cluster's machines are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosting {
    #[default]
    BareMetal,
    Harvester {
        /// Namespace and name of the cloud credential's Secret.
        credential: (String, String),
        /// One for each machine pool that has a HarvesterConfig, in order.
        machines: Vec<MachineRef>,
    },
    /// The reference to the cloud credential is not `NAMESPACE:NAME`.
    Unclear(String),
}

/// What the machines of a pool are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRef {
    pub control_plane: bool,
    /// Name of the HarvesterConfig.
    pub config: String,
}

/// The machines of a pool on Harvester.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The namespace in the Harvester cluster.
    pub namespace: String,
    /// Their networks, without namespace, in order.
    pub networks: Vec<String>,
    /// The first network that is written without a namespace.
    pub unqualified: Option<String>,
    /// The network of the older field, whether it counts or not.
    pub older: Option<String>,
}

impl Provisioned {
    /// Name of the HarvesterConfig of the first pool with control-plane machines.
    pub fn machine(&self) -> Option<&str> {
        let mut machines = self.machines().iter();
        let machine = machines.find(|machine| machine.control_plane)?;
        Some(&machine.config)
    }

    /// What its machines on Harvester are made from.
    pub fn machines(&self) -> &[MachineRef] {
        match &self.hosting {
            Hosting::Harvester { machines, .. } => machines,
            Hosting::BareMetal | Hosting::Unclear(_) => &[],
        }
    }

    /// `reads` are the labels and annotations that the system reads.
    pub fn view(object: Cluster, reads: &[MarkKey]) -> Self {
        let hosting = match object.cloud_credential() {
            Some((namespace, name)) => Hosting::Harvester {
                credential: (namespace.to_owned(), name.to_owned()),
                machines: object.machine_pools().iter().filter_map(machine).collect(),
            },
            None if object.spec.cloud_credential_secret_name.is_empty() => Hosting::BareMetal,
            None => Hosting::Unclear(object.spec.cloud_credential_secret_name.clone()),
        };
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            id: object.management_id().map(str::to_owned),
            hosting,
            marks: reads.iter().filter_map(|key| key.of(&object)).collect(),
        }
    }
}

impl MarkKey {
    fn of(self, object: &Cluster) -> Option<(&'static str, String)> {
        let (key, found) = match self {
            Self::Label(key) => (key, object.labels().get(key)),
            Self::Annotation(key) => (key, object.annotations().get(key)),
        };
        Some((key, found?.clone()))
    }
}

fn machine(pool: &MachinePool) -> Option<MachineRef> {
    let machine = pool.machine_config_ref.as_ref()?;
    let harvester = machine.kind == HARVESTER_CONFIG_KIND && !machine.name.is_empty();
    harvester.then(|| MachineRef {
        control_plane: pool.control_plane_role,
        config: machine.name.clone(),
    })
}

impl Machine {
    pub fn view(object: HarvesterConfig) -> Self {
        let interfaces = object.spec.interfaces();
        let mut unqualified = interfaces.iter().filter(|one| one.namespace.is_empty());
        Self {
            unqualified: unqualified.next().map(|one| one.network.clone()),
            older: object.spec.older_network().map(|one| one.network),
            namespace: object.spec.vm_namespace,
            networks: interfaces.into_iter().map(|one| one.network).collect(),
        }
    }
}

/// The project that a namespace of a Harvester cluster belongs to.
fn project_of(namespace: &Namespace) -> Option<String> {
    let annotations = namespace.metadata.annotations.as_ref()?;
    let value = annotations.get(PROJECT_ID)?;
    let project = value
        .split_once(':')
        .map_or(&**value, |(_, project)| project);
    (!project.is_empty()).then(|| project.to_owned())
}

/// Where a guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunsOn {
    BareMetal,
    Harvester {
        /// Rancher's id and display name of the Harvester cluster.
        id: String,
        display_name: String,
        /// The networks of the machines, in order; not empty.
        networks: Vec<String>,
        /// The project of the machines' namespace.
        project: Result<String, GuestUnready>,
    },
}

/// Namespace and name of the cloud credential's Secret, and the machine that says the networks of a guest on Harvester.
type OnHarvester<'a> = (&'a (String, String), &'a Machine);

/// Where a guest runs, as far as Rancher's own cluster says: what is left is to ask the Harvester cluster.
fn hosted<'a>(
    provisioned: Option<&'a Provisioned>,
    machine: Option<&'a Machine>,
) -> Result<Option<OnHarvester<'a>>, GuestUnready> {
    match provisioned.map(|provisioned| &provisioned.hosting) {
        None => Err(GuestUnready::NoProvisioningCluster),
        Some(Hosting::BareMetal) => Ok(None),
        Some(Hosting::Unclear(text)) => Err(GuestUnready::BadCredentialName(text.clone())),
        Some(Hosting::Harvester { credential, .. }) => {
            let name = provisioned.and_then(Provisioned::machine);
            let name = name.ok_or(GuestUnready::NoControlPlanePool)?;
            match machine {
                None => Err(GuestUnready::NoMachineConfig(name.to_owned())),
                Some(machine) if machine.networks.is_empty() => {
                    Err(GuestUnready::NoNetwork(name.to_owned()))
                }
                Some(machine) => Ok(Some((credential, machine))),
            }
        }
    }
}

impl GuestAccess {
    /// Where a guest of this id and display name runs. Asks the Harvester cluster for the project of the machines'
    /// namespace.
    pub async fn runs_on(
        &self,
        sources: &GuestSources,
        (id, display): (&str, &str),
        display_name: impl Fn(&str) -> Option<String>,
    ) -> Result<RunsOn, Stop<GuestUnready>> {
        let (provisioned, machine) = sources.of(id, display);
        let found = hosted(provisioned.as_deref(), machine.as_deref())?;
        let Some((credential, machine)) = found else {
            return Ok(RunsOn::BareMetal);
        };
        let (id, display_name) = self.harvester(credential, display_name).await?;
        let project = self.project(&id, &display_name, machine).await;
        let project = Stop::wait_or_fail(project)?;
        Ok(RunsOn::Harvester {
            id,
            display_name,
            networks: machine.networks.clone(),
            project,
        })
    }

    /// Rancher's id and the display name of the Harvester cluster that a cloud credential is for.
    pub async fn harvester(
        &self,
        (namespace, name): &(String, String),
        display_name: impl Fn(&str) -> Option<String>,
    ) -> Result<(String, String), Stop<GuestUnready>> {
        let target = SECRET.named(namespace, name);
        let secret: Option<Secret> = self.rancher.get(&target).await?;
        let mut texts = secret.as_ref().map(objects::texts).unwrap_or_default();
        let id = texts.remove(HARVESTER_CLUSTER_ID_KEY);
        let id = id.filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| GuestUnready::NoCredential(format!("{namespace}/{name}")))?;
        match display_name(&id) {
            Some(display_name) => Ok((id, display_name)),
            None => Err(GuestUnready::NoHarvester(id).into()),
        }
    }

    async fn project(
        &self,
        id: &str,
        display: &str,
        machine: &Machine,
    ) -> Result<String, Stop<GuestUnready>> {
        let unreachable = |why: String| GuestUnready::Harvester {
            harvester: display.to_owned(),
            why,
        };
        let remote = Stop::wait_or_fail(self.client(id, GuestName::Displayed(display)).await)?;
        let remote = remote.map_err(|unready| unreachable(unready.to_string()))?;
        let target = NAMESPACE.named("", &machine.namespace);
        let namespace: Option<Namespace> =
            (remote.get(&target).await).map_err(|error| unreachable(error.to_string()))?;
        let name = || machine.namespace.clone();
        let namespace = namespace.ok_or_else(|| GuestUnready::NoMachineNamespace(name()))?;
        project_of(&namespace).ok_or_else(|| GuestUnready::NoProject(name()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_labels_and_annotations_only_those_are_kept_that_the_system_reads() {
        let object = serde_json::json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {
                "name": "prod", "labels": { "a": "1", "b": "2" },
                "annotations": { "a": "3", "c": "4", "d": "5" },
            },
        });
        let object: Cluster = serde_json::from_value(object).unwrap();
        let (label, annotation) = (MarkKey::Label, MarkKey::Annotation);
        let reads = [
            label("a"),
            annotation("c"),
            label("x"),
            label("d"),
            annotation("b"),
        ];
        let marks = Provisioned::view(object.clone(), &reads).marks;
        let expected = [("a", "1".to_owned()), ("c", "4".to_owned())];
        assert_eq!(marks, BTreeMap::from(expected));
        assert!(Provisioned::view(object, &[]).marks.is_empty());
    }

    fn control_plane(config: &str) -> MachineRef {
        MachineRef {
            control_plane: true,
            config: config.to_owned(),
        }
    }

    #[test]
    fn where_a_guest_runs_is_read_from_its_machines() {
        let machine = Machine {
            namespace: "guests".into(),
            networks: vec!["vlan-1".into()],
            ..Machine::default()
        };
        let hosting = |name: Option<&str>| Provisioned {
            hosting: Hosting::Harvester {
                credential: ("ns".into(), "cc".into()),
                machines: name.into_iter().map(control_plane).collect(),
            },
            ..Provisioned::default()
        };
        let bare = Machine {
            networks: vec![],
            ..machine.clone()
        };
        let of = |provisioned: Option<Provisioned>, machine: Option<&Machine>| {
            hosted(provisioned.as_ref(), machine)
                .map(|hosted| hosted.is_some())
                .map_err(|wait| wait.reason())
        };
        assert_eq!(of(None, None), Err("NoProvisioningCluster"));
        assert_eq!(of(Some(Provisioned::default()), None), Ok(false));
        assert_eq!(of(Some(hosting(None)), None), Err("NoControlPlanePool"));
        assert_eq!(of(Some(hosting(Some("m"))), None), Err("NoMachineConfig"));
        assert_eq!(of(Some(hosting(Some("m"))), Some(&bare)), Err("NoNetwork"));
        assert_eq!(of(Some(hosting(Some("m"))), Some(&machine)), Ok(true));
    }
}
