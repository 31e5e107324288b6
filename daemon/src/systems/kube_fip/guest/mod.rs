//! Guest clusters: each gets a FloatingIP when Rancher makes it, and keeps kube-vip, its cloud provider and the ConfigMap that
//! says its addresses.
//!
//! ```text
//!  Rancher: Cluster, provisioning Cluster, HarvesterConfig,      kube-fip-config --> GuestConfig
//!           FloatingIPRange, FloatingIP                               |
//!              \________ range_choice, plan __________________________/
//!                             |
//!        Rancher: the first FloatingIP     guest: ConfigMap kubevip, Harvester's DaemonSet, two releases
//! ```
//!
//! Each guest is a key of a queue: one that does not answer delays no other. It is looked at on every change and after
//! the interval of the configuration. What takes minutes has a queue of its own.

pub mod address_map;
mod apply;
mod charts;
pub mod config;
mod fip_owners;
mod first_address;
mod follow_config;
pub mod harvester_kube_vip;
mod kept;
mod leave;
pub mod notes;
pub mod observe;
pub mod plan;
mod range_choice;
mod serve;
mod tell;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{LeaseKey, Text};
use parking_lot::{Mutex, RwLock};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use self::{
    config::GuestConfig, fip_owners::FipOwners, follow_config::FollowedConfig, observe::VipObjects,
    plan::VipWait,
};
use super::{
    floating_ip::FipView, lists, metrics::VipCounts, rancher::RancherClusters, range::RangeView,
    settings::KubeFipSettings,
};
use crate::{
    config::TypedSettings as _,
    controller::{
        client::Remote,
        confirm_absence::AbsenceCheck,
        events::Events,
        queue::Queue,
        reconcile::work_on,
        site::Site,
        store::{Key, Objects},
    },
    guests::{
        self, GuestBoard, GuestManager, GuestSystem, GuestUnready, access::GuestAccess,
        charts::GuestCharts, config_maps::ConfigMaps, sources::GuestSources,
    },
    helm::Helm,
};

pub use serve::LOOK;

/// As guests, their releases and their pages know it.
pub const SYSTEM: GuestSystem = GuestSystem {
    name: KubeFipSettings::NAME,
    unnamed: false,
};

/// Where the records of the system come from.
const RECORDS: &str = "fipd::systems::kube_fip";

/// Guests that are worked on at once. One that does not answer takes a place for ten seconds, a slow one for two minutes at most.
const AT_ONCE: usize = 64;

/// The guests of one connection to Rancher.
pub struct VipGuests {
    pub(super) site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    pub(super) board: GuestBoard,
    pub(super) fips: Arc<Objects<FipView>>,
    pub(super) ranges: Arc<Objects<RangeView>>,
    pub(super) counts: VipCounts,
    seen: VipObjects,
    /// The FloatingIPs that own a lease, listed or not.
    owners: FipOwners,
    /// That of the original, and those beside it.
    maps: ConfigMaps,
    sources: GuestSources,
    access: Arc<GuestAccess>,
    queue: Arc<Queue<Key>>,
    chart_queue: Arc<Queue<Key>>,
    charts: GuestCharts,
    config: RwLock<Arc<GuestConfig>>,
    /// Guests that Rancher does not list any more, by its ids.
    absent: AbsenceCheck<String>,
    /// Since when what a guest keeps is seen to be used by none of its Services, by Rancher's ids of the guests.
    unused: Mutex<BTreeMap<String, BTreeMap<LeaseKey, Instant>>>,
    /// Where the series of the original are served.
    metrics_ports: BTreeSet<u16>,
    /// Told when the ConfigMap of the configuration may say something else.
    config_noticed: Notify,
    followed: Mutex<FollowedConfig>,
}

/// What the guests are looked after with.
pub struct VipMeans<'a> {
    pub site: &'a Arc<Site>,
    pub events: &'a Arc<Events>,
    pub board: &'a GuestBoard,
    pub counts: VipCounts,
    pub metrics_ports: BTreeSet<u16>,
    pub helm: Option<Helm>,
    pub clusters: &'a RancherClusters,
    pub fips: &'a Arc<Objects<FipView>>,
    pub ranges: &'a Arc<Objects<RangeView>>,
}

/// Why a guest is not done.
type Stop = guests::Stop<VipWait>;

impl From<VipWait> for Stop {
    fn from(wait: VipWait) -> Self {
        Self::Wait(wait)
    }
}

impl From<guests::Stop<GuestUnready>> for Stop {
    fn from(stop: guests::Stop<GuestUnready>) -> Self {
        match stop {
            guests::Stop::Wait(unready) => Self::Wait(unready.into()),
            guests::Stop::Reconcile(trouble) => trouble.into(),
        }
    }
}

impl VipGuests {
    pub fn new(means: VipMeans<'_>) -> Arc<Self> {
        let site = Arc::clone(means.site);
        // What a former session found out may not be so any more.
        means.board.forget(&site.name, SYSTEM);
        let access = Arc::clone(&means.clusters.access);
        let remote = access.rancher.clone();
        let namespace = &site.settings::<KubeFipSettings>().namespace;
        let maps = ConfigMaps::new(remote.clone(), namespace);
        let name = Text::clone(&site.name);
        let charts = GuestCharts::new(name, SYSTEM, (means.board, Arc::clone(&access)), means.helm);
        let config = GuestConfig::new(&guests::objects::Texts::new(), site.settings());
        Arc::new(Self {
            remote,
            events: Arc::clone(means.events),
            board: means.board.clone(),
            fips: Arc::clone(means.fips),
            ranges: Arc::clone(means.ranges),
            counts: means.counts,
            seen: VipObjects::new(&means.clusters.clusters),
            owners: FipOwners::default(),
            maps,
            sources: observe::sources(),
            access,
            queue: Queue::new(),
            chart_queue: Queue::new(),
            charts,
            config: RwLock::new(Arc::new(config)),
            absent: AbsenceCheck::default(),
            unused: Mutex::default(),
            metrics_ports: means.metrics_ports,
            config_noticed: Notify::new(),
            followed: Mutex::default(),
            site,
        })
    }

    /// Works until the session ends, once the ConfigMap and everything that guests depend on is known: what is not listed yet
    /// would be taken from them.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let manager: Arc<dyn GuestManager> = Arc::<Self>::clone(self);
        self.board
            .managed_by(&self.site.name, SYSTEM, Arc::downgrade(&manager));
        observe::watch(self, tasks);
        let all = Arc::clone(self);
        tasks.spawn(async move {
            let cancel = all.site.cancel();
            let known = async {
                all.known().await;
                all.read_config().await
            };
            if cancel.run_until_cancelled(known).await.is_some() {
                all.everything_changed();
                all.queue_keepers().await;
                all.run().await;
            }
        });
    }

    /// All notes about guests are known.
    pub async fn noted_all(&self) {
        self.maps.seen.completed().await;
    }

    /// Waits until everything that guests depend on is known. A list that fipd may not read never comes, and shows at the cluster.
    async fn known(&self) {
        let (seen, provisioned) = (&self.seen, &self.sources.provisioned);
        let known = async {
            seen.clusters.completed().await;
            seen.namespaces.completed().await;
            self.noted_all().await;
            provisioned.completed().await;
            self.fips.completed().await;
            self.ranges.completed().await;
        };
        let notes = format!("configmaps in namespace {}", self.config_namespace());
        let missing = || {
            lists::missing(&[
                (seen.clusters.is_complete(), "clusters.management.cattle.io"),
                (seen.namespaces.is_complete(), "namespaces"),
                (provisioned.is_complete(), "clusters.provisioning.cattle.io"),
                (self.maps.seen.is_complete(), &*notes),
            ])
        };
        lists::complete(&self.site, known, "guests are not looked after", missing).await;
    }

    async fn run(self: &Arc<Self>) {
        let reconcile = (self, Self::reconcile);
        let guests = work_on(&self.site, "guest", (&self.queue, AT_ONCE), reconcile);
        let charts = (self, Self::reconcile_charts);
        let charts = work_on(&self.site, "charts", (&self.chart_queue, AT_ONCE), charts);
        tokio::join!(guests, charts, self.follow_config());
    }

    /// What holds for all guests at this moment.
    fn config(&self) -> Arc<GuestConfig> {
        Arc::clone(&self.config.read())
    }
}

impl GuestManager for VipGuests {
    fn put_into(&self, names: &[Text]) -> Option<bool> {
        if !self.maps.seen.is_complete() || !self.seen.clusters.is_complete() {
            return None;
        }
        let id = self.access.names.called(names);
        Some(id.is_some_and(|id| self.noted(&id).written))
    }
}
