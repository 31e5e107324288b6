//! Where a guest runs, and whose it is by that.

use super::{
    Guests, Stop,
    plan::{GuestPlan, GuestWait},
};
use crate::{
    controller::store::Key,
    guests::{homes, hosting::RunsOn},
    systems::rancher_fip::clusters::RancherCluster,
};

impl Guests {
    /// Notes whose the guest is, once it has what it needs to ask as that. Until then it is as it was, so that it can give
    /// back what it has.
    pub(super) fn note_home(&self, id: &str, home: &Result<RunsOn, GuestWait>, plan: &GuestPlan) {
        match home {
            Ok(RunsOn::BareMetal) => self.data.homes.forget(id),
            Ok(RunsOn::Harvester {
                id: harvester,
                project: Ok(project),
                ..
            }) => {
                let mut given = plan.desired.access.iter();
                if given.any(|access| access.project.id == *project) {
                    let (harvester, project) = (harvester.clone(), project.clone());
                    self.data
                        .homes
                        .set(id, homes::GuestHome { harvester, project });
                }
            }
            Ok(RunsOn::Harvester {
                project: Err(_), ..
            })
            | Err(_) => {}
        }
    }

    /// Where the guest runs.
    pub(super) async fn home(&self, id: &str, cluster: &RancherCluster) -> Result<RunsOn, Stop> {
        let display_name = |harvester: &str| {
            let found = self.data.clusters.get(&Key::new("", harvester))?;
            Some(found.display_name.clone())
        };
        let place = (id, &*cluster.display_name);
        Ok(self
            .access
            .runs_on(&self.sources, place, display_name)
            .await?)
    }
}
