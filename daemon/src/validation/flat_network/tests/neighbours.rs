use std::net::IpAddr;

use fipd_core::{Ledger, NetworkId, Op, PoolId, PoolSpec, testing};
use serde_json::{Value, json};

use super::{super::*, is_wrong, subnet};
use crate::validation::Wrong;

/// Rows 29 to 37.
#[test]
fn s8_to_s10_subnets_of_one_interface_do_not_meet() {
    let clash = |mine: Value, theirs: Value| {
        let (mine, theirs) = (subnet(mine), subnet(theirs));
        let clashes = clash::clashes(&mine, [("other", &theirs)]);
        clash::refuse(&clashes)
    };
    for (mine, theirs) in [
        ("10.1.2.0/24", "10.1.2.0/24"),
        ("10.1.2.0/24", "10.1.0.0/16"),
        ("10.1.0.0/16", "10.0.0.0/8"),
        ("10.0.0.0/8", "10.1.0.0/16"),
    ] {
        let result = clash(json!({ "cidr": mine }), json!({ "cidr": theirs }));
        is_wrong(result, "spec.cidr", "CIDR conflict");
    }
    let apart = clash(
        json!({ "cidr": "10.1.2.0/24" }),
        json!({ "cidr": "10.2.3.0/24" }),
    );
    assert_eq!(apart, Ok(()), "row 30");
    let other = json!({ "flatMode": "ipvlan", "cidr": "10.2.3.0/24" });
    is_wrong(
        clash(other.clone(), json!({})),
        "spec.flatMode",
        "already using master iface [eth0.10]",
    );
    for (field, own) in [
        ("spec.mode", json!({ "mode": "l3" })),
        ("spec.ipvlanFlag", json!({ "ipvlanFlag": "vepa" })),
    ] {
        let ipvlan = |cidr: &str| json!({ "flatMode": "ipvlan", "cidr": cidr });
        let mut mine = ipvlan("10.1.2.0/24");
        assert_eq!(clash(mine.clone(), other.clone()), Ok(()));
        for (key, value) in own.as_object().unwrap() {
            mine[key] = value.clone();
        }
        is_wrong(clash(mine, other.clone()), field, "ipvlan subnet");
    }
    let private = json!({ "mode": "private", "cidr": "10.2.3.0/24" });
    assert_eq!(clash(private, json!({})), Ok(()), "macvlan has one each");
    let elsewhere = json!({ "flatMode": "ipvlan", "cidr": "10.2.3.0/24", "vlan": 20 });
    assert_eq!(clash(elsewhere, json!({})), Ok(()), "row 32");
    let ranges = |from: u8, to: u8| json!([{ "from": format!("10.1.2.{from}"), "to": format!("10.1.2.{to}") }]);
    let existing = || json!({ "ranges": ranges(10, 20) });
    is_wrong(clash(json!({}), existing()), "spec.cidr", "CIDR conflict");
    is_wrong(clash(existing(), json!({})), "spec.cidr", "CIDR conflict");
    for new in [ranges(100, 200), ranges(0, 9)] {
        assert_eq!(
            clash(json!({ "ranges": new }), existing()),
            Ok(()),
            "row 35"
        );
    }
    is_wrong(
        clash(json!({ "ranges": ranges(20, 30) }), existing()),
        "spec.ranges",
        "range conflict",
    );
    assert_eq!(
        clash(json!({ "ranges": ranges(20, 30), "vlan": 5 }), existing()),
        Ok(()),
        "row 36"
    );
    assert_eq!(clash(json!({ "master": "eth1" }), json!({})), Ok(()));
}

#[test]
fn g1_9_all_neighbours_are_looked_at() {
    let ranges = |from: u8, to: u8| {
        subnet(
            json!({ "ranges": [{ "from": format!("10.1.2.{from}"), "to": format!("10.1.2.{to}") }] }),
        )
    };
    let (first, second, third) = (ranges(1, 9), ranges(10, 19), ranges(20, 29));
    let others = [("first", &first), ("second", &second), ("third", &third)];
    let clashes = clash::clashes(&ranges(15, 25), others);
    let names: Vec<_> = clashes.iter().map(|clash| clash.with.as_str()).collect();
    assert_eq!(names, ["second", "third"]);
    is_wrong(
        clash::refuse(&clashes),
        "spec.ranges",
        "it clashes with third as well",
    );
}

#[test]
fn pools_of_any_system_count_by_what_they_give() {
    let mut ledger = Ledger::new();
    let own = |id: u32, name: &str, addresses: &[&str], closed: bool| {
        let spec = PoolSpec {
            closed,
            ..testing::pool_spec(name, addresses)
        };
        let mut pool = testing::pool(spec);
        pool.id = PoolId(id);
        Op::PutPool(pool.into())
    };
    for op in [
        own(1, "mine", &["10.1.2.0/24"], false),
        own(2, "theirs", &["10.1.2.200-10.1.3.9"], false),
        own(3, "closed", &["10.1.2.0/24"], true),
    ] {
        ledger.apply(&op);
    }
    let given = subnet(json!({})).given();
    let found = |own| {
        let overlaps = pools::overlaps(&ledger, NetworkId::DEFAULT, own, &given);
        let text =
            |one: &pools::PoolOverlap| (one.pool.spec.name.to_string(), spans::text(&one.span));
        (
            overlaps.iter().map(text).collect::<Vec<_>>(),
            pools::refuse(&overlaps),
        )
    };
    let (texts, refused) = found(Some(PoolId(1)));
    assert_eq!(
        texts,
        [("theirs".to_owned(), "10.1.2.200-10.1.2.254".to_owned())]
    );
    is_wrong(refused, "spec.ranges", "theirs");
    assert_eq!(found(None).0.len(), 2);
    let elsewhere = pools::overlaps(&ledger, NetworkId(7), None, &given);
    assert_eq!(
        (
            elsewhere,
            pools::overlaps(&ledger, NetworkId::DEFAULT, None, &[])
        ),
        (vec![], vec![])
    );
}

#[test]
fn g1_20_what_pods_rest_on_stays() {
    let before = subnet(json!({}));
    for (fields, field) in [
        (json!({ "cidr": "10.1.0.0/16" }), "spec.cidr"),
        (json!({ "master": "eth1" }), "spec.master"),
        (json!({ "vlan": 0 }), "spec.vlan"),
        (json!({ "flatMode": "ipvlan" }), "spec.flatMode"),
    ] {
        let result: Result<(), Wrong> = changes::check_fixed(&before, &subnet(fields), "pod ns/a");
        is_wrong(result, field, "such as by pod ns/a");
    }
    let after =
        subnet(json!({ "gateway": "10.1.2.1", "exclusions": ["10.1.2.9"], "mode": "vepa" }));
    assert_eq!(changes::check_fixed(&before, &after, "pod ns/a"), Ok(()));
    let lost: Vec<String> = changes::lost(&before, &after)
        .iter()
        .map(spans::text)
        .collect();
    assert_eq!(lost, ["10.1.2.1", "10.1.2.9"]);
    assert_eq!(changes::check_outside(&[]), Ok(()));
    is_wrong(
        changes::check_outside(&[IpAddr::from([10, 1, 2, 9])]),
        "spec.ranges",
        "in use",
    );
}
