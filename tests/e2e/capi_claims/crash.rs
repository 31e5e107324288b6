//! What outlives fipd: E-20 and E-21.

use super::*;

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

/// A claim that goes before it has fipd's finalizer leaves an IPAddress that its pool owns too: the garbage collector takes the
/// claim from the owners, and nothing else. The address stays held until the claim is missed in two complete lists.
#[tokio::test]
async fn the_ipaddress_of_a_claim_that_went_without_a_finalizer_goes_too() {
    let mut bed = Bed::alone("").await.unwrap();
    let range = ["10.0.0.10-10.0.0.20"];
    bed.pool("one/net", &range, 24, "").await.unwrap();
    for (path, address) in [("one/a", "10.0.0.10"), ("one/b", "10.0.0.11")] {
        bed.claim(path, (POOL, "net")).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), address);
    }
    bed.fipd.own().unwrap().kill9().unwrap();
    for path in ["one/a", "one/b"] {
        let none = json!({ "metadata": { "finalizers": null } });
        bed.objects.merge(CLAIM, path, none).await.unwrap();
        bed.objects.delete(CLAIM, path).await.unwrap();
        bed.objects.wait_gone(CLAIM, path).await.unwrap();
    }
    // The garbage collector has seen one of them.
    let address = bed.objects.get(ADDRESS, "one/a").await.unwrap().unwrap();
    let mut owners = address["metadata"]["ownerReferences"].clone();
    owners
        .as_array_mut()
        .unwrap()
        .retain(|owner| owner["kind"] == POOL);
    assert_eq!(owners.as_array().unwrap().len(), 1, "{address}");
    let owners = json!({ "metadata": { "ownerReferences": owners } });
    bed.objects.merge(ADDRESS, "one/a", owners).await.unwrap();
    bed.restart().await.unwrap();
    // A restore may write the claim a moment after its IPAddress: there is a second look.
    for path in ["one/a", "one/b"] {
        let gone = wait_until("the second look", 2 * DEADLINE, || async {
            let there = bed.objects.get(ADDRESS, path).await;
            let there = there.map_err(|error| format!("{error:#}"))?;
            there.map_or(Ok(()), |there| Err(there.to_string()))
        });
        gone.await.unwrap();
    }
    let leases = bed.leases("").await.unwrap();
    assert_eq!(leases.len(), 2, "{leases:?}");
    bed.claim("one/c", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("one/c").await.unwrap(), "10.0.0.12");
}
