//! Addresses for guest clusters that Rancher makes on Harvester, in the place of kube-fip-operator.
//!
//! ```text
//!  FloatingIPRange --> pool (mirror) --> FloatingIP --> lease --> its spec.ipaddress and status
//!                                             ^            |
//!                        new guest -----------+            +--> guest: ConfigMap, kube-vip, cloud provider
//! ```
//!
//! Ranges and FloatingIPs live in the cluster of Rancher. A FloatingIP is charged to its namespace (`CLUSTER/NAMESPACE`), which
//! is that of the guest. The original writes the address into `spec.ipaddress` and has no status: that is what adoption
//! believes of an object that fipd has not shown yet. The ranges are defined before anything is adopted, since they
//! decide the network of an address, and everything is adopted before the first new address.

mod adopt;
mod compat;
pub mod floating_ip;
pub mod guest;
mod held_for;
mod leaving;
mod lists;
pub mod metrics;
pub mod names;
mod operations;
mod original;
pub mod rancher;
pub mod range;
pub mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::System;
use futures::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    adopt::Takeover,
    clusters::{ClusterSession, adoption},
    config::{SystemConfig, operation::SystemOperation},
    controller::{
        address_user::inventory::AddressInventory,
        client::Remote,
        context::Context,
        queue::Queue,
        reconcile,
        reconcile::Controller,
        site::Site,
        store::{Key, Objects},
        tasks::{count, events_behind, finish, follow_pools, until},
    },
    detach::Leaving,
    system::{self, Means, OwnerRule, RunningSystem},
};
use adopt::KubeFipTakeover;
use floating_ip::{GuestFipController, GuestFloatingIps};
use guest::{VipGuests, VipMeans};
use metrics::VipSites;
use names::{FLOATING_IP, RANGE};
use rancher::RancherClusters;
use range::{RangeSource, Ranges};

/// How long the notes about guests are waited for before FloatingIPs are worked on.
const NOTES_WITHIN: Duration = Duration::from_secs(10);

/// The system.
pub struct KubeFip;

/// The system in a daemon.
#[derive(Clone)]
struct RunningKubeFip {
    means: Means,
    sites: VipSites,
}

impl system::System for KubeFip {
    fn config(&self) -> &'static SystemConfig {
        &settings::CONFIG
    }

    fn adopts(&self) -> Option<&'static str> {
        Some("Ranges and addresses of kube-fip-operator")
    }

    fn leaving(&self) -> &'static dyn Leaving {
        &leaving::KubeFipLeaving
    }

    fn start(&self, means: &Means) -> Arc<dyn RunningSystem> {
        Arc::new(RunningKubeFip {
            means: means.clone(),
            sites: means.shared.get(),
        })
    }
}

impl RunningSystem for RunningKubeFip {
    fn run(&self, session: ClusterSession) -> BoxFuture<'static, ()> {
        let site = Arc::new(Site::new(session, System::kube_fip()));
        Box::pin(serve(site, self.clone()))
    }

    fn held_for(&self, session: &ClusterSession) -> OwnerRule {
        held_for::rule(&self.sites, session)
    }

    fn takeover(&self) -> Option<Arc<dyn Takeover>> {
        Some(Arc::new(KubeFipTakeover {
            ipam: self.means.ipam.clone(),
            guests: self.means.guests.clone(),
        }))
    }

    fn rows(&self, _: &'static SystemOperation) -> BTreeMap<String, Value> {
        operations::ranges(&self.sites)
    }

    fn register_metrics(&self, registry: &mut Registry) {
        metrics::register(registry, self.sites.clone());
    }

    fn register_own_metrics(&self, registry: &mut Registry) {
        metrics::register_own(registry, self.sites.clone());
    }
}

async fn serve(site: Arc<Site>, system: RunningKubeFip) {
    let cancel = site.cancel();
    let remote = Remote::new(site.session.client.clone());
    if !original::wait_gone(&site, &remote).await {
        return;
    }
    let queue = Queue::<Key>::new();
    let events = events_behind(&site, &queue);
    let mut tasks = JoinSet::new();
    let clusters = RancherClusters::new(&site, &system.means);
    let attachments = Arc::clone(&clusters.attachments);
    let fips = Context::of_site(FLOATING_IP, &site, &events, &Objects::new()).with_queue(queue);
    let shown = Arc::clone(&fips.objects);
    let source = RangeSource::new(site.settings(), Some(attachments), shown);
    let ranges = Context::of_site(RANGE, &site, &events, &Objects::new());
    let ranges = Ranges::new(ranges, source);
    let fips = GuestFipController::new(fips, GuestFloatingIps::default());
    let ports = system.means.metrics_ports.get(settings::CONFIG.name);
    let guests = VipGuests::new(VipMeans {
        site: &site,
        events: &events,
        board: &system.means.guests,
        counts: system.sites.counts(),
        metrics_ports: ports.cloned().unwrap_or_default(),
        helm: system.means.helm.clone(),
        clusters: &clusters,
        fips: &fips.context().objects,
        ranges: &ranges.context().objects,
    });
    let known = fips.user.guests.set(Arc::downgrade(&guests));
    debug_assert!(known.is_ok(), "they have guests already");
    system.sites.guests.add(&site.name, Arc::downgrade(&guests));
    count(&site, "FloatingIPRanges", &ranges.context().objects);
    count(&site, "FloatingIPs", &fips.context().objects);
    watch(&site, &clusters, (&ranges, &fips, &guests), &mut tasks);
    tokio::select! {
        () = cancel.cancelled() => return,
        () = listed(&ranges, &fips) => {}
    }
    if let Ok(kinds) = original::without_status(&remote).await
        && !kinds.is_empty()
    {
        let why = original::statusless(&kinds, &site.name);
        tracing::warn!(cluster = %site.name, why, "fipd can show no status");
    }
    let undefined = "the ranges are no pools yet";
    if !clusters.listed(&site).await || !until(&cancel, undefined, || ranges.define_all()).await {
        return;
    }
    let inventory = AddressInventory(Arc::clone(&fips));
    if !site.adopt_first(&inventory).await {
        return;
    }
    ranges.context().queue_all();
    follow_pools(&ranges, &mut tasks);
    tasks.spawn(Arc::clone(&ranges).follow_links());
    guests.start(&mut tasks);
    // Without the notes about guests the addresses of deleted FloatingIPs stay for a minute longer.
    let noted = tokio::time::timeout(NOTES_WITHIN, guests.noted_all());
    tokio::select! {
        () = cancel.cancelled() => return,
        _ = noted => {}
    }
    reconcile::follow_and_work(&fips, &mut tasks);
    adoption::keep(&site.session, &site.system, &inventory).await;
    finish(tasks).await;
}

/// Waits until ranges and FloatingIPs are known.
async fn listed(ranges: &Ranges, fips: &GuestFipController) {
    let known = async {
        ranges.completed().await;
        fips.completed().await;
    };
    let (all_ranges, all_fips) = (&ranges.context().objects, &fips.context().objects);
    let missing = || {
        lists::missing(&[
            (
                all_ranges.is_complete(),
                "floatingipranges.kubefip.k8s.binbash.org",
            ),
            (
                all_fips.is_complete(),
                "floatingips.kubefip.k8s.binbash.org",
            ),
        ])
    };
    let site = &ranges.context().site;
    lists::complete(site, known, "no address is given", missing).await;
}

/// Follows the objects in Rancher, and tells the guests of them.
fn watch(
    site: &Arc<Site>,
    clusters: &RancherClusters,
    (ranges, fips, guests): (&Arc<Ranges>, &Arc<GuestFipController>, &Arc<VipGuests>),
    tasks: &mut JoinSet<()>,
) {
    let all = Arc::clone(guests);
    clusters.follow(site, tasks, move |key| all.cluster_changed(key));
    let (all, queue) = (Arc::clone(guests), Arc::clone(&ranges.context().queue));
    let view = |range| Some(range::view(range));
    ranges.context().follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.range_changed(key);
    });
    let (all, queue) = (Arc::clone(guests), Arc::clone(&fips.context().queue));
    let view = |fip| Some(floating_ip::view(fip));
    fips.context().follow(tasks, view, move |key| {
        queue.add(key.clone());
        all.fip_changed(key);
    });
}
