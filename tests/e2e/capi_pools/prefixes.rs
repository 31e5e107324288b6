//! Pools of prefixes: rows 60 to 64.

use super::*;

const PREFIXES: &str = "InClusterPrefixPool";

async fn pool(bed: &Bed, name: &str, prefixes: &[&str], gateway: &str) {
    let mut spec = json!({ "prefixes": prefixes });
    if !gateway.is_empty() {
        spec["gateway"] = json!(gateway);
    }
    let path = format!("prefixes/{name}");
    let made = bed
        .objects
        .make(PREFIXES, &path, json!({ "spec": spec }))
        .await;
    made.unwrap();
}

/// Whole prefixes, the lowest first.
#[tokio::test]
async fn rows_60_62_and_64_claims_on_pools_of_prefixes_get_prefixes() {
    let bed = Bed::share(&["prefixes"]).await.unwrap();
    let gateway = json!("fd10::1");
    for (name, prefixes, gateway, given) in [
        (
            "row-60",
            &["fd00::/62"][..],
            &gateway,
            ["fd00::", "fd00:0:0:1::"],
        ),
        (
            "row-62",
            &["fd62:0:0:1::/64", "fd63::/48"],
            &Value::Null,
            ["fd62:0:0:1::", "fd63::"],
        ),
    ] {
        let text = gateway.as_str().unwrap_or_default();
        pool(&bed, name, prefixes, text).await;
        for (number, address) in (0..).zip(given) {
            let path = format!("prefixes/{name}-{number}");
            bed.claim(&path, (PREFIXES, name)).await.unwrap();
            assert_eq!(bed.address(&path).await.unwrap(), address, "{name}");
            let there = bed.objects.get(ADDRESS, &path).await.unwrap().unwrap();
            let spec = &there["spec"];
            assert_eq!((&spec["prefix"], &spec["gateway"]), (&json!(64), gateway));
        }
    }
    bed.counts(PREFIXES, "prefixes/row-60", [4, 2, 2, 0])
        .await
        .unwrap();
    pool(&bed, "row-64", &["fd64::/64"], "").await;
    bed.claim("prefixes/a", (PREFIXES, "row-64")).await.unwrap();
    assert_eq!(bed.address("prefixes/a").await.unwrap(), "fd64::");
    bed.claim("prefixes/b", (PREFIXES, "row-64")).await.unwrap();
    let said = bed.refused("prefixes/b", "PoolExhausted", "PoolExhausted");
    let said = said.await.unwrap();
    assert!(said.contains("no prefix available"), "64: {said}");
    bed.counts(PREFIXES, "prefixes/row-64", [1, 1, 0, 0])
        .await
        .unwrap();
    bed.objects.delete(CLAIM, "prefixes/a").await.unwrap();
    assert_eq!(bed.address("prefixes/b").await.unwrap(), "fd64::", "64");
    // A pool of addresses of the same name is another one.
    bed.pool("prefixes/row-64", &["10.24.0.5"], 24, "")
        .await
        .unwrap();
    bed.claim("prefixes/d", (POOL, "row-64")).await.unwrap();
    assert_eq!(bed.address("prefixes/d").await.unwrap(), "10.24.0.5");
}
