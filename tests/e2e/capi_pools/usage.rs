//! What pools give, rows 1 to 18, and pools in use, rows 42 to 49.

use super::*;

/// The addresses that a pool lists, its prefix, its gateway, whether reserved ends are given, what is excluded, and how many it
/// gives.
type SetRow<'a> = (u8, &'a [&'a str], (u8, &'a str), bool, &'a [&'a str], i64);

const SETS: [SetRow<'_>; 17] = [
    (
        1,
        &["192.168.0.2", "192.168.0.3-192.168.0.4", "192.168.0.6/31"],
        (24, "192.168.0.1"),
        false,
        &[],
        5,
    ),
    (
        2,
        &["192.168.0.0", "192.168.0.3-192.168.0.4", "192.168.0.6/31"],
        (24, "192.168.0.1"),
        false,
        &[],
        4,
    ),
    (
        4,
        &["192.168.0.1", "192.168.0.3-192.168.0.4", "192.168.0.6/31"],
        (24, "192.168.0.1"),
        false,
        &[],
        4,
    ),
    (
        5,
        &[
            "192.168.0.0",
            "192.168.0.1",
            "192.168.0.3-192.168.0.4",
            "192.168.0.6/31",
            "192.168.0.255",
        ],
        (24, "192.168.0.1"),
        true,
        &[],
        6,
    ),
    (
        6,
        &["192.168.0.0-192.168.0.10"],
        (24, "192.168.0.1"),
        false,
        &["192.168.0.5", "192.168.0.6", "192.168.0.7"],
        6,
    ),
    (
        7,
        &["192.168.0.0/24"],
        (24, "192.168.0.1"),
        false,
        &["192.168.0.128/25"],
        126,
    ),
    (
        8,
        &["192.168.0.0/24"],
        (24, "192.168.0.1"),
        false,
        &["192.168.0.2-192.168.0.20"],
        234,
    ),
    (
        9,
        &["fd01::2", "fd01::3-fd01::4", "fd01::6/127"],
        (120, "fd01::1"),
        false,
        &[],
        5,
    ),
    (
        10,
        &["fd01::0", "fd01::3-fd01::4", "fd01::6/127"],
        (120, "fd01::1"),
        false,
        &[],
        4,
    ),
    (
        12,
        &["fd01::1", "fd01::3-fd01::4", "fd01::6/127"],
        (120, "fd01::1"),
        false,
        &[],
        4,
    ),
    (
        13,
        &[
            "fd01::0",
            "fd01::1",
            "fd01::2",
            "fd01::3-fd01::4",
            "fd01::6/127",
        ],
        (120, "fd01::1"),
        true,
        &[],
        6,
    ),
    // A pool that lists no address is refused; this one has none to give.
    (14, &["192.168.1.1"], (24, "192.168.1.1"), false, &[], 0),
    (14, &["192.168.1.1"], (24, ""), false, &[], 1),
    (14, &["192.168.1.1", "192.168.1.2"], (24, ""), false, &[], 2),
    (
        15,
        &["192.168.1.1-192.168.1.10", "192.168.1.20-192.168.1.25"],
        (24, ""),
        false,
        &[],
        16,
    ),
    (
        16,
        &["192.168.1.1-192.168.1.10", "192.168.1.5-192.168.1.15"],
        (24, ""),
        false,
        &[],
        15,
    ),
    (18, &["fe80::1/126"], (120, ""), true, &[], 4),
];

#[tokio::test]
async fn rows_1_to_18_each_pool_counts_what_it_gives() {
    let bed = Bed::share(&["sets"]).await.unwrap();
    for (number, (row, addresses, (prefix, gateway), reserved, excluded, _)) in (0..).zip(SETS) {
        let mut spec = json!({ "addresses": addresses, "prefix": prefix });
        if !gateway.is_empty() {
            spec["gateway"] = json!(gateway);
        }
        if reserved {
            spec["allocateReservedIPAddresses"] = json!(true);
        }
        if !excluded.is_empty() {
            spec["excludedAddresses"] = json!(excluded);
        }
        let path = format!("sets/row-{row}-{number}");
        bed.objects.pool(&path, spec).await.unwrap();
    }
    for (number, (row, .., total)) in (0..).zip(SETS) {
        let path = format!("sets/row-{row}-{number}");
        bed.counts(POOL, &path, [total, 0, total, 0]).await.unwrap();
    }
}

/// Rows 42 and 43.
#[tokio::test]
async fn rows_42_and_43_addresses_and_pools_in_use_stay() {
    let bed = Bed::share(&["used"]).await.unwrap();
    bed.pool("used/net", &["10.21.0.10-10.21.0.20"], 24, "")
        .await
        .unwrap();
    bed.claim("used/a", (POOL, "net")).await.unwrap();
    bed.address("used/a").await.unwrap();
    bed.objects.delete(ADDRESS, "used/a").await.unwrap();
    // So that the webhook lets it through.
    let skip = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";
    let annotate = bed.objects.annotate(POOL, "used/net", skip, json!(""));
    annotate.await.unwrap();
    bed.objects.delete(POOL, "used/net").await.unwrap();
    bed.objects
        .wait_reason(POOL, "used/net", "InUse")
        .await
        .unwrap();
    let there = bed.objects.get(ADDRESS, "used/a").await.unwrap().unwrap();
    assert_eq!(there["spec"]["address"], "10.21.0.10", "42");
    bed.objects.delete(CLAIM, "used/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "used/a").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "used/a").await.unwrap();
    bed.objects.wait_gone(POOL, "used/net").await.unwrap();
    assert_eq!(bed.leases("10.21.0.").await.unwrap(), BTreeMap::new(), "43");
}

/// Row 44 and E-18: the address cools, and nobody waits for that.
#[tokio::test]
async fn e_18_row_44_the_grace_keeps_the_address_and_holds_up_no_owner() {
    let bed = Bed::share(&["grace"]).await.unwrap();
    let spec = json!({
        "addresses": ["10.22.0.10-10.22.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 6,
    });
    bed.objects.pool("grace/net", spec).await.unwrap();
    bed.claim("grace/a", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("grace/a").await.unwrap(), "10.22.0.10");
    bed.objects.delete(CLAIM, "grace/a").await.unwrap();
    bed.objects.wait_gone(CLAIM, "grace/a").await.unwrap();
    let left = bed.objects.get(ADDRESS, "grace/a").await.unwrap().unwrap();
    let meta = &left["metadata"];
    assert_eq!(meta["ownerReferences"], Value::Null, "{left}");
    assert_eq!(meta["finalizers"], Value::Null, "{left}");
    assert!(
        meta["annotations"]["fipd.io/grace-ends"].is_string(),
        "{left}"
    );
    // A new claim of that name is served at once, with another address.
    bed.claim("grace/a", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("grace/a").await.unwrap(), "10.22.0.11");
    bed.claim("grace/b", (POOL, "net")).await.unwrap();
    bed.refused("grace/b", "PoolExhausted", "PoolExhausted")
        .await
        .unwrap();
    assert_eq!(
        bed.address("grace/b").await.unwrap(),
        "10.22.0.10",
        "its grace is over"
    );
    bed.objects.delete(CLAIM, "grace/b").await.unwrap();
    bed.objects.wait_gone(ADDRESS, "grace/b").await.unwrap();
}

/// Nobody has any of its addresses, and none may be given yet.
#[tokio::test]
async fn a_pool_whose_addresses_all_cool_is_exhausted_until_one_has() {
    let bed = Bed::share(&["cooling"]).await.unwrap();
    let spec = json!({
        "addresses": ["10.30.0.10-10.30.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 15,
    });
    bed.objects.pool("cooling/net", spec).await.unwrap();
    for (path, address) in [("cooling/a", "10.30.0.10"), ("cooling/b", "10.30.0.11")] {
        bed.claim(path, (POOL, "net")).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), address);
    }
    for path in ["cooling/a", "cooling/b"] {
        bed.objects.delete(CLAIM, path).await.unwrap();
        bed.objects.wait_gone(CLAIM, path).await.unwrap();
    }
    bed.claim("cooling/c", (POOL, "net")).await.unwrap();
    let said = bed.refused("cooling/c", "PoolExhausted", "PoolExhausted");
    let said = said.await.unwrap();
    let cools = "0 of 2 are in use and 2 in quarantine after a release";
    assert!(
        said.contains("cooling/net") && said.contains(cools),
        "{said}"
    );
    wait_until("the pool counts what cools", DEADLINE, || async {
        let pool = bed.objects.get(POOL, "cooling/net").await;
        let pool = pool.map_err(|error| error.to_string())?;
        let status = pool.unwrap_or_default()["status"].take();
        let cools = status["quarantined"] == 2 && status["ipAddresses"]["free"] == 0;
        cools.then_some(()).ok_or(status.to_string())
    })
    .await
    .unwrap();
    assert_eq!(bed.address("cooling/c").await.unwrap(), "10.30.0.10");
}

/// Rows 46 to 49, E-25: counts, also of what lies outside.
#[tokio::test]
async fn e_25_rows_46_to_49_counts_are_true_and_never_below_zero() {
    // Its webhook would refuse the edits.
    let bed = Bed::alone("webhook = { enabled = false }").await.unwrap();
    let range = ["10.23.0.10-10.23.0.20"];
    bed.pool("one/p46", &range, 24, "").await.unwrap();
    bed.claim("one/a", (POOL, "p46")).await.unwrap();
    bed.counts(POOL, "one/p46", [11, 1, 10, 0]).await.unwrap();
    bed.claim("one/b", (POOL, "p46")).await.unwrap();
    bed.counts(POOL, "one/p46", [11, 2, 9, 0]).await.unwrap();
    for (name, range, gateway, counts) in [
        (
            "p47a",
            ["10.23.1.10-10.23.1.20"],
            "10.23.1.10",
            [10, 1, 9, 0],
        ),
        (
            "p47b",
            ["10.23.2.10-10.23.2.20"],
            "10.23.2.1",
            [11, 1, 10, 0],
        ),
    ] {
        let path = format!("one/{name}");
        bed.pool(&path, &range, 24, gateway).await.unwrap();
        let claim = format!("one/of-{name}");
        bed.claim(&claim, (POOL, name)).await.unwrap();
        bed.counts(POOL, &path, counts).await.unwrap();
    }
    let narrower = json!({ "spec": { "addresses": ["10.23.0.12-10.23.0.12"] } });
    bed.objects.merge(POOL, "one/p46", narrower).await.unwrap();
    bed.counts(POOL, "one/p46", [1, 2, 1, 2]).await.unwrap();
    for (name, addresses, prefix, gateway) in [
        ("p48a", ["10.23.10.0-10.23.10.1"], 24, "10.23.10.2"),
        ("p48b", ["10.23.11.254-10.23.11.255"], 24, "10.23.11.1"),
        ("p48c", ["fe80::fffe-fe80::ffff"], 120, "fe80::ffff"),
    ] {
        bed.pool(&format!("one/{name}"), &addresses, prefix, gateway)
            .await
            .unwrap();
        let claim = format!("one/of-{name}");
        bed.claim(&claim, (POOL, name)).await.unwrap();
        bed.address(&claim).await.unwrap();
        bed.counts(POOL, &format!("one/{name}"), [1, 1, 0, 0])
            .await
            .unwrap();
    }
    bed.pool("one/p49", &["10.23.4.10-10.23.4.20"], 24, "")
        .await
        .unwrap();
    for number in 0..5 {
        let claim = format!("one/of-p49-{number}");
        bed.claim(&claim, (POOL, "p49")).await.unwrap();
        let address = bed.address(&claim).await.unwrap();
        assert_eq!(address, format!("10.23.4.{}", 10 + number));
    }
    let narrower = json!({ "spec": { "addresses": ["10.23.4.13-10.23.4.20"] } });
    bed.objects.merge(POOL, "one/p49", narrower).await.unwrap();
    bed.counts(POOL, "one/p49", [8, 5, 6, 3]).await.unwrap();
    // A pool that breaks a rule stays as it was accepted last.
    let wrong = json!({ "spec": { "addresses": ["10.23.0.12", "10.23.90.1"] } });
    bed.objects.merge(POOL, "one/p46", wrong).await.unwrap();
    let said = bed
        .objects
        .wait_reason(POOL, "one/p46", "Refused")
        .await
        .unwrap();
    assert!(said.contains("different subnet"), "{said}");
    bed.claim("one/c", (POOL, "p46")).await.unwrap();
    assert_eq!(bed.address("one/c").await.unwrap(), "10.23.0.12");
    // A claim on one that was never valid says why.
    bed.pool("one/odd", &["10.23.80.300"], 24, "")
        .await
        .unwrap();
    bed.objects
        .wait_reason(POOL, "one/odd", "Invalid")
        .await
        .unwrap();
    bed.claim("one/odd", (POOL, "odd")).await.unwrap();
    let said = bed.refused("one/odd", "PoolNotReady", "PoolNotFound");
    let said = said.await.unwrap();
    assert!(said.contains("10.23.80.300"), "{said}");
}
