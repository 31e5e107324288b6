//! The cluster manager: keeps what the clusters that Rancher manages need to ask for addresses in step with Rancher.
//!
//! ```text
//!  Rancher: Cluster, provisioning Cluster, HarvesterConfig,      Harvester: project of the machines' namespace
//!           pools, quotas, projects, settings, CA                     |
//!              \__________________ plan _____________________________/
//!                                   |
//!        guest: namespace and its label, CA, Secret per project, interface mappings, charts
//! ```
//!
//! Each guest is a key of a queue of its own: one that does not answer delays no other. Everything is looked at
//! again after a while, whether or not a watch told of a change.

pub(super) mod apply;
mod charts;
mod known;
mod leave;
mod notes;
mod observe;
mod plan;
pub(super) mod quotas;
pub(super) mod rotation;
mod serve;
mod settings;
pub(super) mod sweep;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub use self::{
    known::COPY,
    notes::{NOTES, Note},
};
use self::{observe::ManagerObjects, plan::GuestWait};
use super::{Site, kinds::QUOTA, rancher::Data};
use crate::{
    config::TypedSettings as _,
    controller::{
        confirm_absence::AbsenceCheck, context::Context, endpoint::OwnEndpoint, events::Events,
        meta::Meta, queue::Queue, reconcile::work_on, store::Key,
    },
    guests::{
        self, GuestBoard, GuestManager, GuestSystem, GuestUnready, access::GuestAccess,
        charts::GuestCharts, config_maps::ConfigMaps, sources::GuestSources,
    },
    helm::Helm,
    systems::rancher_fip::settings::RancherFipSettings,
};

/// Guests that are worked on at once. One that does not answer takes a place for ten seconds a minute at most.
const AT_ONCE: usize = 64;
const QUOTAS_AT_ONCE: usize = 16;
/// After this time a guest is looked at again although nothing was seen to change.
const AGAIN: Duration = Duration::from_secs(300);

/// Guests and releases of earlier versions, which knew no other system, are its own.
pub const SYSTEM: GuestSystem = GuestSystem {
    name: RancherFipSettings::NAME,
    unnamed: true,
};

/// The cluster manager on one connection to Rancher.
pub struct Guests {
    site: Arc<Site>,
    data: Arc<Data>,
    events: Arc<Events>,
    own: OwnEndpoint,
    views: GuestBoard,
    seen: ManagerObjects,
    /// Those of the app namespace.
    maps: ConfigMaps,
    sources: GuestSources,
    access: Arc<GuestAccess>,
    queue: Arc<Queue<Key>>,
    quotas: Context<Meta>,
    chart_queue: Arc<Queue<Key>>,
    charts: GuestCharts,
    /// What the ConfigMap said when it was last there.
    said: Mutex<Option<Arc<BTreeMap<String, String>>>>,
    /// Guests whose label is missing.
    unlabelled: AbsenceCheck<String>,
    /// Guests whose label for the load balancer is missing, while they have another than that means.
    untyped: AbsenceCheck<String>,
}

/// Why a guest is not done.
type Stop = guests::Stop<GuestWait>;

impl From<GuestWait> for Stop {
    fn from(wait: GuestWait) -> Self {
        Self::Wait(wait)
    }
}

impl From<guests::Stop<GuestUnready>> for Stop {
    fn from(stop: guests::Stop<GuestUnready>) -> Self {
        match stop {
            guests::Stop::Wait(unready) => unready.into(),
            guests::Stop::Reconcile(trouble) => trouble.into(),
        }
    }
}

impl Guests {
    pub fn new(
        site: Arc<Site>,
        data: Arc<Data>,
        events: Arc<Events>,
        own: OwnEndpoint,
        views: GuestBoard,
        helm: Option<Helm>,
    ) -> Arc<Self> {
        let given = &site.settings::<RancherFipSettings>().cluster_manager;
        let access = Arc::new(GuestAccess {
            links: views.links(&site.name),
            rancher: data.remote.clone(),
            cluster: data.cluster.clone(),
            names: Arc::clone(&data.names),
            insecure: given.insecure_skip_tls_verify,
        });
        let seen = ManagerObjects::default();
        let app_namespace = &site.settings::<RancherFipSettings>().app_namespace;
        let maps = ConfigMaps::new(data.remote.clone(), app_namespace);
        let quotas = data.context(QUOTA, &site, &events, &seen.quotas);
        let (name, means) = (Text::clone(&site.name), (&views, Arc::clone(&access)));
        let charts = GuestCharts::new(name, SYSTEM, means, helm);
        Arc::new(Self {
            site,
            data,
            events,
            own,
            views,
            seen,
            maps,
            sources: GuestSources::default(),
            access,
            queue: Queue::new(),
            quotas,
            chart_queue: Queue::new(),
            charts,
            said: Mutex::default(),
            unlabelled: AbsenceCheck::default(),
            untyped: AbsenceCheck::default(),
        })
    }

    /// Watches and works until the session ends.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let manager: Arc<dyn GuestManager> = Arc::<Self>::clone(self);
        let manager = Arc::downgrade(&manager);
        self.views.managed_by(&self.site.name, SYSTEM, manager);
        observe::watch(self, tasks);
        tasks.spawn(Arc::clone(self).run());
    }

    async fn run(self: Arc<Self>) {
        let cancel = self.site.cancel();
        // A guest that is not wanted any more is known by the notes; a project by its quota. What is not listed yet would be
        // taken from the guests.
        tokio::select! {
            () = cancel.cancelled() => return,
            () = async {
                self.data.clusters.completed().await;
                self.maps.seen.completed().await;
                self.seen.quotas.completed().await;
                self.seen.ca.completed().await;
                self.data.pools.completed().await;
                self.data.projects.completed().await;
            } => {}
        }
        self.everything_changed();
        let reconcile = (&self, Self::reconcile);
        let guests = work_on(&self.site, "cluster", (&self.queue, AT_ONCE), reconcile);
        let (queue, quotas) = (
            (&self.quotas.queue, QUOTAS_AT_ONCE),
            (&self, Self::reconcile_quota),
        );
        let quotas = work_on(&self.site, "quotasecrets", queue, quotas);
        let charts = (&self, Self::reconcile_charts);
        let charts = work_on(&self.site, "charts", (&self.chart_queue, AT_ONCE), charts);
        let sweeps = Arc::clone(&self).keep_swept();
        tokio::join!(guests, quotas, charts, sweeps);
    }
}
