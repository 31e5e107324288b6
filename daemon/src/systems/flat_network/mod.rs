//! Addresses of pods on macvlan and ipvlan networks, in the place of rancher-flat-network's operator.
//!
//! ```text
//!  FlatNetworkSubnet --> pool (mirror) --+
//!  pod --> FlatNetworkIP ----------------+--> lease --> its status --> the node, and labels of the pod
//! ```
//!
//! The subnets are defined before anything is adopted, since they decide the network of an address, and everything is adopted
//! before the first new address.

mod admission;
mod adopt;
pub mod attachment;
mod compat;
pub mod endpoints;
mod facts;
pub mod ingress;
pub mod ip;
mod leaving;
mod metrics;
pub mod names;
mod operations;
pub mod pod;
pub mod service;
pub mod settings;
mod shared_pods;
pub mod subnet;
pub mod workload;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{System, Text};
use fipd_crds::flat_network::{FlatNetworkIP, FlatNetworkSubnet};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    admission::{Asks, Judge},
    adopt::Takeover,
    clusters::{ClusterSession, adoption},
    cni::{
        CniBoard,
        pods::{self, PodSites},
    },
    config::{SystemConfig, operation::SystemOperation},
    connected::Connected,
    controller::{
        address_user::inventory::AddressInventory,
        context::Context,
        events::Events,
        kind::POD,
        leader_election::{self, Wanted},
        meta::Meta,
        queue::Queue,
        reconcile,
        reconcile::Controller,
        site::Site,
        store::{Key, Objects},
        tasks::{self, count, events_behind, finish, follow_pools, until},
        webhook::{self, OwnUser},
    },
    detach::Leaving,
    system::{self, Means, RunningSystem},
};
use admission::{FlatClusters, FlatJudge};
use adopt::FlatTakeover;
use facts::ClusterFacts;
use ip::{FlatIpController, FlatIpView, FlatIps};
use names::{FAILED, FLAT_IP, OPERATOR, PROJECT, SUBNET_OBJECT};
use pod::{NamespaceView, PodController, observe::PodView};
use service::watches::ServiceWatches;
use settings::FlatNetworkSettings;
use subnet::{AcceptedSubnets, SubnetSource, SubnetView, Subnets};
use workload::{FlatModes, Workloads};

/// How long reservations may take before pods are served.
const RESERVED_WITHIN: Duration = Duration::from_secs(10);

/// The system.
pub struct FlatNetwork;

/// The system in a daemon.
#[derive(Clone)]
struct RunningFlatNetwork {
    means: Means,
    /// The pods, and by them the subnets and addresses, of each.
    sites: Connected<PodController>,
    judged: FlatClusters,
}

impl system::System for FlatNetwork {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn adopts(&self) -> Option<&'static str> {
        Some("Subnets and addresses of pods of rancher-flat-network")
    }

    fn asks(&self) -> Option<&'static Asks> {
        Some(&admission::ASKS)
    }

    #[cfg(any(test, feature = "fuzz"))]
    fn fuzz(&self) -> Option<crate::admission::FuzzJudge> {
        Some(admission::fuzz)
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::FlatNetworkLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(RunningFlatNetwork {
            means: means.clone(),
            sites: Connected::default(),
            judged: FlatClusters::default(),
        })
    }
}

impl RunningSystem for RunningFlatNetwork {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let running = self.clone();
        Box::pin(async move {
            let settings = session.settings.of::<FlatNetworkSettings>();
            let is_node = settings.node == Some(true);
            let subnets = Text::clone(&settings.namespace);
            let sites = running.means.shared.get::<PodSites>();
            let node = async {
                if is_node {
                    pods::serve(&sites, session.clone(), subnets).await;
                }
            };
            let decide = async {
                if !running.means.only_host {
                    running.lead(session.clone()).await;
                }
            };
            tokio::join!(node, decide);
        })
    }

    fn judge(&self) -> Option<Arc<dyn Judge>> {
        let clusters = self.judged.clone();
        Some(Arc::new(FlatJudge::new(self.means.ipam.clone(), clusters)))
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        Some(Arc::new(FlatTakeover {
            ipam: self.means.ipam.clone(),
            me: self.means.me.clone(),
        }))
    }

    fn rows(&self, list: &'static SystemOperation) -> BTreeMap<String, Value> {
        let health = self.means.shared.get::<CniBoard>().health();
        let node = self
            .means
            .host
            .as_ref()
            .map_or("this host", |host| &*host.node);
        operations::rows(&self.sites, (node, &health), list)
    }

    fn register_own_metrics(&self, registry: &mut Registry) {
        metrics::register_own(registry, self.sites.clone());
    }
}

impl RunningFlatNetwork {
    /// Serves a cluster for as long as the original does not.
    async fn lead(&self, session: ClusterSession) {
        let run = async |session| {
            let site = Arc::new(Site::new(session, System::flat_network()));
            serve(site, self.clone()).await;
        };
        let settings = session.settings.of::<FlatNetworkSettings>();
        if !settings.leader_elect {
            return run(session).await;
        }
        let wanted = Wanted {
            leases: vec![lease(settings)],
            me: self.means.me.clone(),
        };
        leader_election::while_held(&session, &System::flat_network(), &wanted, |_| {}, run).await;
    }
}

/// The Lease of the original's operator.
fn lease(settings: &FlatNetworkSettings) -> Key {
    Key::new(&settings.namespace, OPERATOR)
}

async fn serve(site: Arc<Site>, system: RunningFlatNetwork) {
    let cancel = site.cancel();
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let mut tasks = JoinSet::new();
    let settings = site.settings::<FlatNetworkSettings>();
    let ips = Context::of_site(FLAT_IP, &site, &events, &Objects::new()).with_queue(queue);
    let subnets = Context::<SubnetView>::of_site(SUBNET_OBJECT, &site, &events, &Objects::new());
    let ips = FlatIpController::new(ips, FlatIps::new(settings, &subnets.objects));
    let accepted = Arc::<AcceptedSubnets>::default();
    let source = SubnetSource {
        settings: settings.clone(),
        subnets: Arc::clone(&subnets.objects),
        ips: Arc::clone(&ips.context.objects),
        accepted: Arc::clone(&accepted),
    };
    let subnets = Subnets::new(subnets, source);
    let pods = Context::<PodView>::of_site(POD, &site, &events, &Objects::new());
    let known = (&subnets.context().objects, &accepted);
    let pods = PodController::new(pods, &ips, known);
    system.sites.add(&site.name, Arc::downgrade(&pods));
    count(&site, "FlatNetworkSubnets", &subnets.context().objects);
    count(&site, "FlatNetworkIPs", &ips.context.objects);
    count(&site, "interfaces of pods", &pods.context.objects);
    let services = Arc::<ServiceWatches>::default();
    watch(&site, (&subnets, &ips, &pods), &services, &mut tasks);
    let (webhook, own) = (&settings.webhook, &system.means.endpoint);
    webhook::keep(&admission::ASKS, webhook, own, &site, &events, &mut tasks);
    let known = async {
        subnets.context().objects.completed().await;
        ips.context.objects.completed().await;
    };
    tokio::select! {
        () = cancel.cancelled() => return,
        () = known => {}
    }
    let undefined = "the subnets are no pools yet";
    if !until(&cancel, undefined, || subnets.define_all()).await {
        return;
    }
    let inventory = AddressInventory(Arc::clone(&ips));
    if !site.adopt_first(&inventory).await {
        return;
    }
    subnets.context().queue_all();
    follow_pools(&subnets, &mut tasks);
    let workloads = begin_workloads(&site, &events, &pods, &mut tasks);
    // Addresses that they name are theirs before a pod that takes any gets one.
    let reserved = workloads.reserved(RESERVED_WITHIN);
    if cancel.run_until_cancelled(reserved).await.is_none() {
        return;
    }
    reconcile::follow_and_work(&ips, &mut tasks);
    if !begin_pods(&pods, &mut tasks).await {
        return;
    }
    follow_up(&site, &events, (&services, &ips), &mut tasks);
    tasks.spawn(admit(Arc::clone(&pods), system.judged.clone()));
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Begins with pods once namespaces are known: the project of a namespace is a label of its addresses. `false`: the session is
/// over.
async fn begin_pods(pods: &Arc<PodController>, tasks: &mut JoinSet<()>) -> bool {
    let cancel = pods.context.site.cancel();
    let known = pods.namespaces.completed();
    if cancel.run_until_cancelled(known).await.is_none() {
        return false;
    }
    pods.context.queue_all();
    let addressed = pods.ips.context.objects.keys().into_iter();
    addressed.for_each(|key| pods.context.queue.add(key));
    reconcile::work(pods, tasks);
    true
}

/// Questions of the cluster are judged once it is known what its API server calls fipd.
async fn admit(pods: Arc<PodController>, judged: FlatClusters) {
    let (site, user) = (Arc::clone(&pods.context.site), OwnUser::default());
    user.learn(&pods.context.remote, &site).await;
    if !site.cancel().is_cancelled() {
        judged.add(&site.name, Arc::new(ClusterFacts(pods, user)));
    }
}

/// What follows from the addresses of pods: Services, Ingresses and attachments.
fn follow_up(
    site: &Arc<Site>,
    events: &Arc<Events>,
    (services, ips): (&Arc<ServiceWatches>, &Arc<FlatIpController>),
    tasks: &mut JoinSet<()>,
) {
    services.follow(site, tasks);
    service::start(site, events, services, tasks);
    endpoints::start(site, events, services, &ips.context.objects, tasks);
    ingress::start(site, events, services, tasks);
    let config = site.settings::<FlatNetworkSettings>().attachment();
    attachment::start(site, events, &config, tasks);
}

/// Labels and reservations of workloads, which the pods know of.
fn begin_workloads(
    site: &Arc<Site>,
    events: &Arc<Events>,
    pods: &Arc<PodController>,
    tasks: &mut JoinSet<()>,
) -> Workloads {
    let of = Arc::downgrade(pods);
    let modes: FlatModes = Arc::new(move |name| {
        let subnet = of.upgrade()?.in_force(name)?;
        Some(subnet.kind.as_str().to_owned())
    });
    let known = (&modes, &pods.ips.context.objects);
    let workloads = workload::start(site, events, known, tasks);
    pods.ips.user.tell_workloads(workloads.clone());
    pods.tell_workloads(workloads.clone());
    workloads
}

/// Follows the objects of the cluster, and tells the pods of them.
fn watch(
    site: &Arc<Site>,
    (subnets, ips, pods): (&Arc<Subnets>, &Arc<FlatIpController>, &Arc<PodController>),
    services: &Arc<ServiceWatches>,
    tasks: &mut JoinSet<()>,
) {
    let (queue, all) = (Arc::clone(&subnets.context().queue), Arc::clone(pods));
    let view = |subnet: FlatNetworkSubnet| Some(SubnetView::of(subnet));
    subnets.context().follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.subnet_changed(&key.name);
        // What one was in the way of may be served now.
        let others = all.subnets.all().into_iter();
        let waiting = others.filter(|(_, other)| other.status.phase == FAILED);
        waiting.for_each(|(key, _)| queue.add(key));
    });
    let (queue, all) = (Arc::clone(&ips.context.queue), Arc::clone(pods));
    let (listing, led) = (Arc::clone(subnets), Arc::clone(services));
    let view = |ip: FlatNetworkIP| Some(FlatIpView::of(ip));
    ips.context.follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.address_changed(key);
        led.address_changed(key);
        // Its subnet lists the MAC.
        let named = all
            .ips
            .context
            .objects
            .get(key)
            .filter(|ip| !ip.spec.macs.is_empty());
        if let Some(ip) = named {
            let namespace = &all.settings.namespace;
            listing
                .context()
                .queue_status(Key::new(namespace, &ip.spec.subnet));
        }
    });
    // The address of a pod that is gone is free.
    let (queue, all) = (Arc::clone(&pods.context.queue), ip::queue(ips));
    let changed = move |key: &Key| {
        queue.add(key.clone());
        all(key);
    };
    shared_pods::follow(site, (&pods.context.objects, services), changed, tasks);
    let view = |namespace: Namespace| {
        let labels = namespace.metadata.labels.as_ref();
        Some(NamespaceView {
            project: labels.and_then(|all| all.get(PROJECT).cloned()),
            meta: Meta::of(&namespace.metadata),
        })
    };
    tasks::spawn(tasks, site, Arc::clone(&pods.namespaces), view, |_| {});
}
