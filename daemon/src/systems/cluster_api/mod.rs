//! An IPAM provider of Cluster API, in the place of the in-cluster provider, and the addresses of its clusters, in the place of
//! capi-vip-allocator.
//!
//! ```text
//!  InClusterIPPool, InClusterPrefixPool, ... --> pool (mirror) --+
//!  Pool of fipd ------------------------------------------------+--> IPAddressClaim --> lease --> IPAddress
//!  Cluster --> claims of its control plane and ingress -----------------^                            |
//!     ^------------------------------------------------------------------------------- endpoint -----+
//! ```
//!
//! fipd does nothing in a cluster until it holds the Leases of both programs. Pools are defined before anything is adopted,
//! since they decide the network of an address; every IPAddress is adopted before the first new one. Claims are served in
//! either version of their API, by what the cluster serves.

mod admission;
mod adopt;
pub mod claim;
mod compat;
mod conversion;
mod extension;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod hook;
mod leaving;
pub mod metrics;
pub mod names;
mod operations;
pub mod pool;
pub mod settings;
mod sites;
pub mod vip;

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Instant};

use fipd_core::{System, Text};
use fipd_crds::cluster_api::{
    Cluster, ClusterClass, GlobalInClusterIPPool, GlobalInClusterPrefixPool, IPAddress,
    IPAddressClaim, InClusterIPPool, InClusterPrefixPool,
};
use futures::future::BoxFuture;
use kube::Resource;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    admission::{Asks, Judge},
    adopt::Takeover,
    clock,
    clusters::{ClusterSession, adoption},
    config::{ClusterSettings, SystemConfig, operation::SystemOperation},
    controller::{
        context::Context,
        events::Events,
        kind::Kind,
        leader_election::{self, Wanted},
        pool_source::close_all,
        queue::Queue,
        reconcile,
        reconcile::Controller,
        site::Site,
        store::{Key, Objects},
        tasks::{count, events_behind, finish, follow_pools, until},
        webhook,
    },
    detach::Leaving,
    system::{self, Means, RunningSystem},
};
use admission::{KnownClusters, PoolJudge};
use adopt::IpamTakeover;
use claim::{IpClaimController, IpClaims, inventory::IpamInventory, observe::AddressView};
use hook::{BlockedClusters, HookAnswer};
use metrics::VipCounts;
use names::{
    ADDRESS_OBJECT, CLAIM, CLUSTER, CLUSTER_CLASS_OBJECT, GLOBAL_POOL, GLOBAL_PREFIX_POOL,
    IN_CLUSTER_LEASE, POOL, PREFIX_POOL, VIP_ALLOCATOR_LEASE,
};
use pool::{
    InClusterPools, InClusterSource, InClusterView, OFF, definition::report_missing,
    growth::PoolUsers,
};
use settings::ClusterApiSettings;
use sites::IpamSites;
use vip::{CapiClusterView, ClassView, VipController};

/// The system.
pub struct ClusterApi;

/// The system in a daemon.
#[derive(Clone)]
struct RunningClusterApi {
    means: Means,
    sites: IpamSites,
    known: KnownClusters,
    counts: VipCounts,
    blocked: Arc<BlockedClusters>,
    /// What the configuration says of each cluster that is to have the system, whether reached or not.
    settings: Arc<RwLock<BTreeMap<Text, ClusterApiSettings>>>,
}

impl system::System for ClusterApi {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn adopts(&self) -> Option<&'static str> {
        Some(
            "Pools, claims and addresses of Cluster API's in-cluster provider and of capi-vip-allocator",
        )
    }

    fn asks(&self) -> Option<&'static Asks> {
        Some(&admission::ASKS)
    }

    #[cfg(any(test, feature = "fuzz"))]
    fn fuzz(&self) -> Option<crate::admission::FuzzJudge> {
        Some(admission::judge)
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::ClusterApiLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(RunningClusterApi {
            means: means.clone(),
            sites: IpamSites::default(),
            known: KnownClusters::default(),
            counts: VipCounts::default(),
            blocked: Arc::default(),
            settings: Arc::default(),
        })
    }
}

impl RunningSystem for RunningClusterApi {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let running = self.clone();
        Box::pin(async move { running.lead(session).await })
    }

    fn set_clusters(&self, clusters: &BTreeMap<&Text, &ClusterSettings>) {
        let clusters = clusters.iter();
        let known =
            clusters.map(|(name, one)| (Text::clone(name), one.of::<ClusterApiSettings>().clone()));
        *self.settings.write() = known.collect();
    }

    fn hook(&self, cluster: &str, path: &str, body: &[u8]) -> Option<Value> {
        let began = Instant::now();
        let settings = self.settings.read();
        if path == conversion::PATH {
            return settings.get(cluster).map(|_| conversion::answer(body));
        }
        let settings = settings.get(cluster)?;
        let answer = hook::answer(settings, &self.blocked, path, body, clock::now())?;
        if answer["kind"] == format!("{}Response", hook::BEFORE_CREATE) {
            let meant = HookAnswer::of(&answer);
            self.counts
                .answered(hook::BEFORE_CREATE, meant, began.elapsed());
        }
        Some(answer)
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        Some(Arc::new(PoolJudge {
            ipam: self.means.ipam.clone(),
            clusters: self.known.clone(),
        }))
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        Some(Arc::new(IpamTakeover {
            ipam: self.means.ipam.clone(),
            me: self.means.me.clone(),
            own: self.means.endpoint.clone(),
        }))
    }

    fn register_metrics(&self, registry: &mut Registry) {
        metrics::register(registry, self.sites.clone(), &self.counts);
    }

    fn register_own_metrics(&self, registry: &mut Registry) {
        metrics::register_own(registry, self.sites.clone(), &self.counts);
    }

    fn rows(&self, list: &'static SystemOperation) -> BTreeMap<String, Value> {
        operations::rows(&self.sites, list)
    }
}

impl RunningClusterApi {
    /// Serves a cluster for as long as no other program does.
    async fn lead(&self, session: ClusterSession) {
        let run = |session| {
            serve(
                Arc::new(Site::new(session, System::cluster_api())),
                self.clone(),
            )
        };
        let settings = session.settings.of::<ClusterApiSettings>();
        let cluster = &session.name;
        if !settings.leader_elect {
            self.sites.lead(cluster, None);
            return run(session).await;
        }
        self.sites.lead(cluster, Some(false));
        let run = async |session| {
            self.sites.lead(cluster, Some(true));
            run(session).await;
            self.sites.lead(cluster, Some(false));
        };
        let wanted = Wanted {
            leases: leases(settings),
            me: self.means.me.clone(),
        };
        leader_election::while_held(&session, &System::cluster_api(), &wanted, |_| {}, run).await;
        if session.cancel.is_cancelled() {
            self.sites.lead(cluster, None);
        }
    }
}

/// The Leases of the programs that fipd stands in for, as the settings say.
fn leases(settings: &ClusterApiSettings) -> Vec<Key> {
    let in_cluster = settings.serves_in_cluster_kinds();
    let provider = Key::new(&settings.in_cluster_lease_namespace, IN_CLUSTER_LEASE);
    let allocator = Key::new(&settings.vip_allocator_lease_namespace, VIP_ALLOCATOR_LEASE);
    let provider = in_cluster.then_some(provider);
    provider
        .into_iter()
        .chain(settings.vips.then_some(allocator))
        .collect()
}

/// The controllers of the pools of addresses and of prefixes, namespaced and not.
struct AllPools {
    addresses: [Arc<InClusterPools<false>>; 2],
    prefixes: [Arc<InClusterPools<true>>; 2],
}

async fn serve(site: Arc<Site>, system: RunningClusterApi) {
    let cancel = site.cancel();
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let mut tasks = JoinSet::new();
    let settings = site.settings::<ClusterApiSettings>();
    if !settings.serves_in_cluster_kinds()
        && let Err(error) = close_all(&site, OFF).await
    {
        tracing::warn!(cluster = %site.name, "pools of its objects are not closed yet: {error}");
    }
    let users = PoolUsers::default();
    let pools = AllPools::new(&site, &events, &users);
    let user = IpClaims::new(pools.stores(), &users, &system.means.prober);
    let context = Context::of_site(CLAIM, &site, &events, &Objects::new()).with_queue(queue);
    let claims = IpClaimController::new(context, user);
    count(&site, "IPAddressClaims", &claims.context.objects);
    count(&site, "IPAddresses", &claims.user.addresses);
    let clusters = Context::of_site(CLUSTER, &site, &events, &claims.user.clusters);
    let vips = VipController::new(clusters, &claims, &system.counts);
    system.sites.vips.add(&site.name, Arc::downgrade(&vips));
    count(&site, "Clusters", &claims.user.clusters);
    watch(&site, (&claims, &vips), &pools, &events, &mut tasks);
    let serves = settings.serves_in_cluster_kinds();
    keep_webhooks(&site, &system, &events, &mut tasks);
    let known = async {
        pools.completed().await;
        claims.user.addresses.completed().await;
        claims.completed().await;
        if !serves {
            // Whether what the in-cluster provider allocated is a Cluster's.
            claims.user.clusters.completed().await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => return,
        () = known => {}
    }
    let define = || pools.define_all();
    if serves && !until(&cancel, "the pools are not defined yet", define).await {
        return;
    }
    let inventory = IpamInventory::new(&claims, &vips);
    let adopted = *site.ipam.growth().borrow();
    if !site.adopt_first(&inventory).await {
        return;
    }
    if serves {
        system.known.add(&site.name, &site.id);
        pools.start(&mut tasks);
    }
    reconcile::follow_and_work(&claims, &mut tasks);
    extension::keep(&site, &system.means.endpoint, &mut tasks);
    // It begins once the Clusters are known, where there are such. With `vips = false` it keeps what they show from others.
    reconcile::follow_and_work(&vips, &mut tasks);
    vips.keep_looking_out(adopted, &mut tasks);
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Keeps what has API servers ask fipd about pools, or takes it away where another provider serves those.
fn keep_webhooks(
    site: &Arc<Site>,
    system: &RunningClusterApi,
    events: &Arc<Events>,
    tasks: &mut JoinSet<()>,
) {
    let settings = site.settings::<ClusterApiSettings>();
    let own = &system.means.endpoint;
    let mut webhook = settings.webhook.clone();
    if !settings.serves_in_cluster_kinds() {
        webhook.enabled = Some(false);
        // Without the right to remove it fipd is asked still.
        system.known.leave(&site.name);
    }
    // The original's goes once this one is in force, and until then may keep pools from being read and written.
    webhook::keep(&admission::ASKS, &webhook, own, site, events, tasks);
    // Whoever serves the pools: an earlier setting may have fipd convert them.
    conversion::definition::keep(site, own, tasks);
}

impl AllPools {
    fn new(site: &Arc<Site>, events: &Arc<Events>, users: &PoolUsers) -> Self {
        let context = |kind| Context::of_site(kind, site, events, &Objects::new());
        Self {
            addresses: [POOL, GLOBAL_POOL].map(|kind| pools(context(kind), users)),
            prefixes: [PREFIX_POOL, GLOBAL_PREFIX_POOL].map(|kind| pools(context(kind), users)),
        }
    }

    fn contexts(&self) -> [&Context<InClusterView>; 4] {
        let [one, two] = &self.addresses;
        let [three, four] = &self.prefixes;
        [
            one.context(),
            two.context(),
            three.context(),
            four.context(),
        ]
    }

    fn stores(&self) -> Vec<(Kind, Arc<Objects<InClusterView>>)> {
        let stores = self.contexts().into_iter();
        stores
            .map(|context| (context.kind, Arc::clone(&context.objects)))
            .collect()
    }

    async fn completed(&self) {
        for context in self.contexts() {
            context.objects.completed().await;
        }
    }

    async fn define_all(&self) -> crate::controller::Reconciled<()> {
        for pools in &self.addresses {
            pools.define_all().await?;
        }
        for pools in &self.prefixes {
            pools.define_all().await?;
        }
        Ok(())
    }

    fn start(&self, tasks: &mut JoinSet<()>) {
        for context in self.contexts() {
            context.queue_all();
        }
        self.addresses
            .iter()
            .for_each(|pools| follow_pools(pools, tasks));
        self.prefixes
            .iter()
            .for_each(|pools| follow_pools(pools, tasks));
    }
}

fn pools<const PREFIXES: bool>(
    context: Context<InClusterView>,
    users: &PoolUsers,
) -> Arc<InClusterPools<PREFIXES>> {
    let settings = context.site.settings::<ClusterApiSettings>().clone();
    let users = users.clone();
    InClusterPools::new(context, InClusterSource { settings, users })
}

/// Follows the objects of the cluster, and tells the claims of them.
fn watch(
    site: &Arc<Site>,
    (claims, vips): (&Arc<IpClaimController>, &Arc<VipController>),
    pools: &AllPools,
    events: &Arc<Events>,
    tasks: &mut JoinSet<()>,
) {
    let [addresses, global_addresses, prefixes, global_prefixes] = pools.contexts();
    pools_of::<InClusterIPPool>(addresses, InClusterView::addresses, vips, tasks);
    let view = InClusterView::global_addresses;
    pools_of::<GlobalInClusterIPPool>(global_addresses, view, vips, tasks);
    pools_of::<InClusterPrefixPool>(prefixes, InClusterView::prefixes, vips, tasks);
    let view = InClusterView::global_prefixes;
    pools_of::<GlobalInClusterPrefixPool>(global_prefixes, view, vips, tasks);
    let (waiting, queue) = (Arc::clone(claims), Arc::clone(&vips.context.queue));
    let view = |cluster: Cluster| Some(CapiClusterView::of(cluster));
    vips.context.follow(tasks, view, move |key| {
        wake(&waiting, CLUSTER, key);
        queue.add(key.clone());
    });
    let objects = Context::of_site(ADDRESS_OBJECT, site, events, &claims.user.addresses);
    let (queue, all) = (Arc::clone(&claims.context.queue), Arc::clone(vips));
    let view = |address: IPAddress| Some(AddressView::of(address));
    objects.follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.claim_changed(key);
    });
    let here = Arc::clone(claims);
    let view = move |claim: IPAddressClaim| IpClaims::view_of(&here, claim);
    let (queue, all) = (Arc::clone(&claims.context.queue), Arc::clone(vips));
    claims.context.follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.claim_changed(key);
    });
    if site.settings::<ClusterApiSettings>().vips {
        let classes = Context::of_site(CLUSTER_CLASS_OBJECT, site, events, &vips.classes);
        let all = Arc::clone(vips);
        let view = |class: ClusterClass| Some(ClassView::of(class));
        classes.follow(tasks, view, move |key| all.class_changed(key));
    }
}

/// Follows the pools of a kind in the namespaces that are fipd's.
fn pools_of<K>(
    context: &Context<InClusterView>,
    view: fn(K) -> InClusterView,
    vips: &Arc<VipController>,
    tasks: &mut JoinSet<()>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (queue, kind) = (Arc::clone(&context.queue), context.kind);
    let (site, waiting) = (Arc::clone(&context.site), Arc::clone(vips));
    if site
        .settings::<ClusterApiSettings>()
        .serves_in_cluster_kinds()
    {
        let objects = Arc::clone(&context.objects);
        tasks.spawn(report_missing(Arc::clone(&site), kind, objects));
    }
    let view = move |pool: K| {
        let namespace = pool.meta().namespace.as_deref().unwrap_or_default();
        let settings = site.settings::<ClusterApiSettings>();
        settings.looks_at_pools_of(namespace).then(|| view(pool))
    };
    context.follow(tasks, view, move |key| {
        queue.add(key.clone());
        wake(&waiting.claims, kind, key);
        waiting.pool_changed(kind, key);
    });
}

/// Queues the claims that wait for an object.
fn wake(claims: &IpClaimController, kind: Kind, key: &Key) {
    let waiting = claims
        .context
        .waiters
        .waiting_on(kind.kind, key)
        .into_iter();
    waiting.for_each(|claim| claims.context.queue.add(claim));
}
