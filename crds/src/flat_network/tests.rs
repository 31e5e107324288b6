use serde_json::{Value, json};

use super::*;
use crate::testing::same_again;

fn object(kind: &str, rest: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": "flatnetwork.pandaria.io/v1", "kind": kind, "metadata": {} });
    let fields = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

#[test]
fn objects_of_the_original_read_and_write_the_same() {
    let subnet = json!({
        "spec": {
            "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": "192.168.1.0/24",
            "mode": "", "ipvlanFlag": "", "gateway": "192.168.1.1",
            "ranges": [{ "from": "192.168.1.10", "to": "192.168.1.20" }],
            "routes": [{ "dev": "eth1", "dst": "10.0.0.0/8", "via": "192.168.1.2", "priority": 5 }],
            "routeSettings": { "addClusterCIDR": true, "addPodIPToHost": true, "flatNetworkDefaultGateway": true },
        },
        "status": {
            "phase": "Active", "failureMessage": "", "gateway": "192.168.1.1",
            "usedIP": [{ "from": "192.168.1.1", "to": "192.168.1.1" }], "usedIPCount": 1,
            "usedMac": ["aa:bb:cc:dd:ee:ff"],
            "reservedIP": { "Deployment/ns/web": [{ "from": "192.168.1.11", "to": "192.168.1.12" }] },
        },
    });
    let subnet: FlatNetworkSubnet = same_again(&object("FlatNetworkSubnet", &subnet));
    assert!(subnet.spec.route_settings.add_pod_ip_to_host);
    let ip = json!({
        "spec": { "subnet": "lab", "addrs": ["192.168.1.11"], "macs": ["aa:bb:cc:dd:ee:ff"], "podId": "u" },
        "status": {
            "phase": "Active", "failureMessage": "", "allocatedTimeStamp": "2026-01-02T03:04:05Z",
            "addr": "192.168.1.11", "mac": "aa:bb:cc:dd:ee:ff",
        },
    });
    let ip: FlatNetworkIP = same_again(&object("FlatNetworkIP", &ip));
    assert_eq!(ip.status.unwrap().addr, "192.168.1.11");
}

#[test]
fn the_spelling_of_2024_is_read_and_nothing_is_required() {
    let old: FlatNetworkSubnet = serde_json::from_value(object(
        "FlatNetworkSubnet",
        &json!({ "spec": {
            "ranges": [{ "from": "10.0.0.1", "end": "10.0.0.9" }],
            "routes": [{ "destination": "10.0.0.0/8", "gateway": "10.0.0.2", "interface": "eth1" }],
            "podDefaultGateway": { "enable": true, "serviceCIDR": "10.43.0.0/16" },
        } }),
    ))
    .unwrap();
    assert_eq!(old.spec.ranges[0].end, "10.0.0.9");
    assert_eq!(old.spec.routes[0].interface, "eth1");
    assert!(old.spec.pod_default_gateway.unwrap().enable);
    for rest in [
        json!({}),
        json!({ "spec": null, "status": null }),
        json!({ "spec": { "cidr": null, "vlan": null, "ranges": null, "routeSettings": null } }),
        json!({ "spec": { "addrs": null, "macs": null, "podId": null }, "status": { "addr": null } }),
    ] {
        let subnet: FlatNetworkSubnet =
            serde_json::from_value(object("FlatNetworkSubnet", &rest)).unwrap();
        assert_eq!(subnet.spec, FlatNetworkSubnetSpec::default(), "{rest}");
        let ip: FlatNetworkIP = serde_json::from_value(object("FlatNetworkIP", &rest)).unwrap();
        assert_eq!(ip.spec, FlatNetworkIPSpec::default(), "{rest}");
    }
}

/// The originals' definitions require nothing and take null everywhere.
#[test]
fn the_definitions_are_those_of_the_original_with_more() {
    let installed = crate::all();
    for (plural, names) in [
        (
            "flatnetworksubnets",
            vec!["flatnetworksubnet", "flsubnet", "flsubnets"],
        ),
        ("flatnetworkips", vec!["flatnetworkip", "flip", "flips"]),
    ] {
        let mut of_group = installed.iter().filter(|crd| crd.spec.group == GROUP);
        let crd = of_group
            .find(|crd| crd.spec.names.plural == plural)
            .unwrap();
        assert_eq!(crd.spec.scope, "Namespaced");
        assert_eq!(crd.spec.names.short_names.as_deref().unwrap(), names);
        let annotations = crd.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations["helm.sh/resource-policy"], "keep");
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{plural} has several versions");
        };
        assert_eq!((version.name.as_str(), version.storage), ("v1", true));
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let schema = version.schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        let spec = &root.properties.as_ref().unwrap()["spec"];
        assert_eq!((&root.required, &spec.required), (&None, &None));
        let fields = spec.properties.as_ref().unwrap();
        assert!(fields.values().all(|field| field.nullable == Some(true)));
    }
}
