//! Addresses that are checked on the wire before they are used.

use serde_json::json;

use crate::harness::Daemon;

const ASK: &str = "lease allocate --pool lab --owner fipd/Host/lab/a --probe";

#[test]
fn an_address_in_use_is_given_up_and_another_confirmed() {
    let mut fipd = Daemon::start();
    fipd.json("pool create lab --range 192.0.2.10-192.0.2.20");
    let first = fipd.json(ASK);
    let lease = &first["leases"][0];
    assert_eq!(
        (&lease["address"], &lease["state"]),
        (&json!("192.0.2.10"), &json!("probing"))
    );
    assert!(lease["until"].is_string(), "{lease}");

    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let fipd = Daemon::start_in(fipd.home(), &[]);
    assert_eq!(fipd.json(ASK), first, "still being checked");
    let taken = fipd.json("lease probed 192.0.2.10 taken --by 02:00:00:00:00:07");
    assert_eq!(
        (&taken["state"], &taken["owner"]),
        (&json!("quarantined"), &json!(null))
    );
    let audit = fipd.json("audit");
    assert_eq!(audit["entries"][0]["action"], "found-in-use");
    assert_eq!(
        audit["entries"][0]["detail"],
        "02:00:00:00:00:07 answered for it"
    );
    let second = fipd.json(ASK);
    assert_eq!(second["leases"][0]["address"], "192.0.2.11");
    fipd.cli("lease probed 192.0.2.11 free --owner fipd/Host/lab/b")
        .fails(1, &["192.0.2.11", "fipd/Host/lab/a"]);
    fipd.cli("lease probed 192.0.2.11 free --by 02:00:00:00:00:07")
        .fails(2, &["by", "free"]);
    for _ in 0..2 {
        let confirmed = fipd.json("lease probed 192.0.2.11 free");
        assert_eq!(
            (&confirmed["state"], &confirmed["until"]),
            (&json!("allocated"), &json!(null))
        );
    }
    fipd.cli("lease probed 192.0.2.12 free")
        .fails(3, &["192.0.2.12"]);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn the_api_takes_reports_of_who_asked() {
    let fipd = Daemon::start();
    fipd.json("pool create lab --cidr 192.0.2.0/24");
    let rest = fipd.rest(Some(&fipd.token("edge", "operator")));
    let owner = "fipd/Host/lab/a";
    let asked = rest.post(
        "/api/v1/leases",
        json!({ "owner": owner, "wants": [{ "pool": "lab" }], "probe": true }),
    );
    assert_eq!(asked.status, 201);
    assert_eq!(asked.json()["leases"][0]["state"], "probing");
    let path = "/api/v1/leases/default/192.0.2.1/probed";
    let report = |verdict: &str| json!({ "owner": owner, "verdict": verdict });
    let problem = rest.post(path, report("maybe")).problem(422, "invalid");
    assert_eq!(
        (&problem["field"], &problem["allowed"]),
        (&json!("verdict"), &json!("free or taken"))
    );
    let other = "/api/v1/leases/default/192.0.2.2/probed";
    rest.post(other, report("free")).problem(409, "conflict");
    let viewer = fipd.rest(Some(&fipd.token("eye", "viewer")));
    assert_eq!(viewer.post(path, report("free")).status, 403);
    let shared = json!({ "key": "web", "ports": ["TCP/80"] });
    let both =
        json!({ "owner": owner, "wants": [{ "pool": "lab" }], "probe": true, "share": shared });
    let problem = rest.post("/api/v1/leases", both).problem(422, "invalid");
    assert_eq!(problem["field"], "probe");
    let lease = rest.post(path, report("free")).json();
    assert_eq!(
        (&lease["address"], &lease["state"]),
        (&json!("192.0.2.1"), &json!("allocated"))
    );
}
