//! Pools that give prefixes, and leases of them.

use serde_json::{Value, json};

use crate::harness::Daemon;

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

fn site() -> Daemon {
    let fipd = Daemon::start();
    let pool = fipd.json(
        "pool create delegated --cidr 2001:db8::/48 --cidr 2001:db8:0:8000::/49 --allocation-length 64 \
         --gateway fe80::1 --exclude 2001:db8:0:1::7",
    );
    assert_eq!(pool["allocation_length"], 64);
    // One that lies in another counts once, an exclusion takes its prefix away, and a gateway none.
    assert_eq!(pool["usage"]["size"], 65_535);
    fipd
}

fn allocated(fipd: &Daemon, line: &str) -> String {
    let granted = fipd.json(&format!("lease allocate {line}"));
    let lease = &granted["leases"][0];
    let address = lease["address"].as_str().unwrap();
    match lease["length"].as_u64() {
        Some(length) => format!("{address}/{length}"),
        None => address.to_owned(),
    }
}

#[test]
fn a_prefix_is_allocated_shown_and_taken_back() {
    let fipd = site();
    let owner = "--owner fipd/Router/lab/edge";
    let first = allocated(&fipd, &format!("--pool delegated {owner}"));
    assert_eq!(first, "2001:db8::/64");
    let again = allocated(&fipd, &format!("--pool delegated {owner}"));
    assert_eq!(again, first, "asking again is free");
    let named = "--pool delegated --owner fipd/Router/lab/core --address 2001:db8:0:3::/64";
    assert_eq!(allocated(&fipd, named), "2001:db8:0:3::/64");
    let third = "--pool delegated --owner fipd/Router/lab/third";
    assert_eq!(
        allocated(&fipd, third),
        "2001:db8:0:2::/64",
        "one is excluded"
    );

    for text in [
        "2001:db8:0:3::/64",
        "2001:db8:0:3::",
        "2001:db8:0:3:ffff::7",
    ] {
        let lease = fipd.json(&format!("lease show {text}"));
        assert_eq!(
            (&lease["length"], &lease["prefix"]),
            (&json!(64), &json!(64))
        );
        assert_eq!(lease["owner"], "fipd/Router/lab/core", "{text}");
        assert_eq!(lease["gateway"], "fe80::1");
    }
    fipd.cli("lease show 2001:db8:0:2::/63")
        .fails(3, &["2001:db8:0:2::/63"]);
    let listed = |filter: &str| {
        let leases = fipd.json(&format!("lease list {filter}"))["leases"].clone();
        leases.as_array().map_or(0, Vec::len)
    };
    assert_eq!(listed("--containing 2001:db8:0:3::7"), 1);
    assert_eq!(listed("--containing 2001:db8:0:2::/63"), 0);
    assert_eq!(listed("--within 2001:db8::/62"), 3);
    assert_eq!(
        listed("--within 2001:db8:0:3::/65"),
        0,
        "it is not whole in that"
    );

    let usage = fipd.json("pool show delegated")["usage"].clone();
    assert_eq!(
        (&usage["used"], &usage["free"]),
        (&json!(3), &json!(65_532))
    );
    let audit = fipd.json("audit --action allocated --limit 1");
    assert_eq!(audit["entries"][0]["length"], 64);
    let about = |address: &str| {
        let audit = fipd.json(&format!("audit --action allocated --address {address}"));
        audit["entries"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(about("2001:db8:0:3::7"), 1);
    assert_eq!(about("2001:db8::/62"), 3);
    fipd.cli("audit --address 2001:db8::7/64")
        .fails(2, &["2001:db8::7/64", "2001:db8::/64"]);
    // All of its addresses are more than 2^53; those of the leased prefix are not.
    fipd.json("pool create wide --cidr 2001:db9::/68 --allocation-length 80");
    fipd.json("lease allocate --pool wide --owner fipd/Router/lab/wide");
    let metrics = fipd
        .rest(Some(&fipd.token("scraper", "viewer")))
        .get("/metrics");
    assert!(
        text(&metrics.body)
            .contains("fipd_pool_free{pool=\"delegated\",network=\"default\"} 65532")
    );
    // 2^80 and 2^60 addresses are more than a number of a metric tells exactly.
    for name in ["size", "used", "free"] {
        let series = format!("fipd_pool_{name}_addresses{{");
        assert!(!text(&metrics.body).contains(&series), "{series}");
    }

    fipd.cli("lease release 2001:db8:0:3::7")
        .fails(2, &["address", "2001:db8:0:3::/64"]);
    let rest = fipd.rest(Some(&fipd.token("root", "admin")));
    let inside = rest
        .get("/api/v1/leases/default/2001:db8:0:3::%2F65")
        .json();
    assert_eq!(inside["length"], 64, "it is in that lease");
    let since = rest.get("/api/v1/changes").json()["revision"].clone();
    let released = fipd.json("lease release 2001:db8:0:3::/64");
    let changes = rest.get(&format!("/api/v1/changes?since={since}")).json();
    let gone = &changes["changes"][0]["leases"][0];
    assert_eq!(
        (&gone["length"], &gone["state"]),
        (&json!(64), &Value::Null),
        "{changes}"
    );
    assert_eq!(released["released"][0]["length"], 64);
    fipd.json("lease release --owner fipd/Router/lab/edge");
    assert_eq!(listed("--pool delegated"), 1);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn addresses_and_prefixes_of_one_network_keep_each_other_out() {
    let fipd = site();
    fipd.json("pool create lab --range 2001:db8:0:4::10-2001:db8:0:4::20");
    fipd.json("lease allocate --pool lab --owner fipd/Host/lab/a");
    fipd.cli(
        "lease allocate --pool delegated --owner fipd/Router/lab/a --address 2001:db8:0:4::/64",
    )
    .fails(
        1,
        &["2001:db8:0:4::/64", "2001:db8:0:4::10", "fipd/Host/lab/a"],
    );
    assert_eq!(fipd.json("pool show delegated")["usage"]["used"], 1);
    let rest = fipd.rest(Some(&fipd.token("root", "admin")));
    let around = "/api/v1/leases/default/2001:db8:0:4::%2F64";
    let refused = rest.send(http::Method::DELETE, around, &[], None);
    let problem = refused.problem(422, "invalid");
    assert_eq!(problem["value"], "2001:db8:0:4::/64");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("2001:db8:0:4::10"),
        "{problem}"
    );
    // Who may see a part only is not told who has it.
    let made = fipd.json("token create tenant --role operator --tenant red");
    let tenant = fipd.rest(made["token"].as_str());
    let ask = json!({
        "owner": "fipd/Router/lab/red", "tenant": "red",
        "wants": [{ "select": { "family": "ipv6" }, "address": "2001:db8:0:4::/64" }],
    });
    let refused = text(&tenant.post("/api/v1/leases", ask).body);
    assert!(!refused.contains("fipd/Host/lab/a"), "{refused}");
    fipd.json("lease release --owner fipd/Host/lab/a");
    assert_eq!(fipd.json("pool show delegated")["usage"]["used"], 0);
    fipd.json(
        "lease allocate --pool delegated --owner fipd/Router/lab/a --address 2001:db8:0:4::/64",
    );
    assert_eq!(fipd.json("pool show lab")["usage"]["free"], 0);
    fipd.cli("lease allocate --pool lab --owner fipd/Host/lab/a")
        .fails(4, &["lab"]);
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn what_cannot_be_is_refused_with_field_value_and_what_is_allowed() {
    let fipd = site();
    let create = |rest: &str, words: &[&str]| {
        fipd.cli(&format!("pool create other {rest}"))
            .fails(2, words);
    };
    create(
        "--cidr 2001:db9::/65 --allocation-length 64",
        &["addresses", "2001:db9::/65", "/64"],
    );
    create(
        "--range 2001:db9::1-2001:db9::9 --allocation-length 64",
        &["addresses", "2001:db9::1"],
    );
    create(
        "--cidr 10.0.0.0/24 --allocation-length 64",
        &["allocation_length", "64", "1 to 32"],
    );
    create(
        "--cidr 2001:db9::/48 --allocation-length 64 --gateway 10.0.0.1",
        &["gateway", "IPv6"],
    );
    create(
        "--cidr 2001:db9::/48 --allocation-length 64 --reserve-first 1",
        &["ends", "0 and 0"],
    );
    create(
        "--cidr 2001:db9::/48 --allocation-length 64 --subnet 2001:db9::/32",
        &["subnet"],
    );
    let allocate = |address: &str, code: i32, words: &[&str]| {
        let line = format!(
            "lease allocate --pool delegated --owner fipd/Router/lab/x --address {address}"
        );
        fipd.cli(&line).fails(code, words);
    };
    allocate("2001:db8:0:3::1/64", 2, &["2001:db8:0:3::/64"]);
    allocate("2001:db8:0:3::/72", 2, &["2001:db8:0:3::/72", "/64"]);
    allocate(
        "2001:db8:0:3::1",
        2,
        &["2001:db8:0:3::1", "2001:db8:0:3::/64"],
    );
    allocate("2001:db8:0:1::/64", 2, &["2001:db8:0:1::7", "excluded"]);
    let rest = fipd.rest(Some(&fipd.token("admin", "admin")));
    let patch = json!({ "allocation_length": 56 });
    let refused = rest.json(http::Method::PATCH, "/api/v1/pools/delegated", &[], patch);
    let problem = refused.problem(422, "invalid");
    assert_eq!(problem["field"], "allocation_length");
    assert!(
        problem["detail"].as_str().unwrap().contains("64"),
        "{problem}"
    );
}

#[test]
fn prefixes_survive_a_kill_an_export_and_an_import() {
    let mut fipd = site();
    fipd.json("pool create small --cidr 10.0.0.0/24 --allocation-length 29 --quota-unit address");
    fipd.json("lease allocate --pool delegated --owner fipd/Router/lab/a");
    fipd.json("lease allocate --pool small --owner fipd/Router/lab/b --count 3 --tenant t");
    let metrics = fipd
        .rest(Some(&fipd.token("scraper", "viewer")))
        .get("/metrics");
    for (name, addresses) in [("size", 256), ("used", 24), ("free", 232)] {
        let labels = "pool=\"small\",network=\"default\"";
        let line = format!("fipd_pool_{name}_addresses{{{labels}}} {addresses}.0\n");
        assert!(text(&metrics.body).contains(&line), "{line}");
    }
    fipd.json("quota set --pool small --tenant t --limit 31");
    fipd.cli("lease allocate --pool small --owner fipd/Router/lab/c --tenant t")
        .fails(1, &["quota", "24", "31"]);
    let before = fipd.json("lease list");
    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let home = fipd.home();
    drop(fipd);
    let fipd = Daemon::start_in(home, &[]);
    assert_eq!(fipd.json("lease list"), before);
    assert_eq!(fipd.json("check")["ok"], true);

    let file = |format: &str| fipd.home().path().join(format!("rows.{format}"));
    for format in ["csv", "jsonl"] {
        for what in ["pools", "leases"] {
            let rows = fipd.cli(&format!("export --what {what} --format {format}"));
            assert_eq!(rows.code, 0, "{}", rows.err);
            let file = file(format);
            std::fs::write(&file, rows.out).unwrap();
            let report = fipd.json(&format!("import {}", file.display()));
            assert_eq!(
                (&report["created"], &report["changed"]),
                (&json!(0), &json!(0)),
                "{report}"
            );
        }
    }
    let row = |address: &str| json!({ "address": address, "owner": "fipd/Host/lab/x" }).to_string();
    for (address, words) in [
        ("2001:db8::7", "2001:db8::/64"),
        ("2001:db8::/63", "fipd/Router/lab/a"),
        ("2001:db8::1/64", "2001:db8::/64"),
    ] {
        let rows = [row("10.9.9.9"), row(address)].join("\n");
        let file = file("jsonl");
        std::fs::write(&file, rows).unwrap();
        let refused = fipd.args(&["import", file.to_str().unwrap()]);
        assert_eq!(refused.code, 2, "{address}: {}", refused.err);
        assert!(refused.out.contains(words), "{address}: {}", refused.out);
    }
    let listed: Value = fipd.json("lease list");
    assert_eq!(listed, before, "one bad row writes nothing");
}
