use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use serde_json::{Value, json};

use super::*;
use crate::cluster_api::prefix_pool::{
    GlobalInClusterPrefixPool, InClusterPrefixPool, InClusterPrefixPoolSpec,
};
use crate::{cluster_api::tests::object, testing::same_again};

const VERSION: &str = "ipam.cluster.x-k8s.io/v1alpha2";

#[test]
fn address_pools_of_the_stock_provider_read_and_write_the_same() {
    let rest = json!({
        "spec": {
            "addresses": ["10.0.0.0/24", "10.0.0.5-10.0.0.9"], "prefix": 24, "gateway": "10.0.0.1",
            "excludedAddresses": ["10.0.0.7"], "allocateReservedIPAddresses": true, "addressReuseGracePeriodSeconds": 0,
        },
        "status": { "ipAddresses": { "total": 3, "free": -1, "used": 4, "outOfRange": 1 } },
    });
    let pool: InClusterIPPool = same_again(&object(VERSION, "InClusterIPPool", &rest));
    let global: GlobalInClusterIPPool =
        same_again(&object(VERSION, "GlobalInClusterIPPool", &rest));
    assert_eq!(pool.pool_spec(), global.pool_spec());
    assert_eq!(pool.pool_status(), global.pool_status());
    assert_eq!(pool.spec.address_reuse_grace_period_seconds, Some(0));
}

#[test]
fn prefix_pools_of_the_stock_provider_read_and_write_the_same() {
    let rest = json!({
        "spec": {
            "prefixes": ["fd00::/48"], "allocationPrefixLength": 56, "gateway": "fd10::1",
            "excludedPrefixes": ["fd00::/56"],
        },
        "status": { "ipAddresses": { "total": 255, "free": 255, "used": 0, "outOfRange": 0 } },
    });
    let pool: InClusterPrefixPool = same_again(&object(VERSION, "InClusterPrefixPool", &rest));
    let global: GlobalInClusterPrefixPool =
        same_again(&object(VERSION, "GlobalInClusterPrefixPool", &rest));
    assert_eq!(pool.pool_spec(), global.pool_spec());
    assert_eq!(pool.spec.allocation_length(), 56);
    let bare: InClusterPrefixPoolSpec = same_again(&json!({ "prefixes": ["fd00::/48"] }));
    assert_eq!(bare.allocation_length(), 64);
}

#[test]
fn what_fipd_adds_reads_and_writes_the_same() {
    let status = json!({
        "ipAddresses": { "total": 2, "free": 2, "used": 0, "outOfRange": 0 }, "pool": "in-cluster/lab/n/p",
        "network": "default", "quarantined": 0, "observedGeneration": 7,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 7,
            "lastTransitionTime": "2026-05-04T03:02:01Z",
        }],
    });
    let spec = json!({ "addresses": ["10.0.0.4/31"], "prefix": 31, "stickySeconds": 60, "usableEnds": true });
    let rest = json!({ "spec": spec, "status": status });
    let pool: InClusterIPPool = same_again(&object(VERSION, "InClusterIPPool", &rest));
    assert!(pool.spec.usable_ends);
    let spec = json!({ "prefixes": ["fd00::/48"], "stickySeconds": 60, "addressReuseGracePeriodSeconds": 5 });
    let rest = json!({ "spec": spec, "status": status });
    let _: GlobalInClusterPrefixPool =
        same_again(&object(VERSION, "GlobalInClusterPrefixPool", &rest));
}

#[test]
fn an_object_without_spec_is_one_with_an_empty_spec() {
    fn read<K: serde::de::DeserializeOwned>(kind: &str, rest: &Value) -> K {
        serde_json::from_value(object(VERSION, kind, rest)).unwrap()
    }
    for rest in [
        json!({}),
        json!({ "spec": null }),
        json!({ "spec": {}, "status": {} }),
        json!({ "spec": { "addresses": null, "prefix": null, "prefixes": null }, "status": { "ipAddresses": null } }),
    ] {
        let pool: InClusterIPPool = read("InClusterIPPool", &rest);
        assert_eq!(pool.spec, InClusterIPPoolSpec::default(), "{rest}");
        let pool: GlobalInClusterIPPool = read("GlobalInClusterIPPool", &rest);
        assert_eq!(pool.spec.pool, InClusterIPPoolSpec::default(), "{rest}");
        let pool: InClusterPrefixPool = read("InClusterPrefixPool", &rest);
        assert_eq!(pool.spec, InClusterPrefixPoolSpec::default(), "{rest}");
        let pool: GlobalInClusterPrefixPool = read("GlobalInClusterPrefixPool", &rest);
        assert_eq!(pool.spec.pool, InClusterPrefixPoolSpec::default(), "{rest}");
    }
}

/// One field of the stock definition: name, type, required, bounds and default.
type Field = (
    &'static str,
    &'static str,
    bool,
    Option<(f64, f64)>,
    Option<i64>,
);

/// `format: int32` is the upper bound of the grace period.
const ADDRESS_POOL: [Field; 6] = [
    ("addresses", "array of string", true, None, None),
    ("prefix", "integer", true, Some((0.0, 128.0)), None),
    ("gateway", "string", false, None, None),
    ("excludedAddresses", "array of string", false, None, None),
    ("allocateReservedIPAddresses", "boolean", false, None, None),
    (
        "addressReuseGracePeriodSeconds",
        "integer",
        false,
        Some((0.0, 2_147_483_647.0)),
        None,
    ),
];
const PREFIX_POOL: [Field; 4] = [
    ("prefixes", "array of string", true, None, None),
    (
        "allocationPrefixLength",
        "integer",
        false,
        Some((1.0, 128.0)),
        Some(64),
    ),
    ("gateway", "string", false, None, None),
    ("excludedPrefixes", "array of string", false, None, None),
];
const COUNTS: [Field; 4] = [
    ("total", "integer", true, None, None),
    ("free", "integer", true, None, None),
    ("used", "integer", true, None, None),
    ("outOfRange", "integer", true, None, None),
];

fn definition(plural: &str) -> CustomResourceDefinition {
    let mut all = crate::all().into_iter();
    let found = all.find(|crd| crd.spec.names.plural == plural);
    found.unwrap()
}

fn inner<'a>(schema: &'a JSONSchemaProps, field: &str) -> &'a JSONSchemaProps {
    &schema.properties.as_ref().unwrap()[field]
}

/// Compares with the stock fields; returns the fields beyond them, none of which may be required.
fn compare(schema: &JSONSchemaProps, stock: &[Field]) -> Vec<String> {
    let written = serde_json::to_value(schema).unwrap();
    let required = schema.required.clone().unwrap_or_default();
    for &(name, of_type, is_required, bounds, default) in stock {
        let field = &written["properties"][name];
        let is_type = match field["items"]["type"].as_str() {
            Some(item) => format!("array of {item}"),
            None => field["type"].as_str().unwrap().to_owned(),
        };
        assert_eq!(is_type, of_type, "{name}");
        assert_eq!(required.contains(&name.to_owned()), is_required, "{name}");
        let limits = field["minimum"].as_f64().zip(field["maximum"].as_f64());
        assert_eq!(limits, bounds, "{name}");
        assert_eq!(field["default"].as_i64(), default, "{name}");
        // Text is free, and only the required list may not be empty: the stock webhook refuses that.
        for rule in [
            "pattern",
            "maxLength",
            "minLength",
            "maxItems",
            "enum",
            "x-kubernetes-validations",
        ] {
            assert!(
                field.get(rule).is_none() && field["items"].get(rule).is_none(),
                "{name}"
            );
        }
        let list = is_required && of_type.starts_with("array");
        assert_eq!(field["minItems"].as_i64(), list.then_some(1), "{name}");
    }
    let known = |name: &str| stock.iter().any(|field| field.0 == name);
    assert!(required.iter().all(|name| known(name)));
    let names = schema.properties.as_ref().unwrap().keys().cloned();
    names.filter(|name| !known(name)).collect()
}

#[test]
fn schemas_take_what_the_stock_ones_take() {
    let grace = "addressReuseGracePeriodSeconds";
    for (plural, scope, stock, own) in [
        (
            "inclusterippools",
            "Namespaced",
            &ADDRESS_POOL[..],
            ["stickySeconds", "usableEnds"],
        ),
        (
            "globalinclusterippools",
            "Cluster",
            &ADDRESS_POOL,
            ["stickySeconds", "usableEnds"],
        ),
        (
            "inclusterprefixpools",
            "Namespaced",
            &PREFIX_POOL,
            [grace, "stickySeconds"],
        ),
        (
            "globalinclusterprefixpools",
            "Cluster",
            &PREFIX_POOL,
            [grace, "stickySeconds"],
        ),
    ] {
        let crd = definition(plural);
        assert_eq!(crd.spec.scope, scope);
        assert_eq!(crd.spec.names.short_names, None);
        assert_eq!(
            crd.spec.names.categories.as_deref().unwrap(),
            ["cluster-api", "fipd"]
        );
        let labels = crd.metadata.labels.as_ref().unwrap();
        assert_eq!(labels["clusterctl.cluster.x-k8s.io/move-hierarchy"], "");
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{plural} has several versions");
        };
        assert_eq!(
            (&*version.name, version.served, version.storage),
            ("v1alpha2", true, true)
        );
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let schema = version.schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        assert_eq!(root.required, None);
        assert_eq!(compare(inner(root, "spec"), stock), own, "{plural}");
        let counts = inner(inner(root, "status"), "ipAddresses");
        assert_eq!(compare(counts, &COUNTS), Vec::<String>::new());
        assert_eq!(inner(root, "status").required, None);
    }
}

#[test]
fn columns_begin_like_those_of_the_stock_provider() {
    for (plural, first) in [
        ("inclusterippools", "Addresses"),
        ("globalinclusterippools", "Addresses"),
        ("inclusterprefixpools", "Prefixes"),
        ("globalinclusterprefixpools", "Prefixes"),
    ] {
        let crd = definition(plural);
        let columns = crd.spec.versions[0].additional_printer_columns.as_ref();
        let names = columns.unwrap().iter().map(|column| &*column.name);
        let names: Vec<_> = names.collect();
        assert_eq!(
            names,
            [first, "Total", "Free", "Used", "Ready", "Reason", "Age"]
        );
    }
}
