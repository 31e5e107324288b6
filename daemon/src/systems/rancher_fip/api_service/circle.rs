//! Whether the URL by which others reach this host leads back to the Service that is to lead here.

use std::{collections::BTreeSet, net::IpAddr};

use fipd_crds::labels::API_SERVICE;
use k8s_openapi::api::{
    core::v1::Service,
    networking::v1::{Ingress, IngressBackend},
};

use super::plan::names;

/// Where Ingresses are reached by TLS, as their API has it.
const INGRESS_PORT: u16 = 443;

/// How it does, as far as that can be seen. `host` and `port` are of the URL, and `host` has these addresses: other ports of
/// a node lead to others.
pub fn circle(
    (found, ingresses): (Option<&Service>, &[Ingress]),
    namespace: &str,
    ((host, port), addresses): ((&str, u16), &BTreeSet<IpAddr>),
) -> Option<String> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if names(namespace).contains(&host) {
        return Some(format!("{host} is a name of the Service itself"));
    }
    if let Some(found) = found
        && let Some(own) = own(found, port).into_iter().find(|own| {
            *own == host
                || own
                    .parse()
                    .is_ok_and(|address| addresses.contains(&address))
        })
    {
        return Some(format!("{own} is an address of the Service itself"));
    }
    if port != INGRESS_PORT {
        return None;
    }
    let mut leading = ingresses.iter().filter(|one| leads(one, &host, addresses));
    let name = leading.next()?.metadata.name.as_deref().unwrap_or_default();
    Some(format!("Ingress {namespace}/{name} leads {host} to it"))
}

/// Addresses and names under which Kubernetes leads to the Service by this port.
fn own(found: &Service, port: u16) -> BTreeSet<String> {
    let mut own = BTreeSet::new();
    let Some(spec) = &found.spec else { return own };
    own.extend(spec.cluster_ip.clone());
    own.extend(spec.cluster_ips.iter().flatten().cloned());
    own.remove("None");
    let mut ports = spec.ports.iter().flatten();
    if !ports.any(|one| one.port == i32::from(port)) {
        return own;
    }
    own.extend(spec.external_ips.iter().flatten().cloned());
    let balancer = found.status.as_ref();
    let balancer = balancer.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    for one in balancer.into_iter().flatten() {
        own.extend(one.ip.clone());
        own.extend(one.hostname.as_deref().map(str::to_ascii_lowercase));
    }
    own
}

/// Whether the Ingress takes the host to the Service. One that says where it is reached, and that this is elsewhere, does not.
fn leads(ingress: &Ingress, host: &str, addresses: &BTreeSet<IpAddr>) -> bool {
    let Some(spec) = &ingress.spec else {
        return false;
    };
    let ours = |backend: &IngressBackend| {
        let service = backend.service.as_ref();
        service.is_some_and(|service| service.name == API_SERVICE)
    };
    let rules = spec.rules.iter().flatten();
    let mut fitting = rules.filter(|rule| rule.host.as_deref().is_none_or(|of| fits(of, host)));
    let led = fitting.any(|rule| {
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        paths.into_iter().any(|path| ours(&path.backend))
    }) || spec.default_backend.as_ref().is_some_and(ours);
    let reached = ingress.status.as_ref();
    let reached = reached.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let mut at = reached
        .into_iter()
        .flatten()
        .filter_map(|one| one.ip.as_ref()?.parse::<IpAddr>().ok())
        .peekable();
    led && (at.peek().is_none() || at.any(|address| addresses.contains(&address)))
}

/// Whether a host of a rule is this one; `*.` is any one label.
fn fits(rule: &str, host: &str) -> bool {
    let rule = rule.to_ascii_lowercase();
    match rule.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(_, rest)| rest == parent),
        None => rule.is_empty() || rule == host,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: &str = "rancher-fip-api.example.com";

    fn ingress(spec: Value, reached: Value) -> Ingress {
        let object = json!({
            "metadata": { "name": "api" }, "spec": spec,
            "status": { "loadBalancer": { "ingress": reached } },
        });
        serde_json::from_value(object).expect("an Ingress")
    }

    fn rule(host: Value, service: &str) -> Value {
        let backend = json!({ "service": { "name": service, "port": { "number": 8443 } } });
        let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
        json!({ "rules": [{ "host": host, "http": { "paths": [path] } }] })
    }

    fn seen(found: Option<&Service>, ingresses: &[Ingress], host: &str) -> Option<String> {
        seen_at(found, ingresses, (host, 443))
    }

    fn seen_at(
        found: Option<&Service>,
        ingresses: &[Ingress],
        place: (&str, u16),
    ) -> Option<String> {
        let addresses = BTreeSet::from(["192.0.2.7".parse().expect("an address")]);
        circle((found, ingresses), "fip", (place, &addresses))
    }

    #[test]
    fn another_port_of_a_node_that_has_an_ingress_or_a_load_balancer_leads_elsewhere() {
        let here = json!([{ "ip": "192.0.2.7" }]);
        let service = json!({
            "spec": { "clusterIP": "10.43.0.9", "externalIPs": ["192.0.2.7"], "ports": [{ "port": 8443 }] },
            "status": { "loadBalancer": { "ingress": here } },
        });
        let service: Service = serde_json::from_value(service).expect("a Service");
        let ingress = [ingress(rule(json!(HOST), API_SERVICE), here)];
        let at = |port| seen_at(Some(&service), &ingress, (HOST, port));
        assert_eq!(at(9443), None);
        let said = at(8443).expect("a circle");
        assert!(said.starts_with("192.0.2.7 is an address"), "{said}");
        let said = at(443).expect("a circle");
        assert!(said.starts_with("Ingress fip/api leads"), "{said}");
    }

    #[test]
    fn a_url_of_the_service_itself_is_a_circle() {
        for host in [
            "rancher-fip-api-server",
            "Rancher-fip-api-server.fip.svc",
            "rancher-fip-api-server.fip.svc.cluster.local.",
        ] {
            let said = seen(None, &[], host).expect("a circle");
            assert!(said.ends_with("is a name of the Service itself"), "{said}");
        }
        assert_eq!(seen(None, &[], "rancher-fip-api-server.other.svc"), None);
        for (spec, status, circles) in [
            (json!({ "clusterIP": "192.0.2.7" }), json!([]), true),
            (
                json!({ "clusterIP": "None", "externalIPs": ["192.0.2.7"] }),
                json!([]),
                true,
            ),
            (json!({}), json!([{ "ip": "192.0.2.7" }]), true),
            (json!({}), json!([{ "hostname": HOST }]), true),
            (
                json!({ "clusterIP": "10.43.0.9" }),
                json!([{ "ip": "192.0.2.8" }]),
                false,
            ),
        ] {
            let mut service =
                json!({ "spec": spec, "status": { "loadBalancer": { "ingress": status } } });
            service["spec"]["ports"] = json!([{ "port": 443 }]);
            let service = serde_json::from_value(service).expect("a Service");
            let said = seen(Some(&service), &[], HOST);
            assert_eq!(said.is_some(), circles, "{said:?}");
        }
    }

    #[test]
    fn a_url_that_an_ingress_leads_to_the_service_is_a_circle() {
        let here = json!([{ "ip": "192.0.2.7" }]);
        let elsewhere = json!([{ "ip": "192.0.2.8" }]);
        let backend = json!({ "service": { "name": API_SERVICE } });
        for (spec, reached, circles) in [
            (rule(json!(HOST), API_SERVICE), json!([]), true),
            (rule(json!("*.example.com"), API_SERVICE), json!([]), true),
            (rule(json!(null), API_SERVICE), here.clone(), true),
            (json!({ "defaultBackend": backend }), here, true),
            (rule(json!(HOST), API_SERVICE), elsewhere, false),
            (rule(json!(HOST), "other"), json!([]), false),
            (
                rule(json!("other.example.com"), API_SERVICE),
                json!([]),
                false,
            ),
            (rule(json!("*.com"), API_SERVICE), json!([]), false),
        ] {
            let said = seen(None, &[ingress(spec.clone(), reached)], HOST);
            let expected = format!("Ingress fip/api leads {HOST} to it");
            assert_eq!(said, circles.then_some(expected), "{spec}");
        }
    }
}
