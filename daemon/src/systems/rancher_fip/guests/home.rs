//! Finds out where a guest runs: from Rancher's objects, and from the Harvester cluster that its machines are in.

use fipd_crds::labels::HARVESTER_CLUSTER_ID_KEY;
use k8s_openapi::api::core::v1::{Namespace, Secret};

use super::{
    Guests, Stop,
    plan::{self, Home, OnHarvester, Plan, Wait},
};
use crate::guests::{
    hosting::{self, Machine},
    objects,
};
use crate::{
    controller::{
        kind::{NAMESPACE, SECRET},
        store::Key,
    },
    systems::rancher_fip::{clusters::RancherCluster, guest_hosts},
};

impl Guests {
    /// Notes whose the guest is, once it has what it needs to ask as that. Until then it is as it was, so that it can give
    /// back what it has.
    pub(super) fn note_home(&self, id: &str, home: &Result<Home, Wait>, plan: &Plan) {
        match home {
            Ok(Home::BareMetal) => self.data.homes.forget(id),
            Ok(Home::Harvester {
                id: harvester,
                project: Ok(project),
                ..
            }) => {
                let mut given = plan.desired.access.iter();
                if given.any(|access| access.project.id == *project) {
                    let (harvester, project) = (harvester.clone(), project.clone());
                    self.data
                        .homes
                        .set(id, guest_hosts::Home { harvester, project });
                }
            }
            Ok(Home::Harvester {
                project: Err(_), ..
            })
            | Err(_) => {}
        }
    }

    /// Where the guest runs. Asks the Harvester cluster for the project of the machines' namespace.
    pub(super) async fn home(&self, id: &str, cluster: &RancherCluster) -> Result<Home, Stop> {
        let provisioned = self.seen.provisioned_of(id, &cluster.display_name);
        let machine = provisioned.as_ref().and_then(|(key, one)| {
            let key = Key::new(&key.namespace, one.machine()?);
            self.seen.machines.get(&key)
        });
        let provisioned = provisioned.as_ref().map(|(_, one)| &**one);
        let Some(OnHarvester {
            credential,
            machine,
        }) = plan::hosted(provisioned, machine.as_deref())?
        else {
            return Ok(Home::BareMetal);
        };
        let harvester = self.harvester(credential).await?;
        let found = self.data.clusters.get(&Key::new("", &harvester));
        let found = found.ok_or_else(|| Wait::NoHarvester(harvester.clone()))?;
        let project = match self.project(&harvester, &found.display_name, machine).await {
            Ok(project) => Ok(project),
            Err(Stop::Wait(wait)) => Err(wait),
            Err(stop) => return Err(stop),
        };
        Ok(Home::Harvester {
            id: harvester,
            display_name: found.display_name.clone(),
            networks: machine.networks.clone(),
            project,
        })
    }

    /// Rancher's id of the Harvester cluster that a cloud credential is for.
    async fn harvester(&self, (namespace, name): &(String, String)) -> Result<String, Stop> {
        let target = SECRET.named(namespace, name);
        let secret: Option<Secret> = self.data.remote.get(&target).await?;
        let mut texts = secret.as_ref().map(objects::texts).unwrap_or_default();
        let id = texts.remove(HARVESTER_CLUSTER_ID_KEY);
        let id = id.filter(|id| !id.is_empty());
        id.ok_or_else(|| Wait::NoCredential(format!("{namespace}/{name}")).into())
    }

    async fn project(&self, id: &str, display: &str, machine: &Machine) -> Result<String, Stop> {
        let unreachable = |why: String| Wait::Harvester {
            harvester: display.to_owned(),
            why,
        };
        let remote = match self.clients.of(&self.data, id, display).await {
            Ok(remote) => remote,
            Err(Stop::Wait(wait)) => return Err(unreachable(wait.to_string()).into()),
            Err(stop) => return Err(stop),
        };
        let target = NAMESPACE.named("", &machine.namespace);
        let namespace: Option<Namespace> = match remote.get(&target).await {
            Ok(namespace) => namespace,
            Err(error) => return Err(unreachable(error.to_string()).into()),
        };
        let name = || machine.namespace.clone();
        let namespace = namespace.ok_or_else(|| Wait::NoMachineNamespace(name()))?;
        hosting::project_of(&namespace).ok_or_else(|| Wait::NoProject(name()).into())
    }
}
