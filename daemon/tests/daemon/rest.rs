//! REST over TLS: shapes, preconditions, pages, and what it makes of nonsense.

use std::collections::BTreeSet;

use http::{Method, header};
use serde_json::{Value, json};

use crate::harness::{Daemon, Rest};

fn admin(fipd: &Daemon) -> Rest {
    fipd.rest(Some(&fipd.token("test", "admin")))
}

#[test]
fn etags_guard_against_lost_updates() {
    let fipd = Daemon::start();
    let rest = admin(&fipd);
    let made = rest.post(
        "/api/v1/pools",
        json!({ "name": "p", "addresses": ["10.0.0.0/24"] }),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let first = made.etag();
    let patch = |etag: &str, body: Value| {
        rest.json(
            Method::PATCH,
            "/api/v1/pools/p",
            &[("if-match", etag)],
            body,
        )
    };
    let changed = patch(&first, json!({ "gateway": "10.0.0.1" }));
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_ne!(changed.etag(), first);
    patch(&first, json!({ "gateway": "10.0.0.2" })).problem(412, "stale");
    assert_eq!(rest.get("/api/v1/pools/p").json()["gateway"], "10.0.0.1");
    assert_eq!(
        patch("*", json!({ "gateway": null })).json()["gateway"],
        Value::Null
    );
    patch("\"soon\"", json!({})).problem(412, "stale");
    patch("soon", json!({})).problem(422, "invalid");
    let stale = rest.send(
        Method::DELETE,
        "/api/v1/pools/p",
        &[("if-match", &first)],
        None,
    );
    stale.problem(412, "stale");
    let now = rest.get("/api/v1/pools/p").etag();
    assert_eq!(
        rest.send(
            Method::DELETE,
            "/api/v1/pools/p",
            &[("if-match", &now)],
            None
        )
        .status,
        204
    );
}

#[test]
fn lists_come_in_pages_that_miss_nothing() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/16");
    fipd.json("pool create q --cidr 2001:db8::/64");
    for number in 0..3 {
        fipd.json(&format!(
            "lease allocate --pool p --pool q --count 100 --owner fipd/Host/lab/h{number}"
        ));
    }
    let rest = admin(&fipd);
    let (mut seen, mut pages, mut path) =
        (BTreeSet::new(), 0, "/api/v1/leases?limit=70".to_owned());
    loop {
        let page = rest.get(&path).json();
        pages += 1;
        for lease in page["leases"].as_array().unwrap() {
            assert!(
                seen.insert(lease["address"].as_str().unwrap().to_owned()),
                "{lease} came twice"
            );
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/leases?limit=70&cursor={next}");
    }
    assert_eq!((seen.len(), pages), (600, 9));
    assert_eq!(
        fipd.json("lease list --pool q")["leases"]
            .as_array()
            .unwrap()
            .len(),
        300
    );
    assert_eq!(
        fipd.json("lease list --limit 7")["leases"]
            .as_array()
            .unwrap()
            .len(),
        7
    );
    let of_one = fipd.json("lease list --owner fipd/Host/lab/h1 --pool p");
    assert_eq!(of_one["leases"].as_array().unwrap().len(), 100);
    let few = fipd.json("lease list --owner fipd/Host/lab/h1 --limit 1");
    assert_eq!(few["leases"].as_array().unwrap().len(), 1);
    let mut seen = Vec::new();
    let first = "/api/v1/leases?owner=fipd/Host/lab/h1&limit=70".to_owned();
    let mut path = first.clone();
    loop {
        let page = rest.get(&path).json();
        let leases = page["leases"].as_array().unwrap();
        assert!(leases.len() <= 70, "{page}");
        let mine = |lease: &Value| lease["owner"] == "fipd/Host/lab/h1";
        assert!(leases.iter().all(mine), "{page}");
        seen.extend(leases.iter().map(|lease| lease["address"].to_string()));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("{first}&cursor={next}");
    }
    let different: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (200, 200));
    assert_eq!(fipd.json("lease list --system other")["leases"], json!([]));
    let some = fipd.json("lease list --within 10.0.0.0/29");
    assert_eq!(some["leases"].as_array().unwrap().len(), 7);
    let few = fipd.json("lease list --within 2001:db8::1-2001:db8::2 --pool q");
    assert_eq!(few["leases"].as_array().unwrap().len(), 2);
    assert_eq!(fipd.json("lease list --tenant nobody")["leases"], json!([]));
    fipd.cli("lease list --within 10.0.0.0/99")
        .fails(2, &["within"]);
    let audit = rest.get("/api/v1/audit?limit=5").json();
    let rest_of_it = rest
        .get(&format!(
            "/api/v1/audit?limit=5&cursor={}",
            audit["next"].as_str().unwrap()
        ))
        .json();
    let number = |page: &Value, at: usize| page["entries"][at]["number"].as_u64().unwrap();
    assert_eq!(number(&audit, 4), number(&rest_of_it, 0) + 1);
}

#[test]
fn a_mapped_address_is_the_ipv4_address() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --address 10.0.0.7");
    let rest = admin(&fipd);
    let lease = rest.get("/api/v1/leases/default/::ffff:10.0.0.7").json();
    assert_eq!(lease["address"], "10.0.0.7");
    let found = |query: &str| {
        let page = rest.get(&format!("/api/v1/leases?{query}")).json();
        page["leases"].as_array().unwrap().len()
    };
    assert_eq!(found("address=::ffff:10.0.0.7"), 1);
    assert_eq!(found("address=10.0.0.7&within=10.0.0.0/28&pool=p"), 1);
    assert_eq!(found("address=10.0.0.7&within=10.0.0.16/28"), 0);
    assert_eq!(found("address=10.0.0.7&owner=fipd/Host/lab/b"), 0);
    let release = json!({ "owner": "fipd/Host/lab/a", "addresses": ["::ffff:10.0.0.7"] });
    let released = rest.post("/api/v1/leases/release", release).json();
    assert_eq!(released["released"][0]["address"], "10.0.0.7");
}

#[test]
fn what_is_wrong_with_a_request_is_a_problem() {
    let fipd = Daemon::start();
    fipd.json("pool create p --range 10.0.0.1-10.0.0.2");
    let rest = admin(&fipd);
    let json_type = [("content-type", "application/json")];
    let raw = |path: &str, headers: &[(&str, &str)], body: &[u8]| {
        rest.send(Method::POST, path, headers, Some(body.to_vec()))
    };
    rest.get("/api/v1/nothing").problem(404, "not-found");
    rest.get("/api/v2/pools").problem(404, "not-found");
    let wrong_method = rest.send(Method::PUT, "/api/v1/pools", &[], None);
    wrong_method.problem(405, "method-not-allowed");
    let allowed = wrong_method.headers[header::ALLOW].to_str().unwrap();
    assert!(
        allowed.contains("GET") && allowed.contains("POST"),
        "{allowed}"
    );
    raw("/api/v1/pools", &[("content-type", "text/plain")], b"{}")
        .problem(415, "unsupported-media-type");
    raw("/api/v1/pools", &[], b"{}").problem(415, "unsupported-media-type");
    let malformed = raw("/api/v1/pools", &json_type, b"{\"name\": ").problem(400, "invalid");
    assert!(
        malformed["detail"].as_str().unwrap().contains("line 1"),
        "{malformed}"
    );
    raw("/api/v1/pools", &json_type, b"\xff\xfe").problem(400, "invalid");
    let deep = "[".repeat(100_000);
    raw("/api/v1/pools", &json_type, deep.as_bytes()).problem(400, "invalid");
    let unknown = rest.post(
        "/api/v1/pools",
        json!({ "name": "q", "addresses": [], "color": "red" }),
    );
    assert!(
        unknown.problem(400, "invalid")["detail"]
            .as_str()
            .unwrap()
            .contains("color")
    );
    let head = "POST /api/v1/pools HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
                content-length: 9000000\r\n";
    let large = rest.raw(head);
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
    assert!(large.contains("\"code\":\"too-large\""), "{large}");

    let bad = rest.post(
        "/api/v1/pools",
        json!({ "name": "q", "addresses": ["10.0.0.0/99"] }),
    );
    let bad = bad.problem(422, "invalid");
    assert_eq!(
        (&bad["field"], &bad["value"]),
        (&json!("addresses"), &json!("10.0.0.0/99"))
    );
    assert!(
        bad["allowed"].as_str().unwrap().contains("10.0.0.0/24"),
        "{bad}"
    );
    let ask = |wants: Value| {
        rest.post(
            "/api/v1/leases",
            json!({ "owner": "fipd/Host/lab/a", "wants": wants }),
        )
    };
    ask(json!([])).problem(422, "invalid");
    let many = ask(json!(vec![json!({ "pool": "p" }); 9])).problem(422, "invalid");
    assert_eq!(
        (&many["field"], &many["value"], &many["allowed"]),
        (&json!("wants"), &json!("9"), &json!("1 to 8 entries"))
    );
    ask(json!([{ "pool": "p", "count": 0 }])).problem(422, "invalid");
    ask(json!([{ "pool": "p", "count": 2, "address": "10.0.0.1" }])).problem(422, "invalid");
    ask(json!([{ "pool": "nope" }])).problem(404, "not-found");
    ask(json!([{ "pool": "p", "address": "10.0.0.9" }])).problem(422, "not-assignable");
    ask(json!([{ "pool": "p", "count": 3 }])).problem(409, "exhausted");
    assert_eq!(
        ask(json!([{ "pool": "p", "address": "10.0.0.1" }])).status,
        201
    );
    let other =
        json!({ "owner": "fipd/Host/lab/b", "wants": [{ "pool": "p", "address": "10.0.0.1" }] });
    let taken = rest
        .post("/api/v1/leases", other)
        .problem(409, "address-taken");
    assert!(
        taken["detail"]
            .as_str()
            .unwrap()
            .contains("fipd/Host/lab/a"),
        "{taken}"
    );
    rest.get("/api/v1/leases?limit=0").problem(422, "invalid");
    rest.get("/api/v1/leases?limit=1001")
        .problem(422, "invalid");
    rest.get("/api/v1/leases?limit=many")
        .problem(400, "invalid");
    rest.get("/api/v1/leases?colour=red")
        .problem(400, "invalid");
    rest.get("/api/v1/leases?cursor=nonsense")
        .problem(400, "invalid");
    rest.get("/api/v1/leases/nowhere/10.0.0.1")
        .problem(404, "not-found");
    rest.get("/api/v1/leases/default/10.0.0.2")
        .problem(404, "not-found");
    rest.get("/api/v1/leases/default/ten")
        .problem(422, "invalid");
}

#[test]
fn nonsense_never_breaks_it() {
    let fipd = Daemon::start();
    let rest = admin(&fipd);
    let paths = [
        "/api/v1/pools/%00",
        "/api/v1/pools/%ff%fe",
        "/api/v1/pools/..%2f..%2fetc",
        "/api/v1/leases/%2F/%2F",
        "/api/v1/tokens/99999999999999999999999",
        "/api/v1/leases?pool=%00&owner=%ff",
        "/api/v1/audit?before=-1",
        "/api/v1/clusters/%20",
        "/ui/%00",
        "/%",
        "//",
        "/api/v1/leases?limit=18446744073709551616",
    ];
    for path in paths {
        for method in [
            Method::GET,
            Method::DELETE,
            Method::POST,
            Method::HEAD,
            Method::OPTIONS,
        ] {
            let answer = rest.send(method.clone(), path, &[], None);
            assert!(answer.status.as_u16() < 500, "{method} {path}: {answer:?}");
        }
    }
    let bodies = [
        json!(null),
        json!([]),
        json!(0),
        json!("x"),
        json!({}),
        json!({ "name": "x".repeat(100_000), "addresses": ["10.0.0.0/24"] }),
        json!({ "name": "\u{0}", "addresses": ["::/0"], "prefix": 255, "reserve_first": u32::MAX }),
        json!({ "name": "q", "addresses": ["0.0.0.0/0"], "reserve_of": "each-cidr", "reserve_last": u32::MAX }),
        json!({ "owner": "fipd/a/b/c", "wants": vec![json!({ "pool": "p" }); 2000] }),
        json!({ "owner": "fipd/a//b", "instance": "\u{7}", "wants": [{ "pool": "q" }] }),
    ];
    for body in bodies {
        for path in [
            "/api/v1/pools",
            "/api/v1/leases",
            "/api/v1/leases/release",
            "/api/v1/networks",
            "/api/v1/tokens",
        ] {
            let answer = rest.post(path, body.clone());
            assert!(answer.status.as_u16() < 500, "{path} {body}: {answer:?}");
        }
    }
    assert_eq!(fipd.json("check")["ok"], true);
    assert!(!fipd.log().contains("panicked"), "{}", fipd.log());
}

#[test]
fn figures_and_documents_are_served() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a --count 4");
    fipd.json("pool create old --cidr 10.0.1.0/24");
    fipd.json("pool update old --close");
    let rest = admin(&fipd);
    let text = String::from_utf8(rest.get("/metrics").body.to_vec()).unwrap();
    for line in [
        "fipd_pool_size{pool=\"p\",network=\"default\"} 254",
        "fipd_pool_used{pool=\"p\",network=\"default\"} 4",
        "fipd_pool_free{pool=\"p\",network=\"default\"} 250",
        "fipd_pool_closed{pool=\"p\",network=\"default\"} 0",
        "fipd_pool_closed{pool=\"old\",network=\"default\"} 1",
        "fipd_leases{state=\"allocated\"} 4",
        "fipd_store_up 1",
        "fipd_http_requests_total{method=\"POST\",route=\"/api/v1/leases\",status=\"201\"} 1",
    ] {
        assert!(
            text.lines().any(|found| found.starts_with(line)),
            "{line} is missing in\n{text}"
        );
    }
    assert!(!text.contains("10.0.0."), "no series per lease");
    let document = rest.get("/api/v1/openapi.json").json();
    assert!(
        document["paths"]["/api/v1/leases"]["post"].is_object(),
        "{document}"
    );
    let ready = rest.send(
        Method::GET,
        "/readyz",
        &[("accept", "application/json")],
        None,
    );
    assert_eq!(ready.json()["ready"], true);
    assert_eq!(ready.headers["x-content-type-options"], "nosniff");
}
