use kube::Resource;
use serde_json::{Value, json};

use super::*;

fn object(kind: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": { "name": "lab" },
    });
    let fields = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

#[test]
fn every_field_of_a_subnet_is_read_and_written_the_same() {
    let subnet = object(
        "MacvlanSubnet",
        &json!({ "spec": {
            "master": "eth0", "vlan": 10, "cidr": "192.168.1.0/24", "mode": "bridge", "gateway": "192.168.1.1",
            "ranges": [{ "rangeStart": "192.168.1.10", "rangeEnd": "192.168.1.20" }],
            "routes": [{ "dst": "10.0.0.0/8", "gw": "192.168.1.2", "iface": "eth1" }],
            "podDefaultGateway": { "enable": true, "serviceCidr": "10.43.0.0/16" },
            "ipDelayReuse": 30,
        } }),
    );
    let read: MacvlanSubnet = serde_json::from_value(subnet.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), subnet);
    assert_eq!(read.spec.ranges[0].range_end, "192.168.1.20");
    assert_eq!(read.spec.pod_default_gateway.service_cidr, "10.43.0.0/16");
    assert_eq!(read.spec.ip_delay_reuse, 30);
}

#[test]
fn every_field_of_an_address_is_read_and_written_the_same() {
    let spec = json!({ "subnet": "lab", "podId": "u", "cidr": "192.168.1.10/24", "mac": "aa:bb:cc:dd:ee:ff" });
    let ip = object("MacvlanIP", &json!({ "spec": spec }));
    let read: MacvlanIP = serde_json::from_value(ip.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), ip);
}

#[test]
fn what_is_missing_or_of_the_wrong_shape_is_empty() {
    for rest in [
        json!({}),
        json!({ "spec": null }),
        json!({ "spec": { "cidr": null, "vlan": "ten", "ranges": {}, "routes": ["x"], "gateway": 7 } }),
        json!({ "spec": { "podDefaultGateway": "yes", "ipDelayReuse": [1], "more": { "a": 1 } } }),
    ] {
        let subnet: MacvlanSubnet = serde_json::from_value(object("MacvlanSubnet", &rest)).unwrap();
        assert_eq!(subnet.spec, MacvlanSubnetSpec::default(), "{rest}");
        let ip: MacvlanIP = serde_json::from_value(object("MacvlanIP", &rest)).unwrap();
        assert_eq!(ip.spec.subnet, "", "{rest}");
    }
}

#[test]
fn definitions_are_called_by_plural_and_group_and_are_not_installed() {
    let named = |plural: &str| format!("{plural}.{GROUP}");
    assert_eq!(named(&MacvlanSubnet::plural(&())), names::SUBNET_DEFINITION);
    assert_eq!(named(&MacvlanIP::plural(&())), names::IP_DEFINITION);
    let installed = crate::all();
    assert!(installed.iter().all(|crd| crd.spec.group != GROUP));
}

#[test]
fn annotations_and_labels_of_macvlan_are_known_by_their_prefix() {
    for key in [
        names::IP,
        names::SUBNET,
        names::MAC,
        names::INGRESS,
        names::MACVLAN_SERVICE,
        names::IPV6TO4,
        names::IP_DELAY_REUSE_TIMESTAMP,
        names::SELECTED_IP,
        names::MULTIPLE_IP_HASH,
        names::IP_TYPE,
        names::SELECTED_MAC,
        names::IP_DELAY_REUSE,
    ] {
        assert!(names::is_of_macvlan(key), "{key}");
    }
    for key in [
        "flatnetwork.pandaria.io/ip",
        "macvlan",
        "app",
        "x.macvlan.panda.io/ip",
    ] {
        assert!(!names::is_of_macvlan(key), "{key}");
    }
}
