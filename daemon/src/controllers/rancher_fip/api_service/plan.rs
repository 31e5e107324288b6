//! What Service and slices are to be, as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use fipd_crds::labels::{API_SERVICE, FIELD_MANAGER, MANAGED_BY};
use k8s_openapi::{
    api::{
        core::v1::{Endpoints, Service, ServicePort},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::{Value, json};

/// The port of the original with TLS, and the plain one.
pub const TLS_PORT: i32 = 8443;
const PLAIN_PORT: i32 = 8080;
const HTTPS: u16 = 443;

/// How others reach the API on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Door {
    /// `[api] advertise`.
    pub url: Option<String>,
    /// The port of a `[[listener]]` that serves it without TLS.
    pub plain: Option<u16>,
}

/// Where the name is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Not empty.
    pub addresses: BTreeSet<IpAddr>,
    /// Port of the Service to port of this host.
    pub ports: BTreeMap<i32, u16>,
}

/// Why the name cannot lead here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
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
}

impl Door {
    /// Host and port of the URL.
    pub fn host(&self) -> Result<(String, u16), Wrong> {
        let url = self.url.as_deref().ok_or(Wrong::NoUrl)?;
        let bad = || Wrong::BadUrl(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok((host.to_owned(), uri.port_u16().unwrap_or(HTTPS)))
    }
}

/// Where a host of these addresses is reached from a cluster.
pub fn want(
    host: &str,
    addresses: BTreeSet<IpAddr>,
    port: u16,
    plain: Option<u16>,
) -> Result<Want, Wrong> {
    let reachable = |address: &IpAddr| {
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        !(address.is_loopback() || address.is_unspecified() || link_local)
    };
    let addresses: BTreeSet<IpAddr> = addresses.into_iter().filter(reachable).collect();
    if addresses.is_empty() {
        return Err(Wrong::Loopback(host.to_owned()));
    }
    let plain = plain.map(|plain| (PLAIN_PORT, plain));
    Ok(Want {
        addresses,
        ports: [(TLS_PORT, port)].into_iter().chain(plain).collect(),
    })
}

/// What the ports of the Service are called: as they are, else by what they are. A Service with several must name them.
pub fn port_names(found: Option<&Service>, want: &Want) -> BTreeMap<i32, String> {
    let ports = found.and_then(|found| found.spec.as_ref()?.ports.as_ref());
    let named = |port: i32| {
        let mut ports = ports.into_iter().flatten();
        let found = ports.find(|one| one.port == port)?;
        found.name.clone().filter(|name| !name.is_empty())
    };
    let usual = |port| if port == PLAIN_PORT { "http" } else { "https" };
    let name = |port: &i32| {
        (
            *port,
            named(*port).unwrap_or_else(|| usual(*port).to_owned()),
        )
    };
    want.ports.keys().map(name).collect()
}

/// A Service where there is none.
pub fn service(want: &Want) -> Value {
    let names = port_names(None, want);
    let ports: Vec<ServicePort> = want
        .ports
        .iter()
        .map(|(port, to)| wanted(*port, *to, &names, None))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": API_SERVICE, "labels": { MANAGED_BY: FIELD_MANAGER } },
        "spec": { "ports": ports },
    })
}

/// What is to be changed of the Service that was read; `None`: nothing. Ports that are not served stay.
pub fn mend(found: &Service, want: &Want) -> Option<Value> {
    let spec = found.spec.clone().unwrap_or_default();
    let names = port_names(Some(found), want);
    let have = spec.ports.unwrap_or_default();
    let mut ports = Vec::new();
    for port in &have {
        ports.push(match want.ports.get(&port.port) {
            Some(to) => wanted(port.port, *to, &names, Some(port)),
            None => port.clone(),
        });
    }
    for (port, to) in &want.ports {
        if !have.iter().any(|one| one.port == *port) {
            ports.push(wanted(*port, *to, &names, None));
        }
    }
    let selects = spec.selector.is_some_and(|selector| !selector.is_empty());
    (selects || ports != have).then(|| {
        json!({
            "metadata": { "uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version },
            "spec": { "selector": null, "ports": ports },
        })
    })
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
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(to.into())),
        ..have.cloned().unwrap_or_default()
    }
}

/// The slice of each family by name; `None`: this host has no address of it.
pub fn slices(want: &Want, names: &BTreeMap<i32, String>) -> [(String, Option<Value>); 2] {
    let ports: Vec<Value> = want
        .ports
        .iter()
        .map(|(port, to)| json!({ "name": names.get(port), "port": to, "protocol": "TCP" }))
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
    let metadata = &endpoints.metadata;
    let labels = metadata.labels.iter().flatten();
    let notes = metadata.annotations.iter().flatten();
    labels
        .chain(notes)
        .any(|(key, _)| key == MADE_BY || key == TRIGGERED)
}

/// What others keep that leads the name somewhere.
pub fn strangers(slices: &[EndpointSlice], endpoints: Option<&Endpoints>) -> Vec<String> {
    let strange = |slice: &&EndpointSlice| {
        let keeper = slice
            .metadata
            .labels
            .as_ref()
            .and_then(|all| all.get(KEEPER));
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

    fn door(url: &str, plain: Option<u16>) -> Door {
        Door {
            url: Some(url.to_owned()),
            plain,
        }
    }

    fn here(plain: Option<u16>) -> Want {
        let addresses =
            ["192.0.2.7", "2001:db8::7", "127.0.0.1"].map(|one| one.parse().expect("an address"));
        want("fipd.example.net", addresses.into(), 9443, plain).expect("it is reachable")
    }

    fn service_of(value: Value) -> Service {
        serde_json::from_value(value).expect("a Service")
    }

    #[test]
    fn host_and_port_come_from_advertise_and_a_host_that_only_itself_reaches_is_refused() {
        let host = |url: &str| door(url, None).host();
        assert_eq!(
            host("https://fipd.example.net"),
            Ok(("fipd.example.net".into(), 443))
        );
        assert_eq!(
            host("https://[2001:db8::1]:8443"),
            Ok(("2001:db8::1".into(), 8443))
        );
        assert_eq!(host("http://x"), Err(Wrong::BadUrl("http://x".into())));
        assert_eq!(Door::default().host(), Err(Wrong::NoUrl));
        for only in ["127.0.0.1", "::1", "0.0.0.0", "169.254.1.1", "fe80::1"] {
            let addresses = BTreeSet::from([only.parse().expect("an address")]);
            assert_eq!(
                want(only, addresses, 1, None),
                Err(Wrong::Loopback(only.into()))
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
        assert_eq!(
            change["metadata"],
            json!({ "uid": "u", "resourceVersion": "7" })
        );
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
        let alone = Want {
            addresses: ["192.0.2.7".parse().expect("v4")].into(),
            ..want
        };
        assert_eq!(slices(&alone, &names)[1].1, None);
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
