//! The rancher-fip family: pools and FloatingIPs of a Rancher management cluster, and the Services of the
//! clusters it manages.
//!
//! ```text
//!  management cluster                                  downstream cluster
//!  FloatingIPPool --> pool (mirror)                    Service --> lease --> its status
//!  FloatingIP -----> lease --> its status                            |
//!       ^------------------ shows the lease of a Service ------------/
//! ```

pub mod admission;
pub mod adopt;
pub mod api_service;
pub mod clusters;
mod compat;
pub mod floating_ip;
pub mod guests;
mod held_for;
pub mod kinds;
mod leadership;
pub mod leaving;
pub mod metrics;
pub mod names;
mod operations;
pub mod pool;
mod quota;
pub mod rancher;
pub mod requests;
#[cfg(test)]
mod sample;
pub mod service;
pub mod settings;
pub mod stock;
mod watches;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{System, Text};
use fipd_crds::{floating_ip::FloatingIPProjectQuota, management::Cluster};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Service};
use tokio::task::JoinSet;

use self::{
    admission::FamilyJudge,
    adopt::SiteTakeover,
    floating_ip::FloatingIpController,
    guests::{
        Guests,
        rotation::{SecretRotator, SecretRotators},
    },
    held_for::Guest,
    kinds::{FLOATING_IP, POOL, QUOTA},
    pool::{FloatingIpPoolSource, FloatingIpPools},
    quota::Quotas,
    rancher::{Data, Rancher, Ranchers},
    requests::Requests,
    service::{Services, follow_up, validate},
};
pub use crate::controller::site::Site;
use crate::{
    admission::{Asks, Judge},
    adopt::Takeover,
    clusters::{ClusterSession, adoption},
    config::{ClusterSettings, SystemConfig},
    controller::{
        address_user::inventory::AddressInventory,
        client::Remote,
        queue::Queue,
        reconcile,
        reconcile::Controller,
        store::Key,
        tasks::{count, events_behind, finish, follow_ranges, listed, spawn, until},
        waiters, webhook,
    },
    detach::Leaving,
    fip_v1,
    system::{self, Means, OperationCall, OperationError, OwnerRule, RunningSystem},
    systems::rancher_fip::{
        admission::Admits,
        settings::{RancherFipRole, RancherFipSettings},
        watches::Room,
    },
};
use prometheus_client::registry::Registry;

/// The list of projects is waited for so long at most.
const PROJECTS_WITHIN: Duration = Duration::from_secs(5);

/// The system.
pub struct RancherFip;

impl system::System for RancherFip {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn asks(&self) -> Option<&'static Asks> {
        Some(&admission::ASKS)
    }

    #[cfg(any(test, feature = "fuzz"))]
    fn fuzz(&self) -> Option<crate::admission::FuzzJudge> {
        Some(admission::fuzz)
    }

    fn adopts(&self) -> Option<&'static str> {
        Some("Pools, quotas and addresses of rancher-fip, and what its original programs left")
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::RancherFipLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(RunningRancherFip::new(means))
    }
}

/// The system in a daemon. Knows all management clusters, so that downstream ones find theirs.
#[derive(Clone)]
pub struct RunningRancherFip {
    pub(super) ranchers: Ranchers,
    rotators: SecretRotators,
    means: Means,
}

impl RunningRancherFip {
    pub fn new(means: &Means) -> Self {
        Self {
            ranchers: means.shared.get(),
            rotators: SecretRotators::default(),
            means: means.clone(),
        }
    }
}

impl RunningSystem for RunningRancherFip {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let system = self.clone();
        Box::pin(async move {
            match session.settings.of::<RancherFipSettings>().role {
                RancherFipRole::Management => system.manage(session).await,
                RancherFipRole::Downstream => system.serve(session).await,
            }
        })
    }

    fn set_clusters(&self, clusters: &BTreeMap<&Text, &ClusterSettings>) {
        let managing = clusters.iter().filter(|(_, settings)| {
            settings.of::<RancherFipSettings>().role == RancherFipRole::Management
        });
        let names = managing.map(|(name, _)| Text::clone(name)).collect();
        self.ranchers.configured(names);
    }

    fn serves(&self, session: &ClusterSession, service: &Service) -> bool {
        let settings = session.settings.of::<RancherFipSettings>();
        let here = session.systems.contains(&System::rancher_fip())
            && settings.role == RancherFipRole::Downstream;
        let svc = service::observe::all(service.clone());
        validate::is_or_was_ours(svc, here, settings.class_less)
    }

    fn held_for(&self, session: &ClusterSession) -> OwnerRule {
        let guest = Guest::of(session, &self.ranchers);
        Box::new(move |owner| guest.held_for(owner))
    }

    fn change<'a>(
        &'a self,
        asked: OperationCall<'a>,
    ) -> BoxFuture<'a, Result<String, OperationError>> {
        Box::pin(operations::rotate_secret(
            &self.rotators,
            &self.means,
            asked,
        ))
    }

    fn register_metrics(&self, registry: &mut Registry) {
        metrics::register(registry, self.means.ipam.clone(), self.ranchers.clone());
    }

    fn floating_ips(&self) -> Option<Box<dyn fip_v1::FloatingIps>> {
        let requests = Requests::new(self.ranchers.clone(), self.means.ipam.clone());
        Some(Box::new(requests))
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        Some(Arc::new(SiteTakeover::new(&self.means)))
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        let ranchers = self.ranchers.clone();
        let find = Box::new(move |name: &str| Some(ranchers.admits(name)? as _));
        Some(Arc::new(FamilyJudge::new(find, self.means.ipam.clone())))
    }
}

fn site_of(session: ClusterSession) -> Arc<Site> {
    Arc::new(Site::new(session, System::rancher_fip()))
}

/// Pools and FloatingIPs.
async fn management(site: Arc<Site>, all: &RunningRancherFip) {
    let rancher = all.ranchers.get(&site.name);
    let cancel = site.cancel();
    let client = site.session.client.clone();
    let data = Data::new(site.id.clone(), Remote::new(client), cancel.clone());
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let attachments = all.attachments(&site, &data);
    let attachments = Arc::clone(data.attachments.get_or_init(|| attachments));
    let pools = FloatingIpPoolSource::new(&site, &data);
    let pools = FloatingIpPools::new(data.context(POOL, &site, &events, &data.pools), pools);
    let quotas = data.context(QUOTA, &site, &events, &data.quotas);
    let quotas = Quotas::new(quotas, Arc::clone(&rancher), Arc::clone(&data));
    let fips = data.context(FLOATING_IP, &site, &events, &data.fips);
    let fips = floating_ip::controller(
        fips.with_queue(queue),
        Arc::clone(&rancher),
        Arc::clone(&data),
    );
    let guests = all.guests_of(&site, &data, &events);
    count(&site, "FloatingIPPools", &data.pools);
    count(&site, "FloatingIPs", &data.fips);
    let mut tasks = JoinSet::new();
    let room = Room {
        site: &site,
        rancher: &rancher,
        data: &data,
        fips: &fips,
        board: &all.means.guests,
        guests: guests.as_ref(),
    };
    watches::watch_management(&room, &pools, &quotas, &mut tasks);
    let over = cancel.clone();
    let follow = async move { over.run_until_cancelled(attachments.follow()).await };
    tasks.spawn(async move { follow.await.unwrap_or(()) });
    if let Some(guests) = &guests {
        guests.start(&mut tasks);
        let rotator: Arc<dyn SecretRotator> = Arc::<Guests>::clone(guests);
        all.rotators.set(&site.name, Arc::downgrade(&rotator));
    }
    tokio::select! {
        () = cancel.cancelled() => return,
        () = async { data.pools.completed().await; data.fips.completed().await; } => {}
    }
    if !mirrored(&site, &data, &pools, &quotas).await {
        return;
    }
    rancher.publish(Arc::clone(&data));
    let inventory = AddressInventory(Arc::clone(&fips));
    if !site.adopt_first(&inventory).await {
        return;
    }
    manage(&site, (pools, quotas, fips), &mut tasks);
    all.keep_api_service(&site, &events, &mut tasks);
    // Before that nobody may be told of a condition that is not written yet.
    let admits = Admits::new(Arc::clone(&site), Arc::clone(&rancher), Arc::clone(&data));
    tasks.spawn(Arc::clone(&admits).learn());
    rancher.admit(admits);
    let settings = &site.settings::<RancherFipSettings>().webhook;
    webhook::keep(
        &admission::ASKS,
        settings,
        &all.means.endpoint,
        &site,
        &events,
        &mut tasks,
    );
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Takes pools and quotas over, before anything is adopted; false: the session is over.
async fn mirrored(site: &Arc<Site>, data: &Data, pools: &FloatingIpPools, quotas: &Quotas) -> bool {
    let known = listed::<Cluster, _>(site, &data.clusters, "list Rancher's clusters").await
        && listed::<FloatingIPProjectQuota, _>(site, &data.quotas, "list project quotas").await;
    if !known {
        return false;
    }
    // What is shown of a project is in its namespace. Who may not list projects gets that of the Service's cluster.
    let _ = tokio::time::timeout(PROJECTS_WITHIN, data.projects.completed()).await;
    let cancel = site.cancel();
    let mirrored = "the pools are not mirrored yet";
    let limited = "the quotas are not taken over yet";
    until(&cancel, mirrored, || pools.define_all()).await
        && until(&cancel, limited, || quotas.limit_all()).await
}

fn manage(
    site: &Arc<Site>,
    (pools, quotas, fips): (Arc<FloatingIpPools>, Arc<Quotas>, Arc<FloatingIpController>),
    tasks: &mut JoinSet<()>,
) {
    fips.context().queue_all();
    reconcile::work(&pools, tasks);
    reconcile::work(&fips, tasks);
    reconcile::work(&quotas, tasks);
    let all = Arc::clone(&pools);
    follow_ranges(site, move || all.context().queue_all(), tasks);
    tasks.spawn(Arc::clone(&pools).follow_links());
    tasks.spawn(Arc::clone(&fips).keep_track());
    tasks.spawn(Arc::clone(&quotas).keep_track());
    tasks.spawn(waiters::listen(
        site.ipam.clone(),
        site.cancel(),
        move |ledger, news| {
            pools.affected(ledger, news);
            quotas.affected(ledger, news);
            fips.affected(ledger, news);
        },
    ));
}

/// Services.
async fn downstream(site: Arc<Site>, rancher: Arc<Rancher>) {
    let cancel = site.cancel();
    let client = site.session.client.clone();
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let services = Services::new(
        Arc::clone(&site),
        Arc::clone(&rancher),
        Remote::new(client),
        events,
        queue,
    );
    let objects = &services.context().objects;
    count(&site, "Services of type LoadBalancer", objects);
    let mut tasks = JoinSet::new();
    reconcile::watch(&services, service::observe::view, &mut tasks);
    let all = Arc::clone(&services);
    let objects = Arc::clone(&services.namespaces);
    let view = service::observe::slim_namespace;
    spawn::<Namespace, _>(&mut tasks, &site, objects, view, move |key| {
        all.namespace_changed(key)
    });
    tokio::select! {
        () = cancel.cancelled() => return,
        () = ready(&site, &rancher, &services) => {}
    }
    // Before they are found using what is kept for them.
    services.claim_reported().await;
    let inventory = service::adopt::ServiceInventory(Arc::clone(&services));
    if !site.adopt_first(&inventory).await {
        return;
    }
    rancher.listen(site.id.clone(), Arc::clone(&services) as _);
    work(&services, &mut tasks);
    adoption::keep(&site.session, &site.system, &inventory).await;
    rancher.forget(&site.id);
    finish(tasks).await;
}

/// Waits for complete lists, and for the pools if any network still waits for this cluster: without them it is
/// not known which network an address in use belongs to.
async fn ready(site: &Site, rancher: &Rancher, services: &Services) {
    services.completed().await;
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

fn work(services: &Arc<Services>, tasks: &mut JoinSet<()>) {
    services.context().queue_all();
    reconcile::follow_and_work(services, tasks);
    follow_up::work(services, tasks);
    tasks.spawn(Arc::clone(&services.announcer).keep_swept());
    tasks.spawn(Arc::clone(services).keep_track());
}

#[cfg(test)]
mod tests;
