//! Who may do what.

use http::Method;
use serde_json::json;

use crate::harness::{Daemon, Rest, free_port};

#[test]
fn only_health_is_open() {
    let fipd = Daemon::start();
    let nobody = fipd.rest(None);
    assert_eq!(nobody.get("/healthz").status, 200);
    assert_eq!(nobody.get("/readyz").status, 200);
    for path in [
        "/metrics",
        "/api/v1/openapi.json",
        "/api/v1/pools",
        "/api/v1/leases",
        "/api/v1/networks",
        "/api/v1/clusters",
        "/api/v1/audit",
        "/api/v1/check",
        "/api/v1/backup",
        "/api/v1/tokens",
        "/api/v1/users",
        "/api/v1/export",
        "/api/v1/quotas",
    ] {
        let answer = nobody.get(path);
        answer.problem(401, "unauthenticated");
        assert!(answer.headers.contains_key("www-authenticate"), "{path}");
    }
    for path in [
        "/api/v1/pools",
        "/api/v1/leases",
        "/api/v1/leases/release",
        "/api/v1/networks",
        "/api/v1/tokens",
    ] {
        nobody.post(path, json!({})).problem(401, "unauthenticated");
    }
    for wrong in ["", "x", "fipd_1_00", "Bearer", &"a".repeat(10_000)] {
        fipd.rest(Some(wrong))
            .get("/api/v1/pools")
            .problem(401, "unauthenticated");
    }
    let page = nobody.get("/ui");
    assert_eq!(page.status, 303, "{page:?}");
    assert!(
        page.headers["location"]
            .to_str()
            .unwrap()
            .starts_with("/ui/login")
    );
    for path in [
        "/api/v1/tokens/1",
        "/api/v1/pools/x",
        "/api/v1/quotas/x/y",
        "/api/v1/leases/default/10.0.0.1",
    ] {
        nobody
            .send(Method::DELETE, path, &[], None)
            .problem(401, "unauthenticated");
    }
}

#[test]
fn each_role_may_do_its_part() {
    let fipd = Daemon::start();
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let client = |role| fipd.rest(Some(&fipd.token(role, role)));
    let (viewer, operator, admin) = (client("viewer"), client("operator"), client("admin"));
    let lease = json!({ "owner": "fipd/Host/lab/a", "wants": [{ "pool": "p" }] });
    let pool = json!({ "name": "q", "addresses": ["10.1.0.0/24"] });

    assert_eq!(viewer.get("/api/v1/pools").status, 200);
    viewer
        .post("/api/v1/leases", lease.clone())
        .problem(403, "forbidden");
    viewer.get("/api/v1/tokens").problem(403, "forbidden");
    viewer.get("/api/v1/backup").problem(403, "forbidden");
    viewer.get("/api/v1/quotas").problem(403, "forbidden");
    assert_eq!(operator.get("/api/v1/quotas").status, 200);
    let quota = |client: &Rest| {
        client.json(
            Method::PUT,
            "/api/v1/quotas/p/team",
            &[],
            json!({ "limit": 5 }),
        )
    };
    quota(&operator).problem(403, "forbidden");
    assert_eq!(quota(&admin).status, 200);

    let given = operator.post("/api/v1/leases", lease.clone());
    assert_eq!(given.status, 201, "{given:?}");
    assert_eq!(
        operator.post("/api/v1/leases", lease).status,
        200,
        "asking again"
    );
    operator
        .post("/api/v1/pools", pool.clone())
        .problem(403, "forbidden");

    assert_eq!(admin.post("/api/v1/pools", pool).status, 201);
    assert_eq!(admin.get("/api/v1/backup").status, 200);
    assert_eq!(fipd.json("audit")["entries"][1]["actor"], "token:operator");
    assert_eq!(fipd.json("audit")["entries"][0]["actor"], "token:admin");
}

#[test]
fn tokens_end() {
    let fipd = Daemon::start();
    let made = fipd.json("token create ci --role viewer --expires 1h");
    let client = fipd.rest(made["token"].as_str());
    assert_eq!(client.get("/api/v1/pools").status, 200);
    let listed = fipd.cli("token list -o json");
    let secret = made["token"].as_str().unwrap().rsplit('_').next().unwrap();
    assert!(!listed.out.contains(secret), "the text is shown once");
    assert_eq!(listed.json()["tokens"][0]["name"], "ci");
    let other = made["token"]
        .as_str()
        .unwrap()
        .replace(secret, &"0".repeat(64));
    fipd.rest(Some(&other))
        .get("/api/v1/pools")
        .problem(401, "unauthenticated");
    assert_eq!(fipd.cli(&format!("token revoke {}", made["id"])).code, 0);
    client.get("/api/v1/pools").problem(401, "unauthenticated");
    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let past = json!({ "name": "late", "role": "viewer", "expires": "2001-01-01T00:00:00Z" });
    admin.post("/api/v1/tokens", past).problem(422, "invalid");
}

#[test]
fn users_come_go_and_change_and_the_last_admin_stays() {
    let fipd = Daemon::start();
    let made = fipd.fed("user create ann --role operator -o json", "open sesame\n");
    assert_eq!(made.json()["role"], "operator");
    fipd.fed("user create ann --role viewer", "another one\n")
        .fails(1, &["ann", "already exists"]);
    fipd.fed("user create bob --role viewer", "short\n")
        .fails(2, &["8 to 1024"]);
    fipd.fed("user create bob --role viewer", "")
        .fails(2, &["nothing was given"]);
    fipd.fed("user create bob/x --role viewer", "long enough\n")
        .fails(2, &["name"]);
    let names = |list: &serde_json::Value| {
        let users = list["users"].as_array().unwrap().clone();
        users
            .iter()
            .map(|user| user["name"].clone())
            .collect::<Vec<_>>()
    };
    let listed = fipd.json("user list");
    assert_eq!(names(&listed), ["admin", "ann"]);
    assert!(!listed.to_string().contains("argon"), "{listed}");
    assert_eq!(fipd.json("user disable ann")["disabled"], true);
    assert!(fipd.cli("user list").out.contains("disabled"));
    assert_eq!(fipd.json("user enable ann")["disabled"], false);
    fipd.cli("user disable admin").fails(1, &["last admin"]);
    fipd.cli("user disable eve").fails(3, &["eve"]);
    fipd.cli("user delete admin").fails(1, &["last admin"]);
    fipd.cli("user set-role admin viewer")
        .fails(1, &["last admin"]);
    assert_eq!(fipd.json("user set-role ann admin")["role"], "admin");
    assert_eq!(fipd.cli("user delete admin").code, 0);
    assert!(!fipd.data_dir().join("initial-admin").exists());
    fipd.cli("user delete admin").fails(3, &["admin"]);
    fipd.cli("user set-role eve viewer").fails(3, &["eve"]);
    let changed = fipd.fed("user set-password ann -o json", "open sesame two\n");
    assert_eq!(changed.json()["role"], "admin");
    let audit = fipd.json("audit").to_string();
    assert!(audit.contains("ann: another password") && !audit.contains("sesame"));

    let admin = fipd.rest(Some(&fipd.token("root", "admin")));
    let users = "/api/v1/users";
    let body = json!({ "name": "bob", "role": "viewer", "password": "open sesame" });
    let answer = admin.post(users, body.clone());
    assert_eq!(answer.status, 201, "{answer:?}");
    admin.post(users, body.clone()).problem(409, "exists");
    let short = json!({ "name": "x", "role": "viewer", "password": "short" });
    let problem = admin.post(users, short).problem(422, "invalid");
    assert_eq!(problem["field"], "password");
    assert!(!problem.to_string().contains("short"), "{problem}");
    let patch = |body| admin.json(Method::PATCH, "/api/v1/users/ann", &[], body);
    patch(json!({ "role": "viewer" })).problem(409, "conflict");
    assert_eq!(patch(json!({})).status, 200);
    let operator = fipd.rest(Some(&fipd.token("op", "operator")));
    operator.get(users).problem(403, "forbidden");
    operator.post(users, body).problem(403, "forbidden");
}

/// The head and body of a GET without TLS.
pub fn plain_get(port: u16, path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_further_listener_serves_what_it_is_for_and_nothing_else() {
    let (plain, secure) = (free_port(), free_port());
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:{plain}\"\ntls = false\nserve = [\"metrics\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{secure}\"\nserve = [\"metrics\", \"health\"]\n"
    );
    let mut fipd = Daemon::configured(&config);

    let both = fipd.rest_at(&format!("https://127.0.0.1:{secure}"), None);
    let metrics = both.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(String::from_utf8_lossy(&metrics.body).contains("fipd_"));
    assert_eq!(both.get("/healthz").status, 200);
    assert_eq!(both.get("/readyz").status, 200);
    // Not even for an admin.
    let token = fipd.token("a", "admin");
    let admin = fipd.rest_at(&format!("https://127.0.0.1:{secure}"), Some(&token));
    for path in ["/api/v1/pools", "/api/v1/backup", "/ui", "/ui/login", "/"] {
        admin.get(path).problem(404, "not-found");
    }

    let answer = plain_get(plain, "/metrics");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("fipd_"),
        "{answer}"
    );
    for path in ["/healthz", "/api/v1/pools", "/ui/login"] {
        let answer = plain_get(plain, path);
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    // The port of the API asks for a login as before.
    fipd.rest(None)
        .get("/metrics")
        .problem(401, "unauthenticated");
    fipd.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, took) = fipd.wait();
    assert!(status.success() && took.as_secs() < 10, "{status} {took:?}");
}
