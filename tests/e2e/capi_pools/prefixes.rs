//! Pools of prefixes: rows 60 to 64.

use super::*;

/// Rows 60 to 64: whole prefixes.
#[tokio::test]
async fn claims_on_pools_of_prefixes_get_prefixes() {
    const PREFIXES: &str = "InClusterPrefixPool";
    let bed = Bed::share(&["prefixes"]).await.unwrap();
    let spec = json!({ "spec": { "prefixes": ["fd00::/63"], "gateway": "fd10::1" } });
    bed.objects
        .make(PREFIXES, "prefixes/net", spec)
        .await
        .unwrap();
    for (name, address) in [("a", "fd00::"), ("b", "fd00:0:0:1::")] {
        let path = format!("prefixes/{name}");
        bed.claim(&path, (PREFIXES, "net")).await.unwrap();
        assert_eq!(bed.address(&path).await.unwrap(), address, "60");
        let there = bed.objects.get(ADDRESS, &path).await.unwrap().unwrap();
        let (prefix, gateway) = (&there["spec"]["prefix"], &there["spec"]["gateway"]);
        assert_eq!((prefix, gateway), (&json!(64), &json!("fd10::1")));
    }
    bed.claim("prefixes/c", (PREFIXES, "net")).await.unwrap();
    bed.refused("prefixes/c", "PoolExhausted", "PoolExhausted")
        .await
        .unwrap();
    bed.counts(PREFIXES, "prefixes/net", [2, 2, 0, 0])
        .await
        .unwrap();
    bed.objects.delete(CLAIM, "prefixes/a").await.unwrap();
    assert_eq!(bed.address("prefixes/c").await.unwrap(), "fd00::", "64");
    // A pool of addresses of the same name is another one.
    bed.pool("prefixes/net", &["10.24.0.5"], 24, "")
        .await
        .unwrap();
    bed.claim("prefixes/d", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("prefixes/d").await.unwrap(), "10.24.0.5");
}
