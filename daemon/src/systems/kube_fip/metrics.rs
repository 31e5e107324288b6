//! The series of the original, by its names and labels, and fipd's own of the system.
//!
//! Where several Ranchers are connected every series has one label more, `cluster`: two of them may call their ranges alike.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Ledger, Pool, PoolUsage, words};
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use serde::Serialize;

use super::{
    guest::{SYSTEM, VipGuests},
    range::RangeView,
};
use crate::{
    connected::Connected,
    controller::store::Key,
    metrics::series::{Labels, Series, Values, encode_connected, live, with},
};

words! {
    /// What the original counts of a guest.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum GuestEvent {
        ApiConnection = "api_connection",
        ConfigMap = "configmap_management",
        KubeVip = "kubevip_install",
        CloudProvider = "kubevipcloudprovider_install",
    }
}

/// What was done about charts, by chart, operation and result.
type ChartOperations = Family<[(&'static str, &'static str); 3], Counter>;

/// What happened in the guests of one Rancher.
#[derive(Default)]
pub struct VipCounts {
    /// By Rancher's ids of them.
    guests: Mutex<BTreeMap<String, GuestCounts>>,
    operations: ChartOperations,
}

/// What happened in one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GuestCounts {
    /// Name of the provisioning Cluster.
    name: String,
    /// Display name of the Harvester cluster that its range is for.
    harvester: String,
    reachable: bool,
    /// By what, and by whether it went well.
    events: BTreeMap<(GuestEvent, bool), u64>,
}

impl GuestEvent {
    /// The chart that it is about.
    fn chart(self) -> Option<&'static str> {
        match self {
            Self::KubeVip => Some("kube-vip"),
            Self::CloudProvider => Some("kube-vip-cloud-provider"),
            Self::ApiConnection | Self::ConfigMap => None,
        }
    }
}

fn result(well: bool) -> &'static str {
    if well { "success" } else { "error" }
}

impl VipCounts {
    /// Notes a call to the guest, which names it.
    pub fn connected(&self, id: &str, (name, harvester): (&str, &str), reachable: bool) {
        let mut all = self.guests.lock();
        let counts = all.entry(id.to_owned()).or_default();
        (counts.name, counts.harvester) = (name.to_owned(), harvester.to_owned());
        counts.reachable = reachable;
        *counts
            .events
            .entry((GuestEvent::ApiConnection, reachable))
            .or_default() += 1;
    }

    /// Notes that a release of a chart was installed, changed or uninstalled, or could not be.
    pub fn operation(&self, chart: GuestEvent, operation: &'static str, well: bool) {
        if let Some(chart) = chart.chart() {
            let labels = [
                ("chart", chart),
                ("operation", operation),
                ("result", result(well)),
            ];
            self.operations.get_or_create(&labels).inc();
        }
    }

    /// Notes that something was changed in the guest, or could not be.
    pub fn note(&self, id: &str, event: GuestEvent, well: bool) {
        if let Some(counts) = self.guests.lock().get_mut(id) {
            *counts.events.entry((event, well)).or_default() += 1;
        }
    }

    /// How often something ended so.
    #[cfg(test)]
    pub fn count(&self, id: &str, event: GuestEvent, well: bool) -> u64 {
        let guests = self.guests.lock();
        let counts = guests
            .get(id)
            .and_then(|one| one.events.get(&(event, well)));
        counts.copied().unwrap_or_default()
    }

    /// Whether the guest was called before.
    pub fn knows(&self, id: &str) -> bool {
        self.guests.lock().contains_key(id)
    }

    pub fn forget(&self, id: &str) {
        self.guests.lock().remove(id);
    }
}

/// The guests of every connected Rancher.
#[derive(Clone, Default)]
pub struct VipSites {
    pub guests: Connected<VipGuests>,
    operations: ChartOperations,
}

impl VipSites {
    /// The counts of one more Rancher.
    pub fn counts(&self) -> VipCounts {
        VipCounts {
            operations: self.operations.clone(),
            ..VipCounts::default()
        }
    }
}

/// Adds fipd's own series of the system.
pub fn register_own(registry: &mut Registry, sites: VipSites) {
    let own = registry.sub_registry_with_prefix("kube_fip");
    own.register(
        "helm_operations",
        "What was done about charts in guests: install, which an upgrade is too, and uninstall",
        sites.operations.clone(),
    );
    own.register_collector(live(move |encoder| {
        let all = sites.guests.all();
        encode_connected(encoder, &all, OwnFigures::add, OwnFigures::series)
    }));
}

/// Adds the series of the original.
pub fn register(registry: &mut Registry, sites: VipSites) {
    let family = registry.sub_registry_with_prefix("kubefipoperator");
    family.register_collector(live(move |encoder| {
        let all = sites.guests.all();
        encode_connected(encoder, &all, VipFigures::add, VipFigures::series)
    }));
}

/// The values of fipd's own series.
#[derive(Debug, Default, PartialEq)]
struct OwnFigures {
    guests: Values<'static>,
    waiting: Values<'static>,
}

impl OwnFigures {
    fn add(&mut self, guests: &Arc<VipGuests>, more: &Labels<'static>) {
        let reasons = guests.board.reasons(&guests.site.name, SYSTEM);
        for ((phase, reason), count) in reasons {
            let labels = [("phase", phase.as_str()), ("reason", reason)];
            self.guests.push((with(more, labels), count as f64));
        }
        let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
        for (_, fip) in guests.fips.all() {
            if let Some(reason) = fip.waits() {
                *waiting.entry(reason.to_owned()).or_default() += 1;
            }
        }
        for (reason, count) in waiting {
            let labels = with(more, [("reason", &reason)]);
            self.waiting.push((labels, count as f64));
        }
    }

    fn series(self) -> [Series<'static>; 2] {
        [
            Series::new("guests", "Guests, by how they are doing", self.guests),
            Series::new(
                "floatingips_waiting",
                "FloatingIPs that wait for an address, or for the one that they name",
                self.waiting,
            ),
        ]
    }
}

/// The values of all series of the original.
#[derive(Debug, Default, PartialEq)]
struct VipFigures {
    capacity: Values<'static>,
    reserved: Values<'static>,
    status: Values<'static>,
    events: Values<'static>,
}

impl VipGuests {
    /// Tells each range, with name and use of its pool where it is one.
    pub(super) fn usages(
        &self,
        mut tell: impl FnMut(&Key, &RangeView, Option<(&Pool, &PoolUsage)>),
    ) {
        let (site, ranges) = (&self.site, self.ranges.all());
        for some in ranges.chunks(Ledger::SCAN) {
            let usages: Vec<Option<(Arc<Pool>, PoolUsage)>> = site.ipam.read(|ledger| {
                let usage = |(key, _): &(Key, Arc<RangeView>)| {
                    let pool = site.mirror_in(ledger, &key.name)?;
                    Some((Arc::clone(pool), ledger.usage(pool.id)?))
                };
                some.iter().map(usage).collect()
            });
            for ((key, range), found) in some.iter().zip(&usages) {
                tell(
                    key,
                    range,
                    found.as_ref().map(|(pool, usage)| (&**pool, usage)),
                );
            }
        }
    }
}

impl VipFigures {
    fn add(&mut self, guests: &Arc<VipGuests>, more: &Labels<'static>) {
        guests.usages(|key, range, found| {
            if let Some((_, usage)) = found {
                self.range(key, range, usage, more);
            }
        });
        for counts in guests.counts.guests.lock().values() {
            self.guest(counts, more);
        }
    }

    fn range(&mut self, key: &Key, range: &RangeView, usage: &PoolUsage, more: &Labels<'static>) {
        let labels = with(
            more,
            [
                ("fiprangename", &key.name),
                ("fiprange", &range.spec.iprange),
                (
                    "harvesterclustername",
                    range.harvester.as_deref().unwrap_or_default(),
                ),
                (
                    "harvesternetworkname",
                    range.network.as_deref().unwrap_or_default(),
                ),
            ],
        );
        self.capacity.push((labels.clone(), usage.size as f64));
        self.reserved.push((labels, usage.used as f64));
    }

    fn guest(&mut self, counts: &GuestCounts, more: &Labels<'static>) {
        let own = [
            ("guestclustername", &*counts.name),
            ("harvesterclustername", &*counts.harvester),
        ];
        let reachable = f64::from(u8::from(counts.reachable));
        self.status.push((with(more, own), reachable));
        for ((event, well), count) in &counts.events {
            let [name, harvester] = own;
            let labels = [
                name,
                harvester,
                ("event", event.as_str()),
                ("status", result(*well)),
            ];
            self.events.push((with(more, labels), *count as f64));
        }
    }

    fn series(self) -> [Series<'static>; 4] {
        let series = Series::new;
        [
            series(
                "fipranges_capacity",
                "Addresses that the range can give",
                self.capacity,
            ),
            series("fipranges_reserved", "Of these, in use", self.reserved),
            series(
                "guestcluster_status",
                "Whether the guest answered when it was looked at last",
                self.status,
            ),
            // A counter of the original, without `_total`.
            series(
                "guestcluster_events",
                "What was done in the guest, by how it ended; grows",
                self.events,
            )
            .untyped(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_in_a_guest_is_counted_by_how_it_ended() {
        let counts = VipCounts::default();
        counts.note("c-m-1", GuestEvent::ConfigMap, true);
        assert!(counts.guests.lock().is_empty(), "it was never reached");
        counts.connected("c-m-1", ("prod", "hv"), false);
        counts.connected("c-m-1", ("prod", "hv"), true);
        counts.note("c-m-1", GuestEvent::KubeVip, false);
        let mut figures = VipFigures::default();
        figures.guest(&counts.guests.lock()["c-m-1"], &Vec::new());
        let guest = vec![
            ("guestclustername", "prod".to_owned()),
            ("harvesterclustername", "hv".to_owned()),
        ];
        assert_eq!(figures.status, [(guest, 1.0)]);
        let told: Vec<_> = figures
            .events
            .iter()
            .map(|(labels, value)| (&*labels[2].1, &*labels[3].1, *value))
            .collect();
        let expected = [
            ("api_connection", "error", 1.0),
            ("api_connection", "success", 1.0),
            ("kubevip_install", "error", 1.0),
        ];
        assert_eq!(told, expected);
        counts.forget("c-m-1");
        assert!(counts.guests.lock().is_empty());
        counts.operation(GuestEvent::KubeVip, "uninstall", false);
        let failed = [
            ("chart", "kube-vip"),
            ("operation", "uninstall"),
            ("result", "error"),
        ];
        assert_eq!(counts.operations.get_or_create(&failed).get(), 1);
    }
}
