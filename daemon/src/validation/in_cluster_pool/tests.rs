use fipd_core::{ClusterId, Origin, System};
use serde_json::{Value, json};

use super::*;

fn origin() -> Origin {
    Origin::Mirror {
        system: System::rancher_fip(),
        cluster: ClusterId("c".into()),
        object: "ns/p".into(),
        uid: "u".into(),
    }
}

fn pool(raw: Value) -> Result<PoolSpec, String> {
    let raw: InClusterIPPoolSpec = serde_json::from_value(raw).expect("a spec");
    named(addresses(&raw)?, "s/c/p".into(), origin())
}

fn prefix_pool(raw: Value) -> Result<PoolSpec, String> {
    let raw: InClusterPrefixPoolSpec = serde_json::from_value(raw).expect("a spec");
    named(prefixes(&raw)?, "s/c/p".into(), origin())
}

fn size(raw: Value) -> u128 {
    let spec = pool(raw.clone()).unwrap_or_else(|wrong| panic!("{raw}: {wrong}"));
    spec.size().expect("a size").assignable
}

/// The rows of the contract's conformance table by their numbers, with a gateway of 192.168.0.1 unless it says another.
#[test]
fn rows_1_to_18_sets_and_counts() {
    let four = |mut raw: Value| {
        raw["prefix"] = json!(24);
        raw["gateway"] = raw.get("gateway").cloned().unwrap_or(json!("192.168.0.1"));
        size(raw)
    };
    let a = |addresses: &[&str]| json!({ "addresses": addresses });
    let listed = ["192.168.0.2", "192.168.0.3-192.168.0.4", "192.168.0.6/31"];
    assert_eq!(four(a(&listed)), 5, "1");
    let zero = ["192.168.0.0", listed[1], listed[2]];
    assert_eq!(four(a(&zero)), 4, "2");
    let gateway = ["192.168.0.1", listed[1], listed[2]];
    assert_eq!(four(a(&gateway)), 4, "4");
    let all = [
        "192.168.0.0",
        "192.168.0.1",
        listed[1],
        listed[2],
        "192.168.0.255",
    ];
    let reserved = json!({ "addresses": all, "allocateReservedIPAddresses": true });
    assert_eq!(four(reserved), 6, "5");
    let ten = json!({ "addresses": ["192.168.0.0-192.168.0.10"], "excludedAddresses": ["192.168.0.5", "192.168.0.6", "192.168.0.7"] });
    assert_eq!(four(ten), 6, "6");
    let whole = |excluded: &str| json!({ "addresses": ["192.168.0.0/24"], "excludedAddresses": [excluded] });
    assert_eq!(four(whole("192.168.0.128/25")), 126, "7");
    assert_eq!(four(whole("192.168.0.2-192.168.0.20")), 234, "8");
    let six = |addresses: &[&str], reserved: bool| {
        size(json!({
            "addresses": addresses, "prefix": 120, "gateway": "fd01::1", "allocateReservedIPAddresses": reserved,
        }))
    };
    let listed = ["fd01::2", "fd01::3-fd01::4", "fd01::6/127"];
    assert_eq!(six(&listed, false), 5, "9");
    let anycast = ["fd01::0", listed[1], listed[2]];
    assert_eq!(six(&anycast, false), 4, "10");
    assert_eq!(six(&["fd01::1", listed[1], listed[2]], false), 4, "12");
    let all = ["fd01::0", "fd01::1", "fd01::2", listed[1], listed[2]];
    assert_eq!(six(&all, true), 6, "13");
    let plain = |addresses: &[&str]| size(json!({ "addresses": addresses, "prefix": 24 }));
    assert_eq!(plain(&["192.168.1.1"]), 1, "14");
    assert_eq!(plain(&["192.168.1.1", "192.168.1.2"]), 2, "14");
    assert_eq!(
        plain(&["192.168.1.1-192.168.1.10", "192.168.1.20-192.168.1.25"]),
        16,
        "15"
    );
    assert_eq!(
        plain(&["192.168.1.1-192.168.1.10", "192.168.1.5-192.168.1.15"]),
        15,
        "16"
    );
    let masked =
        json!({ "addresses": ["fe80::1/126"], "prefix": 120, "allocateReservedIPAddresses": true });
    assert_eq!(size(masked), 4, "18");
}

#[test]
fn row_20_what_is_no_address_range_or_cidr() {
    for text in [
        "1.2.3.4/33",
        "192.168.2.2.4",
        "192.168.1.9-192.168.1.1",
        "192.168.1.1-192.168.1.2-",
        "192.168.1.1-192.168.1.2-192.168.1.3",
        "192.168.1.1/21-192.168.1.5",
        "fe80::zzzz",
        "fe80::/129",
    ] {
        for field in ["addresses", "excludedAddresses"] {
            let mut raw = json!({ "addresses": ["192.168.1.0/24"], "prefix": 24 });
            raw[field] = json!([text]);
            let wrong = pool(raw).expect_err(text);
            let named = format!(
                "spec.{field}[0]: {text:?} is not allowed: it is not a valid IP, range or CIDR"
            );
            assert!(wrong.starts_with(&named), "{wrong}");
        }
    }
}

#[test]
fn rows_51_to_57_what_the_webhook_of_the_original_refuses() {
    let with = |field: &str, value: Value| {
        let mut raw =
            json!({ "addresses": ["192.168.1.0/24"], "prefix": 24, "gateway": "192.168.1.1" });
        raw[field] = value;
        pool(raw)
    };
    for (field, value, text) in [
        ("addresses", json!([]), "addresses is required"),
        ("addresses", json!(["garbage"]), "not a valid IP"),
        ("gateway", json!("invalid"), "spec.gateway"),
        ("prefix", json!(-1), "spec.prefix"),
        ("prefix", json!(9999), "spec.prefix"),
        ("prefix", json!(33), "0 to 32"),
        ("gateway", json!("fd01::1"), "mixed IP families"),
        ("addresses", json!(["fd01::/120"]), "spec.gateway"),
        (
            "addresses",
            json!(["192.168.1.5", "fd01::5"]),
            "mixed IP families",
        ),
        (
            "excludedAddresses",
            json!(["192.168.1.5", "fd01::5"]),
            "mixed IP families",
        ),
        ("excludedAddresses", json!(["fd01::5"]), "mixed IP families"),
        (
            "addresses",
            json!(["192.168.1.5", "192.168.2.5"]),
            "different subnet",
        ),
        (
            "addressReuseGracePeriodSeconds",
            json!(-1),
            "spec.addressReuseGracePeriodSeconds",
        ),
        ("stickySeconds", json!(-1), "spec.stickySeconds"),
    ] {
        let wrong = with(field, value.clone()).expect_err(&format!("{field}: {value}"));
        assert!(wrong.contains(text), "{field}: {value}: {wrong}");
    }
    assert!(with("prefix", json!(0)).is_ok(), "56");
    let spec = with("addressReuseGracePeriodSeconds", json!(60)).expect("57");
    assert_eq!(spec.quarantine, 60);
    let outside = with("excludedAddresses", json!(["10.0.0.0/8"]));
    assert!(outside.is_ok(), "an exclusion may lie outside the pool");
    let far = with("gateway", json!("10.1.1.1")).expect("a gateway anywhere");
    assert_eq!(far.gateway, "10.1.1.1".parse().ok());
    let year = with("addressReuseGracePeriodSeconds", json!(31_536_000)).expect("accepted");
    assert_eq!(year.quarantine, PoolSpec::MAX_QUARANTINE);
    assert!(remark(Some(31_536_000)).is_some_and(|text| text.contains("30 days")));
    assert_eq!(remark(Some(60)), None);
}

#[test]
fn rows_60_to_65_prefix_pools() {
    let spec = prefix_pool(json!({ "prefixes": ["fd00::/62"], "gateway": "fd10::1" })).expect("60");
    assert_eq!(
        (
            spec.allocation_length,
            spec.size().expect("a size").assignable
        ),
        (Some(64), 4)
    );
    assert_eq!(spec.gateway, "fd10::1".parse().ok());
    let two = prefix_pool(json!({ "prefixes": ["fd00:0:0:1::/64", "fd10::/48"] })).expect("62");
    assert_eq!(two.size().expect("a size").assignable, 65_537);
    for raw in [
        json!({ "prefixes": ["fd00::1"] }),
        json!({ "prefixes": ["fd00::1/64"] }),
        json!({ "prefixes": ["fd00::/65"] }),
        json!({ "prefixes": ["10.0.0.0/8"] }),
        json!({ "prefixes": ["fd00::/62"], "gateway": "10.0.0.1" }),
        json!({ "prefixes": ["fd00::/62"], "excludedPrefixes": ["10.0.0.0/8"] }),
        json!({ "prefixes": [] }),
        json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 0 }),
        json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 129 }),
    ] {
        assert!(prefix_pool(raw.clone()).is_err(), "{raw}");
    }
}

/// E-24: pools of one link or one address have ends only where nobody says that they have none.
#[test]
fn e_24_networks_without_ends() {
    let usable = |address: &str, prefix: u8, ends: bool| {
        size(json!({ "addresses": [address], "prefix": prefix, "usableEnds": ends }))
    };
    for (address, prefix, all) in [
        ("10.0.0.4/31", 31, 2),
        ("10.0.0.4", 32, 1),
        ("fd00::4/127", 127, 2),
        ("fd00::4", 128, 1),
    ] {
        assert_eq!(usable(address, prefix, true), all, "{address}");
        assert!(usable(address, prefix, false) < all, "{address}");
    }
    assert_eq!(usable("10.0.0.4/30", 30, true), 2, "it has ends");
}
