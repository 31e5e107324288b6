//! Which pools give the same address: rows 31 and 32, E-17.

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
