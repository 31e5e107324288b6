//! What a tenant may have of a pool.

use http::Method;
use serde_json::json;

use crate::harness::Daemon;

#[test]
fn a_tenant_gets_what_its_quota_allows() {
    let mut fipd = Daemon::start();
    fipd.json("pool create vips --cidr 192.0.2.0/24");
    let set = fipd.json("quota set --tenant team-a --pool vips --limit 2");
    let view =
        |used, limit| json!({ "tenant": "team-a", "pool": "vips", "used": used, "limit": limit });
    assert_eq!(set, view(0, 2));
    let ask = |name: &str, count| {
        format!(
            "lease allocate --pool vips --tenant team-a --count {count} --owner fipd/Host/lab/{name}"
        )
    };
    fipd.json(&ask("a", 2));
    fipd.json(&ask("a", 2));
    fipd.cli(&ask("b", 1)).fails(
        1,
        &["quota exceeded", "team-a", "vips", "holds 2", "may have 2"],
    );
    assert_eq!(
        fipd.json("quota set --tenant team-a --pool vips --limit 1"),
        view(2, 1),
        "what it holds stays"
    );
    let table = fipd.cli("quota list").out;
    assert_eq!(table, "TENANT  POOL  USED  LIMIT\nteam-a  vips  2     1\n");
    assert!(fipd.cli("quota list -o yaml").out.contains("used: 2"));

    fipd.signal(nix::sys::signal::Signal::SIGKILL);
    fipd.wait();
    let fipd = Daemon::start_in(fipd.home(), &[]);
    let list = json!({ "quotas": [view(2, 1)], "next": null });
    assert_eq!(fipd.json("quota list --tenant team-a"), list);
    fipd.json("lease release --owner fipd/Host/lab/a");
    fipd.json(&ask("b", 1));
    fipd.cli(&ask("c", 1)).fails(1, &["quota exceeded"]);
    assert_eq!(fipd.cli("quota delete --tenant team-a --pool vips").code, 0);
    fipd.cli("quota delete --tenant team-a --pool vips")
        .fails(3, &["team-a", "vips"]);
    fipd.json(&ask("c", 3));
    let audit = fipd.json("audit");
    let entry = &audit["entries"][3];
    assert_eq!(
        (&entry["action"], &entry["pool"], &entry["detail"]),
        (&json!("quota-deleted"), &json!("vips"), &json!("team-a"))
    );
    assert_eq!(fipd.json("check")["ok"], true);
}

#[test]
fn quotas_are_listed_in_pages_and_go_with_their_pool() {
    let fipd = Daemon::start();
    let rest = fipd.rest(Some(&fipd.token("test", "admin")));
    for (pool, cidr) in [("p", "10.0.0.0/24"), ("q", "10.1.0.0/24")] {
        fipd.json(&format!("pool create {pool} --cidr {cidr}"));
        for tenant in ["x", "y/z ü", "w"] {
            let tenant = tenant
                .replace('/', "%2F")
                .replace(' ', "%20")
                .replace('ü', "%C3%BC");
            let path = format!("/api/v1/quotas/{pool}/{tenant}");
            let set = rest.json(Method::PUT, &path, &[], json!({ "limit": 7 }));
            assert_eq!(set.status, 200, "{set:?}");
        }
    }
    let mut path = "/api/v1/quotas?limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = rest.get(&path).json();
        for quota in page["quotas"].as_array().unwrap() {
            assert_eq!(quota["limit"], 7);
            seen.push(format!(
                "{} {}",
                quota["pool"].as_str().unwrap(),
                quota["tenant"].as_str().unwrap()
            ));
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        let next = next
            .replace('/', "%2F")
            .replace(' ', "%20")
            .replace('ü', "%C3%BC");
        path = format!("/api/v1/quotas?limit=2&cursor={next}");
    }
    assert_eq!(seen, ["p w", "p x", "p y/z ü", "q w", "q x", "q y/z ü"]);
    let count = |query: &str| {
        let page = rest.get(&format!("/api/v1/quotas?{query}")).json();
        page["quotas"].as_array().unwrap().len()
    };
    assert_eq!(
        (count("pool=q"), count("tenant=x"), count("pool=q&tenant=x")),
        (3, 2, 1)
    );
    rest.get("/api/v1/quotas?pool=nope")
        .problem(404, "not-found");
    rest.get("/api/v1/quotas?limit=0").problem(422, "invalid");
    rest.get("/api/v1/quotas?cursor=x").problem(400, "invalid");
    let wrong = |path: &str, body| rest.json(Method::PUT, path, &[], body);
    wrong("/api/v1/quotas/nope/x", json!({ "limit": 1 })).problem(404, "not-found");
    wrong("/api/v1/quotas/p/x", json!({ "limit": -1 })).problem(400, "invalid");
    wrong("/api/v1/quotas/p/%07", json!({ "limit": 1 })).problem(422, "invalid");
    let lease = json!({ "owner": "fipd/Host/lab/a", "tenant": "x", "wants": [{ "pool": "p", "count": 8 }] });
    let refused = rest
        .post("/api/v1/leases", lease)
        .problem(409, "quota-exceeded");
    assert_eq!(refused["value"], "x");
    assert_eq!(fipd.cli("pool delete p").code, 0);
    assert_eq!(count("limit=9"), 3);
    assert_eq!(fipd.json("check")["ok"], true);
}
