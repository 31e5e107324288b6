//! The command line: what it prints, and how it fails.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::harness::{Daemon, program, run};

#[test]
fn an_address_is_given_kept_and_taken_back() {
    let fipd = Daemon::start();
    let pool = fipd.json(
        "pool create vips --cidr 192.0.2.0/24 --gateway 192.0.2.1 --exclude 192.0.2.2-192.0.2.9",
    );
    assert_eq!(pool["usage"]["size"], 245);
    let lease = json!({
        "address": "192.0.2.10", "prefix": 24, "gateway": "192.0.2.1", "network": "default",
        "pool": "vips", "state": "allocated", "owner": "fipd/Host/lab/printer",
        "until": null,
    });
    let expected = json!({ "leases": [lease] });
    let allocate = "lease allocate --pool vips --owner fipd/Host/lab/printer";
    assert_eq!(fipd.json(allocate), expected);
    assert_eq!(fipd.json(allocate), expected, "asking again is free");
    let other = fipd.json("lease allocate --pool vips --owner fipd/Host/lab/scanner --count 2");
    let addresses: Vec<_> = other["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| lease["address"].clone())
        .collect();
    assert_eq!(addresses, ["192.0.2.11", "192.0.2.12"]);
    let exact =
        fipd.json("lease allocate --pool vips --owner fipd/Host/lab/plotter --address 192.0.2.200");
    assert_eq!(exact["leases"][0]["address"], "192.0.2.200");
    assert_eq!(
        fipd.json("lease list")["leases"].as_array().unwrap().len(),
        4
    );
    assert_eq!(
        fipd.json("lease show 192.0.2.12")["owner"],
        "fipd/Host/lab/scanner"
    );
    let released = json!({ "released": [{ "network": "default", "address": "192.0.2.10" }] });
    assert_eq!(
        fipd.json("lease release --owner fipd/Host/lab/printer"),
        released
    );
    assert_eq!(
        fipd.json("lease release --owner fipd/Host/lab/printer"),
        json!({ "released": [] })
    );
    assert_eq!(
        fipd.json("lease release 192.0.2.11 192.0.2.99")["released"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let audit = fipd.json("audit");
    let actions: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].clone())
        .collect();
    assert_eq!(actions[..2], ["released", "released"]);
    assert_eq!(
        audit["entries"][0]["actor"],
        format!("socket:{}", nix::unistd::geteuid())
    );
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn an_address_is_kept_for_who_comes_later_and_ends_by_itself() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 192.0.2.0/30");
    let reserve = "lease reserve --pool p --owner fipd/vm/lab/web";
    let kept = fipd.json(&format!("{reserve} --for 7d"));
    let kept = &kept["leases"][0];
    assert_eq!(
        (&kept["state"], &kept["address"]),
        (&json!("reserved"), &json!("192.0.2.1"))
    );
    let until = "2100-01-01T00:00:00.000Z";
    let longer = fipd.json(&format!("{reserve} --until {until}"));
    assert_eq!(longer["leases"][0]["until"], until);
    assert_eq!(fipd.json("lease show 192.0.2.1")["until"], until);
    let listed = fipd.cli("lease list --state reserved");
    assert!(listed.out.contains(until), "{listed:?}");
    fipd.cli(&format!("{reserve} --until 2001-01-01T00:00:00Z"))
        .fails(2, &["until", "future"]);
    fipd.cli("lease reserve --pool p --owner fipd/vm/lab/api --address 192.0.2.1")
        .fails(1, &["192.0.2.1", "fipd/vm/lab/web"]);
    let used = fipd.json("lease allocate --pool p --owner fipd/vm/lab/web");
    assert_eq!(used["leases"][0]["state"], "allocated");
    assert_eq!(used["leases"][0]["until"], json!(null));

    fipd.json("lease reserve --pool p --owner fipd/vm/lab/short --for 1s");
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while fipd.json("lease list --state reserved")["leases"] != json!([]) {
        assert!(std::time::Instant::now() < ends, "{}", fipd.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(fipd.json("audit")["entries"][0]["action"], "expired");
}

#[test]
fn an_address_cools_after_a_release() {
    let fipd = Daemon::start();
    fipd.cli("pool create p --cidr 192.0.2.0/30 --quarantine 31d")
        .fails(2, &["quarantine", "30d"]);
    let pool = fipd.json("pool create p --cidr 192.0.2.0/30 --quarantine 2h --sticky-for 0");
    assert_eq!(pool["quarantine"], 7_200);
    let web = "lease allocate --pool p --owner fipd/vm/lab/web";
    fipd.json(&format!("{web} --tenant blue"));
    fipd.json("lease release --owner fipd/vm/lab/web");
    assert_eq!(fipd.json("lease show 192.0.2.1")["state"], "quarantined");
    let usage = &fipd.json("pool show p")["usage"];
    assert_eq!(
        (&usage["free"], &usage["quarantined"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(fipd.json(web)["leases"][0]["address"], "192.0.2.2");
    fipd.cli("lease allocate --pool p --owner fipd/vm/lab/api")
        .fails(4, &[]);

    let operator = fipd.rest(Some(&fipd.token("op", "operator")));
    let made = fipd.json("token create blue --role operator --tenant blue");
    let blue = fipd.rest(made["token"].as_str());
    let named = |rest: &crate::harness::Rest, tenant: Option<&str>| {
        let wants = json!([{ "pool": "p", "address": "192.0.2.1" }]);
        let owner = "fipd/vm/lab/api";
        rest.post(
            "/api/v1/leases",
            json!({ "owner": owner, "tenant": tenant, "wants": wants }),
        )
    };
    let refused = named(&operator, Some("red")).problem(409, "address-taken");
    assert!(
        refused["detail"].as_str().unwrap().contains("quarantine"),
        "{refused}"
    );
    named(&operator, None).problem(409, "address-taken");
    // Whoever says so is not the tenant yet.
    named(&operator, Some("blue")).problem(409, "address-taken");
    assert_eq!(named(&blue, None).status, 201);
    fipd.json("lease release 192.0.2.1");
    // The socket is an admin's.
    fipd.json("lease allocate --pool p --owner fipd/vm/lab/api --address 192.0.2.1");
    fipd.json("lease release 192.0.2.1");
    fipd.json("lease release 192.0.2.1");
    assert_eq!(fipd.json("lease show 192.0.2.1")["state"], "quarantined");
    let early = "/api/v1/leases/default/192.0.2.1?end_quarantine=true";
    let refused = operator.send(http::Method::DELETE, early, &[], None);
    refused.problem(403, "forbidden");
    fipd.json("lease release 192.0.2.1 --end-quarantine");
    fipd.cli("lease show 192.0.2.1").fails(3, &["192.0.2.1"]);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn the_order_of_a_pool_says_which_address_is_next() {
    let fipd = Daemon::start();
    fipd.cli("pool create p --cidr 10.0.0.0/8 --order highest")
        .fails(2, &["lowest, random, least-recently-used"]);
    let pool = fipd.json("pool create p --cidr 10.0.0.0/8 --order random");
    assert_eq!(pool["order"], "random");
    let given = |name: &str| {
        let line = format!("lease allocate --pool p --owner fipd/vm/lab/{name}");
        fipd.json(&line)["leases"][0]["address"].clone()
    };
    let by_chance = ["a", "b", "c"].map(&given);
    let lowest = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|text| json!(text));
    assert_ne!(by_chance, lowest);
    fipd.json("pool update p --order lowest");
    assert_eq!(given("d"), "10.0.0.1");
    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let patch = json!({ "order": "highest" });
    let refused = admin.json(http::Method::PATCH, "/api/v1/pools/p", &[], patch);
    assert_eq!(refused.problem(422, "invalid")["field"], "order");
}

#[test]
fn who_had_an_address_gets_it_again() {
    let mut fipd = Daemon::start();
    let pool = fipd.json("pool create p --cidr 192.0.2.0/29");
    assert_eq!(
        (&pool["sticky_for"], &pool["sticky_most"]),
        (&json!(604_800), &json!(1_000))
    );
    let given = |fipd: &Daemon, name: &str| {
        let line = format!("lease allocate --pool p --owner fipd/vm/lab/{name}");
        fipd.json(&line)["leases"][0]["address"].clone()
    };
    assert_eq!(given(&fipd, "a"), "192.0.2.1");
    fipd.json("lease release --owner fipd/vm/lab/a");
    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let fipd = Daemon::start_in(fipd.home(), &[]);
    assert_eq!(given(&fipd, "b"), "192.0.2.2");
    assert_eq!(given(&fipd, "a"), "192.0.2.1");
    fipd.json("lease release --owner fipd/vm/lab/a");
    let line = "pool update p --sticky-for 0 --order least-recently-used";
    let pool = fipd.json(line);
    assert_eq!(
        (&pool["sticky_for"], &pool["sticky_most"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(given(&fipd, "a"), "192.0.2.3");
    let pool = fipd.json("pool update p --sticky-for 2h");
    assert_eq!(
        (&pool["sticky_for"], &pool["sticky_most"]),
        (&json!(7_200), &json!(1_000))
    );
    fipd.cli("pool update p --sticky-for 366d")
        .fails(2, &["365d"]);
    fipd.cli("pool update p --sticky-most 70000")
        .fails(2, &["65536"]);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn owners_with_other_ports_share_an_address() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 192.0.2.0/29");
    let line = |owner: &str, ports: &str| {
        let owner = format!("--owner fipd/svc/lab/{owner}");
        format!("lease allocate --pool p {owner} --share front {ports}")
    };
    let given = |owner, ports| fipd.json(&line(owner, ports))["leases"][0]["address"].clone();
    assert_eq!(given("web", "--port TCP/80 --port TCP/443"), "192.0.2.1");
    assert_eq!(given("dns", "--port udp/53"), "192.0.2.1");
    assert_eq!(given("two", "--port TCP/80"), "192.0.2.2");
    fipd.cli(&line("out", "")).fails(2, &["--port"]);
    fipd.cli(&line("out", "--port 80")).fails(2, &["TCP/80"]);
    fipd.cli(&line("out", "--port TCP/443 --address 192.0.2.1"))
        .fails(1, &["TCP/443", "fipd/svc/lab/web"]);

    let lease = fipd.json("lease show 192.0.2.1");
    assert_eq!(lease["group"], "front");
    let ports = |at: usize| lease["members"][at]["ports"].clone();
    assert_eq!(
        (ports(0), ports(1)),
        (json!(["TCP/80", "TCP/443"]), json!(["UDP/53"]))
    );
    fipd.json("lease release --owner fipd/svc/lab/web");
    let members = fipd.json("lease show 192.0.2.1")["members"].clone();
    assert_eq!(members.as_array().unwrap().len(), 1);
    fipd.json("lease release --owner fipd/svc/lab/dns");
    fipd.cli("lease show 192.0.2.1").fails(3, &["192.0.2.1"]);

    let rest = fipd.rest(Some(&fipd.token("op", "operator")));
    let ask = |share| {
        let wants = json!([{ "pool": "p" }]);
        let owner = "fipd/svc/lab/rest";
        rest.post(
            "/api/v1/leases",
            json!({ "owner": owner, "wants": wants, "share": share }),
        )
    };
    let refused = ask(json!({ "key": "front", "ports": ["TCP/0"] }));
    assert_eq!(refused.problem(422, "invalid")["field"], "share.ports");
    assert_eq!(
        ask(json!({ "key": "front", "ports": ["TCP/22"] })).status,
        201
    );
    let pool = fipd.json("pool update p --share-across-clusters true");
    assert_eq!(pool["share_across_clusters"], true);
    assert_eq!(pool["quota_required"], false);
    let pool = fipd.json("pool update p --quota-required true");
    assert_eq!(pool["quota_required"], true);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn dual_stack_is_all_or_nothing() {
    let fipd = Daemon::start();
    fipd.json("pool create four --range 10.0.0.1");
    fipd.json("pool create six --cidr 2001:db8::/64");
    let both = "lease allocate --pool four --pool six --owner fipd/Service/web/front";
    let leases = fipd.json(both)["leases"].clone();
    assert_eq!(leases.as_array().unwrap().len(), 2);
    assert_eq!(leases[1]["prefix"], 64);
    fipd.cli("lease allocate --pool four --pool six --owner fipd/Service/web/back")
        .fails(4, &["four"]);
    let left = fipd.json("lease list --owner fipd/Service/web/back");
    assert_eq!(
        left["leases"],
        json!([]),
        "nothing is kept of half an answer"
    );
    let named = "lease allocate --pool four --pool six --owner fipd/Service/web/third --address 2001:db8::77";
    fipd.cli(named).fails(4, &["four"]);
    fipd.json("lease release --owner fipd/Service/web/front");
    assert_eq!(fipd.json(named)["leases"][1]["address"], "2001:db8::77");
}

#[test]
fn leases_are_labelled_and_found_by_labels() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --address 10.0.0.8");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/b --address 10.0.0.9");
    fipd.cli("lease label 10.0.0.9 app").fails(2, &["KEY-"]);
    fipd.cli("lease label 10.0.0.7 app=web")
        .fails(3, &["10.0.0.7"]);
    let lease = fipd.json("lease label 10.0.0.9 app=web team=red");
    assert_eq!(lease["labels"], json!({ "app": "web", "team": "red" }));
    fipd.json("lease label 10.0.0.8 app=db");
    let lease = fipd.json("lease label 10.0.0.9 tier=1 team-");
    assert_eq!(lease["labels"], json!({ "app": "web", "tier": "1" }));
    let audit = &fipd.json("audit")["entries"][0];
    assert_eq!(audit["action"], "labelled");
    assert_eq!(audit["detail"], "tier=1 team-");
    let shown = fipd.cli("lease show 10.0.0.9").out;
    assert!(shown.contains("app=web tier=1"), "{shown}");
    for (filter, found) in [
        ("--label app", 2),
        ("--label app=web", 1),
        ("--label app --label tier=1", 1),
        ("--label app=db --label tier", 0),
        ("--owner fipd/Host/lab/b --label app=db", 0),
    ] {
        let leases = fipd.json(&format!("lease list {filter}"));
        let leases = leases["leases"].as_array().map(Vec::len);
        assert_eq!(leases, Some(found), "{filter}");
    }
    fipd.cli("lease list --label =web").fails(2, &["KEY=VALUE"]);
    let rest = fipd.rest(Some(&fipd.token("ann", "operator")));
    let patch = |rest: &crate::harness::Rest, path: &str, body| {
        rest.json(http::Method::PATCH, path, &[], body)
    };
    let path = "/api/v1/leases/default/10.0.0.9/labels";
    let problem = patch(&rest, path, json!({ "set": { "a b": "c" } }));
    assert_eq!(problem.problem(422, "invalid")["field"], "labels");
    patch(&rest, "/api/v1/leases/default/10.0.0.7/labels", json!({})).problem(404, "not-found");
    let eve = fipd.rest(Some(&fipd.token("eve", "viewer")));
    patch(&eve, path, json!({ "set": { "a": "b" } })).problem(403, "forbidden");
    fipd.cli("lease release 10.0.0.9");
    let lease = fipd.json("lease allocate --pool p --owner fipd/Host/lab/c --address 10.0.0.9");
    assert!(lease["leases"][0].is_object());
    assert!(fipd.json("lease show 10.0.0.9").get("labels").is_none());
}

#[test]
fn pools_are_listed_by_network_and_addresses() {
    let fipd = Daemon::start();
    fipd.json("network create lab");
    fipd.json("pool create a --cidr 10.0.0.0/24");
    fipd.json("pool create b --cidr 10.1.0.0/24 --range 10.2.0.1-10.2.0.9");
    fipd.json("pool create c --cidr 10.0.0.0/24 --network lab");
    let listed = |filter: &str| {
        let list = fipd.json(&format!("pool list {filter}"));
        let pools = list["pools"].as_array().unwrap().iter();
        let names: Vec<_> = pools.map(|pool| pool["name"].as_str().unwrap()).collect();
        names.concat()
    };
    assert_eq!(listed(""), "abc");
    assert_eq!(listed("--network lab"), "c");
    assert_eq!(listed("--containing 10.0.0.7 --network default"), "a");
    assert_eq!(listed("--within 10.0.0.0/15"), "ac");
    fipd.cli("pool list --within ten").fails(2, &["--within"]);
    fipd.cli("pool list --network nope").fails(3, &["nope"]);
}

#[test]
fn a_pool_says_what_an_edit_would_do() {
    let fipd = Daemon::start();
    fipd.json("pool create p --range 10.0.0.1-10.0.0.9");
    fipd.json("pool create q --range 10.0.0.8-10.0.0.20");
    fipd.json("lease allocate --pool p --count 7 --owner fipd/Host/lab/a");
    let edit = "pool update p --range 10.0.0.1-10.0.0.2";
    let preview = fipd.json(&format!("{edit} --dry-run"));
    assert_eq!(preview["size_before"], 9);
    assert_eq!(preview["size_after"], 2);
    assert_eq!(preview["overlaps"], json!([]));
    let leaving = preview["leaving"].as_array().unwrap();
    assert_eq!((leaving.len(), &preview["next"]), (5, &json!(null)));
    assert_eq!(leaving[0]["address"], "10.0.0.3");
    assert_eq!(leaving[0]["owner"], "fipd/Host/lab/a");
    let told = fipd.cli(&format!("{edit} --dry-run"));
    assert!(told.out.contains("10.0.0.7 (fipd/Host/lab/a)"), "{told:?}");
    fipd.cli(edit).fails(1, &["10.0.0.3"]);

    let rest = fipd.rest(Some(&fipd.token("root", "admin")));
    let page = |query: &str| {
        let path = format!("/api/v1/pools/p/preview?{query}");
        rest.post(&path, json!({ "addresses": ["10.0.0.1-10.0.0.2"] }))
    };
    let first = page("limit=3").json();
    let next = first["next"].as_str().unwrap();
    let second = page(&format!("limit=3&cursor={next}")).json();
    let count = |page: &serde_json::Value| page["leaving"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (3, 2));
    assert_eq!(second["next"], json!(null));
    page("limit=0").problem(422, "invalid");
    assert_eq!(
        fipd.json("pool show p")["generation"],
        1,
        "nothing was changed"
    );
    let wider = fipd.json("pool update p --cidr 10.0.0.0/28 --dry-run");
    assert_eq!(wider["overlaps"], json!(["q"]));
    fipd.cli("pool update p --range 10.0.0.1 --gateway ::1 --dry-run")
        .fails(2, &["gateway"]);
}

#[test]
fn the_audit_log_says_who_had_an_address() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("pool create q --cidr 10.1.0.0/24");
    for owner in ["a", "b"] {
        let owner = format!("fipd/Host/lab/{owner}");
        fipd.json(&format!(
            "lease allocate --pool p --address 10.0.0.7 --owner {owner}"
        ));
        fipd.json(&format!("lease release --owner {owner}"));
        fipd.json(&format!("lease allocate --pool q --owner {owner}"));
    }
    let found = |filter: &str| {
        let audit = fipd.json(&format!("audit {filter}"));
        let entries = audit["entries"].as_array().unwrap().iter().rev();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
        let name = |entry: &serde_json::Value| text(&entry["owner"]).replace("fipd/Host/lab/", "");
        let rows: Vec<_> = entries
            .map(|entry| format!("{} {}", text(&entry["action"]), name(entry)))
            .collect();
        rows.join(", ")
    };
    assert_eq!(
        found("--address ::ffff:10.0.0.7"),
        "allocated a, released a, allocated b, released b"
    );
    assert_eq!(
        found("--owner fipd/Host/lab/b --pool p"),
        "allocated b, released b"
    );
    assert_eq!(found("--action released --limit 1"), "released b");
    assert_eq!(
        found("--pool q --network default"),
        "pool-created -, allocated a, allocated b"
    );
    assert_eq!(found("--to 2001-01-01"), "");
    assert_eq!(found("--from 2001-01-01 --actor nobody"), "");
    fipd.cli("audit --from yesterday")
        .fails(2, &["from", "2026-03-01"]);
    fipd.cli("audit --pool nope").fails(3, &["nope"]);
}

#[test]
fn a_lease_is_transferred_and_the_audit_log_says_why() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/old --address 10.0.0.9 --tenant t1");
    let to = "lease transfer 10.0.0.9 --to fipd/Host/lab/new --reason moved";
    fipd.cli("lease transfer 10.0.0.9 --to fipd/Host/lab/new")
        .fails(2, &["--reason"]);
    fipd.cli("lease transfer 10.0.0.8 --to fipd/Host/lab/new --reason moved")
        .fails(3, &["10.0.0.8"]);
    fipd.cli(&format!("{to} --from fipd/Host/lab/other"))
        .fails(1, &["is held by fipd/Host/lab/old"]);
    let lease = fipd.json(&format!("{to} --from fipd/Host/lab/old --tenant t2"));
    assert_eq!(lease["owner"], "fipd/Host/lab/new");
    assert_eq!(lease["tenant"], "t2");
    let again = fipd.json(&format!("{to} --from fipd/Host/lab/old"));
    assert_eq!(again, lease, "asking again is free");
    let audit = &fipd.json("audit")["entries"][0];
    assert_eq!(audit["action"], "handed-over");
    assert_eq!(audit["owner"], "fipd/Host/lab/new");
    assert_eq!(
        audit["detail"],
        "from fipd/Host/lab/old, charged to t2: moved"
    );
    assert_eq!(audit["actor"], format!("socket:{}", nix::unistd::geteuid()));
    let rest = fipd.rest(Some(&fipd.token("ann", "operator")));
    let path = "/api/v1/leases/default/10.0.0.9/transfer";
    let body = json!({ "to": "fipd/Host/lab/third", "from": "fipd/Host/lab/old", "reason": "x" });
    rest.post(path, body).problem(409, "address-taken");
    let body = json!({ "to": "fipd/Host/lab/third", "reason": " " });
    let problem = rest.post(path, body).problem(422, "invalid");
    assert_eq!(problem["field"], "reason");
    fipd.rest(Some(&fipd.token("eve", "viewer")))
        .post(path, json!({ "to": "a/b/c/d", "reason": "x" }))
        .problem(403, "forbidden");
}

#[test]
fn what_the_daemon_holds_is_exported() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24 --cidr 10.0.1.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --count 3");
    let lines = fipd.cli("export");
    assert_eq!((lines.code, lines.out.lines().count()), (0, 3), "{lines:?}");
    let first: serde_json::Value = serde_json::from_str(lines.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["address"], "10.0.0.1");
    let table = fipd.cli("export --what pools --format csv").out;
    let (head, row) = table.split_once('\n').unwrap();
    assert!(
        head.starts_with("id,name,network,") && head.contains(",usage.used,"),
        "{head}"
    );
    assert!(row.contains("10.0.0.0/24 10.0.1.0/24"), "{row}");
    let file = fipd.home().path().join("audit.csv");
    let write = format!("export {} --what audit --format csv", file.display());
    assert_eq!(fipd.cli(&write).code, 0);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("number,at,actor,"), "{text}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fipd.cli(&write).fails(2, &["exists already"]);
    fipd.cli("export --what people")
        .fails(2, &["possible values"]);
    assert!(fipd.cli("completions bash").out.contains("transfer"));
}

#[test]
fn pools_are_changed_and_removed() {
    let fipd = Daemon::start();
    fipd.json("pool create lab --range 10.0.0.10-10.0.0.20");
    let wider =
        fipd.json("pool update lab --range 10.0.0.10-10.0.0.30 --gateway 10.0.0.15 --prefix 16");
    assert_eq!(
        (&wider["usage"]["size"], &wider["generation"]),
        (&json!(20), &json!(2))
    );
    assert_eq!(
        fipd.json("pool update lab --no-gateway")["gateway"],
        json!(null)
    );
    fipd.json("lease allocate --pool lab --owner fipd/Host/lab/a --address 10.0.0.30");
    fipd.cli("pool update lab --range 10.0.0.10-10.0.0.20")
        .fails(1, &["10.0.0.30", "force"]);
    let narrower = fipd.json("pool update lab --range 10.0.0.10-10.0.0.20 --force");
    assert_eq!(narrower["usage"]["out_of_range"], 1);
    assert_eq!(
        fipd.json("lease show 10.0.0.30")["marks"],
        json!(["out-of-range"])
    );
    fipd.json("pool update lab --close");
    fipd.cli("lease allocate --pool lab --owner fipd/Host/lab/b")
        .fails(1, &["lab", "closed"]);
    fipd.json("pool update lab --open");
    fipd.cli("pool delete lab").fails(1, &["lab", "1 leases"]);
    fipd.json("lease release 10.0.0.30");
    assert_eq!(fipd.cli("pool delete lab").code, 0);
    fipd.cli("pool delete lab").fails(3, &["lab"]);
}

#[test]
fn networks_keep_equal_addresses_apart() {
    let fipd = Daemon::start();
    fipd.json("network create lab");
    fipd.json("pool create here --range 10.0.0.1");
    fipd.json("pool create there --range 10.0.0.1 --network lab");
    fipd.json("lease allocate --pool here --owner fipd/Host/x/a");
    fipd.json("lease allocate --pool there --owner fipd/Host/x/a");
    fipd.cli("lease show 10.0.0.1")
        .fails(2, &["10.0.0.1", "default", "lab"]);
    assert_eq!(
        fipd.json("lease show 10.0.0.1 --network lab")["pool"],
        "there"
    );
    fipd.cli("lease release 10.0.0.1").fails(2, &["--network"]);
    assert_eq!(
        fipd.json("lease release 10.0.0.1 --pool there")["released"][0]["network"],
        "lab"
    );
    assert_eq!(
        fipd.json("lease list")["leases"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn failures_have_their_exit_code_and_one_line() {
    let fipd = Daemon::start();
    fipd.json("pool create tiny --range 10.0.0.1-10.0.0.2");
    fipd.json("lease allocate --pool tiny --owner fipd/Host/lab/a");
    let cases: &[(&str, i32, &[&str])] = &[
        ("pool create", 2, &["required", "<NAME>"]),
        (
            "pool create bad --cidr 10.0.0.0/33",
            2,
            &["--cidr", "10.0.0.0/33"],
        ),
        (
            "pool create bad --cidr 10.0.0.1/24",
            2,
            &["--cidr", "10.0.0.0/24"],
        ),
        (
            "pool create bad --range 10.0.0.9-10.0.0.1",
            2,
            &["--range", "10.0.0.9-10.0.0.1"],
        ),
        (
            "pool create bad --range 10.0.0.1-2001:db8::1",
            2,
            &["--range", "family"],
        ),
        ("pool create bad", 2, &["addresses"]),
        (
            "pool create bad --cidr 10.1.0.0/24 --cidr 2001:db8::/64",
            2,
            &["addresses", "2001:db8::/64"],
        ),
        (
            "pool create bad --cidr 10.1.0.0/24 --prefix 33",
            2,
            &["prefix", "33"],
        ),
        (
            "pool create bad --cidr 10.1.0.0/24 --prefix 200",
            2,
            &["--prefix", "200", "128"],
        ),
        (
            "pool create bad --cidr 10.1.0.0/24 --gateway nonsense",
            2,
            &["--gateway", "nonsense"],
        ),
        (
            "pool create bad --cidr 10.1.0.0/24 --network nowhere",
            3,
            &["nowhere"],
        ),
        (
            "pool create Bad_Name! --cidr 10.1.0.0/24",
            2,
            &["name", "Bad_Name!"],
        ),
        (
            "pool create tiny --cidr 10.1.0.0/24",
            1,
            &["tiny", "exists"],
        ),
        ("pool show nope", 3, &["nope"]),
        ("pool update tiny", 2, &["nothing to change"]),
        ("lease allocate --pool tiny", 2, &["--owner"]),
        (
            "lease allocate --pool nope --owner fipd/Host/lab/b",
            3,
            &["nope"],
        ),
        (
            "lease allocate --pool tiny --owner nonsense",
            2,
            &["owner", "nonsense", "SYSTEM/"],
        ),
        (
            "lease allocate --pool tiny --owner FIPD/Host/lab/b",
            2,
            &["owner", "FIPD"],
        ),
        (
            "lease allocate --pool tiny --owner fipd/Host/lab/b --count 0",
            2,
            &["--count", "1"],
        ),
        (
            "lease allocate --pool tiny --owner fipd/Host/lab/b --count 1025",
            2,
            &["--count", "1024"],
        ),
        (
            "lease allocate --pool tiny --owner fipd/Host/lab/b --address 10.0.0.1",
            1,
            &["10.0.0.1", "fipd/Host/lab/a"],
        ),
        (
            "lease allocate --pool tiny --owner fipd/Host/lab/b --address 10.0.0.3",
            2,
            &["10.0.0.3", "tiny"],
        ),
        (
            "lease allocate --pool tiny --owner fipd/Host/lab/b --count 2",
            4,
            &["tiny"],
        ),
        ("lease show 10.0.0.2", 3, &["10.0.0.2"]),
        ("lease show 10.0.0", 2, &["10.0.0"]),
        ("lease list --state sleeping", 2, &["sleeping", "allocated"]),
        ("lease list --pool nope", 3, &["nope"]),
        ("lease release", 2, &["--owner"]),
        ("lease release --owner nonsense", 2, &["owner", "nonsense"]),
        ("network create NOPE", 2, &["network", "NOPE"]),
        ("clusters show nope", 3, &["nope"]),
        ("clusters forget nope", 3, &["nope"]),
        (
            "clusters skip-adoption nope --network default",
            1,
            &["nope"],
        ),
        ("clusters confirm-release nope", 3, &["nope"]),
        ("clusters join nope --as other", 3, &["nope"]),
        ("clusters join nope", 2, &["--as"]),
        ("clusters new-identity nope", 3, &["nope"]),
        ("clusters confirm-sightings nope", 3, &["nope"]),
        ("crds install --cluster nope", 3, &["nope"]),
        (
            "token create x --role king",
            2,
            &["--role", "king", "viewer"],
        ),
        (
            "token create x --role viewer --expires soon",
            2,
            &["soon", "90d"],
        ),
        ("token revoke 1", 3, &["1"]),
        ("audit --limit 0", 2, &["--limit"]),
        ("check --data-dir /nonexistent", 3, &["/nonexistent"]),
        ("frobnicate", 2, &["frobnicate"]),
        ("pool list -o xml", 2, &["xml", "table, json, yaml"]),
    ];
    for (line, code, words) in cases {
        let done = fipd.cli(line);
        assert_eq!(done.code, *code, "{line}: {done:?}");
        done.fails(*code, words);
    }
    assert_eq!(
        fipd.json("lease list")["leases"].as_array().unwrap().len(),
        1,
        "nothing was half done"
    );
    assert_eq!(fipd.json("pool list")["pools"].as_array().unwrap().len(), 1);
}

#[test]
fn without_a_daemon_it_says_so() {
    let line = ["--socket", "/nonexistent/fipd.sock", "pool", "list"];
    run(program().args(line)).fails(1, &["/nonexistent/fipd.sock", "fipd serve"]);
}

#[test]
fn help_and_version_are_on_stdout() {
    for line in [
        &["--help"][..],
        &["lease", "allocate", "--help"],
        &["--version"],
        &["help", "serve"],
    ] {
        let done = run(program().args(line));
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
        assert!(done.out.contains("fipd"), "{done:?}");
    }
}

#[test]
fn definitions_are_printed_without_a_daemon() {
    let done = run(program().args(["--socket", "/nonexistent/fipd.sock", "crds"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.out
            .contains("name: floatingippools.rancher.k8s.binbash.org"),
        "{done:?}"
    );
}

#[test]
fn a_backup_is_private_and_checks_out() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --count 100");
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("fipd.redb");
    let path = file.to_str().unwrap();
    assert_eq!(fipd.args(&["backup", path]).code, 0);
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fipd.args(&["backup", path]).fails(2, &[path]);
    let dir = copy.path().to_str().unwrap();
    let offline = run(program().args(["check", "--data-dir", dir, "-o", "json"]));
    assert_eq!(offline.json()["ok"], true, "{offline:?}");
    let leftovers = std::fs::read_dir(fipd.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let leftovers: Vec<_> = leftovers
        .filter(|name| name.to_string_lossy().starts_with("backup-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn lists_come_in_every_form() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 2001:db8::/32");
    let size = fipd.json("pool show p")["usage"]["size"].clone();
    assert_eq!(
        size,
        json!("79228162514264337593543950335"),
        "exact beyond what JSON numbers hold"
    );
    for list in [
        "pool list",
        "lease list",
        "network list",
        "clusters list",
        "audit",
        "token list",
        "check",
    ] {
        let table = fipd.cli(list);
        assert_eq!(table.code, 0, "{table:?}");
        let yaml = fipd.cli(&format!("{list} -o yaml"));
        let read: serde_json::Value = serde_saphyr::from_str(&yaml.out).unwrap();
        assert_eq!(
            read.as_object().unwrap().keys().collect::<Vec<_>>(),
            fipd.json(list)
                .as_object()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            "{list}"
        );
    }
}
