//! What Service and slices are to be, as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use crate::controller::endpoint::OwnEndpoint;
use fipd_crds::labels::{API_SERVICE, FIELD_MANAGER, MANAGED_BY};
use k8s_openapi::{
    api::{
        core::v1::{Endpoints, Service, ServicePort},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// The port of the original with TLS, and the plain one.
pub const TLS_PORT: i32 = 8443;
const PLAIN_PORT: i32 = 8080;
const HTTPS: u16 = 443;
const TCP: &str = "TCP";
/// On the Service: the selector that fipd took off, and the ports that it had with it, as JSON.
pub const TAKEN_OFF: &str = "fipd.io/selector";
pub const PORTS_BEFORE: &str = "fipd.io/ports";

/// Where the name is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTarget {
    /// Not empty.
    pub addresses: BTreeSet<IpAddr>,
    /// Port of the Service to port of this host.
    pub ports: BTreeMap<i32, u16>,
}

/// Why the name cannot lead here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    #[error(
        "[api] advertise is not set: it must say https://HOST[:PORT], by which the cluster reaches this host"
    )]
    NoUrl,
    #[error("[api] advertise: {0:?} is no URL of the form https://HOST[:PORT]")]
    BadUrl(String),
    #[error("[api] advertise: host {0:?} is not found: {1}")]
    UnknownHost(String, String),
    #[error(
        "[api] advertise: {0:?} is this host to itself only; it must be an address that the cluster reaches"
    )]
    Loopback(String),
    #[error(
        "[api] advertise: {host} leads back to the Service that is to lead there: {how}; it must be a name or an address of this host itself"
    )]
    Circle { host: String, how: String },
    #[error(
        "the Service is of type ExternalName and leads to {0:?}: delete it, and fipd makes one that leads here"
    )]
    ExternalName(String),
}

/// Host and port of the URL by which others reach fipd.
pub fn advertised(endpoint: &OwnEndpoint) -> Result<(String, u16), Unreachable> {
    let url = endpoint.url.as_deref().ok_or(Unreachable::NoUrl)?;
    let bad = || Unreachable::BadUrl(url.to_owned());
    let uri: http::Uri = url.parse().map_err(|_| bad())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
    let host = host.ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), uri.port_u16().unwrap_or(HTTPS)))
}

/// Where the API listens, if nobody but this host reaches it there.
pub fn loopback(endpoint: &OwnEndpoint) -> Option<SocketAddr> {
    endpoint.listen.filter(|address| address.ip().is_loopback())
}

/// What there is to be said of an address that only this host reaches.
pub fn closed(listen: SocketAddr) -> String {
    format!(
        "fipd listens at {listen} only, which nobody but this host reaches: set [api] listen, unless something here passes \
         the URL on to it"
    )
}

/// The names by which pods reach the Service.
pub fn names(namespace: &str) -> [String; 4] {
    let full = format!("{API_SERVICE}.{namespace}");
    [
        format!("{full}.svc.cluster.local"),
        format!("{full}.svc"),
        full,
        API_SERVICE.to_owned(),
    ]
}

/// Where a host of these addresses is reached from a cluster.
pub fn want(
    host: &str,
    addresses: BTreeSet<IpAddr>,
    port: u16,
    plain: Option<u16>,
) -> Result<ServiceTarget, Unreachable> {
    let reachable = |address: &IpAddr| {
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        !(address.is_loopback() || address.is_unspecified() || link_local)
    };
    let addresses: BTreeSet<IpAddr> = addresses.into_iter().filter(reachable).collect();
    if addresses.is_empty() {
        return Err(Unreachable::Loopback(host.to_owned()));
    }
    let plain = plain.map(|plain| (PLAIN_PORT, plain));
    Ok(ServiceTarget {
        addresses,
        ports: [(TLS_PORT, port)].into_iter().chain(plain).collect(),
    })
}

/// What the ports of the Service are called: as they are, else by what they are, and never as another is. A Service with
/// several must name them.
pub fn port_names(found: Option<&Service>, want: &ServiceTarget) -> BTreeMap<i32, String> {
    let ports = found.and_then(|found| found.spec.as_ref()?.ports.as_ref());
    let ports = || ports.into_iter().flatten();
    let name_of = |one: &ServicePort| one.name.clone().filter(|name| !name.is_empty());
    let mut taken: BTreeSet<String> = ports().filter_map(name_of).collect();
    let mut names = BTreeMap::new();
    for port in want.ports.keys() {
        let found = ports().find(|one| serves(one, *port)).and_then(name_of);
        let name = found.unwrap_or_else(|| {
            let usual = if *port == PLAIN_PORT { "http" } else { "https" };
            free_name(usual, *port, &taken)
        });
        taken.insert(name.clone());
        names.insert(*port, name);
    }
    names
}

fn free_name(usual: &str, port: i32, taken: &BTreeSet<String>) -> String {
    let numbered = format!("{usual}-{port}");
    let more = (2..).map(|count| format!("{usual}-{port}-{count}"));
    let mut all = [usual.to_owned(), numbered].into_iter().chain(more);
    all.find(|name| !taken.contains(name)).unwrap_or_default()
}

/// Whether it is this port. The API is asked by TCP.
fn serves(one: &ServicePort, port: i32) -> bool {
    one.port == port
        && one
            .protocol
            .as_deref()
            .is_none_or(|protocol| protocol == TCP)
}

/// A Service where there is none.
pub fn service(want: &ServiceTarget) -> Value {
    let names = port_names(None, want);
    let ports = want.ports.iter();
    let ports: Vec<ServicePort> = ports
        .map(|(port, to)| wanted(*port, *to, &names, None))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": API_SERVICE, "labels": { MANAGED_BY: FIELD_MANAGER } },
        "spec": { "ports": ports },
    })
}

/// What is to be changed of the Service that was read; `None`: nothing. Ports that are not served stay, and the selector
/// that is taken off is noted.
pub fn mend(found: &Service, want: &ServiceTarget) -> Option<Value> {
    let spec = found.spec.clone().unwrap_or_default();
    let names = port_names(Some(found), want);
    let have = spec.ports.unwrap_or_default();
    let mut ports = Vec::new();
    for port in &have {
        let to = want
            .ports
            .get(&port.port)
            .filter(|_| serves(port, port.port));
        ports.push(match to {
            Some(to) => wanted(port.port, *to, &names, Some(port)),
            None => port.clone(),
        });
    }
    for (port, to) in &want.ports {
        if !have.iter().any(|one| serves(one, *port)) {
            ports.push(wanted(*port, *to, &names, None));
        }
    }
    name_all(&mut ports);
    let selector = spec.selector.filter(|selector| !selector.is_empty());
    let mut metadata = json!({
        "uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version,
    });
    if let Some(selector) = &selector {
        metadata["annotations"] = json!({
            TAKEN_OFF: json!(selector).to_string(), PORTS_BEFORE: json!(have).to_string(),
        });
    }
    (selector.is_some() || ports != have)
        .then(|| json!({ "metadata": metadata, "spec": { "selector": null, "ports": ports } }))
}

/// Names those that have none, where there are several.
fn name_all(ports: &mut [ServicePort]) {
    if ports.len() < 2 {
        return;
    }
    for one in ports {
        let (port, protocol) = (one.port, one.protocol.as_deref().unwrap_or(TCP));
        let own = format!("{}-{port}", protocol.to_ascii_lowercase());
        let name = one.name.get_or_insert_default();
        if name.is_empty() {
            *name = own;
        }
    }
}

/// The selector that a Service has, or else the one that fipd took off, as JSON.
pub fn selector(found: &Service) -> Result<String, Option<String>> {
    let selector = found.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    match selector.filter(|selector| !selector.is_empty()) {
        Some(selector) => Ok(json!(selector).to_string()),
        None => Err(found.annotations().get(TAKEN_OFF).cloned()),
    }
}

/// The merge patch by which the Service leads to the original again, for a shell between single quotes; `None`: what was
/// noted is not what fipd notes.
pub fn back(found: &Service) -> Option<String> {
    let notes = found.annotations();
    let selector: BTreeMap<String, String> = serde_json::from_str(notes.get(TAKEN_OFF)?).ok()?;
    let mut spec = json!({ "selector": selector });
    if let Some(ports) = notes.get(PORTS_BEFORE) {
        let ports: Vec<ServicePort> = serde_json::from_str(ports).ok()?;
        spec["ports"] = json!(ports);
    }
    // Anybody who may change the Service may have written them, and an admin runs this.
    Some(json!({ "spec": spec }).to_string()).filter(|patch| !patch.contains('\''))
}

/// The port of this host that the Service has as its node port: on a node it would lead back to the Service.
pub fn node_port(found: &Service, want: &ServiceTarget) -> Option<u16> {
    let ports = found.spec.as_ref()?.ports.iter().flatten();
    let nodes: BTreeSet<i32> = ports.filter_map(|one| one.node_port).collect();
    let mut to = want.ports.values();
    to.find(|to| nodes.contains(&i32::from(**to))).copied()
}

/// The name that a Service of type ExternalName leads to.
pub fn external_name(found: &Service) -> Option<&str> {
    let spec = found.spec.as_ref()?;
    let external = spec.type_.as_deref() == Some("ExternalName");
    external.then(|| spec.external_name.as_deref().unwrap_or_default())
}

fn wanted(
    port: i32,
    to: u16,
    names: &BTreeMap<i32, String>,
    have: Option<&ServicePort>,
) -> ServicePort {
    ServicePort {
        name: names.get(&port).cloned(),
        port,
        protocol: Some(TCP.to_owned()),
        target_port: Some(IntOrString::Int(to.into())),
        ..have.cloned().unwrap_or_default()
    }
}

/// The slice of each family by name; `None`: this host has no address of it.
pub fn slices(want: &ServiceTarget, names: &BTreeMap<i32, String>) -> [(String, Option<Value>); 2] {
    let ports: Vec<Value> = want
        .ports
        .iter()
        .map(|(port, to)| json!({ "name": names.get(port), "port": to, "protocol": TCP }))
        .collect();
    [("IPv4", true), ("IPv6", false)].map(|(family, v4)| {
        let name = format!("{API_SERVICE}-fipd-{}", family.to_lowercase());
        let ours = want.addresses.iter().filter(|one| one.is_ipv4() == v4);
        let endpoints: Vec<Value> = ours
            .map(|one| json!({ "addresses": [one], "conditions": { "ready": true } }))
            .collect();
        let slice = (!endpoints.is_empty()).then(|| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": { "name": name, "labels": {
                    "kubernetes.io/service-name": API_SERVICE,
                    "endpointslice.kubernetes.io/managed-by": FIELD_MANAGER,
                    MANAGED_BY: FIELD_MANAGER,
                } },
                "addressType": family, "endpoints": endpoints, "ports": ports,
            })
        });
        (name, slice)
    })
}

/// On slices: who keeps them.
pub const KEEPER: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller of Kubernetes that keeps the slices of a Service with a selector.
pub const STOCK_KEEPER: &str = "endpointslice-controller.k8s.io";
/// The one that makes slices of Endpoints which somebody made by hand.
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
/// On Endpoints: marks of the controller of Kubernetes that makes them for a Service with a selector.
const MADE_BY: &str = "endpoints.kubernetes.io/managed-by";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Whether Kubernetes made them while the Service had a selector; nobody needs them any more.
pub fn is_stock(endpoints: &Endpoints) -> bool {
    let labels = endpoints.labels().keys();
    let mut keys = labels.chain(endpoints.annotations().keys());
    keys.any(|key| key == MADE_BY || key == TRIGGERED)
}

/// What others keep that leads the name somewhere.
pub fn strangers(slices: &[EndpointSlice], endpoints: Option<&Endpoints>) -> Vec<String> {
    let strange = |slice: &&EndpointSlice| {
        let keeper = slice.labels().get(KEEPER);
        // Mirrored ones go with the Endpoints.
        let known = keeper.is_some_and(|by| [FIELD_MANAGER, STOCK_KEEPER, MIRROR].contains(&&**by));
        let ready = |one: &k8s_openapi::api::discovery::v1::Endpoint| {
            let conditions = one.conditions.as_ref();
            conditions.and_then(|found| found.ready) != Some(false)
        };
        !known && slice.endpoints.iter().flatten().any(ready)
    };
    let slices = slices.iter().filter(strange);
    let named = slices.filter_map(|slice| slice.metadata.name.as_deref());
    let mut all: Vec<String> = named.map(|name| format!("EndpointSlice {name}")).collect();
    let leads = |found: &&Endpoints| {
        let mut subsets = found.subsets.iter().flatten();
        !is_stock(found)
            && subsets.any(|one| one.addresses.as_ref().is_some_and(|all| !all.is_empty()))
    };
    if endpoints.filter(leads).is_some() {
        all.push(format!("Endpoints {API_SERVICE}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(url: &str, plain: Option<u16>) -> OwnEndpoint {
        OwnEndpoint {
            url: Some(url.to_owned()),
            plain,
            ..OwnEndpoint::default()
        }
    }

    fn here(plain: Option<u16>) -> ServiceTarget {
        let addresses =
            ["192.0.2.7", "2001:db8::7", "127.0.0.1"].map(|one| one.parse().expect("an address"));
        want("fipd.example.net", addresses.into(), 9443, plain).expect("it is reachable")
    }

    fn service_of(value: Value) -> Service {
        serde_json::from_value(value).expect("a Service")
    }

    #[test]
    fn host_and_port_come_from_advertise_and_a_host_that_only_itself_reaches_is_refused() {
        let host = |url: &str| advertised(&door(url, None));
        assert_eq!(
            host("https://fipd.example.net"),
            Ok(("fipd.example.net".into(), 443))
        );
        assert_eq!(
            host("https://[2001:db8::1]:8443"),
            Ok(("2001:db8::1".into(), 8443))
        );
        assert_eq!(
            host("http://x"),
            Err(Unreachable::BadUrl("http://x".into()))
        );
        assert_eq!(advertised(&OwnEndpoint::default()), Err(Unreachable::NoUrl));
        for only in ["127.0.0.1", "::1", "0.0.0.0", "169.254.1.1", "fe80::1"] {
            let addresses = BTreeSet::from([only.parse().expect("an address")]);
            assert_eq!(
                want(only, addresses, 1, None),
                Err(Unreachable::Loopback(only.into()))
            );
        }
        assert_eq!(here(None).addresses.len(), 2);
    }

    #[test]
    fn a_new_service_has_the_ports_that_are_served_and_no_selector() {
        let made = service_of(service(&here(Some(9080))));
        let spec = made.spec.clone().expect("a spec");
        assert_eq!(spec.selector, None);
        let ports: Vec<_> = spec
            .ports
            .into_iter()
            .flatten()
            .map(|one| (one.name, one.port, one.target_port))
            .collect();
        let port = |name: &str, port, to| (Some(name.to_owned()), port, Some(IntOrString::Int(to)));
        assert_eq!(ports, [port("http", 8080, 9080), port("https", 8443, 9443)]);
        assert_eq!(mend(&made, &here(Some(9080))), None);
    }

    #[test]
    fn the_service_of_the_original_loses_its_selector_and_keeps_names_and_node_ports() {
        let found = service_of(json!({
            "metadata": { "name": API_SERVICE, "uid": "u", "resourceVersion": "7" },
            "spec": {
                "type": "NodePort", "selector": { "app": "rancher-fip-api-server" },
                "ports": [
                    { "name": "plain", "port": 8080, "targetPort": 8080, "protocol": "TCP" },
                    { "name": "tls", "port": 8443, "targetPort": 8443, "nodePort": 30001, "protocol": "TCP" },
                ],
            },
        }));
        let want = here(None);
        let change = mend(&found, &want).expect("a change");
        let before = &found.spec.as_ref().expect("a spec").ports;
        let noted = json!({
            TAKEN_OFF: "{\"app\":\"rancher-fip-api-server\"}", PORTS_BEFORE: json!(before).to_string(),
        });
        assert_eq!(
            change["metadata"],
            json!({ "uid": "u", "resourceVersion": "7", "annotations": noted })
        );
        assert_eq!(
            selector(&found),
            Ok("{\"app\":\"rancher-fip-api-server\"}".to_owned())
        );
        let mut taken = found.clone();
        taken.metadata.annotations = serde_json::from_value(noted).expect("annotations");
        taken.spec.as_mut().expect("a spec").selector = None;
        let again = mend(&taken, &want).expect("its ports");
        assert_eq!(
            again["metadata"].get("annotations"),
            None,
            "what was noted stays"
        );
        assert_eq!(
            selector(&taken),
            Err(Some("{\"app\":\"rancher-fip-api-server\"}".into()))
        );
        let patch = back(&taken).expect("a way back");
        let patch: Value = serde_json::from_str(&patch).expect("JSON");
        let spec = json!({ "selector": { "app": API_SERVICE }, "ports": before });
        assert_eq!(patch, json!({ "spec": spec }));
        for other in ["{}}}'; curl x | sh; '", "{\"a\":\"'b\"}", "{\"a\":{}}"] {
            let mut edited = taken.clone();
            let notes = edited.metadata.annotations.get_or_insert_default();
            notes.insert(TAKEN_OFF.to_owned(), other.to_owned());
            assert_eq!(back(&edited), None, "{other}");
        }
        assert_eq!(node_port(&found, &want), None);
        let on_node = ServiceTarget {
            ports: [(8443, 30001)].into(),
            ..want.clone()
        };
        assert_eq!(node_port(&found, &on_node), Some(30001));
        assert_eq!(change["spec"]["selector"], Value::Null);
        assert_eq!(
            change["spec"]["ports"],
            json!([
                { "name": "plain", "port": 8080, "targetPort": 8080, "protocol": "TCP" },
                { "name": "tls", "port": 8443, "targetPort": 9443, "nodePort": 30001, "protocol": "TCP" },
            ])
        );
        let names = port_names(Some(&found), &want);
        let [(name, v4), (_, v6)] = slices(&want, &names);
        let (v4, v6) = (v4.expect("IPv4"), v6.expect("IPv6"));
        assert_eq!(name, "rancher-fip-api-server-fipd-ipv4");
        assert_eq!(
            v4["ports"],
            json!([{ "name": "tls", "port": 9443, "protocol": "TCP" }])
        );
        assert_eq!(
            v4["endpoints"],
            json!([{ "addresses": ["192.0.2.7"], "conditions": { "ready": true } }])
        );
        assert_eq!(
            (&v6["addressType"], &v6["endpoints"][0]["addresses"][0]),
            (&json!("IPv6"), &json!("2001:db8::7"))
        );
        let alone = ServiceTarget {
            addresses: ["192.0.2.7".parse().expect("v4")].into(),
            ..want
        };
        assert_eq!(slices(&alone, &names)[1].1, None);
    }

    #[test]
    fn ports_are_never_called_as_others_are_and_those_of_other_protocols_stay() {
        let found = service_of(json!({
            "metadata": { "name": API_SERVICE },
            "spec": { "ports": [
                { "name": "https", "port": 8080, "targetPort": 8080 },
                { "port": 9000, "protocol": "TCP" },
                { "name": "http", "port": 80 },
                { "name": "quic", "port": 8443, "protocol": "UDP" },
            ] },
        }));
        let change = mend(&found, &here(Some(9080))).expect("a change");
        let ports = change["spec"]["ports"].as_array().expect("ports").iter();
        let ports: Vec<_> = ports
            .map(|one| json!([one["name"], one["port"], one["protocol"], one["targetPort"]]))
            .collect();
        assert_eq!(
            ports,
            [
                json!(["https", 8080, "TCP", 9080]),
                json!(["tcp-9000", 9000, "TCP", null]),
                json!(["http", 80, null, null]),
                json!(["quic", 8443, "UDP", null]),
                json!(["https-8443", 8443, "TCP", 9443]),
            ]
        );
        let after = service_of(json!({ "metadata": {}, "spec": change["spec"] }));
        assert_eq!(mend(&after, &here(Some(9080))), None, "once is enough");
        let names = port_names(Some(&found), &here(Some(9080)));
        assert_eq!(names[&8443], "https-8443");
    }

    #[test]
    fn a_service_that_is_a_name_only_is_told_of() {
        let found =
            service_of(json!({ "spec": { "type": "ExternalName", "externalName": "x.example" } }));
        assert_eq!(external_name(&found), Some("x.example"));
        assert_eq!(external_name(&service_of(service(&here(None)))), None);
    }

    #[test]
    fn who_listens_for_this_host_alone_is_told() {
        let at = |listen: &str| {
            let endpoint = OwnEndpoint {
                listen: listen.parse().ok(),
                ..OwnEndpoint::default()
            };
            loopback(&endpoint).map(closed)
        };
        assert!(
            at("127.0.0.1:8443").is_some_and(
                |said| said.contains("127.0.0.1:8443") && said.contains("[api] listen")
            )
        );
        assert_eq!(
            (at("0.0.0.0:8443"), at("[::]:8443"), at("")),
            (None, None, None)
        );
    }

    #[test]
    fn only_what_kubernetes_made_is_removed_and_others_are_named() {
        let endpoints = |metadata: Value| -> Endpoints {
            let subsets = json!([{ "addresses": [{ "ip": "192.0.2.99" }] }]);
            let found = json!({ "metadata": metadata, "subsets": subsets });
            serde_json::from_value(found).expect("Endpoints")
        };
        let own = endpoints(json!({ "name": API_SERVICE }));
        for stock in [
            json!({ "labels": { MADE_BY: "endpoint-controller" } }),
            json!({ "annotations": { TRIGGERED: "2026-01-01T00:00:00Z" } }),
        ] {
            let stock = endpoints(stock);
            assert!(is_stock(&stock));
            assert_eq!(strangers(&[], Some(&stock)), Vec::<String>::new());
        }
        assert!(!is_stock(&own));
        let slice = |name: &str, keeper: &str, ready: Option<bool>| -> EndpointSlice {
            let endpoint = json!({ "addresses": ["192.0.2.99"], "conditions": { "ready": ready } });
            serde_json::from_value(json!({
                "metadata": { "name": name, "labels": { KEEPER: keeper } },
                "addressType": "IPv4", "endpoints": [endpoint],
            }))
            .expect("a slice")
        };
        let slices = [
            slice("ours", FIELD_MANAGER, Some(true)),
            slice("stock", STOCK_KEEPER, None),
            slice("mirrored", MIRROR, None),
            slice("down", "admin", Some(false)),
            slice("theirs", "admin", None),
        ];
        assert_eq!(
            strangers(&slices, Some(&own)),
            ["EndpointSlice theirs", "Endpoints rancher-fip-api-server"]
        );
    }
}
