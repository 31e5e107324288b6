//! Events to receivers: signed, in order, at least once, whatever dies.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
    routing::post,
};
use axum_server::tls_rustls::RustlsConfig;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    beside::serve_beside,
    beside_tls::{serve_beside_over_tls, showing},
    harness::{Daemon, PATIENCE, program, run},
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// One that keeps what it is sent.
struct Receiver {
    url: String,
    inner: Arc<Inner>,
}

struct Inner {
    got: Mutex<Vec<(String, Value)>>,
    status: Mutex<u16>,
    takes: Duration,
}

impl Receiver {
    fn start(takes: Duration) -> Self {
        let (receiver, listener, router) = Self::bound("http", takes);
        serve_beside(listener, router);
        receiver
    }

    /// Over TLS, where each request needs a connection of its own.
    fn over_tls(tls: RustlsConfig) -> Self {
        let (receiver, listener, router) = Self::bound("https", Duration::ZERO);
        let router = router.layer(map_response(async |mut response: Response| {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        }));
        serve_beside_over_tls(listener, router, tls);
        receiver
    }

    fn bound(scheme: &str, takes: Duration) -> (Self, std::net::TcpListener, Router) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}/events", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            got: Mutex::default(),
            status: Mutex::new(204),
            takes,
        });
        let router = Router::new()
            .route("/events", post(take))
            .with_state(Arc::clone(&inner));
        (Self { url, inner }, listener, router)
    }

    fn answers(&self, status: u16) {
        *self.inner.status.lock().unwrap() = status;
    }

    fn got(&self) -> Vec<(String, Value)> {
        self.inner.got.lock().unwrap().clone()
    }

    fn wait(&self, what: &str, enough: impl Fn(&[(String, Value)]) -> bool) {
        let started = Instant::now();
        while !enough(&self.inner.got.lock().unwrap()) {
            let got = self.got();
            assert!(
                started.elapsed() < PATIENCE,
                "{what}: {} events, {:?}",
                got.len(),
                got.last()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

async fn take(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    tokio::time::sleep(inner.takes).await;
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (id, at) = (header("webhook-id"), header("webhook-timestamp"));
    let body = String::from_utf8(body.to_vec()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = ring::hmac::sign(&key, format!("{id}.{at}.{body}").as_bytes());
    assert_eq!(
        header("webhook-signature"),
        format!("v1,{}", STANDARD.encode(tag))
    );
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(at.parse().unwrap()) < 30);
    let status = StatusCode::from_u16(*inner.status.lock().unwrap()).unwrap();
    if status.is_success() {
        let body = serde_json::from_str(&body).unwrap();
        inner.got.lock().unwrap().push((id, body));
    }
    status
}

fn configure(home: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let secret = home.join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = home.join("fipd.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

pub fn hook(name: &str, url: &str, more: &str) -> String {
    format!("[[webhook]]\nname = \"{name}\"\nurl = \"{url}\"\nsecret-file = \"secret\"\n{more}\n")
}

pub fn start(text: &str) -> (Daemon, String) {
    let home = Arc::new(tempfile::tempdir().unwrap());
    let file = configure(home.path(), text);
    let fipd = Daemon::start_in(home, &["--config", &file]);
    // Each begins with what comes from now on.
    let noted = |webhooks: &Value| {
        let all = webhooks["webhooks"].as_array().unwrap().iter();
        all.map(|one| {
            fipd.data_dir()
                .join(format!("webhooks/{}.json", one["name"].as_str().unwrap()))
        })
        .all(|path| path.exists())
    };
    let started = Instant::now();
    while !noted(&fipd.json("webhooks list")) {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    (fipd, file)
}

fn kinds(got: &[(String, Value)]) -> Vec<String> {
    let kind = |(_, body): &(String, Value)| body["type"].as_str().unwrap().to_owned();
    got.iter().map(kind).collect()
}

#[test]
fn each_receiver_is_told_what_it_asked_for_and_a_dead_one_holds_up_nobody() {
    let start_one = || Receiver::start(Duration::ZERO);
    let (leases, pools, of_a) = (start_one(), start_one(), start_one());
    let dead = "http://127.0.0.1:9/";
    let text = [
        hook("leases", &leases.url, "pools = [\"a\"]"),
        hook(
            "pools",
            &pools.url,
            "events = [\"pool.*\", \"lease.released\"]",
        ),
        hook("dead", dead, ""),
        hook("of-a", &of_a.url, "events = [\"pool.*\"]\npools = [\"a\"]"),
    ]
    .concat();
    let (fipd, _) = start(&text);
    fipd.json("pool create a --cidr 10.1.0.0/24");
    fipd.json("pool create b --cidr 10.2.0.0/24");
    for pool in ["a", "b"] {
        fipd.json(&format!(
            "lease allocate --pool {pool} --owner fipd/Host/lab/{pool}"
        ));
        fipd.json(&format!("lease release --owner fipd/Host/lab/{pool}"));
    }
    leases.wait("leases of a", |got| got.len() >= 2);
    pools.wait("pools", |got| got.len() >= 4);
    assert_eq!(kinds(&leases.got()), ["lease.allocated", "lease.released"]);
    let expected = [
        "pool.created",
        "pool.created",
        "lease.released",
        "lease.released",
    ];
    assert_eq!(kinds(&pools.got()), expected);
    let (_, given) = &leases.got()[0];
    assert_eq!(given["data"]["address"], "10.1.0.1");
    assert_eq!(given["data"]["owner"], "fipd/Host/lab/a");
    assert_eq!(given["data"]["pool"], "a");
    // A pool that is gone is still known by its name.
    for pool in ["a", "b"] {
        assert_eq!(fipd.cli(&format!("pool delete {pool}")).code, 0);
    }
    of_a.wait("the pool's beginning and end", |got| got.len() >= 2);
    assert_eq!(kinds(&of_a.got()), ["pool.created", "pool.deleted"]);
    let listed = fipd.json("webhooks list");
    let of = |name: &str| {
        let mut all = listed["webhooks"].as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap().clone()
    };
    assert_eq!(of("leases")["delivered"], 2);
    assert!(of("dead")["error"].is_string(), "{listed}");
    let metrics = fipd
        .rest(Some(&fipd.token("m", "viewer")))
        .get("/metrics")
        .body;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    for line in [
        "fipd_webhook_up{webhook=\"dead\"} 0",
        "fipd_webhook_up{webhook=\"leases\"} 1",
        "fipd_webhook_delivered{webhook=\"leases\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert_eq!(fipd.json("webhooks test leases")["status"], 204);
    leases.wait("the test", |got| {
        kinds(got).contains(&"fipd.test".to_owned())
    });
    assert_eq!(fipd.cli("webhooks test dead").code, 1);
    assert_eq!(fipd.cli("webhooks test nobody").code, 3);
}

/// Allocates so many addresses with bulk requests.
fn allocate(fipd: &Daemon, from: usize, count: usize) {
    let admin = fipd.rest(Some(&fipd.token(&format!("bulk-{from}"), "admin")));
    let operations: Vec<_> = (from..from + count)
        .map(|number| {
            json!({ "allocate": { "owner": format!("fipd/Host/lab/h{number}"), "wants": [{ "pool": "p" }] } })
        })
        .collect();
    for part in operations.chunks(500) {
        let done = admin.post("/api/v1/bulk", json!({ "operations": part }));
        assert_eq!(done.status, 200, "{done:?}");
    }
}

#[test]
fn nothing_is_lost_when_the_daemon_is_killed_while_it_tells() {
    let receiver = Receiver::start(Duration::from_millis(5));
    let (mut fipd, file) = start(&hook(
        "ops",
        &receiver.url,
        "events = [\"lease.allocated\"]",
    ));
    fipd.json("pool create p --cidr 10.0.0.0/16");
    let (each, rounds) = (80, 3);
    for round in 0..rounds {
        allocate(&fipd, round * each, each);
        let some = round * each + each / 4;
        receiver.wait("some of it", |got| got.len() >= some);
        fipd.signal(Signal::SIGKILL);
        fipd.wait();
        fipd = Daemon::start_in(fipd.home(), &["--config", &file]);
    }
    let all = each * rounds;
    let numbers = |got: &[(String, Value)]| -> Vec<u64> {
        got.iter()
            .map(|(_, body)| body["data"]["number"].as_u64().unwrap())
            .collect()
    };
    let distinct =
        |got: &[(String, Value)]| numbers(got).into_iter().collect::<BTreeSet<_>>().len();
    receiver.wait("all of it", |got| distinct(got) >= all);
    let got = receiver.got();
    assert_eq!(distinct(&got), all);
    // The same event has the same id, and comes for the first time in the order of the log.
    let ids: BTreeSet<_> = got.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids.len(), all);
    let mut seen = BTreeSet::new();
    let first: Vec<_> = numbers(&got)
        .into_iter()
        .filter(|number| seen.insert(*number))
        .collect();
    assert!(first.is_sorted(), "{first:?}");
}

#[test]
fn what_was_trimmed_before_it_could_be_sent_is_told_as_a_gap() {
    let receiver = Receiver::start(Duration::ZERO);
    receiver.answers(500);
    let text = format!("[audit]\nkeep = 1000\n\n{}", hook("ops", &receiver.url, ""));
    let (fipd, _) = start(&text);
    fipd.json("pool create p --cidr 10.0.0.0/16");
    allocate(&fipd, 0, 4_000);
    receiver.answers(200);
    receiver.wait("the gap and what is left", |got| {
        got.iter()
            .any(|(_, body)| body["data"]["owner"] == "fipd/Host/lab/h3999")
    });
    let got = receiver.got();
    let (_, gap) = &got[0];
    assert_eq!(gap["type"], "fipd.gap", "{gap}");
    let missed = gap["data"]["count"].as_u64().unwrap();
    assert!(missed > 500, "{gap}");
    let listed = fipd.json("webhooks list");
    assert_eq!(listed["webhooks"][0]["missed"], missed, "{listed}");
    let next = got[1].1["data"]["number"].as_u64().unwrap();
    assert_eq!(next, gap["data"]["to"].as_u64().unwrap() + 1);
}

/// Stopped, so that all it has sent is noted.
fn stop(fipd: &mut Daemon) {
    fipd.signal(Signal::SIGTERM);
    assert!(fipd.wait().0.success());
}

fn give(fipd: &Daemon, name: &str) {
    fipd.json(&format!(
        "lease allocate --pool p --owner fipd/Host/lab/{name}"
    ));
}

fn distinct_ids(got: &[(String, Value)]) -> usize {
    got.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len()
}

#[test]
fn after_a_restore_events_go_on_under_ids_that_were_not_there_before() {
    let receiver = Receiver::start(Duration::ZERO);
    let events = "events = [\"lease.*\", \"book.restored\"]";
    let (mut fipd, file) = start(&hook("ops", &receiver.url, events));
    fipd.json("pool create p --cidr 10.0.0.0/24");
    give(&fipd, "a");
    let backup = fipd.home().path().join("backup");
    let backup = backup.to_str().unwrap();
    assert_eq!(fipd.cli(&format!("backup {backup}")).code, 0);
    give(&fipd, "b");
    give(&fipd, "c");
    receiver.wait("all before", |got| got.len() >= 3);
    stop(&mut fipd);
    let mut restore = program();
    restore.args(["restore", backup, "--no-hold", "--reason", "a test"]);
    let restored = run(restore.arg("--data-dir").arg(fipd.data_dir()));
    assert_eq!(restored.code, 0, "{restored:?}");
    let fipd = Daemon::start_in(fipd.home(), &["--config", &file]);
    give(&fipd, "d");
    receiver.wait("what came after", |got| got.len() >= 5);
    let got = receiver.got();
    assert_eq!(kinds(&got)[3..], ["book.restored", "lease.allocated"]);
    assert_eq!(got[4].1["data"]["owner"], "fipd/Host/lab/d");
    let number = |at: usize| got[at].1["data"]["number"].as_u64().unwrap();
    assert!(number(3) <= number(2), "the numbers come again: {got:?}");
    assert_eq!(distinct_ids(&got), got.len(), "the ids do not: {got:?}");
}

#[test]
fn of_another_store_all_is_told_after_a_gap() {
    let receiver = Receiver::start(Duration::ZERO);
    let (mut fipd, file) = start(&hook("ops", &receiver.url, ""));
    fipd.json("pool create p --cidr 10.0.0.0/24");
    for name in ["a", "b", "c", "d", "e", "f"] {
        give(&fipd, name);
    }
    receiver.wait("all of the first", |got| got.len() >= 6);
    stop(&mut fipd);
    lose_store(&fipd);
    let fipd = Daemon::start_in(fipd.home(), &["--config", &file]);
    fipd.json("pool create p --cidr 10.0.0.0/24");
    give(&fipd, "other");
    receiver.wait("the first of the other", |got| got.len() >= 8);
    let got = receiver.got();
    assert_eq!(kinds(&got)[6..], ["fipd.gap", "lease.allocated"]);
    let last = got[5].1["data"]["number"].as_u64().unwrap();
    let from = got[6].1["data"]["from"].as_u64().unwrap();
    assert!([last, last + 1].contains(&from), "{got:?}");
    assert_eq!(got[7].1["data"]["owner"], "fipd/Host/lab/other");
    assert_eq!(distinct_ids(&got), got.len(), "{got:?}");
    // It goes on from there.
    let first = receiver.got().len();
    give(&fipd, "next");
    receiver.wait("the next", |got| got.len() > first);
    assert_eq!(kinds(&receiver.got())[first..], ["lease.allocated"]);
}

/// With its record: without that no store would be made anew.
fn lose_store(fipd: &Daemon) {
    for name in ["fipd.redb", "fipd.redb.high-water"] {
        std::fs::remove_file(fipd.data_dir().join(name)).unwrap();
    }
}

#[test]
fn another_store_that_has_grown_longer_unseen_is_told_from_its_beginning() {
    let receiver = Receiver::start(Duration::ZERO);
    let (mut fipd, file) = start(&hook("ops", &receiver.url, ""));
    fipd.json("pool create p --cidr 10.0.0.0/24");
    give(&fipd, "a");
    receiver.wait("all of the first", |got| !got.is_empty());
    stop(&mut fipd);
    lose_store(&fipd);
    // Nobody is told of it for a while.
    let mut fipd = Daemon::start_in(fipd.home(), &[]);
    fipd.json("pool create p --cidr 10.0.0.0/24");
    let others = ["b", "c", "d", "e", "f", "g"];
    for name in others {
        give(&fipd, name);
    }
    stop(&mut fipd);
    let mut fipd = Daemon::start_in(fipd.home(), &["--config", &file]);
    receiver.wait("all of the other", |got| got.len() >= 8);
    let got = receiver.got();
    assert_eq!(kinds(&got)[1], "fipd.gap");
    let owners: Vec<_> = got[2..]
        .iter()
        .map(|(_, body)| body["data"]["owner"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(owners, others.map(|name| format!("fipd/Host/lab/{name}")));
    assert_eq!(distinct_ids(&got), got.len(), "{got:?}");
    // The same store is known again.
    stop(&mut fipd);
    let fipd = Daemon::start_in(fipd.home(), &["--config", &file]);
    give(&fipd, "h");
    receiver.wait("the next", |got| got.len() >= 9);
    assert_eq!(kinds(&receiver.got())[8..], ["lease.allocated"]);
}

#[test]
fn a_secret_that_everybody_can_read_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let receiver = Receiver::start(Duration::ZERO);
    let (fipd, file) = start(&hook("ops", &receiver.url, ""));
    let secret = Path::new(&file).with_file_name("secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let failed = fipd.cli("webhooks test ops");
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.err.contains("mode 644"), "{failed:?}");
}

#[test]
fn a_ca_file_that_is_missing_keeps_nobody_from_starting_and_each_one_counts_as_it_is() {
    let make = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (before, after) = (make(), make());
    let tls = RustlsConfig::from_config(showing(&before));
    let receiver = Receiver::over_tls(tls.clone());
    let (fipd, file) = start(&hook("ops", &receiver.url, "ca-file = \"ca.pem\""));
    // Told before there is anything to send.
    let started = Instant::now();
    loop {
        let listed = fipd.json("webhooks list");
        let error = listed["webhooks"][0]["error"].as_str();
        if error.is_some_and(|error| error.contains("ca.pem")) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{listed}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let checked = fipd.cli(&format!("check --config {file}"));
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains("ca.pem"), "{checked:?}");
    fipd.json("pool create p --cidr 10.0.0.0/24");
    give(&fipd, "a");
    let ca = Path::new(&file).with_file_name("ca.pem");
    std::fs::write(&ca, before.cert.pem()).unwrap();
    receiver.wait("what waited for the file", |got| got.len() == 1);
    // Another CA in its place, and back: who is trusted by now is sent to, without a restart.
    tls.reload_from_config(showing(&after));
    std::fs::write(&ca, after.cert.pem()).unwrap();
    assert_eq!(fipd.json("webhooks test ops")["status"], 204);
    std::fs::write(&ca, before.cert.pem()).unwrap();
    let failed = fipd.cli("webhooks test ops");
    assert_eq!(failed.code, 1, "{failed:?}");
}
