use serde_json::json;

use super::*;

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "macvlan.cluster.cattle.io/v1", "kind": "MacvlanSubnet",
        "metadata": { "name": "lab", "namespace": "kube-system", "uid": "u", "resourceVersion": "7" },
        "spec": spec,
    })
}

fn converted(spec: &Value) -> ConvertedSubnet {
    convert(&object(spec)).unwrap()
}

fn spec(spec: &Value) -> Value {
    serde_json::to_value(converted(spec).subnet.spec).unwrap()
}

#[test]
fn a_subnet_with_all_fields_is_converted_by_the_table() {
    let old = json!({
        "master": "eth0", "vlan": 10, "cidr": "192.168.1.0/24", "mode": "bridge", "gateway": "192.168.1.1",
        "ranges": [{ "rangeStart": "192.168.1.10", "rangeEnd": "192.168.1.20" }],
        "routes": [{ "dst": "10.0.0.0/8", "gw": "192.168.1.2", "iface": "eth1" }, { "dst": "10.1.0.0/16", "iface": "eth0" }],
        "podDefaultGateway": { "enable": true },
    });
    let found = converted(&old);
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!(
        serde_json::to_value(&found.subnet).unwrap(),
        json!({
            "apiVersion": "flatnetwork.pandaria.io/v1", "kind": "FlatNetworkSubnet",
            "metadata": { "name": "lab", "namespace": "cattle-flat-network" },
            "spec": {
                "flatMode": "macvlan", "ipvlanFlag": "",
                "master": "eth0", "vlan": 10, "cidr": "192.168.1.0/24", "mode": "bridge", "gateway": "192.168.1.1",
                "ranges": [{ "from": "192.168.1.10", "to": "192.168.1.20" }],
                "routes": [
                    { "dev": "eth1", "dst": "10.0.0.0/8", "via": "192.168.1.2" },
                    { "dev": "eth0", "dst": "10.1.0.0/16" },
                ],
                "routeSettings": { "flatNetworkDefaultGateway": true },
            },
        })
    );
}

#[test]
fn what_the_original_drops_is_carried_over() {
    let spec = spec(&json!({
        "cidr": "10.0.0.0/24", "ipDelayReuse": 30,
        "podDefaultGateway": { "enable": true, "serviceCidr": "10.43.0.0/16" },
    }));
    assert_eq!(spec["routeSettings"]["addServiceCIDR"], true);
    assert_eq!(spec["routeSettings"]["flatNetworkDefaultGateway"], true);
    assert_eq!(spec["quarantineSeconds"], 30);
}

#[test]
fn an_empty_spec_becomes_an_untagged_subnet_without_gateway() {
    for empty in [
        json!({}),
        json!({ "vlan": 0, "gateway": "", "ranges": [], "routes": null, "ipDelayReuse": 0, "podDefaultGateway": {} }),
    ] {
        let found = converted(&empty);
        assert_eq!(found.notes, Vec::<String>::new(), "{empty}");
        let expected = FlatNetworkSubnetSpec {
            flat_mode: "macvlan".to_owned(),
            ..FlatNetworkSubnetSpec::default()
        };
        assert_eq!(found.subnet.spec, expected, "{empty}");
    }
}

#[test]
fn a_gateway_that_does_not_parse_is_named() {
    let found = converted(&json!({ "gateway": "192.168.1.1/24" }));
    assert_eq!(found.subnet.spec.gateway, "");
    assert!(found.notes[0].contains("spec.gateway: \"192.168.1.1/24\""));
    let found = converted(&json!({ "gateway": 7 }));
    assert!(
        found.notes[0].contains("spec.gateway: 7"),
        "{:?}",
        found.notes
    );
}

#[test]
fn a_route_without_an_interface_is_named_and_others_stay() {
    let found = converted(&json!({ "routes": [
        { "dst": "10.0.0.0/8", "gw": "10.1.1.1" }, { "dst": "10.2.0.0/16", "iface": "eth1" },
    ] }));
    assert_eq!(found.subnet.spec.routes.len(), 1);
    let note = &found.notes[0];
    for part in ["spec.routes[0]", "10.0.0.0/8", "10.1.1.1", "dev"] {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn bad_addresses_are_refused_with_field_and_value() {
    for (spec, field, value) in [
        (
            json!({ "ranges": [{ "rangeStart": "10.0.0.1", "rangeEnd": "10.0.0.1" }, { "rangeStart": "ten", "rangeEnd": "10.0.0.9" }] }),
            "spec.ranges[1].rangeStart",
            "ten",
        ),
        (
            json!({ "ranges": [{ "rangeStart": "10.0.0.1" }] }),
            "spec.ranges[0].rangeEnd",
            "\"\"",
        ),
        (
            json!({ "routes": [{ "dst": "10.0.0.0/8", "gw": "10.0.0.0/8", "iface": "eth1" }] }),
            "spec.routes[0].gw",
            "10.0.0.0/8",
        ),
    ] {
        let error = convert(&object(&spec)).unwrap_err();
        assert!(error.contains(field) && error.contains(value), "{error}");
        assert!(error.contains("correct it"), "{error}");
    }
}

#[test]
fn values_of_the_wrong_type_never_become_empty_ones() {
    for (spec, field) in [
        (json!({ "vlan": "10" }), "spec.vlan"),
        (json!({ "vlan": 10.5 }), "spec.vlan"),
        (json!({ "cidr": 7 }), "spec.cidr"),
        (
            json!({ "ranges": { "rangeStart": "10.0.0.1" } }),
            "spec.ranges.rangeStart",
        ),
        (json!({ "routes": ["10.0.0.0/8"] }), "spec.routes[0]"),
        (
            json!({ "podDefaultGateway": { "enable": "yes" } }),
            "spec.podDefaultGateway.enable",
        ),
        (json!({ "ipDelayReuse": "5m" }), "spec.ipDelayReuse"),
    ] {
        let error = convert(&object(&spec)).unwrap_err();
        assert!(error.starts_with(field), "{spec}: {error}");
    }
}

#[test]
fn fields_that_flat_network_does_not_have_are_named() {
    let found = converted(&json!({ "mtu": 9000, "more": { "a": [1] } }));
    assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.starts_with("spec.mtu: 9000"))
    );
}

#[test]
fn a_cooling_time_out_of_range_is_named() {
    for seconds in [-1, LONGEST_QUARANTINE + 1] {
        let found = converted(&json!({ "ipDelayReuse": seconds }));
        assert_eq!(found.subnet.spec.quarantine_seconds, None);
        assert!(found.notes[0].contains(&seconds.to_string()));
    }
    let longest = converted(&json!({ "ipDelayReuse": LONGEST_QUARANTINE }));
    assert_eq!(
        longest.subnet.spec.quarantine_seconds,
        Some(LONGEST_QUARANTINE)
    );
}

#[test]
fn labels_and_annotations_are_kept_but_those_of_macvlan() {
    let mut old = object(&json!({ "cidr": "10.0.0.0/24" }));
    old["metadata"]["labels"] = json!({
        "team": "net", "master": "eth0", "vlan": "10", "mode": "bridge", "macvlan.pandaria.cattle.io/subnet": "lab",
    });
    old["metadata"]["annotations"] = json!({
        "note": "rack 7", "macvlan.panda.io/ipv6to4": "true", "macvlan.panda.io/other": "x",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    old["metadata"]["finalizers"] = json!(["macvlan.panda.io/x"]);
    let metadata = serde_json::to_value(convert(&old).unwrap().subnet.metadata).unwrap();
    assert_eq!(
        metadata,
        json!({
            "name": "lab", "namespace": "cattle-flat-network",
            "labels": { "team": "net" },
            "annotations": { "note": "rack 7", "flatnetwork.pandaria.io/ipv6to4": "true" },
        })
    );
}
