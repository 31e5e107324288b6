//! Where a Service leads on the flat network: addresses and ports of its pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use fipd_core::Text;
use k8s_openapi::{api::core::v1::ServicePort, apimachinery::pkg::util::intstr::IntOrString};

use super::own::OwnAddresses;
use crate::{
    controller::store::Key,
    systems::flat_network::service::observe::{FlatPodView, FlatServiceView, PodLabels},
    validation::flat_network::multus::NetworkRef,
};

/// A Service that is to lead to addresses on the flat network.
pub struct FlatSubject<'a> {
    pub key: &'a Key,
    pub service: &'a FlatServiceView,
    /// That of the original, where it is a companion.
    pub selector: &'a PodLabels,
    pub networks: Vec<NetworkRef>,
    /// Pods count as ready when they are not.
    pub publishes_unready: bool,
    /// Names of Services in whose name pods have host names.
    pub subdomains: Vec<&'a str>,
    /// The Endpoints are fipd's: Kubernetes writes none of a Service without selector.
    pub has_own_endpoints: bool,
}

/// A port of pods, as a port of the Service leads there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedPort {
    /// Empty: the Service names it not.
    pub name: String,
    pub protocol: String,
    pub number: i32,
    pub app_protocol: Option<String>,
}

/// A pod at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatEndpoint {
    pub address: IpAddr,
    /// It is to be sent to.
    pub is_ready: bool,
    /// It answers.
    pub is_serving: bool,
    pub pod: Key,
    pub uid: Text,
    pub node: Option<String>,
    pub hostname: Option<String>,
}

/// Endpoints by address, of pods with the same ports.
pub type EndpointGroups = BTreeMap<Vec<ResolvedPort>, BTreeMap<IpAddr, FlatEndpoint>>;

impl FlatSubject<'_> {
    /// Where the Service leads, by these of the pods that it selects. A pod that is not flat has no address here, one that
    /// Multus says nothing of has none yet, and what it says counts only where it is the pod's own. Where two pods show one address
    /// the first by name counts.
    pub fn resolve(&self, pods: &[(Key, Arc<FlatPodView>)], own: &OwnAddresses) -> EndpointGroups {
        let mut groups = EndpointGroups::new();
        let mut taken = BTreeSet::new();
        for (key, pod) in pods.iter().filter(|(_, pod)| pod.is_flat && pod.is_alive) {
            let group = groups.entry(self.ports_of(pod)).or_default();
            for address in self.addresses_of(key, pod) {
                if own.has(key, address) && taken.insert(address) {
                    group.insert(address, self.endpoint(key, pod, address));
                }
            }
        }
        groups.retain(|_, group| !group.is_empty());
        groups
    }

    fn addresses_of(&self, key: &Key, pod: &FlatPodView) -> Vec<IpAddr> {
        let of_networks = pod.interfaces.iter().filter(|status| {
            let mut networks = self.networks.iter();
            networks.any(|network| network.is(status, &key.namespace))
        });
        of_networks.flat_map(|status| status.addresses()).collect()
    }

    fn endpoint(&self, key: &Key, pod: &FlatPodView, address: IpAddr) -> FlatEndpoint {
        let in_subdomain = |subdomain: &String| self.subdomains.contains(&subdomain.as_str());
        let is_named = pod.subdomain.as_ref().is_some_and(in_subdomain);
        FlatEndpoint {
            address,
            is_ready: pod.is_ready || self.publishes_unready,
            is_serving: pod.is_ready,
            pod: key.clone(),
            uid: Text::clone(&pod.uid),
            node: pod.node.clone(),
            hostname: pod.hostname.clone().filter(|_| is_named),
        }
    }

    /// The ports of the Service at this pod, without those that the pod has not.
    fn ports_of(&self, pod: &FlatPodView) -> Vec<ResolvedPort> {
        let ports = self.service.ports.iter();
        let mut ports: Vec<_> = ports.filter_map(|port| port_of(port, pod)).collect();
        ports.sort();
        ports
    }
}

/// A named target port is that of the pod's containers with this name and protocol, a port without target port the same.
fn port_of(port: &ServicePort, pod: &FlatPodView) -> Option<ResolvedPort> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let mut ports = pod.ports.iter();
            let named = ports.find(|one| one.name == *name && one.protocol == protocol);
            named?.number
        }
    };
    Some(ResolvedPort {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol.to_owned(),
        number,
        app_protocol: port.app_protocol.clone(),
    })
}

#[cfg(test)]
pub mod testing {
    //! Pods and Services for tests.

    use serde_json::json;

    use super::*;
    use crate::systems::flat_network::service::observe;

    pub fn service(spec: serde_json::Value) -> FlatServiceView {
        let object = json!({ "metadata": { "name": "web", "uid": "s" }, "spec": spec });
        FlatServiceView::of(serde_json::from_value(object).unwrap())
    }

    /// A pod of the flat network that has these addresses there, and 10.42.0.1 elsewhere.
    pub fn pod(name: &str, flat: &[&str], http: i32, ready: bool) -> (Key, Arc<FlatPodView>) {
        let status = json!([
            { "name": "cbr0", "interface": "eth0", "ips": ["10.42.0.1"], "default": true },
            { "name": "shop/rancher-flat-network", "interface": "eth1", "ips": flat },
        ]);
        let object = json!({
            "metadata": { "name": name, "namespace": "shop", "uid": format!("u-{name}"), "annotations": {
                "flatnetwork.pandaria.io/ip": "auto",
                "flatnetwork.pandaria.io/subnet": "blue",
                "k8s.v1.cni.cncf.io/network-status": status.to_string(),
            } },
            "spec": {
                "nodeName": "n1", "hostname": name, "subdomain": "web",
                "containers": [{ "name": "a", "ports": [{ "containerPort": http, "name": "http", "protocol": "TCP" }] }],
            },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        });
        let pod = observe::pod(serde_json::from_value(object).unwrap()).unwrap();
        (Key::new("shop", name), Arc::new(pod))
    }

    /// Where it leads with all addresses that the pods report.
    pub fn resolved(subject: &FlatSubject<'_>, pods: &[(Key, Arc<FlatPodView>)]) -> EndpointGroups {
        let mut own = OwnAddresses::default();
        for (key, pod) in pods {
            let reported = pod.interfaces.iter();
            own.add(key.clone(), reported.flat_map(|one| one.addresses()));
        }
        subject.resolve(pods, &own)
    }

    pub fn subject<'a>(key: &'a Key, service: &'a FlatServiceView) -> FlatSubject<'a> {
        FlatSubject {
            key,
            service,
            selector: &service.selector,
            networks: NetworkRef::parse_all("rancher-flat-network"),
            publishes_unready: false,
            subdomains: vec!["web"],
            has_own_endpoints: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{testing::*, *};

    fn ports() -> serde_json::Value {
        json!([
            { "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" },
            { "name": "admin", "port": 9000, "protocol": "TCP" },
            { "name": "quic", "port": 443, "targetPort": "http", "protocol": "UDP" },
        ])
    }

    /// Row 62.
    #[test]
    fn a_service_leads_to_the_flat_addresses_of_its_pods_alone() {
        let (key, service) = (
            Key::new("shop", "web"),
            service(json!({ "ports": ports() })),
        );
        let pods = [pod("web-0", &["10.2.3.100"], 8080, true)];
        let groups = resolved(&subject(&key, &service), &pods);
        let addresses: Vec<_> = groups.values().flat_map(BTreeMap::keys).collect();
        assert_eq!(addresses, [&"10.2.3.100".parse::<IpAddr>().unwrap()]);
        let named: Vec<_> = groups
            .keys()
            .flatten()
            .map(|one| (&*one.name, one.number))
            .collect();
        assert_eq!(
            named,
            [("admin", 9000), ("http", 8080)],
            "no container has quic"
        );
    }

    /// Whoever may edit a pod may have its annotation report any address.
    #[test]
    fn a_service_leads_nowhere_by_the_word_of_a_pod_alone() {
        let (key, service) = (
            Key::new("shop", "web"),
            service(json!({ "ports": ports() })),
        );
        let pods = [pod("web-0", &["10.2.3.100", "127.0.0.1"], 8080, true)];
        let mut own = OwnAddresses::default();
        own.add(pods[0].0.clone(), ["10.2.3.100".parse().unwrap()]);
        own.add(Key::new("shop", "web-1"), ["127.0.0.1".parse().unwrap()]);
        let groups = subject(&key, &service).resolve(&pods, &own);
        let addresses: Vec<_> = groups.values().flat_map(BTreeMap::keys).collect();
        assert_eq!(addresses, [&"10.2.3.100".parse::<IpAddr>().unwrap()]);
    }

    /// Defect g1-16.
    #[test]
    fn g1_16_pods_that_are_not_ready_are_published_as_such() {
        let (key, service) = (
            Key::new("shop", "web"),
            service(json!({ "ports": ports() })),
        );
        let pods = [
            pod("web-0", &["10.2.3.1"], 80, false),
            pod("web-1", &["10.2.3.2"], 80, true),
        ];
        let mut subject = subject(&key, &service);
        let ready = |subject: &FlatSubject<'_>| -> Vec<(bool, bool)> {
            let groups = resolved(subject, &pods);
            let all = groups.values().flat_map(BTreeMap::values);
            all.map(|one| (one.is_ready, one.is_serving)).collect()
        };
        assert_eq!(ready(&subject), [(false, false), (true, true)]);
        subject.publishes_unready = true;
        assert_eq!(ready(&subject), [(true, false), (true, true)]);
    }

    /// Defect g1-16: no port, no report of Multus, no name of a port.
    #[test]
    fn g1_16_nothing_is_needed_of_a_pod_or_service() {
        let (key, bare) = (Key::new("shop", "web"), service(json!({})));
        let (name, fresh) = pod("web-0", &[], 80, true);
        assert!(resolved(&subject(&key, &bare), &[(name, fresh)]).is_empty());
        let pods = [pod("web-0", &["10.2.3.1", "nonsense"], 80, true)];
        let groups = resolved(&subject(&key, &bare), &pods);
        assert!(groups.len() == 1 && groups.keys().all(Vec::is_empty));
        let unnamed = service(json!({ "ports": [{ "port": 80 }] }));
        let groups = resolved(&subject(&key, &unnamed), &pods);
        let port = groups.keys().flatten().next().unwrap();
        assert_eq!((&*port.name, &*port.protocol, port.number), ("", "TCP", 80));
    }

    #[test]
    fn pods_that_call_a_port_otherwise_are_a_group_of_their_own_and_an_address_counts_once() {
        let (key, service) = (
            Key::new("shop", "web"),
            service(json!({ "ports": ports() })),
        );
        let pods = [
            pod("web-0", &["10.2.3.1", "fd00::1"], 8080, true),
            pod("web-1", &["10.2.3.2"], 9090, true),
            pod("web-2", &["10.2.3.1"], 9090, true),
        ];
        let groups = resolved(&subject(&key, &service), &pods);
        let sizes: Vec<_> = groups.values().map(BTreeMap::len).collect();
        assert_eq!(sizes, [2, 1]);
        let mut elsewhere = subject(&key, &service);
        elsewhere.subdomains = vec!["db"];
        let hosts = |subject: &FlatSubject<'_>| {
            let groups = resolved(subject, &pods);
            groups
                .values()
                .flat_map(BTreeMap::values)
                .filter(|one| one.hostname.is_some())
                .count()
        };
        assert_eq!((hosts(&subject(&key, &service)), hosts(&elsewhere)), (3, 0));
    }
}
