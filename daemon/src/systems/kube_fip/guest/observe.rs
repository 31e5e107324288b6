//! What is kept of the objects in Rancher that say which guests there are.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::Text;
use fipd_crds::{
    kube_fip::{GUEST_RANGE, KUBE_VIP},
    labels::FLEET_NAMESPACE,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, core::PartialObjectMeta as Named};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{VipGuests, range_choice::RangeOffer};
use crate::{
    controller::{
        store::{Key, Objects},
        tasks::spawn,
    },
    guests::{
        clusters::ManagedCluster,
        hosting::{MarkKey, Provisioned},
        sources::{GuestListener, GuestSources},
    },
};

/// ConfigMap of the original.
pub const CONFIG: &str = "kube-fip-config";

/// The namespace of a guest that the original looks at.
const GUEST_PREFIX: &str = "c-m-";

/// The objects of one connection to Rancher.
pub struct VipObjects {
    /// By Rancher's id of the cluster.
    pub clusters: Arc<Objects<ManagedCluster>>,
    /// Those of guests.
    pub namespaces: Arc<Objects<()>>,
    /// What each range said last.
    offers: Mutex<BTreeMap<Key, RangeOffer>>,
}

impl VipObjects {
    pub fn new(clusters: &Arc<Objects<ManagedCluster>>) -> Self {
        Self {
            clusters: Arc::clone(clusters),
            namespaces: Objects::new(),
            offers: Mutex::default(),
        }
    }
}

/// Labels and annotations of provisioning Clusters that are read.
pub const READS: &[MarkKey] = &[MarkKey::Label(KUBE_VIP), MarkKey::Annotation(GUEST_RANGE)];

/// The objects that say how guests were made.
pub fn sources() -> GuestSources {
    GuestSources {
        reads: READS,
        ..GuestSources::default()
    }
}

/// Follows all of them, and says which guests each change is about.
pub fn watch(guests: &Arc<VipGuests>, tasks: &mut JoinSet<()>) {
    let (site, seen) = (&*guests.site, &guests.seen);
    guests.sources.watch(site, guests, tasks);
    let all = Arc::clone(guests);
    let view = |namespace: Named<Namespace>| is_guest(&namespace.name_any()).then_some(());
    spawn(
        tasks,
        site,
        Arc::clone(&seen.namespaces),
        view,
        move |key| {
            all.queue.add(key.clone());
        },
    );
    let all = Arc::clone(guests);
    guests.maps.follow(site, tasks, move |key| {
        if &*key.name == CONFIG {
            all.config_noticed.notify_one();
        }
    });
}

/// Whether a cluster of this id is a guest that the system looks after.
pub fn is_guest(id: &str) -> bool {
    id.starts_with(GUEST_PREFIX)
}

impl VipGuests {
    /// Every guest may have to be looked at.
    pub fn everything_changed(&self) {
        let clusters = self.seen.clusters.keys().into_iter();
        let noted = self.noted_ids().into_iter().map(|id| Key::new("", &id));
        clusters
            .chain(noted)
            .filter(|key| is_guest(&key.name))
            .for_each(|key| self.queue.add(key));
    }

    /// Guests that have had no FloatingIP yet may get their first one. For others nothing is chosen any more.
    fn choice_changed(&self) {
        let clusters = self.seen.clusters.keys().into_iter();
        clusters
            .filter(|key| is_guest(&key.name) && !self.noted(&key.name).served)
            .for_each(|key| self.queue.add(key));
    }

    /// A FloatingIP changed: it is in the namespace of its guest.
    pub fn fip_changed(&self, key: &Key) {
        self.queue.add(Key::new("", &key.namespace));
    }

    /// Logs what each FloatingIP of a guest says and has.
    pub(super) fn trace(&self, id: &str) {
        for (key, fip) in self.fips_in(id) {
            let held = self.lease(&key, &fip).map(|lease| lease.address);
            let (said, range) = (&*fip.wanted, fip.range.as_deref().unwrap_or_default());
            tracing::info!(namespace = %key.namespace, name = %key.name, range, said, ?held, "FloatingIP");
        }
    }

    /// Guests that wait for a range may have one. Its status, which changes with every address, is nothing to them.
    pub fn range_changed(&self, key: &Key) {
        let range = self.ranges.get(key);
        let offer = range.and_then(|range| RangeOffer::of(key, &range));
        let mut known = self.seen.offers.lock();
        let before = match offer.clone() {
            Some(offer) => known.insert(key.clone(), offer),
            None => known.remove(key),
        };
        drop(known);
        if before != offer {
            self.choice_changed();
        }
    }

    pub fn cluster_changed(&self, key: &Key) {
        match self.seen.clusters.get(key) {
            // It is known to its guests by its display name.
            Some(cluster) if cluster.harvester => self.everything_changed(),
            Some(_) | None => {
                self.queue.add(key.clone());
                self.charts_changed(key);
            }
        }
    }

    /// Queues the charts of a guest: its engine may have changed. Without this, finished charts are looked at only after the
    /// interval.
    fn charts_changed(&self, key: &Key) {
        if is_guest(&key.name) {
            self.chart_queue.add(key.clone());
        }
    }

    /// Queues every guest after a change of the configuration.
    pub(super) fn config_changed(&self) {
        self.everything_changed();
        let clusters = self.seen.clusters.keys();
        clusters.iter().for_each(|key| self.charts_changed(key));
    }

    /// The provisioning Cluster of a guest, by its id and display name.
    pub(super) fn made_by(&self, id: &str) -> Option<(Key, Arc<Provisioned>)> {
        let cluster = self.seen.clusters.get(&Key::new("", id))?;
        self.sources.provisioned_of(id, &cluster.display_name)
    }
}

impl GuestListener for VipGuests {
    fn provisioned_changed(&self, key: &Key) {
        let provisioned = self.sources.provisioned.get(key);
        let id = provisioned.and_then(|one| one.id.clone());
        let names = [Text::clone(&key.name)];
        for id in id.into_iter().chain(self.access.names.called(&names)) {
            self.queue.add(Key::new("", &id));
        }
    }

    fn machines_changed(&self) {
        self.choice_changed();
    }

    fn kubeconfig_changed(&self, name: &str) {
        self.provisioned_changed(&Key::new(FLEET_NAMESPACE, name));
    }
}
