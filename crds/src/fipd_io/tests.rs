use serde_json::json;

use super::*;
use crate::testing::same_again;

#[test]
fn both_pools_read_and_write_the_same_spec() {
    let object = |kind: &str| {
        json!({
            "apiVersion": "fipd.io/v1alpha1", "kind": kind, "metadata": { "name": "lab" },
            "spec": {
                "addresses": ["10.0.0.0/24", "10.0.1.5-10.0.1.9"], "exclusions": ["10.0.0.7"], "gateway": "10.0.0.1",
                "prefixLength": 24, "network": "lab", "reservedEnds": { "first": 1, "last": 1, "of": "EachCidr" },
                "quarantineSeconds": 60, "closed": true,
            },
            "status": { "pool": "lab", "total": 3, "used": 0, "free": 3, "reserved": 2, "quarantined": 0 },
        })
    };
    let pool: Pool = same_again(&object("Pool"));
    let namespaced: NamespacedPool = same_again(&object("NamespacedPool"));
    assert_eq!(pool.spec, namespaced.spec.pool);
}

#[test]
fn what_is_left_out_stays_out() {
    let pool: Pool = same_again(&json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": "Pool", "metadata": {}, "spec": { "addresses": ["10.0.0.0/24"] },
    }));
    assert_eq!(
        (pool.spec.prefix_length, pool.spec.reserved_ends),
        (None, None)
    );
    let claim: AddressClaim = same_again(&json!({
        "apiVersion": "fipd.io/v1alpha1", "kind": "AddressClaim", "metadata": {}, "spec": {}, "status": {},
    }));
    assert_eq!(claim.spec, AddressClaimSpec::default());
    let odd = json!({ "poolRef": { "kind": null, "name": null }, "address": null });
    let odd: AddressClaimSpec = serde_json::from_value(odd).unwrap();
    assert_eq!(odd.pool_ref, Some(PoolRef::default()));
}
