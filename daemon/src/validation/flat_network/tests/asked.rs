use std::{collections::BTreeMap, net::IpAddr};

use fipd_crds::flat_network::{
    FlatNetworkIPSpec,
    names::{DEFAULT_NETWORK, IP, KEEP_SECONDS, MAC, NETWORKS, SUBNET},
};
use proptest::prelude::*;
use serde_json::json;

use super::{super::*, is_wrong, subnet};
use crate::validation::Wrong;
use annotations::{Annotations, AskedFields, PodAddresses, keep_seconds};
use workload::{WorkloadFacts, WorkloadRef};

const PATH: &str = "metadata.annotations";
const OF_IP: &str = "metadata.annotations[flatnetwork.pandaria.io/ip]";
const OF_MAC: &str = "metadata.annotations[flatnetwork.pandaria.io/mac]";

fn annotated(pairs: &[(&str, &str)]) -> Annotations {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn read(ip: &str, mac: &str) -> Result<Option<PodAddresses>, Wrong> {
    PodAddresses::read(PATH, &annotated(&[(IP, ip), (SUBNET, "lab"), (MAC, mac)]))
}

fn asked(ip: &str, mac: &str) -> PodAddresses {
    read(ip, mac).unwrap().unwrap()
}

/// Rows 45 to 47, rule W2.
#[test]
fn w2_addresses_are_a_list_of_candidates() {
    assert_eq!(read("", ""), Ok(None));
    assert_eq!(asked("auto", "").addresses, Vec::<IpAddr>::new());
    let texts = |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let three = asked("192.168.1.111-192.168.1.112-192.168.1.113", "auto").addresses;
    assert_eq!(
        texts(&three),
        ["192.168.1.111", "192.168.1.112", "192.168.1.113"]
    );
    let six = asked("fd00::1-::ffff:10.0.0.1", "").addresses;
    assert_eq!(texts(&six), ["fd00::1", "10.0.0.1"]);
    is_wrong(read("192.168.1.111-192.168.1.1a3", ""), OF_IP, "IP address");
    is_wrong(read("10.0.0.1-", ""), OF_IP, "IP address");
    is_wrong(read(&["10.0.0.1"; 257].join("-"), ""), OF_IP, "at most 256");
    is_wrong(read(&"1".repeat(20_000), ""), OF_IP, "bytes");
    let half = annotated(&[(IP, "auto")]);
    assert_eq!(PodAddresses::read(PATH, &half), Ok(None));
    let wrong = annotated(&[(IP, "auto"), (SUBNET, "A b")]);
    let field = "metadata.annotations[flatnetwork.pandaria.io/subnet]";
    is_wrong(
        PodAddresses::read(PATH, &wrong),
        field,
        "name of a FlatNetworkSubnet",
    );
}

/// Row 48, rule W7, defect 24 of g.1.
#[test]
fn g1_24_macs_are_a_list_of_candidates() {
    let three = asked(
        "auto",
        "AA:bb:cc:dd:ef:01-aa:bb:cc:dd:ef:02-aa:bb:cc:dd:ef:03",
    )
    .macs;
    let texts: Vec<_> = three.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "aa:bb:cc:dd:ef:01",
            "aa:bb:cc:dd:ef:02",
            "aa:bb:cc:dd:ef:03"
        ]
    );
    is_wrong(
        read("auto", "aa:bb:cc:dd:ef:01:02"),
        OF_MAC,
        "6, 8 or 20 bytes",
    );
    is_wrong(read("auto", "00:00:00:00:00:00"), OF_MAC, "zeros");
    is_wrong(read("auto", "01:00:5e:00:00:01"), OF_MAC, "multicast");
}

#[test]
fn the_object_of_a_pods_address_asks_the_same() {
    let spec = |addrs: &[&str], macs: &[&str]| FlatNetworkIPSpec {
        subnet: "lab".into(),
        addrs: addrs.iter().map(|text| (*text).to_owned()).collect(),
        macs: macs.iter().map(|text| (*text).to_owned()).collect(),
        ..FlatNetworkIPSpec::default()
    };
    let read = PodAddresses::of_ip(&spec(&["10.0.0.1"], &["AgAAAAAB"])).unwrap();
    assert_eq!(read, asked("10.0.0.1", "02:00:00:00:00:01"));
    is_wrong(
        PodAddresses::of_ip(&spec(&["x"], &[])),
        "spec.addrs",
        "IP address",
    );
    is_wrong(PodAddresses::of_ip(&spec(&[], &["x"])), "spec.macs", "MAC");
    is_wrong(
        PodAddresses::of_ip(&spec(&["10.0.0.1"; 257], &[])),
        "spec.addrs",
        "at most 256",
    );
    is_wrong(
        PodAddresses::of_ip(&FlatNetworkIPSpec::default()),
        "spec.subnet",
        "name of",
    );
}

#[test]
fn an_ordinal_keeps_its_address_for_a_declared_time() {
    let keep = |text: &str| keep_seconds(PATH, &annotated(&[(KEEP_SECONDS, text)]));
    assert_eq!(keep_seconds(PATH, &Annotations::new()), Ok(None));
    assert_eq!(keep(" 60 "), Ok(Some(60)));
    for wrong in ["", "-1", "1m", "31536001"] {
        is_wrong(
            keep(wrong),
            "metadata.annotations[fipd.io/keep-address-seconds]",
            "365 days",
        );
    }
}

#[test]
fn multus_is_told_of_the_attachment_in_json_or_by_names() {
    let found = |pairs: &[(&str, &str)]| {
        let found = multus::attachments(PATH, &annotated(pairs)).unwrap();
        found
            .into_iter()
            .map(|one| (one.interface, one.is_default))
            .collect::<Vec<_>>()
    };
    let json = r#"[{"name":"x"},{"name":"rancher-flat-network","interface":"eth1","ips":null}]"#;
    assert_eq!(found(&[(NETWORKS, json)]), [("eth1".to_owned(), false)]);
    let names = "x, ns/rancher-flat-network, rancher-flat-network@eth7";
    assert_eq!(
        found(&[(NETWORKS, names)]),
        [("net2".to_owned(), false), ("eth7".to_owned(), false)]
    );
    let single = r#"[{"name":"rancher-flat-network"}]"#;
    assert_eq!(
        found(&[(DEFAULT_NETWORK, single)]),
        [("eth0".to_owned(), true)]
    );
    assert_eq!(found(&[(NETWORKS, "rancher-flat-network-cni")]), []);
    assert_eq!(found(&[]), []);
    for wrong in ["[", r#"{"name":"x"}"#, r#"["x"]"#, &"a,".repeat(65)] {
        let annotations = annotated(&[(NETWORKS, wrong)]);
        let field = "metadata.annotations[k8s.v1.cni.cncf.io/networks]";
        is_wrong(multus::attachments(PATH, &annotations), field, "");
    }
    assert!(!multus::is_told(&annotated(&[(NETWORKS, " ")])));
    assert!(multus::is_told(&annotated(&[(DEFAULT_NETWORK, "x")])));
    assert_eq!(
        multus::names_flat_network("f", "rancher-flat-network"),
        Ok(true)
    );
    assert_eq!(
        multus::names_flat_network("f", "rancher-flat-network-cni"),
        Ok(false)
    );
}

/// Row 62.
#[test]
fn only_addresses_on_the_flat_network_are_taken_from_the_status() {
    let shown = |text: &str| multus::shown_addresses("ns", "f", text);
    let text = json!([
        { "name": "cbr0", "interface": "eth0", "ips": ["10.42.0.7"], "default": true, "dns": {} },
        { "name": "ns/rancher-flat-network", "interface": "eth1", "ips": ["10.2.3.100"], "mac": "02:00:00:00:00:01" },
        { "name": "rancher-flat-network", "ips": ["fd00::1"] },
        { "name": "other/rancher-flat-network", "ips": ["10.9.9.9"] },
        { "name": "x-rancher-flat-network", "ips": ["10.9.9.9"] },
        { "name": null, "ips": null },
    ]);
    let found: Vec<_> = shown(&text.to_string())
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, ["10.2.3.100", "fd00::1"]);
    assert_eq!(shown(""), Ok(vec![]));
    is_wrong(shown("{"), "f", "JSON list");
    is_wrong(
        shown(r#"[{"name":"rancher-flat-network","ips":["x"]}]"#),
        "f",
        "IP addresses",
    );
}

/// Rows 50 and 51, rules W3 to W6 and W8 to W12.
#[test]
fn w3_to_w12_what_a_workload_may_not_have() {
    let lab = subnet(json!({ "gateway": "10.1.2.1" }));
    let fields = AskedFields::annotations(PATH);
    let check = |ip: &str, mac: &str| workload::check_asked(&asked(ip, mac), &fields, &lab);
    assert_eq!(check("10.1.2.10-10.1.2.11", "auto"), Ok(()));
    is_wrong(check("10.1.2.10-10.1.2.10", ""), OF_IP, "twice");
    for (ip, words) in [
        ("10.1.2.1", "gateway"),
        ("10.1.3.1", "outside the subnet's CIDR 10.1.2.0/24"),
        ("10.1.2.0", "first or the last"),
        ("10.1.2.255", "first or the last"),
    ] {
        is_wrong(check(ip, ""), OF_IP, words);
    }
    is_wrong(
        check("10.1.2.10-10.1.2.11", "02:00:00:00:00:01"),
        OF_MAC,
        "1 MACs and 2 addresses",
    );
    is_wrong(
        check("auto", "02:00:00:00:00:01-02:00:00:00:00:01"),
        OF_MAC,
        "twice",
    );
    let (own, none, no_macs) = (
        asked("10.1.2.10", "02:00:00:00:00:01"),
        BTreeMap::new(),
        BTreeMap::new(),
    );
    let by = BTreeMap::from([(
        "10.1.2.10".parse().unwrap(),
        "Deployment/ns/other".to_owned(),
    )]);
    let macs = BTreeMap::from([("02:00:00:00:00:01".parse().unwrap(), "pod ns/a".to_owned())]);
    let facts = WorkloadFacts {
        asked: &own,
        fields: &fields,
        subnet: &lab,
        pods: Some(3),
        reserved: &none,
        used: &none,
        used_macs: &no_macs,
    };
    assert_eq!(workload::check_free(&facts), Ok(()));
    let reserved = WorkloadFacts {
        reserved: &by,
        ..facts
    };
    is_wrong(
        workload::check_free(&reserved),
        OF_IP,
        "reserved by Deployment/ns/other",
    );
    is_wrong(
        workload::check_free(&WorkloadFacts { used: &by, ..facts }),
        OF_IP,
        "in use by",
    );
    is_wrong(
        workload::check_free(&WorkloadFacts {
            used_macs: &macs,
            ..facts
        }),
        OF_MAC,
        "in use by pod ns/a",
    );
    assert_eq!(workload::remarks(&facts).len(), 1);
    assert_eq!(
        workload::remarks(&WorkloadFacts {
            pods: Some(1),
            ..facts
        }),
        Vec::<String>::new()
    );
    let missing = workload::no_subnet(&fields, &own).to_string();
    assert!(
        missing.contains("\"lab\"") && missing.contains("no FlatNetworkSubnet"),
        "{missing}"
    );
}

#[test]
fn ordinals_are_of_their_set_by_name() {
    let set = WorkloadRef::new("StatefulSet", "ns", "db-a");
    assert!(set.has_ordinal("ns", "db-a-0") && set.has_ordinal("ns", "db-a-12"));
    for (namespace, pod) in [
        ("other", "db-a-0"),
        ("ns", "db-a"),
        ("ns", "db-a-"),
        ("ns", "db-a-x"),
        ("ns", "db-0"),
    ] {
        assert!(!set.has_ordinal(namespace, pod), "{namespace}/{pod}");
    }
    assert!(!WorkloadRef::new("Deployment", "ns", "db-a").has_ordinal("ns", "db-a-0"));
    assert_eq!(set.to_string(), "StatefulSet/ns/db-a");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_annotation_panics(
        ip in "[0-9a-f.:\\-]{0,60}|.{0,60}", name in "[a-z0-9.\\-]{0,20}|.{0,20}",
        mac in "[0-9a-f:\\-]{0,60}|.{0,60}", networks in "[\\[\\]{}\",:a-z@/]{0,60}",
    ) {
        let all = annotated(&[
            (IP, ip.as_str()), (SUBNET, name.as_str()), (MAC, mac.as_str()), (NETWORKS, networks.as_str()), (KEEP_SECONDS, ip.as_str()),
        ]);
        if let Ok(Some(asked)) = PodAddresses::read(PATH, &all) {
            let fields = AskedFields::annotations(PATH);
            let _ = workload::check_asked(&asked, &fields, &subnet(json!({})));
        }
        let _ = (multus::attachments(PATH, &all), keep_seconds(PATH, &all));
        let _ = multus::shown_addresses("ns", "f", &networks);
    }
}
