//! Cases that are seldom and cost an address where they go wrong.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};

use super::*;

const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Rows 27 and 28: a range gives its lowest free address until it is full, then the next range does, and then none.
#[tokio::test]
async fn rows_27_and_28_ranges_are_used_up_from_the_lowest_address() {
    let bed = Bed::share(&["ranges"]).await.unwrap();
    let one = ["10.61.1.10-10.61.1.20"];
    let two = ["10.61.0.10-10.61.0.15", "10.61.0.20"];
    let last: [(&str, &[&str], &str, Vec<u8>); 2] = [
        ("one", &one, "10.61.1", (10..=20).collect()),
        ("two", &two, "10.61.0", (10..=15).chain([20]).collect()),
    ];
    for (pool, ranges, network, given) in last {
        bed.pool(&format!("ranges/{pool}"), ranges, 24, "")
            .await
            .unwrap();
        for last in given {
            let path = format!("ranges/{pool}-{last}");
            bed.claim(&path, (POOL, pool)).await.unwrap();
            let address = bed.address(&path).await.unwrap();
            assert_eq!(address, format!("{network}.{last}"));
        }
        let late = format!("ranges/{pool}-late");
        bed.claim(&late, (POOL, pool)).await.unwrap();
        let said = bed.refused(&late, "PoolExhausted", "PoolExhausted");
        let said = said.await.unwrap();
        assert!(said.contains("no address available"), "{said}");
    }
}

/// Row 36: whatever is paused, a deleted claim keeps its address until that ends.
#[tokio::test]
async fn row_36_a_deleted_claim_keeps_its_address_while_anything_is_paused() {
    let bed = Bed::share(&["held"]).await.unwrap();
    bed.pool("held/net", &["10.62.0.10-10.62.0.12"], 24, "")
        .await
        .unwrap();
    for (paused, path) in [(CLAIM, "held/a"), (POOL, "held/net")] {
        bed.claim("held/a", (POOL, "net")).await.unwrap();
        assert_eq!(bed.address("held/a").await.unwrap(), "10.62.0.10");
        let pause = |value: Value| bed.objects.annotate(paused, path, PAUSED, value);
        pause(json!("true")).await.unwrap();
        if paused == POOL {
            // Of two objects fipd may hear in another order.
            let known = bed.objects.wait_event(POOL, path, "PoolPaused");
            known.await.unwrap();
        }
        bed.objects.delete(CLAIM, "held/a").await.unwrap();
        let reason = if paused == CLAIM {
            "Paused"
        } else {
            "PoolPaused"
        };
        let event = bed.objects.wait_event(CLAIM, "held/a", reason);
        event.await.unwrap();
        let there = bed.objects.get(ADDRESS, "held/a").await.unwrap();
        assert!(there.is_some(), "{paused}");
        assert_eq!(bed.leases("10.62.0.10").await.unwrap().len(), 1, "{paused}");
        pause(Value::Null).await.unwrap();
        bed.objects.wait_gone(CLAIM, "held/a").await.unwrap();
    }
}

/// What the stock provider gave while fipd was away is adopted before anything new is given, also in a network that adopted the
/// cluster long ago, and an address in its grace stays away from others.
#[tokio::test]
async fn what_another_program_gave_while_fipd_was_away_is_adopted_first() {
    let mut bed = Bed::alone("").await.unwrap();
    let grace = json!({
        "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "addressReuseGracePeriodSeconds": 600,
    });
    bed.objects.pool("one/net", grace).await.unwrap();
    for (path, address) in [("one/a", "10.0.0.10"), ("one/brief", "10.0.0.11")] {
        bed.claim(path, (POOL, "net")).await.unwrap();
        assert_eq!(bed.address(path).await.unwrap(), address);
    }
    bed.objects.delete(CLAIM, "one/brief").await.unwrap();
    bed.objects.wait_gone(CLAIM, "one/brief").await.unwrap();
    bed.fipd.own().unwrap().kill9().unwrap();
    bed.claim("one/waits", (POOL, "net")).await.unwrap();
    let given = bed
        .objects
        .fulfilled("one/given", (POOL, "net"), "10.0.0.12");
    given.await.unwrap();
    // Also to a claim of a name that fipd knows.
    for (kind, path) in [(CLAIM, "one/a"), (ADDRESS, "one/a")] {
        bed.objects.delete(kind, path).await.unwrap();
        let none = json!({ "metadata": { "finalizers": null } });
        bed.objects.merge(kind, path, none).await.unwrap();
        bed.objects.wait_gone(kind, path).await.unwrap();
    }
    let again = bed.objects.fulfilled("one/a", (POOL, "net"), "10.0.0.15");
    again.await.unwrap();
    bed.restart().await.unwrap();
    assert_eq!(bed.address("one/waits").await.unwrap(), "10.0.0.13");
    wait_until("the new claim has what it shows", DEADLINE, || async {
        let leases = bed.leases("10.0.0.1").await.unwrap();
        let is_its = |lease: Option<&String>| lease.is_some_and(|one| one.ends_with("one/a"));
        let moved = is_its(leases.get("10.0.0.15")) && !is_its(leases.get("10.0.0.10"));
        moved.then_some(()).ok_or(format!("{leases:?}"))
    })
    .await
    .unwrap();
    let leases = bed.leases("10.0.0.12").await.unwrap();
    assert!(leases["10.0.0.12"].ends_with("one/given"), "{leases:?}");
    let brief = bed
        .objects
        .get(ADDRESS, "one/brief")
        .await
        .unwrap()
        .unwrap();
    let mark = &brief["metadata"]["annotations"]["fipd.io/grace-ends"];
    assert!(mark.is_string(), "{brief}");
    bed.claim("one/brief", (POOL, "net")).await.unwrap();
    assert_eq!(bed.address("one/brief").await.unwrap(), "10.0.0.14");
}

/// A restore may bring the pool last.
#[tokio::test]
async fn e_20_an_ipaddress_before_its_pool_keeps_its_address() {
    let bed = Bed::share(&["restored"]).await.unwrap();
    let pool = (GLOBAL, "restored");
    let early = bed.objects.fulfilled("restored/early", pool, "10.65.0.10");
    early.await.unwrap();
    bed.claim("restored/late", pool).await.unwrap();
    bed.refused("restored/late", "PoolNotReady", "PoolNotFound")
        .await
        .unwrap();
    let spec = json!({ "addresses": ["10.65.0.10-10.65.0.11"], "prefix": 24 });
    bed.objects.pool("restored", spec).await.unwrap();
    assert_eq!(bed.address("restored/late").await.unwrap(), "10.65.0.11");
    let leases = bed.leases("10.65.0.10").await.unwrap();
    assert!(
        leases["10.65.0.10"].ends_with("restored/early"),
        "{leases:?}"
    );
}

/// A namespace that goes waits for no grace, and what its claims had cools all the same.
#[tokio::test]
async fn a_terminating_namespace_ends_the_grace_of_its_objects_and_not_that_of_its_addresses() {
    let bed = Bed::share(&["departs", "remains"]).await.unwrap();
    let grace = json!({
        "addresses": ["10.64.0.10-10.64.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 600,
    });
    bed.objects.pool("departs", grace).await.unwrap();
    bed.claim("departs/a", (GLOBAL, "departs")).await.unwrap();
    assert_eq!(bed.address("departs/a").await.unwrap(), "10.64.0.10");
    let client = bed.plane.0.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces
        .delete("departs", &DeleteParams::default())
        .await
        .unwrap();
    wait_until("the namespace is gone", DEADLINE, || async {
        match namespaces.get_opt("departs").await {
            Ok(None) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await
    .unwrap();
    let of = ["lease", "list", "--within", "10.64.0.10", "-o", "json"];
    let leases = bed.fipd.cli(of).await.unwrap().json().unwrap();
    assert_eq!(leases["leases"][0]["state"], "quarantined", "{leases}");
    bed.claim("remains/b", (GLOBAL, "departs")).await.unwrap();
    assert_eq!(bed.address("remains/b").await.unwrap(), "10.64.0.11");
    bed.claim("remains/c", (GLOBAL, "departs")).await.unwrap();
    bed.refused("remains/c", "PoolExhausted", "PoolExhausted")
        .await
        .unwrap();
}
