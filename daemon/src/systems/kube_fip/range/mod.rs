//! FloatingIPRanges as sources of pools.

pub mod arithmetic;
#[cfg(test)]
mod conformance_tests;

use std::{net::IpAddr, sync::Arc};

use fipd_core::{Holder, LeaseKey, Ledger, Pool, PoolSpec, Request, Sticky, System, Text};
use fipd_crds::{
    fipd_io::PoolStatus,
    kube_fip::{FloatingIPRange, FloatingIPRangeSpec},
    labels::NETWORK,
};
use ipnet::IpNet;
use k8s_openapi::jiff;

use super::{
    floating_ip::FipView,
    names::{FLOATING_IP, HARVESTER_CLUSTER, HARVESTER_NETWORK, RANGE_CLEANUP, annotation},
    settings::{KubeFipSettings, RangeArithmetic},
};
use crate::{
    config::ReleaseWait,
    controller::{
        address_user::settle::AddressAsker,
        attachments::{Attachments, HarvesterNetwork},
        conditions::note_condition,
        meta::{Meta, View},
        pool_source::{
            Leaving, OUT_OF_RANGE, PoolController, PoolReport, PoolSource, PoolState, SourceFacts,
            pool_status,
        },
        site::Site,
        store::{Key, Objects},
    },
    validation::{
        Wrong,
        addresses::{address_specs, number},
        mirror::MirrorOf,
    },
};

const GATEWAY: &str = "spec.gateway";

/// A FloatingIPRange, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeView {
    pub meta: Meta,
    pub spec: FloatingIPRangeSpec,
    pub status: PoolStatus,
    /// Display name of the Harvester cluster.
    pub harvester: Option<String>,
    /// Name of the network there.
    pub network: Option<String>,
    /// The network (routing domain) that an annotation of fipd's names.
    pub routing_domain: Option<String>,
}

/// Keeps what matters of the object.
pub fn view(object: FloatingIPRange) -> RangeView {
    let annotations = object.metadata.annotations.as_ref();
    let said = |key| annotation(annotations, key).map(str::to_owned);
    RangeView {
        harvester: said(HARVESTER_CLUSTER),
        network: said(HARVESTER_NETWORK),
        routing_domain: said(NETWORK),
        meta: Meta::of(&object.metadata),
        spec: object.spec,
        status: object.status.unwrap_or_default(),
    }
}

impl View for RangeView {
    fn meta(&self) -> Meta {
        self.meta.clone()
    }
}

/// The controller of all FloatingIPRanges of a cluster.
pub type Ranges = PoolController<RangeSource>;

/// What FloatingIPRanges say of pools.
pub struct RangeSource {
    pub arithmetic: RangeArithmetic,
    pub release_wait: ReleaseWait,
    /// `None`: no range is for a network of a Harvester cluster.
    pub attachments: Option<Arc<Attachments>>,
    /// Those of all ranges.
    pub fips: Arc<Objects<FipView>>,
}

impl RangeSource {
    pub fn new(
        settings: &KubeFipSettings,
        attachments: Option<Arc<Attachments>>,
        fips: Arc<Objects<FipView>>,
    ) -> Self {
        Self {
            arithmetic: settings.arithmetic,
            release_wait: settings.release_wait,
            attachments,
            fips,
        }
    }

    /// What FloatingIPs show of a range that is a pool only now, or in another network than before. They were adopted in the
    /// network that they had without it.
    fn shown_in(
        &self,
        ledger: &Ledger,
        site: &Site,
        range: &Key,
        (existing, wanted): (Option<&Pool>, &PoolSpec),
    ) -> Vec<Request> {
        let network = wanted.network;
        let moves =
            existing.is_none_or(|pool| pool.spec.network != network && !in_use(ledger, pool));
        if !moves {
            return Vec::new();
        }
        let mut fips = self.fips.all();
        fips.retain(|(_, fip)| {
            fip.range.as_deref() == Some(&*range.name) && !fip.meta.is_terminating()
        });
        fips.sort_by_key(|(_, fip)| fip.meta.created);
        let requests = fips.into_iter().filter_map(|(key, fip)| {
            let address = fip.shown_of(wanted)?;
            take_in(ledger, site, (&key, &fip), LeaseKey { network, address })
        });
        requests.collect()
    }
}

/// Such a pool goes to no other network.
fn in_use(ledger: &Ledger, pool: &Pool) -> bool {
    let usage = ledger.usage(pool.id);
    usage.is_some_and(|usage| usage.in_use())
}

/// `None`: the FloatingIP has the address there, or contends for it.
fn take_in(
    ledger: &Ledger,
    site: &Site,
    (key, fip): (&Key, &FipView),
    at: LeaseKey,
) -> Option<Request> {
    let identity = key.identity(site.system.clone(), &site.id, FLOATING_IP.kind);
    let lease = ledger.lease_around(at);
    let has =
        lease.is_some_and(|lease| lease.held_by(&identity) || lease.contender(&identity).is_some());
    let asker = AddressAsker {
        holder: Holder {
            identity,
            instance: Text::clone(&fip.meta.uid),
        },
        created: fip.meta.created,
        actor: site.actor(),
    };
    (!has).then(|| asker.adopt(at.into(), Some(site.tenant_of(&key.namespace))))
}

impl PoolSource for RangeSource {
    type View = RangeView;
    type Status = PoolStatus;

    const METRIC: &'static str = "floatingiprange";
    const FINALIZER: Option<&'static str> = Some(RANGE_CLEANUP);
    const LEAVING: Leaving = Leaving::Marked;
    const AMBIGUOUS_IS_UNREADY: bool = true;

    fn facts<'a>(&'a self, range: &'a RangeView) -> SourceFacts<'a> {
        let harvester = range.harvester.as_deref().zip(range.network.as_deref());
        SourceFacts {
            interface: None,
            network: range.routing_domain.as_deref(),
            harvester: harvester.map(|(cluster, network)| HarvesterNetwork { cluster, network }),
        }
    }

    fn spec(&self, mirror: &MirrorOf<'_>, range: &RangeView) -> Result<PoolSpec, String> {
        spec(mirror, &range.spec, self.arithmetic)
    }

    fn written(&self, range: &RangeView) -> PoolStatus {
        range.status.clone()
    }

    fn status(&self, range: &RangeView, report: &PoolReport, now: jiff::Timestamp) -> PoolStatus {
        let generation = range.meta.generation;
        let mut status = pool_status::desired(&range.status, generation, report, now);
        let outside = report.state.as_ref().and_then(PoolState::out_of_range);
        let kind = (OUT_OF_RANGE, "LeasesKept");
        note_condition(&mut status.conditions, kind, outside, generation, now);
        status
    }

    fn shown_already(
        &self,
        site: &Site,
        (range, _): (&Key, &RangeView),
        existing: Option<&Pool>,
        wanted: &PoolSpec,
    ) -> Vec<Request> {
        let of_pool = (existing, wanted);
        (site.ipam).read(|ledger| self.shown_in(ledger, site, range, of_pool))
    }

    fn attachments(&self) -> Option<&Arc<Attachments>> {
        self.attachments.as_ref()
    }

    /// The original gives the gateway too.
    fn asks_for_gateway(&self) -> bool {
        self.arithmetic == RangeArithmetic::Default
    }

    fn release_wait(&self) -> Option<ReleaseWait> {
        Some(self.release_wait)
    }

    fn warnings(&self, state: &PoolState) -> Vec<(&'static str, String)> {
        let overlap = state.overlap.clone();
        [
            (OUT_OF_RANGE, state.out_of_range()),
            ("Overlapping", overlap),
        ]
        .into_iter()
        .filter_map(|(reason, text)| Some((reason, text?)))
        .collect()
    }
}

/// The pool that a range describes, or the field and the rule that it breaks.
pub fn spec(
    mirror: &MirrorOf<'_>,
    range: &FloatingIPRangeSpec,
    arithmetic: RangeArithmetic,
) -> Result<PoolSpec, String> {
    let read = arithmetic::read(&range.iprange, arithmetic).map_err(|wrong| wrong.to_string())?;
    let seconds = |field, given: Option<i64>| number(field, given.unwrap_or_default());
    let lasts: u32 = seconds("spec.stickySeconds", range.sticky_seconds)?;
    let spec = PoolSpec {
        exclusions: address_specs("spec.exclusions", &range.exclusions)?,
        gateway: gateway(&range.gateway, &read.subnet).map_err(|wrong| wrong.to_string())?,
        prefix_len: Some(read.subnet.prefix_len()),
        subnet: Some(read.subnet),
        ends: read.ends,
        order: read.order,
        origin: mirror.origin(System::kube_fip()),
        quarantine: seconds("spec.quarantineSeconds", range.quarantine_seconds)?,
        sticky: match lasts {
            0 => Sticky::OFF,
            lasts => Sticky {
                lasts,
                ..Sticky::OWN_DEFAULT
            },
        },
        ..PoolSpec::own(mirror.pool_name(&System::kube_fip()), vec![read.addresses])
    };
    spec.validate().map_err(|wrong| wrong.to_string())?;
    Ok(spec)
}

fn gateway(text: &str, subnet: &IpNet) -> Result<Option<IpAddr>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    match address {
        Ok(address) if subnet.contains(&address) => Ok(Some(address)),
        Ok(_) | Err(_) => {
            let allowed = format!("it must be an address of {subnet}, or be left out");
            Err(Wrong::new(GATEWAY, text, allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::{ClusterId, NetworkId, testing::pool};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        clock,
        clusters::testing::{new_network, session},
        controller::fake_api_tests::client,
        ipam::Ipam,
        systems::kube_fip::floating_ip,
    };

    fn read(raw: Value) -> Result<PoolSpec, String> {
        let raw: FloatingIPRangeSpec = serde_json::from_value(raw).expect("a spec");
        let mirror = MirrorOf {
            cluster: &ClusterId("c".into()),
            cluster_name: "rancher",
            object: "vlan10",
            uid: "u",
        };
        spec(&mirror, &raw, RangeArithmetic::Default)
    }

    #[test]
    fn every_field_counts_and_every_mistake_is_named() {
        let full = read(json!({
            "iprange": "10.0.0.10/24", "gateway": "10.0.0.1", "exclusions": ["10.0.0.20-10.0.0.29"],
            "quarantineSeconds": 60, "stickySeconds": 3600,
        }))
        .expect("valid");
        assert_eq!(&*full.name, "kube-fip/rancher/vlan10");
        assert_eq!(full.gateway, "10.0.0.1".parse().ok());
        assert_eq!((full.quarantine, full.sticky.lasts), (60, 3600));
        assert_eq!(full.size().expect("a size").assignable, 235);
        let plain = read(json!({ "iprange": "10.0.0.0/30" })).expect("valid");
        assert_eq!((plain.sticky, plain.quarantine), (Sticky::OFF, 0));
        assert_eq!(plain.size().expect("a size").assignable, 2);
        for (raw, named) in [
            (json!({}), "spec.iprange"),
            (json!({ "gateway": "10.1.0.1" }), "spec.gateway"),
            (json!({ "gateway": "2001:db8::1" }), "spec.gateway"),
            (json!({ "gateway": "x" }), "spec.gateway"),
            (
                json!({ "exclusions": ["10.0.0.5", "x"] }),
                "spec.exclusions[1]",
            ),
            (json!({ "exclusions": ["2001:db8::5"] }), "exclusions"),
            (json!({ "quarantineSeconds": -1 }), "spec.quarantineSeconds"),
            (json!({ "quarantineSeconds": 2_592_001 }), "quarantine"),
            (json!({ "stickySeconds": i64::MAX }), "spec.stickySeconds"),
        ] {
            let mut raw = raw;
            if raw != json!({}) {
                raw["iprange"] = json!("10.0.0.0/24");
            }
            let wrong = read(raw.clone()).expect_err("a mistake");
            assert!(wrong.contains(named), "{raw}: {wrong}");
        }
    }

    #[test]
    fn the_annotations_say_which_network_it_is() {
        let object = |annotations: Value| {
            let object = json!({
                "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIPRange",
                "metadata": { "name": "r", "annotations": annotations },
            });
            view(serde_json::from_value(object).expect("a range"))
        };
        let source = RangeSource::new(&KubeFipSettings::default(), None, Objects::new());
        let both = json!({ "harvesterClusterName": "hv", "harvesterNetworkName": " vlan10 " });
        let range = object(both);
        let facts = source.facts(&range);
        let network = HarvesterNetwork {
            cluster: "hv",
            network: "vlan10",
        };
        assert_eq!((facts.harvester, facts.network), (Some(network), None));
        let one = object(json!({ "harvesterClusterName": "hv", "fipd.io/network": "lab" }));
        let facts = source.facts(&one);
        assert_eq!((facts.harvester, facts.network), (None, Some("lab")));
    }

    /// FloatingIPs by name, all that name a range `vlan10` but one.
    fn fips() -> Arc<Objects<FipView>> {
        let shows = |address: &str, pool: &str| json!({ "address": address, "network": "default", "pool": pool });
        let waits = json!({ "conditions": [{
            "type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }] });
        let all = [
            ("shows", "vlan10", "", shows("10.0.0.5", "")),
            ("names", "vlan10", "10.0.0.6", json!({})),
            ("other-range", "vlan20", "", shows("10.0.0.7", "")),
            ("outside", "vlan10", "", shows("10.1.0.5", "")),
            (
                "moves",
                "vlan10",
                "",
                shows("10.0.0.8", "kube-fip/rancher/vlan20"),
            ),
            ("wishes", "vlan10", "10.0.0.9", waits),
        ];
        let objects = Objects::new();
        for (age, (name, range, wanted, status)) in (1..).zip(all) {
            let fip = json!({
                "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": "FloatingIP",
                "metadata": {
                    "name": name, "namespace": "c-m-1", "uid": format!("u-{name}"),
                    "creationTimestamp": format!("2024-01-{:02}T00:00:00Z", 20 - age),
                    "annotations": { "clustername": "guest", "fiprange": range },
                },
                "spec": { "ipaddress": wanted }, "status": status,
            });
            let fip = floating_ip::view(serde_json::from_value(fip).expect("a FloatingIP"));
            objects.set(&Key::new("c-m-1", name), fip);
        }
        objects
    }

    #[tokio::test]
    async fn what_was_adopted_before_a_range_was_a_pool_is_taken_in_before_the_pool_gives_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ipam, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).expect("a store");
        let session = session(client(&Arc::default()), &ipam).await;
        let site = Site::new(session, System::kube_fip());
        let submit = async |request| ipam.submit(request).await.expect("it is granted");
        let blue = new_network(&ipam, "blue").await;
        let source = RangeSource::new(&KubeFipSettings::default(), None, fips());
        let key = Key::new("", "vlan10");
        let taken = |existing: Option<&Pool>, wanted: &PoolSpec| -> Vec<Request> {
            ipam.read(|ledger| source.shown_in(ledger, &site, &key, (existing, wanted)))
        };
        let told = |requests: &[Request]| -> Vec<String> {
            let told = requests.iter().map(|request| {
                let Request::Adopt(adopt) = request else {
                    panic!("{request:?}");
                };
                let (key, holder) = (adopt.key, &adopt.holder);
                assert_eq!(key.network, blue);
                format!("{} {}", holder.identity.name, key.address)
            });
            told.collect()
        };
        let wanted = PoolSpec {
            network: blue,
            ..read(json!({ "iprange": "10.0.0.0/24" })).expect("valid")
        };
        let shown = taken(None, &wanted);
        let all = ["names 10.0.0.6", "shows 10.0.0.5"];
        assert_eq!(told(&shown), all, "the older first");
        let elsewhere = pool(PoolSpec {
            network: NetworkId::DEFAULT,
            ..wanted.clone()
        });
        assert_eq!(taken(Some(&elsewhere), &wanted), shown);
        assert_eq!(taken(Some(&pool(wanted.clone())), &wanted), []);
        let first = shown.into_iter().next().expect("a request");
        submit(first).await;
        assert_eq!(told(&taken(None, &wanted)), ["shows 10.0.0.5"]);
    }
}
