//! A claim from first to last: rows 21 to 49.

use super::*;

/// Rows 21, 24 to 27: what the IPAddress of a claim is, and which address is next.
#[tokio::test]
async fn a_claim_gets_the_lowest_free_address_and_an_ipaddress_that_shows_it() {
    let bed = Bed::start("").await;
    bed.pool("one/net", &["10.0.0.1-10.0.0.254"], 24, "10.0.0.2")
        .await;
    let labelled = json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c" } } });
    bed.objects
        .make("Cluster", "one/c", cluster())
        .await
        .unwrap();
    let pool = (POOL, "net");
    bed.objects
        .claim_with("one/a", pool, labelled)
        .await
        .unwrap();
    assert_eq!(bed.address("one/a").await, "10.0.0.1", "21");
    let claim = bed.objects.get(CLAIM, "one/a").await.unwrap().unwrap();
    let finalizer = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    assert_eq!(claim["metadata"]["finalizers"], finalizer);
    let ready = &claim["status"]["conditions"][0];
    assert_eq!(
        (&ready["type"], &ready["reason"]),
        (&json!("Ready"), &json!("AddressAllocated"))
    );
    let there = bed.objects.get(ADDRESS, "one/a").await.unwrap().unwrap();
    let spec = json!({
        "claimRef": { "name": "a" }, "address": "10.0.0.1", "prefix": 24, "gateway": "10.0.0.2",
        "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL, "name": "net" },
    });
    assert_eq!(there["spec"], spec);
    let meta = &there["metadata"];
    assert_eq!(
        meta["finalizers"],
        json!(["ipam.cluster.x-k8s.io/ProtectAddress"])
    );
    assert_eq!(meta["labels"]["cluster.x-k8s.io/cluster-name"], "c");
    let pool = bed.objects.get(POOL, "one/net").await.unwrap().unwrap();
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
    bed.claim("one/b", ("InClusterIPPool", "net")).await;
    assert_eq!(bed.address("one/b").await, "10.0.0.3");
    bed.pool("two/singles", &["10.2.0.128", "10.2.0.50"], 24, "")
        .await;
    for (name, address) in [("a", "10.2.0.50"), ("b", "10.2.0.128")] {
        let path = format!("two/{name}");
        bed.claim(&path, (POOL, "singles")).await;
        assert_eq!(bed.address(&path).await, address, "24, 26");
        let there = bed.objects.get(ADDRESS, &path).await.unwrap().unwrap();
        assert_eq!(there["spec"]["gateway"], Value::Null, "25");
    }
    bed.counts(POOL, "two/singles", [2, 2, 0, 0]).await;
}

/// Rows 22, 27 and 28, E-16 and E-22: who waits is told why, and is served in the order of creation.
#[tokio::test]
async fn e_22_who_waits_for_a_full_pool_is_served_when_it_has_room() {
    let bed = Bed::start("").await;
    let listed = ["10.0.1.0", "10.0.1.1", "10.0.1.2", "10.0.1.255"];
    bed.pool("one/net", &listed, 24, "10.0.1.1").await;
    bed.claim("one/a", (POOL, "net")).await;
    assert_eq!(bed.address("one/a").await, "10.0.1.2", "22");
    for name in ["b", "c"] {
        fipd_tests::kube_fip::next_second().await;
        let path = format!("one/{name}");
        bed.claim(&path, (POOL, "net")).await;
        let said = bed.refused(&path, "PoolExhausted", "PoolExhausted").await;
        assert!(said.contains("net"), "{said}");
    }
    bed.objects
        .wait_event(POOL, "net", "PoolExhausted")
        .await
        .unwrap();
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    assert_eq!(bed.address("one/b").await, "10.0.1.2");
    let wider = json!({ "spec": { "addresses": ["10.0.1.2-10.0.1.3"] } });
    bed.objects.merge(POOL, "one/net", wider).await.unwrap();
    assert_eq!(bed.address("one/c").await, "10.0.1.3", "28");
}

/// Rows 29 and 30, E-27.
#[tokio::test]
async fn e_27_a_claim_waits_for_its_pool_and_says_so_and_another_providers_is_left_alone() {
    let bed = Bed::start("").await;
    bed.claim("one/a", (POOL, "later")).await;
    bed.claim("one/other", ("FooPool", "later")).await;
    let said = bed.refused("one/a", "PoolNotReady", "PoolNotFound").await;
    assert!(said.contains("InClusterIPPool \"later\""), "{said}");
    bed.pool("one/later", &["10.0.0.5"], 24, "").await;
    assert_eq!(bed.address("one/a").await, "10.0.0.5", "30");
    let other = bed.objects.get(CLAIM, "one/other").await.unwrap().unwrap();
    assert_eq!(
        (&other["status"], &other["metadata"]["finalizers"]),
        (&Value::Null, &Value::Null),
        "29"
    );
}

/// Rows 35 to 39, E-10.
#[tokio::test]
async fn e_10_19_a_pause_stops_giving_and_releasing() {
    const PAUSED: &str = "cluster.x-k8s.io/paused";
    let bed = Bed::start("").await;
    bed.pool("one/net", &["10.0.0.10-10.0.0.20"], 24, "").await;
    let pool = (POOL, "net");
    bed.objects
        .annotate(POOL, "one/net", PAUSED, json!(""))
        .await
        .unwrap();
    next_look().await;
    bed.claim("one/a", pool).await;
    bed.refused("one/a", "PoolNotReady", "PoolPaused").await;
    bed.objects
        .annotate(POOL, "one/net", PAUSED, Value::Null)
        .await
        .unwrap();
    assert_eq!(bed.address("one/a").await, "10.0.0.10", "35");
    bed.objects
        .annotate(POOL, "one/net", PAUSED, json!("false"))
        .await
        .unwrap();
    next_look().await;
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.objects
        .wait_event(CLAIM, "a", "PoolPaused")
        .await
        .unwrap();
    assert!(
        bed.objects.get(ADDRESS, "one/a").await.unwrap().is_some(),
        "36"
    );
    bed.objects
        .annotate(POOL, "one/net", PAUSED, Value::Null)
        .await
        .unwrap();
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "one/a").await.unwrap();

    let paused = json!({ "metadata": { "annotations": { PAUSED: "true" } } });
    bed.objects.claim_with("one/b", pool, paused).await.unwrap();
    bed.refused("one/b", "AllocationFailed", "Paused").await;
    bed.objects
        .annotate(CLAIM, "one/b", PAUSED, Value::Null)
        .await
        .unwrap();
    assert_eq!(bed.address("one/b").await, "10.0.0.10", "37");

    for (name, by_field, by_label) in [
        ("c-1", false, false),
        ("c-2", false, true),
        ("c-3", true, false),
        ("c-4", true, true),
    ] {
        let path = format!("one/{name}");
        let claim = match by_label {
            true => json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": name } } }),
            false => json!({ "spec": { "clusterName": name } }),
        };
        bed.objects.claim_with(&path, pool, claim).await.unwrap();
        bed.refused(&path, "AllocationFailed", "ClusterNotFound")
            .await;
        let mut cluster = cluster();
        match by_field {
            true => cluster["spec"]["paused"] = json!(true),
            false => cluster["metadata"]["annotations"] = json!({ PAUSED: "" }),
        }
        bed.objects.make("Cluster", &path, cluster).await.unwrap();
        bed.objects.wait_event(CLAIM, name, "Paused").await.unwrap();
        let unpaused =
            json!({ "spec": { "paused": false }, "metadata": { "annotations": { PAUSED: null } } });
        bed.objects.merge("Cluster", &path, unpaused).await.unwrap();
        bed.address(&path).await;
    }
    // Row 40 and E-19: a Cluster that is gone keeps nothing.
    bed.objects.delete("Cluster", "one/c-1").await.unwrap();
    bed.objects.delete(CLAIM, "one/c-1").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/c-1").await.unwrap();
}

/// Rows 42 and 43.
#[tokio::test]
async fn addresses_and_pools_in_use_stay() {
    let bed = Bed::start("").await;
    bed.pool("one/net", &["10.0.0.10-10.0.0.20"], 24, "").await;
    bed.claim("one/a", (POOL, "net")).await;
    bed.address("one/a").await;
    bed.objects.delete(ADDRESS, "one/a").await.unwrap();
    bed.objects.delete(POOL, "one/net").await.unwrap();
    bed.objects
        .wait_reason(POOL, "one/net", "InUse")
        .await
        .unwrap();
    let there = bed.objects.get(ADDRESS, "one/a").await.unwrap().unwrap();
    assert_eq!(there["spec"]["address"], "10.0.0.10", "42");
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "one/a").await.unwrap();
    bed.objects.wait_gone(POOL, "one/net").await.unwrap();
    assert_eq!(bed.leases().await, BTreeMap::new(), "43");
}

/// Row 44 and E-18: the address cools, and nobody waits for that.
#[tokio::test]
async fn e_18_the_grace_keeps_the_address_and_holds_up_no_owner() {
    let bed = Bed::start("").await;
    let spec = json!({
        "addresses": ["10.0.0.10-10.0.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 6,
    });
    bed.objects.pool("one/net", spec).await.unwrap();
    bed.claim("one/a", (POOL, "net")).await;
    assert_eq!(bed.address("one/a").await, "10.0.0.10");
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    let left = bed.objects.get(ADDRESS, "one/a").await.unwrap().unwrap();
    let meta = &left["metadata"];
    assert_eq!(meta["ownerReferences"], Value::Null, "{left}");
    assert_eq!(meta["finalizers"], Value::Null, "{left}");
    assert!(
        meta["annotations"]["fipd.io/grace-ends"].is_string(),
        "{left}"
    );
    // A new claim of that name is served at once, with another address.
    bed.claim("one/a", (POOL, "net")).await;
    assert_eq!(bed.address("one/a").await, "10.0.0.11");
    bed.claim("one/b", (POOL, "net")).await;
    bed.refused("one/b", "PoolExhausted", "PoolExhausted").await;
    assert_eq!(bed.address("one/b").await, "10.0.0.10", "its grace is over");
    bed.objects.delete(CLAIM, "one/b").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "one/b").await.unwrap();
}

/// Rows 46 to 49, E-25: counts, also of what lies outside.
#[tokio::test]
async fn e_25_counts_are_true_and_never_below_zero() {
    let bed = Bed::start("").await;
    let range = ["10.0.0.10-10.0.0.20"];
    bed.pool("one/p46", &range, 24, "").await;
    bed.claim("one/a", (POOL, "p46")).await;
    bed.counts(POOL, "one/p46", [11, 1, 10, 0]).await;
    bed.claim("one/b", (POOL, "p46")).await;
    bed.counts(POOL, "one/p46", [11, 2, 9, 0]).await;
    let narrower = json!({ "spec": { "addresses": ["10.0.0.12-10.0.0.12"] } });
    bed.objects.merge(POOL, "one/p46", narrower).await.unwrap();
    bed.counts(POOL, "one/p46", [1, 2, 1, 2]).await;
    for (name, addresses, prefix, gateway) in [
        ("p48a", ["10.1.0.0-10.1.0.1"], 24, "10.1.0.2"),
        ("p48b", ["10.1.1.254-10.1.1.255"], 24, "10.1.1.1"),
        ("p48c", ["fe80::fffe-fe80::ffff"], 120, "fe80::ffff"),
    ] {
        bed.pool(&format!("one/{name}"), &addresses, prefix, gateway)
            .await;
        let claim = format!("one/of-{name}");
        bed.claim(&claim, (POOL, name)).await;
        bed.address(&claim).await;
        bed.counts(POOL, &format!("one/{name}"), [1, 1, 0, 0]).await;
    }
    // A pool that breaks a rule stays as it was accepted last.
    let wrong = json!({ "spec": { "addresses": ["10.0.0.12", "10.9.0.1"] } });
    bed.objects.merge(POOL, "one/p46", wrong).await.unwrap();
    let said = bed
        .objects
        .wait_reason(POOL, "one/p46", "Refused")
        .await
        .unwrap();
    assert!(said.contains("different subnet"), "{said}");
    bed.claim("one/c", (POOL, "p46")).await;
    assert_eq!(bed.address("one/c").await, "10.0.0.12");
}

/// E-26: a claim may name its address.
#[tokio::test]
async fn e_26_a_claim_may_name_its_address_and_a_sticky_pool_gives_it_again() {
    let bed = Bed::start("").await;
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "stickySeconds": 3600 });
    bed.objects.pool("one/net", spec).await.unwrap();
    for (name, key, address) in [
        ("a", "fipd.io/address", "10.0.0.15"),
        ("b", "ipAddress", "10.0.0.17"),
    ] {
        let named = json!({ "metadata": { "annotations": { key: address } } });
        let path = format!("one/{name}");
        bed.objects
            .claim_with(&path, (POOL, "net"), named)
            .await
            .unwrap();
        assert_eq!(bed.address(&path).await, address);
    }
    for (name, address, event) in [
        ("taken", "10.0.0.15", "AddressTaken"),
        ("outside", "10.0.0.99", "AddressNotAssignable"),
        ("nonsense", "10.0.0", "Invalid"),
    ] {
        let named = json!({ "metadata": { "annotations": { "fipd.io/address": address } } });
        let path = format!("one/{name}");
        bed.objects
            .claim_with(&path, (POOL, "net"), named)
            .await
            .unwrap();
        bed.refused(&path, "AllocationFailed", event).await;
    }
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/a").await.unwrap();
    assert_eq!(bed.address("one/taken").await, "10.0.0.15");
    bed.objects.delete(CLAIM, "one/b").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/b").await.unwrap();
    bed.claim("one/b", (POOL, "net")).await;
    assert_eq!(bed.address("one/b").await, "10.0.0.17", "sticky");
}

/// Rows 60 to 64: whole prefixes.
#[tokio::test]
async fn claims_on_pools_of_prefixes_get_prefixes() {
    const PREFIXES: &str = "InClusterPrefixPool";
    let bed = Bed::start("").await;
    let spec = json!({ "spec": { "prefixes": ["fd00::/63"], "gateway": "fd10::1" } });
    bed.objects.make(PREFIXES, "one/net", spec).await.unwrap();
    for (name, address) in [("a", "fd00::"), ("b", "fd00:0:0:1::")] {
        let path = format!("one/{name}");
        bed.claim(&path, (PREFIXES, "net")).await;
        assert_eq!(bed.address(&path).await, address, "60");
        let there = bed.objects.get(ADDRESS, &path).await.unwrap().unwrap();
        let (prefix, gateway) = (&there["spec"]["prefix"], &there["spec"]["gateway"]);
        assert_eq!((prefix, gateway), (&json!(64), &json!("fd10::1")));
    }
    bed.claim("one/c", (PREFIXES, "net")).await;
    bed.refused("one/c", "PoolExhausted", "PoolExhausted").await;
    bed.counts(PREFIXES, "one/net", [2, 2, 0, 0]).await;
    bed.objects.delete(CLAIM, "one/a").await.unwrap();
    assert_eq!(bed.address("one/c").await, "fd00::", "64");
    // A pool of addresses of the same name is another one.
    bed.pool("one/net", &["10.0.0.5"], 24, "").await;
    bed.claim("one/d", (POOL, "net")).await;
    assert_eq!(bed.address("one/d").await, "10.0.0.5");
}

/// A Cluster without a class.
pub(super) fn cluster() -> Value {
    json!({ "spec": { "clusterNetwork": { "serviceDomain": "cluster.local" } } })
}

/// fipd hears of a change of a pool by its watch; nothing shows when it has.
async fn next_look() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
