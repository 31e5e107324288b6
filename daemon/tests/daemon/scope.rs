//! Tokens that are for a part of the address book, end, or count only from some places.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Daemon, Rest};

/// A pool `mine` in a network of its own and a pool `other`, one lease in each.
fn site() -> Daemon {
    let fipd = Daemon::start();
    fipd.json("network create lab");
    fipd.json("pool create mine --cidr 10.1.0.0/24 --network lab");
    fipd.json("pool create other --cidr 10.2.0.0/24");
    fipd.json("lease allocate --pool mine --tenant red --owner fipd/Host/lab/red");
    fipd.json("lease allocate --pool mine --tenant blue --owner fipd/Host/lab/blue");
    fipd.json("lease allocate --pool other --tenant red --owner fipd/Host/lab/other");
    fipd.json("quota set --tenant red --pool mine --limit 2");
    fipd.json("quota set --tenant red --pool other --limit 5");
    fipd
}

fn token(fipd: &Daemon, arguments: &str) -> Rest {
    let made = fipd.json(&format!("token create {arguments}"));
    fipd.rest(made["token"].as_str())
}

/// Every operation of the document: method and path.
fn operations(rest: &Rest) -> Vec<(Method, String)> {
    let document = rest.get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().unwrap().clone();
    let all = paths.into_iter().flat_map(|(path, item)| {
        let methods: Vec<_> = item.as_object().unwrap().keys().cloned().collect();
        let of = move |method: String| (method.to_uppercase().parse().unwrap(), path.clone());
        methods.into_iter().map(of)
    });
    all.collect()
}

/// The path with `other` and what is in it in the place of variables.
fn about_other(path: &str) -> String {
    let place = [
        ("{network}", "default"),
        ("{other}", "lab"),
        ("{address}", "10.2.0.1"),
        ("{pool}", "other"),
        ("{tenant}", "red"),
        ("{id}", "1"),
        ("{system}", "ip-rule"),
        ("{project}", "p-1"),
        ("/networks/{name}", "/networks/default"),
        ("/pools/{name}", "/pools/other"),
        ("/users/{name}", "/users/admin"),
        ("/clusters/{name}", "/clusters/east"),
        ("/backups/{name}", "/backups/none"),
        ("/webhooks/{name}", "/webhooks/none"),
    ];
    let fill = |path: String, (from, to): &(&str, &str)| path.replace(from, to);
    let path = place.iter().fold(path.to_owned(), fill);
    assert!(!path.contains('{'), "say here what {path} is asked about");
    path
}

/// A good body about `other`.
fn body(method: &Method, path: &str) -> Value {
    let owner = "fipd/Host/lab/other";
    match (method.as_str(), path) {
        ("POST", "/api/v1/leases" | "/api/v1/leases/reserve") => {
            json!({ "owner": owner, "tenant": "red", "wants": [{ "pool": "other" }] })
        }
        ("POST", "/api/v1/bulk") => json!({ "operations": [
            { "allocate": { "owner": owner, "tenant": "red", "wants": [{ "pool": "other" }] } },
            { "reserve": { "owner": owner, "tenant": "red", "wants": [{ "pool": "other" }] } },
            { "release": { "owner": "fipd/Host/lab/nobody" } },
            { "transfer": { "network": "default", "address": "10.2.0.1",
                "transfer": { "to": "fipd/Host/lab/red", "reason": "mine now" } } },
            { "put-quota": { "pool": "other", "tenant": "red", "quota": { "limit": 9 } } },
            { "delete-quota": { "pool": "other", "tenant": "red" } },
        ] }),
        ("POST", "/api/v1/leases/release") => json!({ "owner": owner }),
        ("POST", "/api/v1/leases/{network}/{address}/transfer") => {
            json!({ "to": "fipd/Host/lab/red", "reason": "mine now" })
        }
        ("POST", "/api/v1/leases/{network}/{address}/probed") => {
            json!({ "owner": owner, "verdict": "free" })
        }
        ("PATCH", "/api/v1/leases/{network}/{address}/labels") => json!({ "set": { "a": "b" } }),
        ("PUT", "/api/v1/quotas/{pool}/{tenant}") => json!({ "limit": 9 }),
        ("POST", "/api/v1/pools") => json!({ "name": "q", "addresses": ["10.3.0.0/24"] }),
        ("PATCH", "/api/v1/pools/{name}") => json!({ "closed": true }),
        ("POST", "/api/v1/pools/{name}/preview") => json!({ "closed": true }),
        ("POST", "/api/v1/pools/{name}/move-network") => json!({ "network": "lab" }),
        ("POST", "/api/v1/networks") => json!({ "name": "n" }),
        ("POST", "/api/v1/tokens") => json!({ "name": "t", "role": "admin" }),
        ("POST", "/api/v1/users") => {
            json!({ "name": "u", "role": "admin", "password": "open sesame" })
        }
        ("POST", "/api/v1/restore-hold/lift") => json!({ "reason": "because" }),
        ("PATCH", "/api/v1/users/{name}") => json!({ "role": "viewer" }),
        ("PUT", "/api/v1/clusters/{name}") => json!({ "kubeconfig": "none" }),
        ("POST", "/api/v1/clusters/{name}/join") => json!({ "as": "east" }),
        ("POST", "/api/v1/clusters/{name}/skip-adoption") => json!({ "network": "default" }),
        ("POST", "/api/v1/rules/flush") => json!({ "dry_run": false }),
        ("POST", "/api/v1/rules/prune-foreign") => json!({ "table": 100 }),
        ("POST", "/api/v1/import") => json!({ "name": "imported" }),
        ("DELETE", _)
        | ("PUT", "/api/v1/networks/{name}/separate/{other}")
        | (
            "POST",
            "/api/v1/backups"
            | "/api/v1/backups/{name}/drill"
            | "/api/v1/clusters/{name}/forget"
            | "/api/v1/clusters/{name}/confirm-release"
            | "/api/v1/clusters/{name}/confirm-sightings"
            | "/api/v1/clusters/{name}/new-identity"
            | "/api/v1/clusters/{name}/detach"
            | "/api/v1/clusters/{name}/attach"
            | "/api/v1/clusters/{name}/crds"
            | "/api/v1/clusters/{name}/adopt/{system}"
            | "/api/v1/webhooks/{name}/test"
            | "/api/v1/rules/resume"
            | "/api/v1/fip-v1/rotate-key"
            | "/api/v1/reload"
            | "/api/v1/clock/accept"
            | "/api/v1/projects/{project}/rotate-secret",
        ) => Value::Null,
        _ => panic!("say here what {method} {path} is asked"),
    }
}

/// All that can be changed.
fn everything(admin: &Rest) -> String {
    let lists = [
        "/api/v1/export?what=leases",
        "/api/v1/pools",
        "/api/v1/networks",
        "/api/v1/quotas",
        "/api/v1/users",
        "/api/v1/audit",
    ];
    let text = |path: &&str| String::from_utf8(admin.get(path).body.to_vec()).unwrap();
    lists.iter().map(text).collect()
}

/// Nothing was released, and every operation of many was refused.
fn did_nothing(answer: &Value) -> bool {
    let none = json!({ "released": [] });
    let refused = |one: &Value| one["body"] == none || one["problem"].is_object();
    let results = answer["results"].as_array();
    *answer == none || results.is_some_and(|results| results.iter().all(refused))
}

#[test]
fn no_operation_is_open_and_none_writes_for_who_may_not() {
    let fipd = site();
    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let viewer = fipd.rest(Some(&fipd.token("eye", "viewer")));
    let scoped = [
        token(&fipd, "a --role admin --pool mine"),
        token(&fipd, "b --role admin --network lab"),
        token(&fipd, "c --role admin --tenant blue"),
        token(&fipd, "d --role operator --pool mine --tenant red"),
    ];
    let nobody = fipd.rest(None);
    let operations = operations(&admin);
    assert!(operations.len() > 30, "{operations:?}");
    let before = everything(&admin);
    for (method, path) in &operations {
        let at = about_other(path);
        let ask = |rest: &Rest| match method.as_str() {
            "GET" => rest.get(&at),
            _ => rest.json(method.clone(), &at, &[], body(method, path)),
        };
        if !["/healthz", "/readyz"].contains(&path.as_str()) {
            ask(&nobody).problem(401, "unauthenticated");
        }
        if method == Method::GET {
            continue;
        }
        ask(&viewer).problem(403, "forbidden");
        for rest in &scoped {
            let answer = ask(rest);
            let nothing = answer.status == 200 && did_nothing(&answer.json());
            assert!(
                nothing || [403, 404].contains(&answer.status.as_u16()),
                "{method} {path}: {answer:?}"
            );
        }
    }
    assert_eq!(everything(&admin), before);
}

#[test]
fn a_scope_is_all_that_a_token_sees() {
    let fipd = site();
    let pool = token(&fipd, "a --role operator --pool mine");
    let network = token(&fipd, "b --role operator --network lab");
    let tenant = token(&fipd, "c --role operator --tenant red");
    let names = |rest: &Rest, path: &str, list: &str, field: &str| {
        let rows = rest.get(path).json()[list].as_array().unwrap().clone();
        let name = |row: &Value| row[field].as_str().unwrap().to_owned();
        rows.iter().map(name).collect::<Vec<_>>()
    };
    for rest in [&pool, &network] {
        assert_eq!(names(rest, "/api/v1/pools", "pools", "name"), ["mine"]);
        assert_eq!(names(rest, "/api/v1/networks", "networks", "name"), ["lab"]);
        assert_eq!(names(rest, "/api/v1/quotas", "quotas", "pool"), ["mine"]);
        let leases = names(rest, "/api/v1/leases", "leases", "address");
        assert_eq!(leases, ["10.1.0.1", "10.1.0.2"]);
        let export = rest.get("/api/v1/export").body;
        let export = String::from_utf8_lossy(&export);
        assert_eq!(export.lines().count(), 2, "{export}");
        let audit = rest.get("/api/v1/audit").json().to_string();
        assert!(audit.contains("10.1.0.1"), "{audit}");
        assert!(
            !audit.contains("10.2.0.1") && !audit.contains("token"),
            "{audit}"
        );
        for path in [
            "/api/v1/pools/other",
            "/api/v1/networks/default",
            "/api/v1/leases/default/10.2.0.1",
            "/api/v1/leases?pool=other",
            "/api/v1/leases?network=default",
        ] {
            rest.get(path).problem(404, "not-found");
        }
        let few = rest.get("/api/v1/leases?address=10.2.0.1").json();
        assert_eq!(few["leases"], json!([]));
    }
    let leases = names(&tenant, "/api/v1/leases", "leases", "address");
    assert_eq!(leases, ["10.2.0.1", "10.1.0.1"]);
    tenant
        .get("/api/v1/leases/lab/10.1.0.2")
        .problem(404, "not-found");
    for path in [
        "/api/v1/audit",
        "/api/v1/changes",
        "/api/v1/export?what=audit",
    ] {
        tenant.get(path).problem(403, "forbidden");
    }
    // As the list of quotas.
    let quotas = "/api/v1/export?what=quotas";
    let viewer = token(&fipd, "d --role viewer --pool mine");
    viewer.get(quotas).problem(403, "forbidden");
    for (rest, count) in [(&pool, 1), (&network, 1), (&tenant, 2)] {
        let export = rest.get(quotas).body;
        let export = String::from_utf8_lossy(&export);
        assert_eq!(export.lines().count(), count, "{export}");
    }
    for rest in [&pool, &tenant] {
        for path in ["/api/v1/clusters", "/metrics", "/api/v1/check"] {
            rest.get(path).problem(403, "forbidden");
        }
    }
    // A pool that takes over the name is another pool.
    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let renamed = admin.json(
        Method::PATCH,
        "/api/v1/pools/mine",
        &[],
        json!({ "name": "old" }),
    );
    assert_eq!(renamed.status, 200, "{renamed:?}");
    fipd.json("pool create mine --cidr 10.4.0.0/24");
    assert_eq!(names(&pool, "/api/v1/pools", "pools", "name"), ["old"]);
    let listed = fipd.json("token list");
    let listed = listed["tokens"].as_array().unwrap().iter();
    let mut mine = listed.filter(|token| token["name"] == "a");
    assert_eq!(mine.next().unwrap()["pools"], json!(["old"]));
}

#[test]
fn a_tenant_says_that_its_address_is_taken_and_says_so_again() {
    let fipd = site();
    let red = token(&fipd, "red --role operator --tenant red");
    let owner = "fipd/Host/lab/new";
    let ask = json!({ "owner": owner, "wants": [{ "pool": "mine" }], "probe": true });
    assert_eq!(red.post("/api/v1/leases", ask).status, 201);
    let path = "/api/v1/leases/lab/10.1.0.3/probed";
    let report = || red.post(path, json!({ "owner": owner, "verdict": "taken" }));
    assert_eq!(
        report().status,
        204,
        "it is nobody's now, not this tenant's"
    );
    assert_eq!(
        report().status,
        204,
        "nobody knows whether the first was heard"
    );
    let all = fipd.rest(Some(&fipd.token("root", "admin")));
    let shown = all.get("/api/v1/leases/lab/10.1.0.3").json();
    assert_eq!(shown["state"], "quarantined");
    let free = json!({ "owner": owner, "verdict": "free" });
    red.post(path, free).problem(409, "conflict");
}

#[test]
fn a_token_of_a_tenant_speaks_for_it_and_for_nobody_else() {
    let fipd = site();
    let red = token(&fipd, "red --role operator --tenant red");
    let ask = |owner: &str, tenant: Option<&str>| {
        let mut body = json!({ "owner": owner, "wants": [{ "pool": "mine" }] });
        if let Some(tenant) = tenant {
            body["tenant"] = json!(tenant);
        }
        red.post("/api/v1/leases", body)
    };
    let given = ask("fipd/Host/lab/new", None);
    assert_eq!(given.status, 201, "{given:?}");
    let shown = red.get("/api/v1/leases/lab/10.1.0.3").json();
    assert_eq!(shown["tenant"], "red", "it need not say for whom");
    ask("fipd/Host/lab/newer", Some("blue")).problem(403, "forbidden");
    ask("fipd/Host/lab/newest", None).problem(409, "quota-exceeded");
    // What another tenant's owner has is not told, nor who has an address.
    let foreign = ask("fipd/Host/lab/blue", None).problem(403, "forbidden");
    assert!(!foreign.to_string().contains("10.1.0.2"), "{foreign}");
    let taken =
        json!({ "owner": "fipd/Host/lab/x", "wants": [{ "pool": "mine", "address": "10.1.0.2" }] });
    let quota = json!({ "limit": 9 });
    let rest = fipd.rest(Some(&fipd.token("root", "admin")));
    rest.json(Method::PUT, "/api/v1/quotas/mine/red", &[], quota.clone());
    let taken = red
        .post("/api/v1/leases", taken)
        .problem(409, "address-taken");
    assert!(!taken.to_string().contains("lab/blue"), "{taken}");
    let give = |to: &str, body: Value| red.post(&format!("/api/v1/leases/lab/{to}/transfer"), body);
    let away = json!({ "to": "fipd/Host/lab/x", "tenant": "blue", "reason": "gift" });
    give("10.1.0.1", away).problem(403, "forbidden");
    let take = json!({ "to": "fipd/Host/lab/red", "tenant": "red", "reason": "mine" });
    give("10.1.0.2", take).problem(404, "not-found");
    let admin = token(&fipd, "lord --role admin --tenant red");
    let own = admin.json(Method::PUT, "/api/v1/quotas/mine/red", &[], quota);
    own.problem(403, "forbidden");
}

#[test]
fn a_quarantine_ends_early_for_who_is_known_as_its_tenant() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24 --quarantine 2h");
    for name in ["a", "b", "c"] {
        fipd.json(&format!(
            "lease allocate --pool p --tenant red --owner fipd/Host/lab/{name}"
        ));
        fipd.json(&format!("lease release --owner fipd/Host/lab/{name}"));
    }
    let ask = |rest: &Rest, address: &str| {
        let want = json!([{ "pool": "p", "address": address }]);
        let body = json!({ "owner": "fipd/Host/lab/z", "tenant": "red", "wants": want });
        rest.post("/api/v1/leases", body)
    };
    let operator = token(&fipd, "op --role operator");
    ask(&operator, "10.0.0.1").problem(409, "address-taken");
    let blue = token(&fipd, "blue --role operator --tenant blue");
    ask(&blue, "10.0.0.1").problem(409, "address-taken");
    let red = token(&fipd, "red --role operator --tenant red");
    assert_eq!(ask(&red, "10.0.0.1").status, 201);
    let admin = token(&fipd, "root --role admin");
    assert_eq!(ask(&admin, "10.0.0.2").status, 201);

    // An admin for some tenants is an admin of nothing that others had.
    let lord = token(&fipd, "lord --role admin --tenant blue");
    let end = "/api/v1/leases/default/10.0.0.3?end_quarantine=true";
    let early = |rest: &Rest| rest.json(Method::DELETE, end, &[], Value::Null);
    early(&lord).problem(404, "not-found");
    ask(&lord, "10.0.0.3").problem(409, "address-taken");
    assert_eq!(fipd.json("lease show 10.0.0.3")["state"], "quarantined");
    early(&red).problem(403, "forbidden");
    let lady = token(&fipd, "lady --role admin --tenant red");
    assert_eq!(early(&lady).status, 204);
    fipd.cli("lease show 10.0.0.3").fails(3, &["10.0.0.3"]);
}

#[test]
fn a_quota_is_exceeded_by_an_admin_who_says_so() {
    let fipd = site();
    fipd.json("lease allocate --pool mine --tenant red --owner fipd/Host/lab/red2");
    let give = |rest: &Rest, force: bool| {
        let body =
            json!({ "to": "fipd/Host/lab/z", "tenant": "red", "force": force, "reason": "moved" });
        rest.post("/api/v1/leases/lab/10.1.0.2/transfer", body)
    };
    let operator = token(&fipd, "op --role operator");
    let admin = token(&fipd, "root --role admin");
    give(&operator, false).problem(409, "quota-exceeded");
    give(&operator, true).problem(403, "forbidden");
    give(&admin, false).problem(409, "quota-exceeded");
    assert_eq!(give(&admin, true).json()["tenant"], "red");
    let audit = fipd.json("audit")["entries"][0]["detail"].to_string();
    assert!(audit.contains("beyond its quota: moved"), "{audit}");
}

#[test]
fn a_token_ends_and_counts_only_from_its_places() {
    let fipd = Daemon::start();
    let short = token(&fipd, "short --role viewer --expires 1s");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let over = short.get("/api/v1/pools").problem(401, "unauthenticated");
    let said = over["detail"].as_str().unwrap();
    assert!(said.contains("short expired at 20"), "{said}");
    let here = token(&fipd, "here --role viewer --from 127.0.0.0/8 --from ::1");
    assert_eq!(here.get("/api/v1/pools").status, 200);
    let there = token(&fipd, "there --role viewer --from 10.0.0.0/8");
    let said = there.get("/api/v1/pools").problem(403, "forbidden");
    assert!(
        said["detail"].as_str().unwrap().contains("127.0.0.1"),
        "{said}"
    );
    let table = fipd.cli("token list").out;
    assert!(
        table.contains("127.0.0.0/8,::1/128") && table.contains("anywhere"),
        "{table}"
    );
    let listed = fipd.json("token list")["tokens"].clone();
    for token in listed.as_array().unwrap() {
        let used = token["last_used"].is_string();
        assert_eq!(used, token["name"] == "here", "{token}");
    }
    fipd.cli("token create x --role viewer --from ten")
        .fails(2, &["from", "10.0.0.0/8"]);
    fipd.cli("token create x --role viewer --pool nope")
        .fails(3, &["nope"]);
}
