//! The series of the original, by its names and labels, and fipd's own of the system.
//!
//! Where several Ranchers are connected every series has one label more, `cluster`: two of them may call their ranges alike.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use fipd_core::{Ledger, PoolUsage, Text, words};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::{guest::VipGuests, range::RangeView};
use crate::{
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

/// What happened in the guests of one Rancher, by its ids of them.
#[derive(Default)]
pub struct VipCounts(Mutex<BTreeMap<String, GuestCounts>>);

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

impl VipCounts {
    /// Notes a call to the guest, which names it.
    pub fn connected(&self, id: &str, (name, harvester): (&str, &str), reachable: bool) {
        let mut all = self.0.lock();
        let counts = all.entry(id.to_owned()).or_default();
        (counts.name, counts.harvester) = (name.to_owned(), harvester.to_owned());
        counts.reachable = reachable;
        *counts
            .events
            .entry((GuestEvent::ApiConnection, reachable))
            .or_default() += 1;
    }

    /// Notes that something was changed in the guest, or could not be.
    pub fn note(&self, id: &str, event: GuestEvent, well: bool) {
        if let Some(counts) = self.0.lock().get_mut(id) {
            *counts.events.entry((event, well)).or_default() += 1;
        }
    }

    pub fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }
}

/// The guests of every connected Rancher, by the configured name of it.
#[derive(Clone, Default)]
pub struct VipSites(Arc<Mutex<BTreeMap<Text, Weak<VipGuests>>>>);

impl VipSites {
    pub fn add(&self, rancher: &Text, guests: &Arc<VipGuests>) {
        let mut all = self.0.lock();
        all.insert(Text::clone(rancher), Arc::downgrade(guests));
    }

    pub fn connected(&self) -> Vec<(Text, Arc<VipGuests>)> {
        let mut all = self.0.lock();
        all.retain(|_, guests| guests.strong_count() > 0);
        let all = all.iter();
        all.filter_map(|(name, guests)| Some((Text::clone(name), guests.upgrade()?)))
            .collect()
    }
}

/// Adds the series of the original.
pub fn register(registry: &mut Registry, sites: VipSites) {
    let family = registry.sub_registry_with_prefix("kubefipoperator");
    let add = |figures: &mut VipFigures, guests: &Arc<VipGuests>, more: &_| {
        figures.add(guests, more);
    };
    family.register_collector(live(move |encoder| {
        encode_connected(encoder, &sites.connected(), add, VipFigures::series)
    }));
}

/// The values of all series.
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
        mut tell: impl FnMut(&Key, &RangeView, Option<(&str, &PoolUsage)>),
    ) {
        let (site, ranges) = (&self.site, self.ranges.all());
        for some in ranges.chunks(Ledger::SCAN) {
            let usages: Vec<Option<(Text, PoolUsage)>> = site.ipam.read(|ledger| {
                let usage = |(key, _): &(Key, Arc<RangeView>)| {
                    let pool = site.mirror_in(ledger, &key.name)?;
                    Some((Text::clone(&pool.spec.name), ledger.usage(pool.id)?))
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
    fn add(&mut self, guests: &VipGuests, more: &Labels<'static>) {
        guests.usages(|key, range, found| {
            if let Some((_, usage)) = found {
                self.range(key, range, usage, more);
            }
        });
        for counts in guests.counts.0.lock().values() {
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
        let capacity = usage.used.saturating_add(usage.free);
        self.capacity.push((labels.clone(), capacity as f64));
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
            let status = if *well { "success" } else { "error" };
            let [name, harvester] = own;
            let labels = [
                name,
                harvester,
                ("event", event.as_str()),
                ("status", status),
            ];
            self.events.push((with(more, labels), *count as f64));
        }
    }

    fn series(self) -> [Series<'static>; 4] {
        let series = |name, help, values| Series { name, help, values };
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
            // The original's counter has no `_total`.
            series(
                "guestcluster_events",
                "What was done in the guest, by how it ended; grows",
                self.events,
            ),
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
        assert!(counts.0.lock().is_empty(), "it was never reached");
        counts.connected("c-m-1", ("prod", "hv"), false);
        counts.connected("c-m-1", ("prod", "hv"), true);
        counts.note("c-m-1", GuestEvent::KubeVip, false);
        let mut figures = VipFigures::default();
        figures.guest(&counts.0.lock()["c-m-1"], &Vec::new());
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
        assert!(counts.0.lock().is_empty());
    }
}
