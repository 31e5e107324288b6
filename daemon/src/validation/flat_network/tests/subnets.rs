use std::net::IpAddr;

use fipd_cni::attachment::{IpvlanFlag, IpvlanMode, LinkKind, MacvlanMode};
use serde_json::{Value, json};

use super::{super::*, FlatSubnet, is_wrong, read, spec, subnet};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_refused_edit_is_not_in_force() {
    let there = |edit: Value, generation: i64| {
        let object = json!({
            "metadata": { "name": "s", "generation": 2 }, "spec": spec(&edit),
            "status": {
                "accepted": spec(&json!({})),
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "Refused", "message": "no",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
                }],
            },
        });
        FlatSubnet::in_force(&serde_json::from_value(object).unwrap())
    };
    let accepted = subnet(json!({}));
    for edit in [
        json!({ "master": "eth7", "vlan": 9 }),
        json!({ "flatMode": "ipvlan", "mode": "l3" }),
        json!({ "routeSettings": { "addNodeCIDR": true } }),
        json!({ "cidr": "x" }),
    ] {
        assert_eq!(there(edit.clone(), 2), Ok(accepted.clone()), "{edit}");
        assert!(there(edit, 1).unwrap_err().contains("not decided"));
    }
    assert_eq!(there(json!({}), 1), Ok(accepted));
}

/// Rules S1 to S7 and rows 38 to 41, and what nobody checked.
#[test]
fn s1_to_s7_each_fault_names_its_field() {
    let cases = [
        (
            json!({ "flatMode": "" }),
            "spec.flatMode",
            "unrecognized subnet flatMode",
        ),
        (
            json!({ "flatMode": "bridge" }),
            "spec.flatMode",
            "macvlan or ipvlan",
        ),
        (json!({ "cidr": "" }), "spec.cidr", "CIDR such as"),
        (
            json!({ "cidr": "10.1.2.0/33" }),
            "spec.cidr",
            "CIDR such as",
        ),
        (
            json!({ "gateway": "10.1.3.1" }),
            "spec.gateway",
            "inside spec.cidr (10.1.2.0/24)",
        ),
        (json!({ "gateway": "fd00::1" }), "spec.gateway", "inside"),
        (
            json!({ "ranges": [{ "from": "x", "to": "10.1.2.9" }] }),
            "spec.ranges[0].from",
            "IP address",
        ),
        (
            json!({ "ranges": [{ "from": "10.1.2.9", "to": "10.1.3.9" }] }),
            "spec.ranges[0].to",
            "inside",
        ),
        (
            json!({ "ranges": [{ "from": "10.1.2.9", "to": "10.1.2.8" }] }),
            "spec.ranges[0].from",
            "above",
        ),
        (
            json!({ "routes": [{ "dst": "10.0.0.0/8" }] }),
            "spec.routes[0].dev",
            "interface",
        ),
        (
            json!({ "routes": [{ "dev": "eth1" }] }),
            "spec.routes[0].dst",
            "CIDR",
        ),
        (
            json!({ "routes": [{ "dev": "eth1", "dst": "1.2.3.4" }] }),
            "spec.routes[0].dst",
            "CIDR",
        ),
        (
            json!({ "routes": [{ "dev": "eth0", "dst": "10.0.0.0/8", "via": "10.9.9.9" }] }),
            "spec.routes[0].via",
            "inside",
        ),
        (
            json!({ "routes": [{ "dev": "eth1", "dst": "10.0.0.0/8", "priority": -1 }] }),
            "spec.routes[0].priority",
            "2147483647",
        ),
        (
            json!({ "routes": [{ "dev": "eth1", "dst": "10.0.0.0/8", "src": "10.9.9.9" }] }),
            "spec.routes[0].src",
            "inside",
        ),
        (
            json!({ "routes": [{ "dev": "eth1", "dst": "fd00::/8", "via": "10.1.2.9" }] }),
            "spec.routes[0].via",
            "family",
        ),
        (
            json!({ "mode": "l2" }),
            "spec.mode",
            "bridge, vepa, private, passthru",
        ),
        (
            json!({ "ipvlanFlag": "bridge" }),
            "spec.ipvlanFlag",
            "must be empty",
        ),
        (
            json!({ "flatMode": "ipvlan", "mode": "l4" }),
            "spec.mode",
            "l2, l3, l3s",
        ),
        (
            json!({ "flatMode": "ipvlan", "ipvlanFlag": "foo" }),
            "spec.ipvlanFlag",
            "vepa",
        ),
        (json!({ "vlan": 4095 }), "spec.vlan", "4094"),
        (json!({ "vlan": -1 }), "spec.vlan", "4094"),
        (json!({ "master": "" }), "spec.master", "interface"),
        (json!({ "master": "ens/1" }), "spec.master", "without space"),
        (
            json!({ "master": "a".repeat(16), "vlan": 0 }),
            "spec.master",
            "15 bytes",
        ),
    ];
    for (fields, field, words) in cases {
        is_wrong(read(fields), field, words);
    }
    let many = vec![json!({ "from": "10.1.2.9", "to": "10.1.2.9" }); 1_001];
    is_wrong(
        read(json!({ "ranges": many })),
        "spec.ranges",
        "at most 1000",
    );
}

#[test]
fn what_is_fipds_own_is_checked_as_well() {
    let cases = [
        (
            json!({ "exclusions": ["10.1.3.0/24"] }),
            "spec.exclusions[0]",
            "inside",
        ),
        (
            json!({ "exclusions": ["10.1.2.9/24"] }),
            "spec.exclusions[0]",
            "did you mean",
        ),
        (
            json!({ "quarantineSeconds": -1 }),
            "spec.quarantineSeconds",
            "30 days",
        ),
        (
            json!({ "quarantineSeconds": 2_592_001 }),
            "spec.quarantineSeconds",
            "30 days",
        ),
        (
            json!({ "stickySeconds": 31_536_001 }),
            "spec.stickySeconds",
            "365 days",
        ),
        (
            json!({ "partner": "A b" }),
            "spec.partner",
            "name of a FlatNetworkSubnet",
        ),
        (
            json!({ "partner": "-" }),
            "spec.partner",
            "name of a FlatNetworkSubnet",
        ),
    ];
    for (fields, field, words) in cases {
        is_wrong(read(fields), field, words);
    }
    let six = subnet(json!({ "partner": "six" }));
    assert_eq!(six.check_partner("four"), Ok(()));
    is_wrong(six.check_partner("six"), "spec.partner", "itself");
    assert_eq!(
        subnet::check_namespace("cattle-flat-network", "cattle-flat-network"),
        Ok(())
    );
    is_wrong(
        subnet::check_namespace("kube-system", "cattle-flat-network"),
        "metadata.namespace",
        "invalid subnet namespace",
    );
}

/// Row 43, and what the values mean where nothing is said.
#[test]
fn a_good_subnet_is_read_in_either_spelling() {
    let long = subnet(json!({ "master": "enp65s0f0np0", "vlan": 4000 }));
    assert!(long.interface().starts_with("fipd-") && long.interface().len() <= 15);
    assert_ne!(long.interface(), link::interface("enp65s0f0np0", 4_001));
    let four = subnet(json!({ "cidr": "192.168.1.7/24", "vlan": 0 }));
    assert_eq!(four.cidr.to_string(), "192.168.1.0/24");
    assert_eq!(
        (four.kind, &*four.interface()),
        (LinkKind::Macvlan(MacvlanMode::Bridge), "eth0")
    );
    assert_eq!(
        (four.kind.as_str(), link::mode_name(four.kind)),
        ("macvlan", "bridge")
    );
    let old = subnet(json!({
        "flatMode": "ipvlan", "mode": "l3s", "master": "enp65s0f0",
        "ranges": [{ "from": "10.1.2.9", "end": "10.1.2.20" }],
        "routes": [{ "interface": "eth1", "destination": "10.9.9.9/8", "gateway": "10.1.2.9", "priority": 7 }],
    }));
    assert_eq!(
        old.kind,
        LinkKind::Ipvlan(IpvlanMode::L3s, IpvlanFlag::Bridge)
    );
    assert_eq!(old.interface(), "enp65s0f0.10");
    let [route] = old.routes.as_slice() else {
        panic!("one route: {old:?}")
    };
    assert_eq!(
        (route.dst.to_string().as_str(), route.priority),
        ("10.0.0.0/8", 7)
    );
    assert_eq!(route.via, Some(address("10.1.2.9")));
    let mapped = subnet(json!({ "cidr": "::ffff:10.1.2.0/120", "gateway": "::ffff:10.1.2.1" }));
    assert_eq!(mapped.gateway, Some(address("10.1.2.1")));
}

/// Rows 5, 6, 25 and 26; f.1 for the smallest networks.
#[test]
fn the_ends_are_kept_back_as_the_originals_do() {
    let assignable = |fields: Value| {
        let subnet = subnet(fields);
        let size = subnet.pool().size().unwrap().assignable;
        let given: u128 = subnet.given().iter().map(|span| span.len()).sum();
        assert_eq!(size, given, "{subnet:?}");
        (size, subnet.remark().is_some())
    };
    assert_eq!(assignable(json!({})), (254, false));
    assert_eq!(assignable(json!({ "gateway": "10.1.2.1" })), (253, false));
    assert_eq!(
        assignable(json!({ "allocateReservedIPAddresses": true })),
        (256, false)
    );
    assert_eq!(assignable(json!({ "cidr": "fd00::/120" })), (254, false));
    let ranges = json!([{ "from": "10.1.2.0", "to": "10.1.2.9" }, { "from": "10.1.2.5", "to": "10.1.2.12" }]);
    let excluded = json!({ "ranges": ranges, "exclusions": ["10.1.2.4-10.1.2.6"] });
    assert_eq!(assignable(excluded), (9, false));
    for (cidr, all) in [
        ("10.1.2.4/31", 2),
        ("10.1.2.4/32", 1),
        ("fd00::2/127", 2),
        ("fd00::2/128", 1),
    ] {
        assert_eq!(assignable(json!({ "cidr": cidr })), (0, true), "{cidr}");
        let fields = json!({ "cidr": cidr, "allocateReservedIPAddresses": true });
        assert_eq!(assignable(fields), (all, false), "{cidr}");
    }
    let four = subnet(json!({ "gateway": "10.1.2.1", "exclusions": ["10.1.2.7"] }));
    let why = |text: &str| four.why_not(address(text)).unwrap_or_default();
    assert_eq!(why("10.1.2.11"), "");
    assert!(why("10.1.2.0").contains("first or the last"));
    assert!(why("10.1.2.255").contains("first or the last"));
    assert!(why("10.1.2.1").contains("gateway"));
    assert!(why("10.1.2.7").contains("spec.exclusions"));
    assert!(why("fdaa:abab::1").contains("outside"));
}
