//! Who hears of the objects of a management cluster, the cluster manager among them where it is on.

use std::sync::Arc;

use fipd_core::Text;
use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota},
    management::{Cluster, Project},
};
use tokio::task::JoinSet;

use super::{
    RunningRancherFip, Site,
    clusters::RancherCluster,
    floating_ip::{self, FloatingIpController},
    guests::{Guests, SYSTEM},
    pool::{self, FloatingIpPools},
    quota::{self, Quotas},
    rancher::{Data, Rancher},
};
use crate::{
    controller::{attachments::Attachments, events::Events, reconcile::Controller, tasks::spawn},
    guests::{GuestBoard, access::GuestAccess, harvesters::Harvesters},
    systems::rancher_fip::settings::RancherFipSettings,
};

impl RunningRancherFip {
    /// The cluster manager, where it is switched on.
    pub(super) fn guests_of(
        &self,
        site: &Arc<Site>,
        data: &Arc<Data>,
        events: &Arc<Events>,
    ) -> Option<Arc<Guests>> {
        // What a former session found out may not be so any more.
        self.means.guests.forget(&site.name, SYSTEM);
        let settings = site.settings::<RancherFipSettings>();
        let on = settings.cluster_manager.enabled;
        let (site, data, events) = (Arc::clone(site), Arc::clone(data), Arc::clone(events));
        on.then(|| {
            let (own, views) = (self.means.endpoint.clone(), self.means.guests.clone());
            Guests::new(site, data, events, own, views, self.means.helm.clone())
        })
    }

    /// The links of the networks that pools name.
    pub(super) fn attachments(&self, site: &Site, data: &Data) -> Arc<Attachments> {
        let settings = site.settings::<RancherFipSettings>();
        let access = Arc::new(GuestAccess {
            links: self.means.guests.links(&site.name),
            rancher: data.remote.clone(),
            cluster: data.cluster.clone(),
            names: Arc::clone(&data.names),
            insecure: settings.cluster_manager.insecure_skip_tls_verify,
        });
        let harvesters = Harvesters {
            session: site.session.clone(),
            clusters: Arc::clone(&data.clusters),
            access,
        };
        Attachments::new(Box::new(harvesters), site.memory())
    }
}

/// What the watches of a management cluster tell.
pub struct Room<'a> {
    pub site: &'a Arc<Site>,
    pub rancher: &'a Arc<Rancher>,
    pub data: &'a Arc<Data>,
    pub fips: &'a Arc<FloatingIpController>,
    pub board: &'a GuestBoard,
    /// Where the cluster manager is on.
    pub guests: Option<&'a Arc<Guests>>,
}

impl Room<'_> {
    /// Tells what people call a project.
    pub fn names_projects(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let (rancher, data) = (Text::clone(&self.site.name), Arc::clone(self.data));
        let board = self.board.clone();
        move |project| board.name_project(&rancher, project, data.project_called(project))
    }
}

/// Its pools, quotas and FloatingIPs, and what [`watch_clusters`] follows.
pub fn watch_management(
    room: &Room<'_>,
    pools: &Arc<FloatingIpPools>,
    quotas: &Arc<Quotas>,
    tasks: &mut JoinSet<()>,
) {
    let Room {
        site, data, fips, ..
    } = room;
    let (queue, link, all, kept) = (
        Arc::clone(&pools.context().queue),
        Arc::clone(room.rancher),
        Arc::clone(data),
        Arc::clone(fips),
    );
    let guests = room.guests.cloned();
    spawn(
        tasks,
        site,
        Arc::clone(&data.pools),
        |pool: FloatingIPPool| Some(pool::view(pool)),
        move |key| {
            queue.add(key.clone());
            // Its status changes all the time, which is nothing to Services and guests.
            if all.pool_means_something_else(key) {
                link.pools_changed();
                guests.iter().for_each(|guests| guests.everything_changed());
                kept.pool_changed(key);
            }
        },
    );
    let (queue, all) = (Arc::clone(&pools.context().queue), Arc::clone(data));
    let view = |quota: FloatingIPProjectQuota| Some(quota::observe::view(quota));
    let (changed, named) = (Arc::clone(quotas), room.names_projects());
    spawn(tasks, site, Arc::clone(&data.quotas), view, move |key| {
        named(&key.name);
        if changed.changed(key) {
            all.pools.keys().into_iter().for_each(|key| queue.add(key));
        }
    });
    watch_clusters(room, tasks);
    let (fips, quotas) = (Arc::clone(fips), Arc::clone(quotas));
    let view = |fip: FloatingIP| Some(floating_ip::observe::view(fip));
    spawn(tasks, site, Arc::clone(&data.fips), view, move |key| {
        fips.changed(key);
        quotas.fip_changed(key);
    });
}

/// Clusters of Rancher and their projects.
fn watch_clusters(room: &Room<'_>, tasks: &mut JoinSet<()>) {
    let Room { site, data, .. } = room;
    let (link, all) = (Arc::clone(room.rancher), Arc::clone(data));
    let view = |cluster: Cluster| Some(RancherCluster::view(cluster));
    let (guests, fips) = (room.guests.cloned(), Arc::clone(room.fips));
    spawn(tasks, site, Arc::clone(&data.clusters), view, move |key| {
        all.cluster_changed(key);
        fips.cluster_changed(key);
        link.pools_changed();
        guests.iter().for_each(|guests| guests.cluster_changed(key));
    });
    let guests = room.guests.cloned();
    let view = |project: Project| Some(project.spec.display_name);
    let named = room.names_projects();
    spawn(tasks, site, Arc::clone(&data.projects), view, move |key| {
        named(&key.name);
        guests.iter().for_each(|guests| guests.project_changed(key));
    });
}
