//! Preconditions of writes, many writes at once, and who hears of them.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Daemon, Rest};

fn admin(fipd: &Daemon) -> Rest {
    fipd.rest(Some(&fipd.token("root", "admin")))
}

/// A GET of the resource with what the client has, and a write with what it has read.
fn with(rest: &Rest, method: Method, path: &str, tag: &str, body: Option<Value>) -> Answer {
    let header = match method {
        Method::GET => ("if-none-match", tag),
        _ => ("if-match", tag),
    };
    match body {
        Some(body) => rest.json(method, path, &[header], body),
        None => rest.send(method, path, &[header], None),
    }
}

#[test]
fn every_resource_has_a_tag_and_every_write_heeds_it() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("lease allocate --pool p --tenant red --owner fipd/Host/lab/a");
    fipd.json("quota set --tenant red --pool p --limit 5");
    fipd.fed("user create ann --role viewer", "open sesame\n");
    let token = fipd.json("token create ci --role viewer");
    let rest = admin(&fipd);
    let token = format!("/api/v1/tokens/{}", token["id"]);
    let transfer = json!({ "to": "fipd/Host/lab/b", "reason": "moved" });
    let lease = "/api/v1/leases/default/10.0.0.1";
    // The resource, what changes it, and what ends it.
    let all = [
        (
            lease,
            Some((Method::POST, format!("{lease}/transfer"), transfer)),
        ),
        (
            "/api/v1/quotas/p/red",
            Some((
                Method::PUT,
                "/api/v1/quotas/p/red".into(),
                json!({ "limit": 6 }),
            )),
        ),
        (
            "/api/v1/users/ann",
            Some((
                Method::PATCH,
                "/api/v1/users/ann".into(),
                json!({ "role": "operator" }),
            )),
        ),
        (&token, None),
        (
            "/api/v1/pools/p",
            Some((
                Method::PATCH,
                "/api/v1/pools/p".into(),
                json!({ "closed": true }),
            )),
        ),
    ];
    for (path, change) in all {
        let first = rest.get(path).etag();
        assert_eq!(
            with(&rest, Method::GET, path, &first, None).status,
            304,
            "{path}"
        );
        let mut current = first.clone();
        if let Some((method, at, body)) = change {
            let changed = with(&rest, method.clone(), &at, &first, Some(body.clone()));
            assert_eq!(changed.status, 200, "{path}: {changed:?}");
            current = changed.etag();
            assert_ne!(current, first, "{path}");
            with(&rest, method, &at, &first, Some(body)).problem(412, "stale");
            let fresh = with(&rest, Method::GET, path, &first, None);
            assert_eq!(
                (fresh.status.as_u16(), fresh.etag()),
                (200, current.clone())
            );
        }
        let other = "\"other\"";
        with(&rest, Method::DELETE, path, other, None).problem(412, "stale");
        let weak = format!("W/{current}");
        with(&rest, Method::DELETE, path, &weak, None).problem(412, "stale");
        with(&rest, Method::DELETE, path, "bare", None).problem(422, "invalid");
        let gone = with(&rest, Method::DELETE, path, &current, None);
        assert_eq!(gone.status, 204, "{path}: {gone:?}");
    }
    let network = rest.get("/api/v1/networks/default");
    let same = with(
        &rest,
        Method::GET,
        "/api/v1/networks/default",
        &network.etag(),
        None,
    );
    assert_eq!((same.status.as_u16(), same.body.len()), (304, 0));
}

#[test]
fn the_use_of_a_pool_is_shown_anew_and_stops_no_edit() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let rest = admin(&fipd);
    let path = "/api/v1/pools/p";
    let read = rest.get(path).etag();
    fipd.json("lease allocate --pool p --owner fipd/Host/lab/a");
    assert_eq!(with(&rest, Method::GET, path, &read, None).status, 200);
    let edit = Some(json!({ "closed": true }));
    assert_eq!(with(&rest, Method::PATCH, path, &read, edit).status, 200);
}

/// The values of a field of all rows, page by page.
fn walk(rest: &Rest, path: &str, list: &str, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut next = format!("{path}limit=2");
    loop {
        let page = rest.get(&next).json();
        let rows = page[list].as_array().unwrap_or_else(|| panic!("{page}"));
        assert!(rows.len() <= 2, "{page}");
        found.extend(rows.iter().map(|row| row[field].to_string()));
        let Some(cursor) = page["next"].as_str() else {
            return found;
        };
        next = format!("{path}limit=2&cursor={cursor}");
    }
}

#[test]
fn every_list_comes_in_pages() {
    let fipd = Daemon::start();
    for number in 0..5 {
        fipd.json(&format!("network create n{number}"));
        fipd.json(&format!("pool create p{number} --cidr 10.{number}.0.0/24"));
        fipd.json(&format!(
            "lease allocate --pool p{number} --owner fipd/Host/lab/a"
        ));
        fipd.json(&format!("quota set --tenant t{number} --pool p0 --limit 5"));
        fipd.json(&format!("token create t{number} --role viewer"));
        fipd.fed(
            &format!("user create u{number} --role viewer"),
            "open sesame\n",
        );
    }
    let rest = admin(&fipd);
    for (list, field, count) in [
        ("networks", "name", 6),
        ("pools", "name", 5),
        ("leases", "address", 5),
        ("quotas", "tenant", 5),
        ("tokens", "id", 6),
        ("users", "name", 6),
        ("clusters", "name", 0),
    ] {
        let found = walk(&rest, &format!("/api/v1/{list}?"), list, field);
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (count, count), "{list}");
        for bad in ["cursor=nonsense", "cursor=00ff00ff00ff"] {
            let problem = rest.get(&format!("/api/v1/{list}?{bad}"));
            assert_eq!(problem.problem(400, "invalid")["field"], "cursor", "{list}");
        }
        for bad in ["limit=0", "limit=1001"] {
            let problem = rest.get(&format!("/api/v1/{list}?{bad}"));
            assert_eq!(problem.problem(422, "invalid")["field"], "limit", "{list}");
        }
    }
    let audit = walk(&rest, "/api/v1/audit?before=9&", "entries", "number");
    assert_eq!(
        audit,
        (1..9).rev().map(|n: u32| n.to_string()).collect::<Vec<_>>()
    );
    let pools = |filter: &str| walk(&rest, &format!("/api/v1/pools?{filter}&"), "pools", "name");
    assert_eq!(pools("containing=10.3.0.7"), ["\"p3\""]);
    assert_eq!(pools("containing=10.3.0.0/23"), [""; 0]);
    assert_eq!(pools("within=10.2.0.0/15"), ["\"p2\"", "\"p3\""]);
    assert_eq!(pools("network=n1"), [""; 0]);
    rest.get("/api/v1/pools?within=ten").problem(422, "invalid");
}

#[test]
fn many_operations_are_answered_in_order() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/22");
    let rest = admin(&fipd);
    let want = json!([{ "pool": "p" }]);
    let allocate =
        |n: usize| json!({ "allocate": { "owner": format!("fipd/Host/lab/h{n}"), "wants": want } });
    let all: Vec<Value> = (0..1_000).map(allocate).collect();
    let bulk = |rest: &Rest, operations: Vec<Value>| {
        rest.post("/api/v1/bulk", json!({ "operations": operations }))
    };
    let done = bulk(&rest, all.clone()).json();
    let results = done["results"].as_array().unwrap();
    assert_eq!(results.len(), 1_000);
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result["status"], 201, "{result}");
        let owner = &result["body"]["leases"][0]["owner"];
        assert_eq!(owner, &format!("fipd/Host/lab/h{number}"));
    }
    let again = bulk(&rest, all.clone()).json();
    assert!(
        again["results"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["status"] == 200)
    );
    let mixed = vec![
        json!({ "release": { "owner": "fipd/Host/lab/h0" } }),
        json!({ "allocate": { "owner": "fipd/Host/lab/x", "wants": [{ "pool": "nope" }] } }),
        json!({ "transfer": { "network": "default", "address": "10.0.0.2",
            "transfer": { "to": "fipd/Host/lab/y", "reason": "moved" } } }),
        json!({ "put-quota": { "pool": "p", "tenant": "red", "quota": { "limit": 3 } } }),
        json!({ "delete-quota": { "pool": "p", "tenant": "blue" } }),
        json!({ "reserve": { "owner": "fipd/Host/lab/z", "wants": [{ "pool": "p" }] } }),
    ];
    let statuses = |answer: &Value| {
        let results = answer["results"].as_array().unwrap().iter();
        results
            .map(|one| one["status"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let done = bulk(&rest, mixed.clone()).json();
    assert_eq!(statuses(&done), [200, 404, 200, 200, 404, 201], "{done}");
    assert_eq!(done["results"][1]["problem"]["code"], "not-found");
    let operator = fipd.rest(Some(&fipd.token("op", "operator")));
    let done = bulk(&operator, mixed).json();
    assert_eq!(statuses(&done)[3], 403, "{done}");
    bulk(&rest, vec![]).problem(422, "invalid");
    bulk(&rest, [all, vec![allocate(0)]].concat()).problem(422, "invalid");
    let atomic = json!({ "operations": [allocate(0)], "atomic": true });
    rest.post("/api/v1/bulk", atomic).problem(400, "invalid");
    bulk(&rest, vec![json!({ "format-disk": {} })]).problem(400, "invalid");
}

#[test]
fn changes_are_told_from_a_revision_on() {
    let mut fipd = Daemon::start();
    fipd.json("network create lab");
    fipd.json("pool create p --cidr 10.0.0.0/24");
    fipd.json("pool create q --cidr 10.1.0.0/24 --network lab");
    let rest = admin(&fipd);
    let start = rest.get("/api/v1/changes").json();
    assert_eq!(
        (&start["changes"], &start["reset"]),
        (&json!([]), &json!(false))
    );
    let since = start["revision"].as_u64().unwrap();
    let made = fipd.json("token create lab --role viewer --network lab");
    let scoped = fipd.rest(made["token"].as_str());
    let made = fipd.json("token create red --role viewer --tenant red");
    let path = format!("/api/v1/changes?since={since}");
    fipd.rest(made["token"].as_str())
        .get(&path)
        .problem(403, "forbidden");
    let listen = |rest: Rest| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nconnection: close\r\n"
        );
        std::thread::spawn(move || rest.raw(&head))
    };
    let (whole, part) = (listen(fipd.rest(rest.token.as_deref())), listen(scoped));
    for pool in ["p", "q"] {
        fipd.json(&format!(
            "lease allocate --pool {pool} --owner fipd/Host/lab/a"
        ));
    }
    fipd.json("lease release --owner fipd/Host/lab/a");
    let page = rest.get(&path).json();
    let told = page["changes"].as_array().unwrap();
    let leases: Vec<_> = told
        .iter()
        .flat_map(|change| change["leases"].as_array().unwrap().clone())
        .collect();
    assert_eq!(leases.len(), 4, "{page}");
    let last = told.last().unwrap()["revision"].as_u64().unwrap();
    assert_eq!(
        walk(&rest, &format!("{path}&"), "changes", "revision").len(),
        told.len()
    );
    let future = rest.get("/api/v1/changes?since=99999999").json();
    assert_eq!(future["reset"], true, "{future}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    fipd.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, took) = fipd.wait();
    assert!(status.success() && took.as_secs() < 10, "{status} {took:?}");
    let whole = whole.join().unwrap();
    assert!(
        whole.starts_with("HTTP/1.1 200") && whole.contains("text/event-stream"),
        "{whole}"
    );
    assert!(whole.contains(&format!("id: {last}")), "{whole}");
    assert!(
        whole.contains("event: end") && whole.contains("fipd is stopping"),
        "{whole}"
    );
    assert!(
        whole.contains("10.0.0.1") && whole.contains("\"other\""),
        "{whole}"
    );
    let part = part.join().unwrap();
    assert!(
        part.contains("10.1.0.1") && part.contains("event: end"),
        "{part}"
    );
    assert!(
        !part.contains("10.0.0.1") && !part.contains("\"other\""),
        "{part}"
    );
}
