//! Which pools give the same address, and what outlives fipd: rows 31, 32, E-17, E-20 and E-21.

use super::*;

#[tokio::test]
async fn e_17_overlapping_pools_of_one_network_give_nothing_twice() {
    let bed = Bed::share(&["overlap", "overlap-two"]).await.unwrap();
    for path in ["overlap/net", "overlap-two/net", "overlap"] {
        bed.pool(path, &["10.25.0.10-10.25.0.12"], 24, "")
            .await
            .unwrap();
    }
    let mut given = Vec::new();
    for (path, pool) in [
        ("overlap/a", (POOL, "net")),
        ("overlap-two/a", (POOL, "net")),
        ("overlap-two/b", (GLOBAL, "overlap")),
    ] {
        bed.claim(path, pool).await.unwrap();
        given.push(bed.address(path).await.unwrap());
    }
    assert_eq!(given, ["10.25.0.10", "10.25.0.11", "10.25.0.12"]);
    for (kind, path) in [
        (POOL, "overlap/net"),
        (POOL, "overlap-two/net"),
        (GLOBAL, "overlap"),
    ] {
        bed.counts(kind, path, [3, 3, 0, 0]).await.unwrap();
        let pool = bed.objects.get(kind, path).await.unwrap().unwrap();
        let conditions = pool["status"]["conditions"].as_array().unwrap();
        let overlap = conditions.iter().find(|one| one["type"] == "Overlapping");
        assert!(overlap.is_some(), "{pool}");
    }
}

#[tokio::test]
async fn rows_31_and_32_pools_in_two_networks_are_independent() {
    let bed = Bed::alone("network-per-namespace = true").await.unwrap();
    for path in ["one/net", "two/net", "net"] {
        bed.pool(path, &["10.0.0.10-10.0.0.12"], 24, "")
            .await
            .unwrap();
    }
    for (path, kind) in [("one/a", POOL), ("two/a", POOL), ("two/b", GLOBAL)] {
        bed.claim(path, (kind, "net")).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), "10.0.0.10", "{path}");
    }
    let leases = bed.fipd.cli(["lease", "list", "-o", "json"]).await;
    let leases = leases.unwrap().json().unwrap();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 3);
}

/// fipd dies while many claims come and go; no address is given twice, and none is lost.
#[tokio::test]
async fn e_21_no_address_is_given_twice_whatever_dies() {
    let mut bed = Bed::alone("").await.unwrap();
    bed.pool("one/net", &["10.0.0.10-10.0.0.40"], 24, "")
        .await
        .unwrap();
    for round in 0..3 {
        for name in 0..20 {
            bed.claim(&format!("one/r{round}-{name}"), (POOL, "net"))
                .await
                .unwrap();
        }
        bed.fipd.own().unwrap().kill9().unwrap();
        if round > 0 {
            for name in 0..10 {
                let path = format!("one/r{}-{name}", round - 1);
                bed.objects.delete(CLAIM, &path).await.unwrap();
            }
        }
        bed.restart().await.unwrap();
        let mut seen = BTreeMap::new();
        for name in 0..20 {
            let path = format!("one/r{round}-{name}");
            let address = bed.address(&path).await.unwrap();
            assert_eq!(seen.insert(address, path), None);
        }
        for name in 10..20 {
            bed.objects
                .delete(CLAIM, &format!("one/r{round}-{name}"))
                .await
                .unwrap();
        }
        for name in 10..20 {
            let path = format!("one/r{round}-{name}");
            bed.objects.wait_gone(CLAIM, &path).await.unwrap();
        }
    }
    bed.counts(POOL, "one/net", [31, 10, 21, 0]).await.unwrap();
}

/// E-20: an IPAddress that is there before its claim is what the claim gets, as restores and moves need it.
#[tokio::test]
async fn e_20_an_ipaddress_before_its_claim_and_a_lost_store_keep_addresses() {
    let mut bed = Bed::alone("").await.unwrap();
    bed.pool("one/net", &["10.0.0.10-10.0.0.20"], 24, "")
        .await
        .unwrap();
    let reference = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL, "name": "net" });
    let there = json!({ "spec": {
        "claimRef": { "name": "early" }, "poolRef": reference, "address": "10.0.0.10", "prefix": 24,
    } });
    bed.objects.make(ADDRESS, "one/early", there).await.unwrap();
    wait_until("the early address", DEADLINE, || async {
        let leases = bed.leases("").await.unwrap();
        let held = leases.contains_key("10.0.0.10");
        if held {
            Ok(())
        } else {
            Err(format!("{leases:?}"))
        }
    })
    .await
    .unwrap();
    bed.claim("one/a", (POOL, "net")).await.unwrap();
    let other = bed.address("one/a").await.unwrap();
    bed.claim("one/early", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("one/early").await.unwrap(), "10.0.0.10");
    let early = bed
        .objects
        .get(ADDRESS, "one/early")
        .await
        .unwrap()
        .unwrap();
    let owners = early["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 2, "{early}");

    // A new store knows nothing, and takes in what the cluster shows.
    let fresh = bed.plane.prepare_fipd("").await.unwrap();
    *bed.fipd.own().unwrap() = fresh;
    bed.plane.0.forget_leaders().await.unwrap();
    bed.claim("one/later", (POOL, "net")).await.unwrap();
    bed.restart().await.unwrap();
    let later = bed.address("one/later").await.unwrap();
    assert!(![&*other, "10.0.0.10"].contains(&&*later), "{later}");
    let leases = bed.leases("").await.unwrap();
    assert!(leases["10.0.0.10"].ends_with("one/early"), "{leases:?}");
    assert!(leases[&other].ends_with("one/a"), "{leases:?}");
}
