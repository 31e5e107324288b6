//! The rancher-fip family: pools and FloatingIPs of a Rancher management cluster, and the Services of the
//! clusters it manages.
//!
//! ```text
//!  management cluster                                  downstream cluster
//!  FloatingIPPool --> pool (mirror)                    Service --> lease --> its status
//!  FloatingIP -----> lease --> its status                            |
//!       ^------------------ shows the lease of a Service ------------/
//! ```

mod cluster_names;
pub mod clusters;
pub mod floating_ip;
pub mod guests;
pub mod names;
mod owners;
pub mod pool;
pub mod rancher;
pub mod requests;
mod room;
#[cfg(test)]
mod sample;
pub mod service;
pub mod stock;

use std::{sync::Arc, time::Duration};

use fipd_core::System;
use fipd_crds::{
    floating_ip::{FloatingIP, FloatingIPPool, FloatingIPProjectQuota},
    management::Cluster,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams, core::PartialObjectMeta};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::{
    floating_ip::FloatingIps,
    guests::{Own, status::GuestViews},
    pool::Pools,
    rancher::{Data, Listener, Rancher, Ranchers},
    requests::Requests,
    room::Room,
    service::Services,
};
pub use super::site::Site;
use super::{
    events::Events,
    objects::Key,
    queue::{self, Queue, backoff},
    remote::Remote,
    tasks::{finish, quiet, spawn},
    wakes,
};
use crate::{
    clusters::{ClusterSession, adoption},
    config::RancherFipRole,
    ipam::Ipam,
};

/// API of pools, quotas and FloatingIPs.
pub const API: &str = "apis/rancher.k8s.binbash.org/v1beta2";

/// The list of projects is waited for so long at most.
const PROJECTS_WITHIN: Duration = Duration::from_secs(5);

/// Reconciles at once, by what users wait for.
const SERVICES_AT_ONCE: usize = 32;
const FLOATING_IPS_AT_ONCE: usize = 16;
const POOLS_AT_ONCE: usize = 4;
const FOLLOW_UPS_AT_ONCE: usize = 8;

/// Starts the system on clusters. Knows all management clusters, so that downstream ones find theirs.
#[derive(Clone, Default)]
pub struct RancherFip {
    ranchers: Ranchers,
    own: Own,
    guests: GuestViews,
}

impl RancherFip {
    /// `own` is what guests are told of fipd, `guests` gets how they are doing.
    pub fn new(own: Own, guests: GuestViews) -> Self {
        Self {
            ranchers: Ranchers::default(),
            own,
            guests,
        }
    }

    /// What the stock LB controllers of all downstream clusters ask.
    pub fn requests(&self, ipam: Ipam) -> Requests {
        Requests::new(self.ranchers.clone(), ipam)
    }

    /// Runs the system on a cluster until the session ends.
    pub fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let all = self.clone();
        Box::pin(async move {
            let site = Arc::new(Site::new(session, System::rancher_fip()));
            match site.session.settings.rancher_fip.role {
                RancherFipRole::Management => management(site, &all).await,
                RancherFipRole::Downstream => downstream(site, &all.ranchers).await,
            }
        })
    }
}

/// Pools and FloatingIPs.
async fn management(site: Arc<Site>, all: &RancherFip) {
    let rancher = all.ranchers.get(&site.name);
    let cancel = site.cancel();
    let client = site.session.client.clone();
    let data = Data::new(site.id.clone(), Remote::new(client));
    let queue = Queue::<Key>::new();
    let idle = Arc::clone(&queue);
    let events = Arc::new(Events::start(
        site.session.recorder.clone(),
        cancel.clone(),
        move || quiet(Arc::clone(&idle)),
    ));
    let pools = Pools::new(Arc::clone(&site), Arc::clone(&data), Arc::clone(&events));
    let fips = FloatingIps::new(
        Arc::clone(&site),
        Arc::clone(&rancher),
        Arc::clone(&data),
        Arc::clone(&events),
        queue,
    );
    let guests = all.guests_of(&site, &data, &events);
    let mut tasks = JoinSet::new();
    let room = Room {
        site: &site,
        rancher: &rancher,
        data: &data,
        guests: guests.as_ref(),
    };
    watch_management(&room, &pools, &fips, &mut tasks);
    if let Some(guests) = &guests {
        guests.start(&mut tasks);
    }
    tokio::select! {
        () = cancel.cancelled() => return,
        () = async { data.pools.completed().await; data.fips.completed().await; } => {}
    }
    if !clusters_listed(&site, &data).await {
        return;
    }
    // What is shown of a project is in its namespace. Who may not list projects gets that of the Service's cluster.
    let _ = tokio::time::timeout(PROJECTS_WITHIN, data.projects.completed()).await;
    if !mirror(&pools, &cancel).await {
        return;
    }
    rancher.publish(Arc::clone(&data));
    let inventory = floating_ip::adopt::FloatingIpInventory::new(Arc::clone(&site));
    if adoption::first(&site.session, &site.system, &inventory)
        .await
        .is_none()
    {
        return;
    }
    data.fips
        .keys()
        .into_iter()
        .for_each(|key| fips.queue.add(key));
    let worker = Arc::clone(&pools);
    tasks.spawn(queue::run(
        Arc::clone(&pools.queue),
        POOLS_AT_ONCE,
        cancel.clone(),
        move |key| Arc::clone(&worker).reconcile(key),
    ));
    let worker = Arc::clone(&fips);
    tasks.spawn(queue::run(
        Arc::clone(&fips.queue),
        FLOATING_IPS_AT_ONCE,
        cancel.clone(),
        move |key| Arc::clone(&worker).reconcile(key),
    ));
    tasks.spawn(Arc::clone(&fips).keep_track());
    tasks.spawn(wakes::listen(
        site.ipam.clone(),
        cancel.clone(),
        move |ledger, news| {
            pools.heard(ledger, news);
            fips.heard(ledger, news);
        },
    ));
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

fn watch_management(
    room: &Room<'_>,
    pools: &Arc<Pools>,
    fips: &Arc<FloatingIps>,
    tasks: &mut JoinSet<()>,
) {
    let Room { site, data, .. } = room;
    let (queue, link, all) = (
        Arc::clone(&pools.queue),
        Arc::clone(room.rancher),
        Arc::clone(data),
    );
    let guests = room.guests.cloned();
    spawn(
        tasks,
        site,
        Arc::clone(&data.pools),
        |pool: FloatingIPPool| Some(pool::observe::slim(pool)),
        move |key| {
            queue.add(key.clone());
            // Its status changes all the time, which is nothing to Services and guests.
            if all.pool_means_something_else(key) {
                link.pools_changed();
                guests.iter().for_each(|guests| guests.everything_changed());
            }
        },
    );
    let (queue, all) = (Arc::clone(&pools.queue), Arc::clone(data));
    let name = |quota: FloatingIPProjectQuota| Some(quota.spec.display_name);
    spawn(tasks, site, Arc::clone(&data.quotas), name, move |_| {
        all.pools.keys().into_iter().for_each(|key| queue.add(key));
    });
    room::watch_clusters(room, tasks);
    let fips = Arc::clone(fips);
    let slim = |fip: FloatingIP| Some(floating_ip::observe::slim(fip));
    spawn(tasks, site, Arc::clone(&data.fips), slim, move |key| {
        fips.changed(key)
    });
}

/// Waits until it is known what the clusters are called, where there is such a kind that fipd may read; `false`: the
/// session is over.
async fn clusters_listed(site: &Site, data: &Data) -> bool {
    let (cancel, session) = (site.cancel(), &site.session);
    let api: Api<PartialObjectMeta<Cluster>> = Api::all(session.client.clone());
    let first = ListParams::default().limit(1);
    let mut failures = 0;
    while let Err(error) = session
        .call("list Rancher's clusters", api.list(&first))
        .await
    {
        if matches!(error.status(), Some(403 | 404)) {
            return !cancel.is_cancelled();
        }
        failures += 1;
        tracing::warn!(%error, "the names of the clusters are not known yet; it is tried again");
        tokio::select! {
            () = cancel.cancelled() => return false,
            () = tokio::time::sleep(backoff(failures)) => {}
        }
    }
    tokio::select! {
        () = cancel.cancelled() => false,
        () = data.clusters.completed() => true,
    }
}

/// Makes the mirrors of all pools; `false`: the session is over.
async fn mirror(pools: &Pools, cancel: &CancellationToken) -> bool {
    let mut failures = 0;
    while let Err(trouble) = pools.mirror_all().await {
        failures += 1;
        tracing::warn!(error = %trouble, "the pools are not mirrored yet; it is tried again");
        tokio::select! {
            () = cancel.cancelled() => return false,
            () = tokio::time::sleep(backoff(failures)) => {}
        }
    }
    !cancel.is_cancelled()
}

/// Services.
async fn downstream(site: Arc<Site>, ranchers: &Ranchers) {
    let Some(management) = site.session.management.clone() else {
        tracing::error!(cluster = %site.name, "no management cluster is configured for this downstream cluster");
        site.cancel().cancelled().await;
        return;
    };
    let rancher = ranchers.get(&management);
    let cancel = site.cancel();
    let client = site.session.client.clone();
    let queue = Queue::<Key>::new();
    let idle = Arc::clone(&queue);
    let events = Arc::new(Events::start(
        site.session.recorder.clone(),
        cancel.clone(),
        move || quiet(Arc::clone(&idle)),
    ));
    let services = Services::new(
        Arc::clone(&site),
        Arc::clone(&rancher),
        Remote::new(client),
        events,
        queue,
    );
    let mut tasks = JoinSet::new();
    let all = Arc::clone(&services);
    let objects = Arc::clone(&services.services);
    spawn(
        &mut tasks,
        &site,
        objects,
        service::observe::slim,
        move |key| all.queue.add(key.clone()),
    );
    let all = Arc::clone(&services);
    let objects = Arc::clone(&services.namespaces);
    let slim = service::observe::slim_namespace;
    spawn::<Namespace, _>(&mut tasks, &site, objects, slim, move |key| {
        all.namespace_changed(key)
    });
    tokio::select! {
        () = cancel.cancelled() => return,
        () = ready(&site, &rancher, &services) => {}
    }
    let inventory = service::adopt::ServiceInventory::new(Arc::clone(&services));
    if adoption::first(&site.session, &site.system, &inventory)
        .await
        .is_none()
    {
        return;
    }
    let all = Arc::clone(&services);
    let known = Arc::clone(&services);
    rancher.listen(
        site.id.clone(),
        Listener {
            services: Arc::clone(&services.after),
            made_for: Arc::clone(&services.queue),
            pools: Box::new(move || all.pools_changed()),
            id: Box::new(move || known.rancher_cluster()),
        },
    );
    work(&site, &services, &mut tasks);
    adoption::keep(&site.session, &site.system, &inventory).await;
    rancher.forget(&site.id);
    finish(tasks).await;
}

/// Waits for complete lists, and for the pools if any network still waits for this cluster: without them it is
/// not known which network an address in use belongs to.
async fn ready(site: &Site, rancher: &Rancher, services: &Services) {
    services.services.completed().await;
    services.namespaces.completed().await;
    let adopted = site
        .session
        .networks(&site.system)
        .into_iter()
        .all(|network| {
            site.ipam
                .read(|ledger| ledger.truly_adopted(network, &site.id, &site.system))
        });
    if !adopted {
        rancher.published().await;
    }
}

fn work(site: &Arc<Site>, services: &Arc<Services>, tasks: &mut JoinSet<()>) {
    let cancel = site.cancel();
    services
        .services
        .keys()
        .into_iter()
        .for_each(|key| services.queue.add(key));
    let worker = Arc::clone(services);
    tasks.spawn(queue::run(
        Arc::clone(&services.queue),
        SERVICES_AT_ONCE,
        cancel.clone(),
        move |key| Arc::clone(&worker).reconcile(key),
    ));
    let worker = Arc::clone(services);
    tasks.spawn(queue::run(
        Arc::clone(&services.after),
        FOLLOW_UPS_AT_ONCE,
        cancel.clone(),
        move |key| Arc::clone(&worker).follow_up(key),
    ));
    tasks.spawn(Arc::clone(services).keep_swept());
    tasks.spawn(Arc::clone(services).keep_track());
    let all = Arc::clone(services);
    tasks.spawn(wakes::listen(
        site.ipam.clone(),
        cancel,
        move |ledger, news| all.heard(ledger, news),
    ));
}

#[cfg(test)]
mod tests;
