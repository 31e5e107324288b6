use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::testing::same_again;

fn decode<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn pool_object(version: &str) -> Value {
    json!({
        "apiVersion": format!("rancher.k8s.binbash.org/{version}"),
        "kind": "FloatingIPPool",
        "metadata": {"name": "rke2-bm-aio--public-vlan-1", "annotations": {"rancher-fip-default-network": "true"}},
        "spec": {
            "ipConfig": {
                "family": "IPv4",
                "subnet": "192.0.2.0/24",
                "pool": {"start": "192.0.2.10", "end": "192.0.2.50", "exclude": ["192.0.2.20"]},
            },
            "targetCluster": "rke2-bm-aio",
            "targetNetwork": "public-vlan-1",
            "targetNetworkInterface": "enp2s0",
        },
        "status": {
            "allocated": {"192.0.2.10": "p-abcde [shop]", "192.0.2.20": "excluded"},
            "used": 2,
            "available": 39,
        },
    })
}

#[test]
fn pools_of_both_versions() {
    let new: FloatingIPPool = same_again(&pool_object("v1beta2"));
    assert_eq!(decode::<FloatingIPPool>(&pool_object("v1beta1")), new);
    let config = new.spec.ip_config.unwrap();
    assert_eq!(config.pool.exclude, ["192.0.2.20"]);
    assert_eq!(
        pool_name(&new.spec.target_cluster, &new.spec.target_network),
        "rke2-bm-aio--public-vlan-1"
    );
    let allocated = new.status.unwrap().allocated;
    assert_eq!(
        allocated["192.0.2.10"],
        allocated_text("p-abcde", Some("shop"))
    );
    assert_eq!(allocated["192.0.2.20"], EXCLUDED);
    assert_eq!(allocated_text("p-gone", None), "p-gone [Unassigned]");
}

#[test]
fn a_zero_and_an_empty_text_are_left_out() {
    let pool = FloatingIPPool {
        status: Some(PoolStatus::default()),
        ..FloatingIPPool::new("empty", FloatingIPPoolSpec::default())
    };
    let written = serde_json::to_value(&pool).unwrap();
    assert_eq!(written["spec"], json!({}));
    assert_eq!(written["status"], json!({}));

    let written = serde_json::to_value(FloatingIPSpec::default()).unwrap();
    assert_eq!(
        written,
        json!({"floatingIPPool": ""}),
        "the one field that is always there"
    );
    let written = serde_json::to_value(IpConfig::default()).unwrap();
    assert_eq!(
        written,
        json!({"subnet": "", "pool": {"start": "", "end": ""}})
    );
    assert_eq!(
        serde_json::to_value(FloatingIPStatus::default()).unwrap(),
        json!({})
    );
    assert_eq!(
        serde_json::to_value(Assigned::default()).unwrap(),
        json!({})
    );
    assert_eq!(
        serde_json::to_value(QuotaUsage::default()).unwrap(),
        json!({})
    );
}

#[test]
fn quotas_of_both_versions() {
    let object = |version: &str| {
        json!({
            "apiVersion": format!("rancher.k8s.binbash.org/{version}"),
            "kind": "FloatingIPProjectQuota",
            "metadata": {
                "name": "p-abcde",
                "finalizers": [labels::QUOTA_CLEANUP, labels::SECRET_CLEANUP],
            },
            "spec": {"displayName": "shop", "floatingIPQuota": {"rke2-bm-aio--public-vlan-1": 5, "other": 0}},
            "status": {"fips": {"rke2-bm-aio--public-vlan-1": {
                "family": "IPv4",
                "allocated": {"192.0.2.10": "c-m-4x2bq", "192.0.2.11": "Unassigned"},
                "used": 2,
            }}},
        })
    };
    let new: FloatingIPProjectQuota = same_again(&object("v1beta2"));
    assert_eq!(decode::<FloatingIPProjectQuota>(&object("v1beta1")), new);
    assert_eq!(new.spec.floating_ip_quota["rke2-bm-aio--public-vlan-1"], 5);
    assert_eq!(
        new.status.unwrap().fips["rke2-bm-aio--public-vlan-1"].allocated["192.0.2.11"],
        UNASSIGNED
    );
}

fn ready() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "IPAssigned", "message": "IP assigned",
        "lastTransitionTime": "2026-04-02T10:00:00Z",
    })
}

#[test]
fn a_shared_floating_ip() {
    let object = json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2",
        "kind": "FloatingIP",
        "metadata": {
            "generateName": "fip-", "name": "fip-7hk2p", "namespace": "c-m-4x2bq",
            "finalizers": [labels::FLOATINGIP_CLEANUP],
            "labels": {
                "rancher.k8s.binbash.org/project-name": "p-abcde",
                "rancher.k8s.binbash.org/cluster-name": "c-m-4x2bq",
                "rancher.k8s.binbash.org/service-0-name": "web",
                "rancher.k8s.binbash.org/service-0-namespace": "shop",
                "rancher.k8s.binbash.org/floatingip-group": "front",
            },
        },
        "spec": {"floatingIPPool": "rke2-bm-aio--public-vlan-1", "ipAddr": "192.0.2.10"},
        "status": {
            "ipAddr": "192.0.2.10",
            "state": "Allocated",
            "assigned": {
                "clusterName": "c-m-4x2bq", "projectName": "p-abcde",
                "services": [{"serviceNamespace": "shop", "serviceName": "web"}],
                "floatingIPGroup": "front", "sharedKey": "c-m-4x2bq-a1B2c3D4e5F6",
            },
            "floatingipGroup": "dead", "sharedKey": "dead",
            "conditions": [ready(), ready()],
        },
    });
    let typed: FloatingIP = same_again(&object);
    let status = typed.status.unwrap();
    assert_eq!(status.state, STATE_ALLOCATED);
    assert_eq!(status.conditions.len(), 2, "a log may repeat a type");
    let assigned = status.assigned.unwrap();
    assert_eq!(assigned.floating_ip_group, "front");
    assert_eq!(assigned.services[0].service_name, "web");
}

#[test]
fn odd_objects_decode_and_keep_their_text() {
    let metadata = json!({"name": "odd"});
    for spec in [
        None,
        Some(Value::Null),
        Some(json!({})),
        Some(json!({"ipConfig": null, "targetCluster": null})),
    ] {
        let mut object = json!({"metadata": metadata});
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        assert_eq!(
            decode::<FloatingIPPool>(&object).spec,
            FloatingIPPoolSpec::default(),
            "{object}"
        );
        assert_eq!(
            decode::<FloatingIP>(&object).spec,
            FloatingIPSpec::default(),
            "{object}"
        );
        assert_eq!(
            decode::<FloatingIPProjectQuota>(&object).spec,
            FloatingIPProjectQuotaSpec::default()
        );
    }

    let pool: FloatingIPPool = decode(&json!({"metadata": metadata, "spec": {"ipConfig": {
        "family": "ipv6?", "subnet": "2001:DB8:0:0::/064", "pool": {"start": "2001:DB8::0001", "exclude": null, "unknown": 1},
    }}}));
    let config = pool.spec.ip_config.unwrap();
    assert_eq!(
        (config.family.as_str(), config.subnet.as_str()),
        ("ipv6?", "2001:DB8:0:0::/064")
    );
    assert_eq!(
        (config.pool.start.as_str(), config.pool.end.as_str()),
        ("2001:DB8::0001", "")
    );
}

#[test]
fn numbers_that_do_not_fit_go_to_the_nearest_end() {
    let quota: FloatingIPProjectQuota = serde_json::from_str(
        r#"{"metadata": {"name": "p"}, "spec": {"floatingIPQuota":
            {"a": 18446744073709551615, "b": 1e30, "c": -1e30, "d": -5, "e": null, "f": 3.0, "g": 9223372036854775807}}}"#,
    )
    .unwrap();
    let numbers: Vec<i64> = quota.spec.floating_ip_quota.values().copied().collect();
    assert_eq!(numbers, [i64::MAX, i64::MAX, i64::MIN, -5, 0, 3, i64::MAX]);

    let status: PoolStatus = serde_json::from_str(r#"{"used": 1e30, "available": null}"#).unwrap();
    assert_eq!((status.used, status.available), (i64::MAX, 0));
}

#[test]
fn one_odd_object_does_not_hide_a_list() {
    let list: kube::core::ObjectList<FloatingIP> = decode(&json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPList", "metadata": {"resourceVersion": "7"},
        "items": [
            {"metadata": {"name": "a"}},
            {"metadata": {"name": "b"}, "spec": {"floatingIPPool": "p"}, "status": null},
            {"metadata": {"name": "c"}, "spec": {"floatingIPPool": null}, "status": {"assigned": null, "conditions": null}},
        ],
    }));
    let pools: Vec<&str> = list
        .items
        .iter()
        .map(|fip| fip.spec.floating_ip_pool.as_str())
        .collect();
    assert_eq!(pools, ["", "p", ""]);
}
