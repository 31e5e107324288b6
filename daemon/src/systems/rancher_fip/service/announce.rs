//! The objects by which MetalLB or PureLB announces the addresses of a Service.

use std::{collections::BTreeMap, net::IpAddr};

use fipd_core::Text;
use fipd_crds::labels::PURELB_AGGREGATION;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{observe::Svc, originals::Place};
use crate::{
    controller::{
        client::{MANAGER, Target},
        kind::Kind,
        store::Key,
    },
    systems::rancher_fip::{
        names::{
            FOR_SERVICE, MANAGED_BY, PURELB_GROUP, SERVICE_LABEL, SERVICE_NAMESPACE_LABEL,
            ServiceRef,
        },
        settings::Announce,
    },
};

/// An address to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub address: IpAddr,
    /// Of its objects.
    pub name: String,
    /// The link's subnet.
    pub subnet: Option<IpNet>,
    /// The nodes' interface, where the pool names one.
    pub interface: Option<String>,
}

pub const POOL: Kind =
    Kind::namespaced("apis/metallb.io/v1beta1", "ipaddresspools", "IPAddressPool");
pub const ADVERTISEMENT: Kind = Kind::namespaced(
    "apis/metallb.io/v1beta1",
    "l2advertisements",
    "L2Advertisement",
);
pub const GROUP: Kind = Kind::namespaced("apis/purelb.io/v1", "servicegroups", "ServiceGroup");

/// All kinds, whoever announces: what a former setting left behind is found by them.
pub const KINDS: [Kind; 3] = [POOL, ADVERTISEMENT, GROUP];

/// Who reads the objects of a kind.
pub fn reader(kind: Kind) -> Announce {
    match kind == GROUP {
        true => Announce::Purelb,
        false => Announce::Metallb,
    }
}

/// Whether a Service carries the marks that go with objects for this announcer.
pub fn shows_objects(mode: Announce, svc: &Svc) -> bool {
    match mode {
        Announce::None | Announce::KubeVip => false,
        Announce::Metallb => svc.mark(SERVICE_LABEL).is_some(),
        Announce::Purelb => svc.mark(PURELB_GROUP).is_some(),
    }
}

/// Why nobody answers for the addresses of a Service of this class, where that is certain.
pub fn unannounced(mode: Announce, class: Option<&str>) -> Option<&'static str> {
    match mode {
        Announce::None => Some("set `announce` in fipd's configuration, or announce them yourself"),
        Announce::Purelb if class.is_some() => Some(
            "PureLB ignores Services of another loadBalancerClass than its own; set `class-less` in fipd's configuration and leave the class out, or use another announcer",
        ),
        Announce::KubeVip | Announce::Metallb | Announce::Purelb => None,
    }
}

/// The objects for a Service, for server-side apply.
pub fn objects(
    mode: Announce,
    service: &ServiceRef,
    namespace: &str,
    addresses: &[Address],
) -> Vec<(Target, Value)> {
    match mode {
        Announce::None | Announce::KubeVip => Vec::new(),
        Announce::Metallb => addresses
            .iter()
            .flat_map(|one| {
                let name = &one.name;
                let selector = json!({ "matchLabels": {
                    SERVICE_LABEL: &*service.key.name,
                    SERVICE_NAMESPACE_LABEL: &*service.key.namespace,
                } });
                let spec = json!({
                    "addresses": [host(one.address)],
                    "serviceAllocation": { "namespaces": [&*service.key.namespace], "serviceSelectors": [selector] },
                });
                let mut advertised = json!({ "ipAddressPools": [name] });
                if let Some(interface) = &one.interface {
                    advertised["interfaces"] = json!([interface]);
                }
                [
                    object(POOL, service, namespace, name, &spec),
                    object(ADVERTISEMENT, service, namespace, name, &advertised),
                ]
            })
            .collect(),
        Announce::Purelb => {
            let Some(first) = addresses.first() else { return Vec::new() };
            let mut local = json!({});
            for one in addresses {
                let key = if one.address.is_ipv4() { "v4pools" } else { "v6pools" };
                let subnet = one.subnet.map_or_else(|| host(one.address), |subnet| subnet.to_string());
                local[key] = json!([{
                    "subnet": subnet, "pool": host(one.address), "aggregation": PURELB_AGGREGATION,
                }]);
            }
            vec![object(GROUP, service, namespace, &first.name, &json!({ "local": local }))]
        }
    }
}

fn object(
    kind: Kind,
    service: &ServiceRef,
    namespace: &str,
    name: &str,
    spec: &Value,
) -> (Target, Value) {
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": { MANAGED_BY: MANAGER, FOR_SERVICE: &*service.uid },
        },
        "spec": spec,
    });
    (kind.named(namespace, name), body)
}

/// The address as a CIDR of its own.
fn host(address: IpAddr) -> String {
    IpNet::from(address).to_string()
}

/// See the module.
#[derive(Default)]
pub struct AnnouncedObjects {
    /// As last applied, by Service: the instance and its addresses.
    applied: BTreeMap<Key, (Text, Vec<Address>)>,
    /// Those of the original by address, as of the last look.
    originals: Option<BTreeMap<IpAddr, Vec<String>>>,
}

impl AnnouncedObjects {
    /// Whether the objects of this instance are as these addresses want them.
    pub fn has(&self, service: &ServiceRef, addresses: &[Address]) -> bool {
        let applied = self.applied.get(&service.key);
        applied.is_some_and(|(uid, last)| *uid == service.uid && last == addresses)
    }

    pub fn note(&mut self, service: &ServiceRef, addresses: Vec<Address>) {
        let applied = (Text::clone(&service.uid), addresses);
        self.applied.insert(service.key.clone(), applied);
    }

    /// Forgets the objects of a Service; whether there were any.
    pub fn forget(&mut self, service: &Key) -> bool {
        self.applied.remove(service).is_some()
    }

    pub fn note_originals(&mut self, originals: BTreeMap<IpAddr, Vec<String>>) {
        self.originals = Some(originals);
    }

    /// Whether the original has an object for this address under another Service's name, as far as is known.
    pub fn may_be_in_the_way(&self, service: &Key, address: IpAddr) -> bool {
        let Some(originals) = &self.originals else {
            return true;
        };
        let place = Place { service, address };
        let own = [place.name(), place.legacy()];
        let names = originals.get(&address);
        names.is_some_and(|names| names.iter().any(|name| !own.contains(name)))
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::ClusterId;
    use fipd_crds::labels::pool_object;

    use super::*;
    use crate::controller::store::Key;

    fn service() -> ServiceRef {
        ServiceRef {
            cluster: ClusterId("c".into()),
            key: Key::new("ns", "web"),
            uid: "u".into(),
        }
    }

    fn address(text: &str, subnet: &str) -> Address {
        Address {
            address: text.parse().expect("an address"),
            name: pool_object(text.parse().expect("an address")),
            subnet: subnet.parse().ok(),
            interface: Some("eth1".into()),
        }
    }

    #[test]
    fn metallb_gets_a_pool_and_an_advertisement_for_each_address() {
        let both = [
            address("10.0.0.5", "10.0.0.0/24"),
            address("2001:db8::5", "2001:db8::/64"),
        ];
        let objects = objects(Announce::Metallb, &service(), "app", &both);
        let names: Vec<String> = objects
            .iter()
            .map(|(target, _)| target.to_string())
            .collect();
        assert_eq!(
            names,
            [
                "ipaddresspools app/ip4-10.0.0.5",
                "l2advertisements app/ip4-10.0.0.5",
                "ipaddresspools app/ip6-2001.db8.0.0.0.0.0.5",
                "l2advertisements app/ip6-2001.db8.0.0.0.0.0.5",
            ]
        );
        assert_eq!(objects[0].1["spec"]["addresses"], json!(["10.0.0.5/32"]));
        assert_eq!(
            objects[1].1["spec"],
            json!({ "ipAddressPools": ["ip4-10.0.0.5"], "interfaces": ["eth1"] })
        );
        assert_eq!(
            objects[2].1["spec"]["addresses"],
            json!(["2001:db8::5/128"])
        );
    }

    #[test]
    fn purelb_gets_one_group_with_both_families() {
        let both = [
            address("10.0.0.5", "10.0.0.0/24"),
            address("2001:db8::5", "2001:db8::/64"),
        ];
        let objects = objects(Announce::Purelb, &service(), "app", &both);
        assert_eq!(objects.len(), 1);
        let local = &objects[0].1["spec"]["local"];
        let v4 =
            json!([{ "subnet": "10.0.0.0/24", "pool": "10.0.0.5/32", "aggregation": "default" }]);
        assert_eq!(local["v4pools"], v4);
        assert_eq!(local["v6pools"][0]["pool"], "2001:db8::5/128");
    }

    #[test]
    fn the_marks_of_a_service_tell_of_objects() {
        let marked = |key: &'static str| {
            let mut svc = Svc::default();
            svc.marks.insert(key, "x".into());
            svc
        };
        assert!(shows_objects(Announce::Metallb, &marked(SERVICE_LABEL)));
        assert!(shows_objects(Announce::Purelb, &marked(PURELB_GROUP)));
        for mode in [Announce::None, Announce::KubeVip] {
            assert!(!shows_objects(mode, &marked(SERVICE_LABEL)));
        }
        for mode in [Announce::Metallb, Announce::Purelb] {
            assert!(!shows_objects(mode, &Svc::default()));
        }
    }

    #[test]
    fn it_is_known_when_nobody_announces() {
        let class = Some("fipd.io/floating-ip");
        assert!(unannounced(Announce::None, class).is_some());
        assert!(unannounced(Announce::None, None).is_some());
        assert!(unannounced(Announce::Purelb, class).is_some());
        assert_eq!(unannounced(Announce::Purelb, None), None);
        for mode in [Announce::KubeVip, Announce::Metallb] {
            assert_eq!(unannounced(mode, class), None);
        }
    }

    #[test]
    fn nobody_else_gets_objects() {
        for mode in [Announce::None, Announce::KubeVip] {
            assert!(
                objects(
                    mode,
                    &service(),
                    "app",
                    &[address("10.0.0.5", "10.0.0.0/24")]
                )
                .is_empty()
            );
        }
    }

    fn instance(uid: &str) -> ServiceRef {
        ServiceRef {
            uid: uid.into(),
            ..service()
        }
    }

    fn bare(last: u8) -> Address {
        Address {
            address: [10, 0, 0, last].into(),
            name: format!("ip4-10.0.0.{last}"),
            subnet: None,
            interface: None,
        }
    }

    #[test]
    fn objects_are_written_again_for_another_instance_or_address() {
        let mut announced = AnnouncedObjects::default();
        assert!(!announced.has(&instance("1"), &[]), "nothing was applied");
        announced.note(&instance("1"), vec![bare(5)]);
        assert!(announced.has(&instance("1"), &[bare(5)]));
        assert!(!announced.has(&instance("2"), &[bare(5)]));
        assert!(!announced.has(&instance("1"), &[bare(6)]));
        assert!(announced.forget(&instance("1").key));
        assert!(!announced.forget(&instance("1").key));
        assert!(!announced.has(&instance("1"), &[bare(5)]));
    }

    #[test]
    fn originals_of_other_services_are_in_the_way_and_so_they_may_be_before_the_first_look() {
        let mut announced = AnnouncedObjects::default();
        let (web, one) = (instance("1").key, bare(5));
        let in_the_way =
            |announced: &AnnouncedObjects| announced.may_be_in_the_way(&web, one.address);
        assert!(in_the_way(&announced), "nobody has looked");
        announced.note_originals(BTreeMap::new());
        assert!(!in_the_way(&announced));
        let place = Place {
            service: &web,
            address: one.address,
        };
        let own = vec![place.name(), place.legacy()];
        announced.note_originals(BTreeMap::from([(one.address, own)]));
        assert!(!in_the_way(&announced), "its own");
        let others = vec!["rancher-fip-ns-api".to_owned()];
        announced.note_originals(BTreeMap::from([(one.address, others)]));
        assert!(in_the_way(&announced));
    }
}
