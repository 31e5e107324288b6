//! The Endpoints of a Service: Kubernetes warns of them since 1.33, and some still read them.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use serde_json::{Value, json};

use super::{
    observe::{EndpointAddresses, EndpointsView, HEADLESS, SKIP_MIRROR},
    resolve::{EndpointGroups, FlatEndpoint, FlatSubject, ResolvedPort},
    slices::target,
};
use crate::{controller::kind::ENDPOINTS, systems::flat_network::service::plan::owner};

/// Addresses of one object at most, as Kubernetes' controller has it. Who needs more reads the slices.
const MOST: usize = 1_000;

/// What to apply; `None`: nothing. The addresses are those of the slices.
pub fn plan(
    subject: &FlatSubject<'_>,
    groups: &EndpointGroups,
    found: Option<&EndpointsView>,
) -> Option<Value> {
    let subsets = subsets(groups);
    let wanted = EndpointsView {
        owners: vec![subject.service.meta.uid.to_string()],
        addresses: addresses(groups),
    };
    if found == Some(&wanted) {
        return None;
    }
    let mut labels = json!({ SKIP_MIRROR: "true" });
    if subject.service.is_headless {
        labels[HEADLESS] = json!("");
    }
    Some(json!({
        "apiVersion": ENDPOINTS.api_version(),
        "kind": ENDPOINTS.kind,
        "metadata": {
            "namespace": &*subject.key.namespace,
            "name": &*subject.key.name,
            "labels": labels,
            "ownerReferences": [owner((subject.key, subject.service))],
        },
        "subsets": subsets,
    }))
}

/// The endpoints that fit, with their ports.
fn fitting(groups: &EndpointGroups) -> impl Iterator<Item = (&Vec<ResolvedPort>, &FlatEndpoint)> {
    let all = groups.iter();
    all.flat_map(|(ports, group)| group.values().map(move |one| (ports, one)))
        .take(MOST)
}

fn addresses(groups: &EndpointGroups) -> EndpointAddresses {
    fitting(groups)
        .map(|(ports, one)| (one.address, one.is_ready, ports.clone()))
        .collect()
}

/// A subset of each group of ports.
fn subsets(groups: &EndpointGroups) -> Vec<EndpointSubset> {
    let mut subsets: Vec<(&Vec<ResolvedPort>, EndpointSubset)> = Vec::new();
    for (ports, one) in fitting(groups) {
        if subsets.last().is_none_or(|(last, _)| *last != ports) {
            let ports_of = ports.iter().map(port).collect();
            let subset = EndpointSubset {
                ports: Some(ports_of),
                ..EndpointSubset::default()
            };
            subsets.push((ports, subset));
        }
        if let Some((_, subset)) = subsets.last_mut() {
            let addresses = match one.is_ready {
                true => &mut subset.addresses,
                false => &mut subset.not_ready_addresses,
            };
            addresses.get_or_insert_default().push(address(one));
        }
    }
    subsets.into_iter().map(|(_, subset)| subset).collect()
}

fn address(one: &FlatEndpoint) -> EndpointAddress {
    EndpointAddress {
        ip: one.address.to_string(),
        hostname: one.hostname.clone(),
        node_name: one.node.clone(),
        target_ref: Some(target(one)),
    }
}

fn port(one: &ResolvedPort) -> EndpointPort {
    EndpointPort {
        name: Some(one.name.clone()).filter(|name| !name.is_empty()),
        protocol: Some(one.protocol.clone()),
        port: one.number,
        app_protocol: one.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::store::Key;
    use crate::systems::flat_network::endpoints::{
        observe,
        resolve::testing::{pod, resolved, service, subject},
    };

    /// Row 62, and defect g1-16.
    #[test]
    fn endpoints_are_in_step_and_written_once() {
        let ports =
            json!([{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }]);
        let service = service(json!({ "clusterIP": "None", "ports": ports }));
        let key = Key::new("shop", "web");
        let subject = subject(&key, &service);
        let pods = [
            pod("web-0", &["10.2.3.1", "fd00::1"], 8080, true),
            pod("web-1", &["10.2.3.2"], 8080, false),
            pod("web-2", &["10.2.3.3"], 9090, true),
        ];
        let groups = resolved(&subject, &pods);
        let body = plan(&subject, &groups, None).unwrap();
        let labels = json!({ SKIP_MIRROR: "true", HEADLESS: "" });
        assert_eq!(body["metadata"]["labels"], labels);
        let subsets = body["subsets"].as_array().unwrap();
        assert_eq!(subsets.len(), 2);
        assert_eq!(subsets[0]["addresses"].as_array().unwrap().len(), 2);
        assert_eq!(subsets[0]["notReadyAddresses"][0]["ip"], "10.2.3.2");
        assert_eq!(subsets[1]["ports"][0]["port"], 9090);

        let seen = observe::endpoints(serde_json::from_value(body).unwrap());
        assert_eq!(plan(&subject, &groups, Some(&seen)), None, "once is enough");
        let fewer = resolved(&subject, &pods[..1]);
        assert!(plan(&subject, &fewer, Some(&seen)).is_some());
        let none = plan(&subject, &EndpointGroups::new(), Some(&seen)).unwrap();
        assert_eq!(
            none["subsets"],
            json!([]),
            "what the stock controller left goes"
        );
    }
}
