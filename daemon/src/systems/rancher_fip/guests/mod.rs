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
        confirm_absence::AbsenceCheck,
        context::Context,
        endpoint::OwnEndpoint,
        events::Events,
        meta::Meta,
        queue::{self, Next, Queue},
        reconcile_counts::counted,
        store::Key,
    },
    guests::{
        self, GuestBoard, GuestManager, GuestSystem, GuestUnready, access::GuestAccess,
        charts::GuestCharts, sources::GuestSources,
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
    sources: GuestSources,
    access: Arc<GuestAccess>,
    queue: Arc<Queue<Key>>,
    quotas: Context<Meta>,
    chart_queue: Arc<Queue<Key>>,
    charts: GuestCharts,
    /// What the ConfigMap said when it was last there.
    said: Mutex<Option<Arc<BTreeMap<String, String>>>>,
    /// Whoever changes a ConfigMap of fipd's own holds it.
    writing: tokio::sync::Mutex<()>,
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
        let quotas = data.context(QUOTA, &site, &events, &seen.quotas);
        let charts = GuestCharts::new(Text::clone(&site.name), SYSTEM, Arc::clone(&access), helm);
        Arc::new(Self {
            site,
            data,
            events,
            own,
            views,
            seen,
            sources: GuestSources::default(),
            access,
            queue: Queue::new(),
            quotas,
            chart_queue: Queue::new(),
            charts,
            writing: tokio::sync::Mutex::default(),
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
                self.seen.maps.completed().await;
                self.seen.quotas.completed().await;
                self.seen.ca.completed().await;
                self.data.pools.completed().await;
                self.data.projects.completed().await;
            } => {}
        }
        self.everything_changed();
        let guests = self.work_on("cluster", &self.queue, AT_ONCE, Self::reconcile);
        let (quotas, most) = (&self.quotas.queue, QUOTAS_AT_ONCE);
        let quotas = self.work_on("quotasecrets", quotas, most, Self::reconcile_quota);
        let charts = self.work_on("charts", &self.chart_queue, AT_ONCE, Self::reconcile_charts);
        let sweeps = Arc::clone(&self).keep_swept();
        tokio::join!(guests, quotas, charts, sweeps);
    }

    /// Works on the keys of a queue until the session ends; `name` is for the metrics.
    fn work_on<F: Future<Output = Next> + Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        queue: &Arc<Queue<Key>>,
        at_once: usize,
        work: fn(Arc<Self>, Key) -> F,
    ) -> impl Future<Output = ()> + use<F> {
        let all = Arc::clone(self);
        let work = counted(&self.site.system, name, move |key| {
            work(Arc::clone(&all), key)
        });
        queue::run(Arc::clone(queue), at_once, self.site.cancel(), work)
    }
}
