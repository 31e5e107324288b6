//! A claim from first to last: rows 21 to 40.

use super::*;

/// Rows 21 and 24 to 26: what the IPAddress of a claim is, and which address is next.
#[tokio::test]
async fn rows_21_24_25_and_26_a_claim_gets_the_lowest_free_address_and_an_ipaddress_that_shows_it()
{
    let bed = Bed::share(&["lowest", "lowest-two"]).await.unwrap();
    bed.pool("lowest/net", &["10.11.0.1-10.11.0.254"], 24, "10.11.0.2")
        .await
        .unwrap();
    let labelled = json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c" } } });
    bed.objects
        .make("Cluster", "lowest/c", cluster())
        .await
        .unwrap();
    let pool = (POOL, "net");
    bed.objects
        .claim_with("lowest/a", pool, labelled)
        .await
        .unwrap();
    assert_eq!(bed.address("lowest/a").await.unwrap(), "10.11.0.1", "21");
    let claim = bed.objects.get(CLAIM, "lowest/a").await.unwrap().unwrap();
    let finalizer = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    assert_eq!(claim["metadata"]["finalizers"], finalizer);
    let ready = &claim["status"]["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["reason"]),
        (&json!("Ready"), &json!("AddressAllocated"))
    );
    let there = bed.objects.get(ADDRESS, "lowest/a").await.unwrap().unwrap();
    let spec = json!({
        "claimRef": { "name": "a" }, "address": "10.11.0.1", "prefix": 24, "gateway": "10.11.0.2",
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL, "name": "net" },
    });
    assert_eq!(there["spec"], spec);
    let meta = &there["metadata"];
    assert_eq!(
        meta["finalizers"],
        json!(["ipam.cluster.x-k8s.io/ProtectAddress"])
    );
    assert_eq!(meta["labels"]["cluster.x-k8s.io/cluster-name"], "c");
    let pool = bed.objects.get(POOL, "lowest/net").await.unwrap().unwrap();
    assert_eq!(
        pool["metadata"]["finalizers"],
        json!(["ipam.cluster.x-k8s.io/ProtectPool"])
    );
    let owners = json!([
        { "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": CLAIM, "name": "a", "uid": claim["metadata"]["uid"],
          "controller": true, "blockOwnerDeletion": true },
        { "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": POOL, "name": "net", "uid": pool["metadata"]["uid"],
          "controller": false, "blockOwnerDeletion": true },
    ]);
    assert_eq!(meta["ownerReferences"], owners);

    // The first address after the gateway; lowest first, whatever the order of the list.
    bed.claim("lowest/b", ("InClusterIPPool", "net"))
        .await
        .unwrap();
    assert_eq!(bed.address("lowest/b").await.unwrap(), "10.11.0.3");
    bed.pool(
        "lowest-two/singles",
        &["10.11.20.128", "10.11.20.50"],
        24,
        "",
    )
    .await
    .unwrap();
    for (name, address) in [("a", "10.11.20.50"), ("b", "10.11.20.128")] {
        let path = format!("lowest-two/{name}");
        bed.claim(&path, (POOL, "singles")).await.unwrap();
        assert_eq!(bed.address(&path).await.unwrap(), address, "24, 26");
        let there = bed.objects.get(ADDRESS, &path).await.unwrap().unwrap();
        assert_eq!(there["spec"]["gateway"], Value::Null, "25");
    }
    bed.counts(POOL, "lowest-two/singles", [2, 2, 0, 0])
        .await
        .unwrap();
}

/// Row 22, E-16 and E-22: a claim that waits says why, and claims are served in the order of their creation.
#[tokio::test]
async fn e_22_row_22_who_waits_for_a_full_pool_is_served_when_it_has_room() {
    let bed = Bed::share(&["full"]).await.unwrap();
    let listed = ["10.12.1.0", "10.12.1.1", "10.12.1.2", "10.12.1.255"];
    bed.pool("full/net", &listed, 24, "10.12.1.1")
        .await
        .unwrap();
    bed.claim("full/a", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("full/a").await.unwrap(), "10.12.1.2", "22");
    for name in ["b", "c"] {
        fipd_tests::kube_fip::next_second().await;
        let path = format!("full/{name}");
        bed.claim(&path, (POOL, "net")).await.unwrap();
        let said = bed
            .refused(&path, "PoolExhausted", "PoolExhausted")
            .await
            .unwrap();
        assert!(said.contains("net"), "{said}");
    }
    bed.objects
        .wait_event(POOL, "full/net", "PoolExhausted")
        .await
        .unwrap();
    bed.objects.delete(CLAIM, "full/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "full/a").await.unwrap();
    assert_eq!(bed.address("full/b").await.unwrap(), "10.12.1.2");
    let wider = json!({ "spec": { "addresses": ["10.12.1.2-10.12.1.3"] } });
    bed.objects.merge(POOL, "full/net", wider).await.unwrap();
    assert_eq!(bed.address("full/c").await.unwrap(), "10.12.1.3");
}

/// Rows 29 and 30, E-27.
#[tokio::test]
async fn e_27_rows_29_and_30_a_claim_waits_for_its_pool_and_says_so_and_another_providers_is_left_alone()
 {
    let bed = Bed::share(&["missing"]).await.unwrap();
    bed.claim("missing/a", (POOL, "later")).await.unwrap();
    bed.claim("missing/other", ("FooPool", "later"))
        .await
        .unwrap();
    let said = bed
        .refused("missing/a", "PoolNotReady", "PoolNotFound")
        .await
        .unwrap();
    assert!(said.contains("InClusterIPPool \"later\""), "{said}");
    bed.pool("missing/later", &["10.13.0.5"], 24, "")
        .await
        .unwrap();
    assert_eq!(bed.address("missing/a").await.unwrap(), "10.13.0.5", "30");
    let other = bed
        .objects
        .get(CLAIM, "missing/other")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&other["status"], &other["metadata"]["finalizers"]),
        (&Value::Null, &Value::Null),
        "29"
    );
}

/// Rows 35 to 40, E-10 and E-19.
#[tokio::test]
async fn e_10_19_rows_35_to_40_a_pause_stops_giving_and_releasing() {
    const PAUSED: &str = "cluster.x-k8s.io/paused";
    let bed = Bed::share(&["paused"]).await.unwrap();
    let pool = json!({
        "metadata": { "annotations": { PAUSED: "" } },
        "spec": { "addresses": ["10.14.0.10-10.14.0.20"], "prefix": 24 },
    });
    bed.objects.make(POOL, "paused/net", pool).await.unwrap();
    let pool = (POOL, "net");
    bed.claim("paused/a", pool).await.unwrap();
    bed.refused("paused/a", "PoolNotReady", "PoolPaused")
        .await
        .unwrap();
    bed.objects
        .wait_event(POOL, "paused/net", "PoolPaused")
        .await
        .unwrap();
    bed.objects
        .annotate(POOL, "paused/net", PAUSED, Value::Null)
        .await
        .unwrap();
    assert_eq!(bed.address("paused/a").await.unwrap(), "10.14.0.10", "35");
    bed.objects
        .annotate(POOL, "paused/net", PAUSED, json!("false"))
        .await
        .unwrap();
    next_look().await;
    bed.objects.delete(CLAIM, "paused/a").await.unwrap();
    bed.objects
        .wait_event(CLAIM, "paused/a", "PoolPaused")
        .await
        .unwrap();
    assert!(
        bed.objects
            .get(ADDRESS, "paused/a")
            .await
            .unwrap()
            .is_some(),
        "36"
    );
    bed.objects
        .annotate(POOL, "paused/net", PAUSED, Value::Null)
        .await
        .unwrap();
    bed.objects.wait_gone(CLAIM, "paused/a").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "paused/a").await.unwrap();

    let paused = json!({ "metadata": { "annotations": { PAUSED: "true" } } });
    bed.objects
        .claim_with("paused/b", pool, paused)
        .await
        .unwrap();
    bed.refused("paused/b", "AllocationFailed", "Paused")
        .await
        .unwrap();
    bed.objects
        .annotate(CLAIM, "paused/b", PAUSED, Value::Null)
        .await
        .unwrap();
    assert_eq!(bed.address("paused/b").await.unwrap(), "10.14.0.10", "37");

    for (name, by_field, by_label) in [
        ("c-1", false, false),
        ("c-2", false, true),
        ("c-3", true, false),
        ("c-4", true, true),
    ] {
        let path = format!("paused/{name}");
        let claim = match by_label {
            true => json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": name } } }),
            false => json!({ "spec": { "clusterName": name } }),
        };
        bed.objects.claim_with(&path, pool, claim).await.unwrap();
        bed.refused(&path, "AllocationFailed", "ClusterNotFound")
            .await
            .unwrap();
        let mut cluster = cluster();
        match by_field {
            true => cluster["spec"]["paused"] = json!(true),
            false => cluster["metadata"]["annotations"] = json!({ PAUSED: "" }),
        }
        bed.objects.make("Cluster", &path, cluster).await.unwrap();
        bed.objects
            .wait_event(CLAIM, &path, "Paused")
            .await
            .unwrap();
        let unpaused =
            json!({ "spec": { "paused": false }, "metadata": { "annotations": { PAUSED: null } } });
        bed.objects.merge("Cluster", &path, unpaused).await.unwrap();
        bed.address(&path).await.unwrap();
    }
    // Row 40 and E-19: a Cluster that is gone keeps nothing.
    bed.objects.delete("Cluster", "paused/c-1").await.unwrap();
    bed.objects.delete(CLAIM, "paused/c-1").await.unwrap();
    bed.objects.wait_gone(CLAIM, "paused/c-1").await.unwrap();
}

/// E-26: a claim may name its address.
#[tokio::test]
async fn e_26_a_claim_may_name_its_address_and_a_sticky_pool_gives_it_again() {
    let bed = Bed::share(&["named"]).await.unwrap();
    let spec =
        json!({ "addresses": ["10.15.0.10-10.15.0.20"], "prefix": 24, "stickySeconds": 3600 });
    bed.objects.pool("named/net", spec).await.unwrap();
    for (name, key, address) in [
        ("a", "fipd.io/address", "10.15.0.15"),
        ("b", "ipAddress", "10.15.0.17"),
    ] {
        let named = json!({ "metadata": { "annotations": { key: address } } });
        let path = format!("named/{name}");
        bed.objects
            .claim_with(&path, (POOL, "net"), named)
            .await
            .unwrap();
        assert_eq!(bed.address(&path).await.unwrap(), address);
    }
    for (name, address, event) in [
        ("taken", "10.15.0.15", "AddressTaken"),
        ("outside", "10.15.0.99", "AddressNotAssignable"),
        ("nonsense", "10.15.0", "Invalid"),
    ] {
        let named = json!({ "metadata": { "annotations": { "fipd.io/address": address } } });
        let path = format!("named/{name}");
        bed.objects
            .claim_with(&path, (POOL, "net"), named)
            .await
            .unwrap();
        bed.refused(&path, "AllocationFailed", event).await.unwrap();
    }
    bed.objects.delete(CLAIM, "named/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "named/a").await.unwrap();
    assert_eq!(bed.address("named/taken").await.unwrap(), "10.15.0.15");
    bed.objects.delete(CLAIM, "named/b").await.unwrap();
    bed.objects.wait_gone(CLAIM, "named/b").await.unwrap();
    bed.claim("named/b", (POOL, "net")).await.unwrap();
    assert_eq!(
        bed.address("named/b").await.unwrap(),
        "10.15.0.17",
        "sticky"
    );
}

/// A Cluster without a class.
pub(super) fn cluster() -> Value {
    json!({ "spec": { "clusterNetwork": { "serviceDomain": "cluster.local" } } })
}

/// fipd hears of a change of a pool by its watch; nothing shows when it has.
async fn next_look() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
