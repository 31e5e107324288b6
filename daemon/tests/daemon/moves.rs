//! Pools that go to another network.

use http::Method;
use serde_json::json;

use crate::harness::Daemon;

#[test]
fn a_pool_goes_to_another_network_with_its_leases_or_not_at_all() {
    let mut fipd = Daemon::start();
    fipd.json("network create blue");
    fipd.json("pool create lab --range 192.0.2.10-192.0.2.11 --sticky-for 7d");
    fipd.json("pool create there --range 192.0.2.11 --network blue");
    for name in ["a", "b"] {
        fipd.json(&format!(
            "lease allocate --pool lab --owner fipd/Host/lab/{name}"
        ));
    }
    fipd.json("lease allocate --pool there --owner fipd/Host/lab/there");
    let preview = fipd.json("pool move-network lab blue --dry-run");
    assert_eq!(
        preview,
        json!({ "pool": "lab", "from": "default", "to": "blue", "leases": 2, "collisions": 1,
            "first": [{ "address": "192.0.2.11", "owner": "fipd/Host/lab/there" }] })
    );
    fipd.cli("pool move-network lab blue").fails(
        1,
        &["lab", "blue", "192.0.2.11 (fipd/Host/lab/there)", "release"],
    );
    fipd.cli("pool move-network lab red").fails(3, &["red"]);
    fipd.json("pool create far --range 192.0.2.20 --network blue");
    fipd.json("lease allocate --pool far --owner fipd/Host/lab/far");
    fipd.json("pool create blocks --cidr 192.0.2.16/28 --allocation-length 29");
    fipd.json("lease allocate --pool blocks --owner fipd/Router/lab/r");
    fipd.cli("pool move-network blocks blue")
        .fails(1, &["192.0.2.16/29 (fipd/Host/lab/far)"]);
    let preview = fipd.json("pool move-network blocks blue --dry-run");
    assert_eq!(preview["first"][0]["length"], 29);
    fipd.cli("pool update blocks --cidr 192.0.2.24/29")
        .fails(1, &["192.0.2.16/29", "release"]);
    fipd.json("lease release --owner fipd/Router/lab/r");
    assert_eq!(fipd.cli("pool delete blocks").code, 0);
    assert_eq!(fipd.json("pool show lab")["network"], "default");

    fipd.json("lease release --owner fipd/Host/lab/there");
    let moved = fipd.json("pool move-network lab blue");
    assert_eq!(
        (&moved["network"], &moved["generation"]),
        (&json!("blue"), &json!(2))
    );
    assert_eq!(fipd.json("pool move-network lab blue")["generation"], 2);

    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let fipd = Daemon::start_in(fipd.home(), &[]);
    let leases = fipd.json("lease list --pool lab");
    let networks: Vec<_> = leases["leases"].as_array().unwrap().iter().collect();
    assert_eq!(networks.len(), 2);
    assert!(networks.iter().all(|lease| lease["network"] == "blue"));
    let again = fipd.json("lease allocate --pool lab --owner fipd/Host/lab/b");
    assert_eq!(again["leases"][0]["address"], "192.0.2.11");
    let entry = &fipd.json("audit")["entries"][0];
    assert_eq!(entry["action"], "pool-moved");
    assert_eq!(entry["detail"], "lab: from default to blue with 2 leases");
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn the_api_moves_what_was_read() {
    let fipd = Daemon::start();
    fipd.json("network create blue");
    fipd.json("pool create lab --cidr 192.0.2.0/24");
    let rest = fipd.rest(Some(&fipd.token("root", "admin")));
    let path = "/api/v1/pools/lab/move-network";
    let preview = rest.get(&format!("{path}?network=blue")).json();
    assert_eq!(
        (&preview["leases"], &preview["collisions"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(rest.get(path).status, 400);
    let body = json!({ "network": "blue" });
    let operator = fipd.rest(Some(&fipd.token("op", "operator")));
    assert_eq!(operator.post(path, body.clone()).status, 403);
    let stale = rest.json(Method::POST, path, &[("if-match", "\"7\"")], body.clone());
    assert_eq!(stale.status, 412);
    let tag = rest.get("/api/v1/pools/lab").etag();
    let moved = rest.json(Method::POST, path, &[("if-match", &tag)], body);
    assert_eq!(
        (moved.status.as_u16(), &moved.json()["network"]),
        (200, &json!("blue"))
    );
    assert!(moved.headers.contains_key("etag"));
}
