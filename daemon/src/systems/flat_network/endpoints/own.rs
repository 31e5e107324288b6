//! The addresses that pods have by their FlatNetworkIPs. What their annotations report beside them, anybody may have written who
//! may edit the pod: a Service would send its clients there.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use fipd_core::Text;

use crate::{
    controller::store::{Key, Objects},
    systems::flat_network::{ip::FlatIpView, names::pod_key, service::observe::FlatPodView},
};

/// By pods.
#[derive(Debug, Default)]
pub struct OwnAddresses(BTreeMap<Key, BTreeSet<IpAddr>>);

impl OwnAddresses {
    /// Those of pods of a namespace.
    pub fn of(
        namespace: &str,
        ips: &Objects<FlatIpView>,
        pods: &[(Key, Arc<FlatPodView>)],
    ) -> Self {
        let pods = pods.iter().map(|(key, pod)| (key, &pod.uid));
        let pods: BTreeMap<&Key, &Text> = pods.collect();
        let mut own = Self::default();
        for key in ips.keys_in(namespace) {
            let Some(ip) = ips.get(&key) else { continue };
            // The originals may have served a pod that is called like a further address.
            for pod in [pod_key(&key), key] {
                if pods.get(&pod).is_some_and(|uid| ***uid == *ip.spec.pod_id) {
                    own.add(pod, addresses(&ip));
                }
            }
        }
        own
    }

    pub fn add(&mut self, pod: Key, addresses: impl IntoIterator<Item = IpAddr>) {
        self.0.entry(pod).or_default().extend(addresses);
    }

    pub fn has(&self, pod: &Key, address: IpAddr) -> bool {
        self.0.get(pod).is_some_and(|own| own.contains(&address))
    }
}

/// The address that it shows, and what 6to4 makes of it, where its pod has that.
fn addresses(ip: &FlatIpView) -> Vec<IpAddr> {
    let Ok(address) = ip.status.addr.parse::<IpAddr>() else {
        return Vec::new();
    };
    let has_6to4 = ip.ipv6to4.as_ref().is_some_and(|value| !value.is_empty());
    let derived = has_6to4.then(|| six_to_four(address)).flatten();
    [address].into_iter().chain(derived).collect()
}

/// `2002:V4::` of RFC 3056, as the CNI plugin gives it.
fn six_to_four(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V4(v4) = address else { return None };
    let [a, b, c, d] = v4.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 0).into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::resolve::testing::pod, *};
    use crate::validation::flat_network::interfaces::InterfaceId;

    fn ip(name: &str, pod_id: &str, address: &str, annotations: Value) -> (Key, FlatIpView) {
        let object = json!({
            "metadata": { "namespace": "shop", "name": name, "uid": name, "annotations": annotations },
            "spec": { "subnet": "blue", "podId": pod_id }, "status": { "addr": address },
        });
        let view = FlatIpView::of(serde_json::from_value(object).unwrap());
        (Key::new("shop", name), view)
    }

    #[test]
    fn a_pod_has_the_addresses_of_its_own_objects_alone() {
        let eth2 = InterfaceId {
            name: "eth2".to_owned(),
            is_partner: false,
        };
        let further = eth2.object_name("", "web-0").unwrap();
        let ips = Objects::new();
        for (key, view) in [
            ip(
                "web-0",
                "u-web-0",
                "10.2.3.1",
                json!({ "flatnetwork.pandaria.io/ipv6to4": "true" }),
            ),
            ip(&further, "u-web-0", "10.2.4.1", json!({})),
            ip("web-1", "u-before", "10.2.3.2", json!({})),
            ip("web-2", "u-web-2", "", json!({})),
            ip("other", "u-web-2", "10.2.3.9", json!({})),
        ] {
            ips.set(&key, view);
        }
        let pods = ["web-0", "web-1", "web-2"].map(|name| pod(name, &[], 80, true));
        let own = OwnAddresses::of("shop", &ips, &pods);
        let has =
            |name: &str, address: &str| own.has(&Key::new("shop", name), address.parse().unwrap());
        for address in ["10.2.3.1", "2002:a02:301::", "10.2.4.1"] {
            assert!(has("web-0", address), "{address}");
        }
        for (name, address) in [
            ("web-0", "2002:a02:401::"),
            ("web-0", "10.42.0.1"),
            ("web-1", "10.2.3.2"),
            ("web-2", "10.2.3.9"),
            ("web-2", "10.2.3.1"),
        ] {
            assert!(!has(name, address), "{name} {address}");
        }
    }
}
