//! What is known of a Rancher management cluster: pools, project quotas and FloatingIPs. Filled by the
//! management role, read by the Service controllers of the downstream clusters; stays when Rancher goes down.

mod all;
mod pool_names;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use fipd_core::{ClusterId, Tenant, Text};
use fipd_crds::floating_ip::{FloatingIPPool, FloatingIPProjectQuota};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    clusters::RancherCluster,
    floating_ip::observe::Fip,
    names::ServiceRef,
    stock::{FipIndex, Stock, User},
};
use crate::controller::{
    Reconciled,
    attachments::Attachments,
    client::Remote,
    context::Context,
    events::Events,
    kind::Kind,
    site::Site,
    store::{Key, Objects},
};
use crate::guests::names::ClusterNames;
use crate::{guests::homes::GuestHomes, systems::rancher_fip::admission::Admits};

pub use all::Ranchers;
pub use pool_names::{NoDefault, annotation, is_default};

/// How long a start waits to hear who leads in Rancher.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// One management cluster, whether connected or not.
#[derive(Default)]
pub struct Rancher {
    /// The last connection that listed everything.
    data: watch::Sender<Option<Arc<Data>>>,
    /// The clusters that listen.
    guests: Mutex<BTreeMap<ClusterId, Arc<dyn Guest>>>,
    /// Told when a cluster begins to listen.
    pub came: Notify,
    /// Whether another program leads there; `None` until that is known.
    led_elsewhere: watch::Sender<Option<bool>>,
    /// What the admission webhook is told, while the cluster is served.
    admits: Mutex<Option<Arc<Admits>>>,
}

/// What one connection to a management cluster has seen.
pub struct Data {
    pub cluster: ClusterId,
    pub remote: Remote,
    pub pools: Arc<Objects<FloatingIPPool>>,
    /// By project id.
    pub quotas: Arc<Objects<FloatingIPProjectQuota>>,
    pub fips: Arc<Objects<Fip>>,
    /// By Rancher's id of the cluster.
    pub clusters: Arc<Objects<RancherCluster>>,
    pub names: Arc<ClusterNames>,
    pub homes: GuestHomes,
    /// Display names of projects, each in the namespace of the cluster that owns it.
    pub projects: Arc<Objects<String>>,
    /// What each pool said when it was last looked at: generation and annotations.
    said: Mutex<BTreeMap<Key, Said>>,
    /// The FloatingIPs that show the leases of a Service.
    pub shown: FipIndex<(ClusterId, Key)>,
    pub stock: Stock,
    /// The links of pools that are for networks of Harvester clusters.
    pub attachments: OnceLock<Arc<Attachments>>,
    /// Ends with the session, and before that when the leadership is lost.
    over: CancellationToken,
}

type Said = (Option<i64>, BTreeMap<String, String>);

/// A downstream cluster that hears of changes and is asked who uses an address.
pub trait Guest: Send + Sync {
    /// Rancher's id of the cluster.
    fn rancher_id(&self) -> Option<String>;

    /// Pools or defaults changed in Rancher, or it is back.
    fn pools_changed(&self);

    /// The FloatingIP that shows the lease of this Service changed.
    fn fip_changed(&self, service: &Key);

    /// Another program made a FloatingIP for this Service, or does not any more.
    fn stock_changed(&self, service: &Key);

    /// The Service with the address in its status, by the complete list that is watched. Looks at all Services.
    fn shows(&self, address: IpAddr) -> Option<ServiceRef>;

    /// The project that a Service is charged to; `None`: that is not known.
    fn charged_to(&self, service: &ServiceRef) -> Option<Tenant>;

    /// Which of these Services shows the address, by fresh reads. An error: the cluster does not answer.
    fn ask<'a>(
        &'a self,
        services: &'a [Key],
        address: IpAddr,
    ) -> BoxFuture<'a, Reconciled<Option<ServiceRef>>>;
}

impl Rancher {
    /// What the last complete connection has seen; `None` before the first.
    pub fn data(&self) -> Option<Arc<Data>> {
        self.data.borrow().clone()
    }

    /// Waits for the first complete connection.
    pub async fn published(&self) {
        let mut data = self.data.subscribe();
        // The sender lives in self: it cannot go away while this waits.
        let _ = data.wait_for(Option::is_some).await;
    }

    /// Takes over what a new connection has listed.
    pub fn publish(&self, data: Arc<Data>) {
        self.data.send_replace(Some(data));
        self.pools_changed();
    }

    /// The admission webhook may judge by this from now on.
    pub fn admit(&self, admits: Arc<Admits>) {
        *self.admits.lock() = Some(admits);
    }

    /// Another program leads there, or fipd does.
    pub fn led_elsewhere(&self, elsewhere: bool) {
        self.led_elsewhere.send_if_modified(|known| {
            let before = known.replace(elsewhere);
            before != *known
        });
    }

    /// Waits until no other program is known to lead there. A cluster that does not say is not waited for.
    pub async fn free(&self) {
        let mut elsewhere = self.led_elsewhere.subscribe();
        // The sender lives in self: it cannot go away while this waits.
        let known = elsewhere.wait_for(Option::is_some);
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await.is_ok();
        let _ = elsewhere.wait_for(|known| *known != Some(true)).await;
    }

    /// Waits until another program is known to lead there.
    pub async fn taken(&self) {
        let mut elsewhere = self.led_elsewhere.subscribe();
        let _ = elsewhere.wait_for(|known| *known == Some(true)).await;
    }

    /// Tells changes from now on.
    pub fn listen(&self, cluster: ClusterId, guest: Arc<dyn Guest>) {
        self.guests.lock().insert(cluster, guest);
        self.came.notify_one();
    }

    /// The end of [`Self::listen`].
    pub fn forget(&self, cluster: &ClusterId) {
        self.guests.lock().remove(cluster);
    }

    pub fn pools_changed(&self) {
        let guests = self.guests.lock();
        guests.values().for_each(|guest| guest.pools_changed());
    }

    /// Rancher's id of a cluster that listens.
    pub fn id_of(&self, cluster: &ClusterId) -> Option<String> {
        self.guests.lock().get(cluster)?.rancher_id()
    }

    /// The cluster that Rancher calls so, if it listens.
    pub fn guest_called(&self, called: &str) -> Option<(ClusterId, Arc<dyn Guest>)> {
        let guests = self.guests.lock();
        let mut guests = guests.iter();
        let is_called = |guest: &Arc<dyn Guest>| guest.rancher_id().as_deref() == Some(called);
        let (cluster, guest) = guests.find(|(_, guest)| is_called(guest))?;
        Some((cluster.clone(), Arc::clone(guest)))
    }

    /// A cluster that listens.
    pub fn guest(&self, cluster: &ClusterId) -> Option<Arc<dyn Guest>> {
        self.guests.lock().get(cluster).cloned()
    }

    /// All clusters that listen.
    pub fn guests(&self) -> Vec<Arc<dyn Guest>> {
        self.guests.lock().values().cloned().collect()
    }

    /// The clusters that listen and are known to be others than the one that Rancher calls so.
    pub fn others(&self, called: Option<&str>) -> BTreeSet<ClusterId> {
        let guests = self.guests.lock();
        let others = guests
            .iter()
            .filter(|(_, guest)| guest.rancher_id().is_some_and(|id| Some(&*id) != called));
        others.map(|(cluster, _)| cluster.clone()).collect()
    }

    /// What another program made for these Services changed.
    pub fn stock_changed(&self, users: &BTreeSet<User>) {
        if users.is_empty() {
            return;
        }
        for guest in self.guests.lock().values() {
            let id = guest.rancher_id();
            let users = users.iter();
            let ours = users.filter(|(cluster, _)| Some(cluster) == id.as_ref());
            ours.for_each(|(_, service)| guest.stock_changed(service));
        }
    }

    pub fn fip_changed(&self, (cluster, service): &(ClusterId, Key)) {
        if let Some(guest) = self.guests.lock().get(cluster) {
            guest.fip_changed(service);
        }
    }
}

impl Data {
    /// `over` is cancelled when the connection, or the leadership of this daemon there, ends.
    pub fn new(cluster: ClusterId, remote: Remote, over: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            remote,
            pools: Objects::new(),
            quotas: Objects::new(),
            fips: Objects::new(),
            clusters: Objects::new(),
            names: Arc::default(),
            homes: GuestHomes::default(),
            projects: Objects::new(),
            said: Mutex::new(BTreeMap::new()),
            shown: FipIndex::default(),
            stock: Stock::default(),
            attachments: OnceLock::new(),
            over,
        })
    }

    /// What a controller has for these objects.
    pub fn context<V: PartialEq + Debug>(
        &self,
        kind: Kind,
        site: &Arc<Site>,
        events: &Arc<Events>,
        objects: &Arc<Objects<V>>,
    ) -> Context<V> {
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        Context::new(kind, site, self.remote.clone(), events, Arc::clone(objects))
    }

    /// Whether this daemon decides there, and by this connection.
    pub fn leads(&self) -> bool {
        !self.over.is_cancelled()
    }

    /// Waits until it does not any more.
    pub async fn deposed(&self) {
        self.over.cancelled().await;
    }

    /// Whether a pool appeared, went, or differs in more than its status from the last look.
    pub fn pool_means_something_else(&self, key: &Key) -> bool {
        let now = self.pools.get(key).map(|pool| {
            (
                pool.metadata.generation,
                pool.metadata.annotations.clone().unwrap_or_default(),
            )
        });
        let mut said = self.said.lock();
        let before = match &now {
            Some(now) => said.insert(key.clone(), now.clone()),
            None => said.remove(key),
        };
        before != now
    }

    /// The FloatingIPs that show the leases of a Service.
    pub fn fips_of(&self, cluster: &ClusterId, service: &Key) -> Vec<(Key, Arc<Fip>)> {
        self.fips_at(self.shown.of(&(cluster.clone(), service.clone())))
    }

    /// The FloatingIPs that another program made for a Service of the cluster that Rancher calls so.
    pub fn made_for(&self, cluster: &str, service: &Key) -> Vec<(Key, Arc<Fip>)> {
        self.fips_at(self.stock.made_for(Some(cluster), service))
    }

    fn fips_at(&self, keys: BTreeSet<Key>) -> Vec<(Key, Arc<Fip>)> {
        let found = keys.into_iter().filter_map(|key| {
            let fip = self.fips.get(&key)?;
            Some((key, fip))
        });
        found.collect()
    }

    pub fn display_name(&self, project: &str) -> Option<String> {
        let quota = self.quotas.get(&Key::new("", project));
        quota.map(|quota| quota.spec.display_name.clone())
    }

    /// What people call a project: as its quota has it, else as Rancher does.
    pub fn project_called(&self, project: &str) -> Option<String> {
        let named = |name: &String| !name.is_empty();
        let projects = self.projects.all().into_iter();
        let mut of = projects.filter(|(key, name)| *key.name == *project && named(name));
        let quota = self.display_name(project).filter(named);
        quota.or_else(|| of.next().map(|(_, name)| name.to_string()))
    }

    /// The namespace of a project that Services of this cluster are charged to. The guests of a Harvester
    /// cluster are charged to projects of that one.
    pub fn namespace_of(&self, project: &str, cluster: &str) -> Option<String> {
        if self.projects.get(&Key::new(cluster, project)).is_some() {
            return Some(cluster.to_owned());
        }
        self.namespaces_of(project).into_iter().next()
    }

    /// The namespaces that have a project of this id: one, unless ids clash.
    pub fn namespaces_of(&self, project: &str) -> Vec<String> {
        let keys = self.projects.keys().into_iter();
        keys.filter(|key| *key.name == *project)
            .map(|key| key.namespace.to_string())
            .collect()
    }

    /// A cluster of Rancher appeared, changed or went.
    pub fn cluster_changed(&self, key: &Key) {
        let cluster = self.clusters.get(key);
        let display = cluster.as_ref().map(|cluster| &*cluster.display_name);
        self.names.note(&key.name, display);
        if let Some(attachments) = self.attachments.get() {
            attachments.touch();
        }
    }

    /// All names of the clusters that go by one of these names.
    pub fn clusters_called(&self, names: &[Text]) -> Vec<Text> {
        let Some(id) = self.names.called(names) else {
            return Vec::new();
        };
        let cluster = self.clusters.get(&Key::new("", &id));
        let display = cluster
            .filter(|cluster| !cluster.display_name.is_empty())
            .map(|cluster| Text::from(cluster.display_name.as_str()));
        std::iter::once(Text::from(id)).chain(display).collect()
    }
}
