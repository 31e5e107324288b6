use serde_json::{Value, json};

use super::*;
use crate::{cluster_api::tests::object, testing::same_again};

fn spec(value: Value) -> InClusterIPPoolV1Alpha1Spec {
    serde_json::from_value(value).unwrap()
}

fn converted(value: Value) -> (Vec<String>, i64) {
    let new = to_v1alpha2(&spec(value)).unwrap();
    (new.addresses, new.prefix)
}

#[test]
fn objects_of_the_old_version_read_and_write_the_same() {
    let version = "ipam.cluster.x-k8s.io/v1alpha1";
    let rest = json!({
        "spec": {
            "addresses": ["10.0.1.5"], "subnet": "10.0.0.0/24", "start": "10.0.0.10", "end": "10.0.0.20", "prefix": 24,
            "gateway": "10.0.0.1",
        },
        "status": { "ipAddresses": { "total": 1, "free": 1, "used": 0, "outOfRange": 0 } },
    });
    let pool: InClusterIPPoolV1Alpha1 = same_again(&object(version, "InClusterIPPool", &rest));
    let global: GlobalInClusterIPPoolV1Alpha1 =
        same_again(&object(version, "GlobalInClusterIPPool", &rest));
    assert_eq!(pool.spec, global.spec.pool);
    let empty = object(version, "InClusterIPPool", &json!({}));
    let empty: InClusterIPPoolV1Alpha1 = serde_json::from_value(empty).unwrap();
    assert_eq!(empty.spec, InClusterIPPoolV1Alpha1Spec::default());
}

#[test]
fn every_form_becomes_addresses() {
    for (old, addresses, prefix) in [
        (
            json!({ "addresses": ["10.0.0.5", "10.0.0.8/30"], "prefix": 24 }),
            &["10.0.0.5", "10.0.0.8/30"][..],
            24,
        ),
        (
            json!({ "start": "10.0.0.5", "end": "10.0.0.9", "prefix": 24 }),
            &["10.0.0.5-10.0.0.9"],
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24" }),
            &["10.0.0.1-10.0.0.254"],
            24,
        ),
        (
            json!({ "subnet": "10.0.0.77/24", "prefix": 16 }),
            &["10.0.0.1-10.0.0.254"],
            16,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "start": "10.0.0.100" }),
            &["10.0.0.100-10.0.0.254"],
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "end": "10.0.0.100" }),
            &["10.0.0.1-10.0.0.100"],
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/31", "start": "10.0.0.0", "end": "10.0.0.1" }),
            &["10.0.0.0-10.0.0.1"],
            31,
        ),
        (
            json!({ "addresses": ["10.0.0.5"], "subnet": "10.0.0.8/30" }),
            &["10.0.0.5", "10.0.0.9-10.0.0.10"],
            30,
        ),
        (
            json!({ "subnet": "fd00::/64" }),
            &["fd00::1-fd00::ffff:ffff:ffff:fffe"],
            64,
        ),
        (
            json!({ "subnet": "::/0" }),
            &["::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"],
            0,
        ),
        (
            json!({ "subnet": "0.0.0.0/0" }),
            &["0.0.0.1-255.255.255.254"],
            0,
        ),
    ] {
        let expected: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(converted(old.clone()), (expected, prefix), "{old}");
    }
}

#[test]
fn what_names_no_addresses_is_refused() {
    for (old, field) in [
        (json!({}), "spec.addresses"),
        (json!({ "start": "10.0.0.5", "prefix": 24 }), "spec.end"),
        (json!({ "end": "10.0.0.5", "prefix": 24 }), "spec.start"),
        (json!({ "subnet": "10.0.0.0" }), "spec.subnet"),
        (json!({ "subnet": "10.0.0.0/33" }), "spec.subnet"),
        (json!({ "subnet": "10.0.0.0/+8" }), "spec.subnet"),
        (json!({ "subnet": "10.0.0.0/08" }), "spec.subnet"),
        (json!({ "subnet": "fd00::/129" }), "spec.subnet"),
        (json!({ "subnet": "10.0.0.0/31" }), "spec.subnet"),
        (json!({ "subnet": "255.255.255.255/32" }), "spec.subnet"),
    ] {
        let refusal = to_v1alpha2(&spec(old.clone())).unwrap_err();
        assert!(refusal.contains(field), "{old}: {refusal}");
    }
}

#[test]
fn the_way_there_and_back_changes_nothing() {
    for old in [
        json!({ "subnet": "10.0.0.0/24", "gateway": "10.0.0.1" }),
        json!({ "start": "10.0.0.5", "end": "10.0.0.9", "prefix": 24 }),
        json!({ "addresses": ["10.0.0.5"], "prefix": 24, "gateway": "10.0.0.1" }),
    ] {
        let old = spec(old);
        let new = to_v1alpha2(&old).unwrap();
        assert_eq!(to_v1alpha1(&new, Some(&old)), old);
        // Without the original it takes another form that means the same.
        let plain = to_v1alpha1(&new, None);
        assert_eq!(plain.subnet, "");
        assert_eq!(to_v1alpha2(&plain), Ok(new));
    }
}

#[test]
fn an_original_that_means_something_else_no_longer_counts() {
    let old = spec(json!({ "subnet": "10.0.0.0/24" }));
    let mut new = to_v1alpha2(&old).unwrap();
    new.addresses = vec!["10.0.0.5".to_owned()];
    let back = to_v1alpha1(&new, Some(&old));
    assert_eq!((back.subnet.as_str(), back.addresses), ("", new.addresses));
}
