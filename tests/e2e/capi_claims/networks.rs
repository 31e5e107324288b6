//! Which pools give the same address, and what outlives fipd: rows 31, 32, E-17, E-20 and E-21.

use super::*;

#[tokio::test]
async fn e_17_overlapping_pools_of_one_network_give_nothing_twice() {
    let bed = Bed::start("").await;
    for path in ["one/net", "two/net", "net"] {
        bed.pool(path, &["10.0.0.10-10.0.0.12"], 24, "").await;
    }
    let mut given = Vec::new();
    for (path, kind) in [("one/a", POOL), ("two/a", POOL), ("two/b", GLOBAL)] {
        bed.claim(path, (kind, "net")).await;
        given.push(bed.address(path).await);
    }
    assert_eq!(given, ["10.0.0.10", "10.0.0.11", "10.0.0.12"]);
    for (kind, path) in [(POOL, "one/net"), (POOL, "two/net"), (GLOBAL, "net")] {
        bed.counts(kind, path, [3, 3, 0, 0]).await;
        let pool = bed.objects.get(kind, path).await.unwrap().unwrap();
        let conditions = pool["status"]["conditions"].as_array().unwrap();
        let overlap = conditions.iter().find(|one| one["type"] == "Overlapping");
        assert!(overlap.is_some(), "{pool}");
    }
}

#[tokio::test]
async fn rows_31_and_32_pools_in_two_networks_are_independent() {
    let bed = Bed::start("network-per-namespace = true").await;
    for path in ["one/net", "two/net", "net"] {
        bed.pool(path, &["10.0.0.10-10.0.0.12"], 24, "").await;
    }
    for (path, kind) in [("one/a", POOL), ("two/a", POOL), ("two/b", GLOBAL)] {
        bed.claim(path, (kind, "net")).await;
        assert_eq!(bed.address(path).await, "10.0.0.10", "{path}");
    }
    let leases = bed.fipd.cli(["lease", "list", "-o", "json"]).await;
    let leases = leases.unwrap().json().unwrap();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 3);
}

/// fipd dies while many claims come and go; no address is given twice, and none is lost.
#[tokio::test]
async fn e_21_no_address_is_given_twice_whatever_dies() {
    let mut bed = Bed::start("").await;
    bed.pool("one/net", &["10.0.0.10-10.0.0.40"], 24, "").await;
    for round in 0..3 {
        for name in 0..20 {
            bed.claim(&format!("one/r{round}-{name}"), (POOL, "net"))
                .await;
        }
        bed.fipd.kill9().unwrap();
        if round > 0 {
            for name in 0..10 {
                let path = format!("one/r{}-{name}", round - 1);
                bed.objects.delete(CLAIM, &path).await.unwrap();
            }
        }
        bed.restart().await;
        let mut seen = BTreeMap::new();
        for name in 0..20 {
            let path = format!("one/r{round}-{name}");
            let address = bed.address(&path).await;
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
    bed.counts(POOL, "one/net", [31, 10, 21, 0]).await;
}

/// E-20: an IPAddress that is there before its claim is what the claim gets, as restores and moves need it.
#[tokio::test]
async fn e_20_an_ipaddress_before_its_claim_and_a_lost_store_keep_addresses() {
    let mut bed = Bed::start("").await;
    bed.pool("one/net", &["10.0.0.10-10.0.0.20"], 24, "").await;
    let reference = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL, "name": "net" });
    let there = json!({ "spec": {
        "claimRef": { "name": "early" }, "poolRef": reference, "address": "10.0.0.10", "prefix": 24,
    } });
    bed.objects.make(ADDRESS, "one/early", there).await.unwrap();
    wait_until("the early address", DEADLINE, || async {
        let leases = bed.leases().await;
        let held = leases.contains_key("10.0.0.10");
        if held {
            Ok(())
        } else {
            Err(format!("{leases:?}"))
        }
    })
    .await
    .unwrap();
    bed.claim("one/a", (POOL, "net")).await;
    let other = bed.address("one/a").await;
    bed.claim("one/early", (POOL, "net")).await;
    assert_eq!(bed.address("one/early").await, "10.0.0.10");
    let early = bed
        .objects
        .get(ADDRESS, "one/early")
        .await
        .unwrap()
        .unwrap();
    let owners = early["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 2, "{early}");

    // A new store knows nothing, and takes in what the cluster shows.
    bed.fipd.kill9().unwrap();
    let mut fresh = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let kubeconfig = bed.plane.kubeconfig_of(RESTRICTED_USER);
    write_kubeconfig(&fresh, "management", &kubeconfig).unwrap();
    fresh.write_config(&config("")).unwrap();
    bed.claim("one/later", (POOL, "net")).await;
    std::mem::swap(&mut bed.fipd, &mut fresh);
    bed.restart().await;
    let later = bed.address("one/later").await;
    assert!(![&*other, "10.0.0.10"].contains(&&*later), "{later}");
    let leases = bed.leases().await;
    assert!(leases["10.0.0.10"].ends_with("one/early"), "{leases:?}");
    assert!(leases[&other].ends_with("one/a"), "{leases:?}");
}
