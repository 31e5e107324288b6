//! The REST API held against its own OpenAPI document by schemathesis: what the document says must be so, and nothing that
//! is sent may make the daemon fail. And the alerts about what fipd tells others: its log, and its webhooks.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs::{File, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use axum::{Router, http::StatusCode, routing::post};
use fipd_tests::alerts::{alerts, holding};
use fipd_tests::process::Process;
use fipd_tests::testbed::{Fipd, FipdOptions, Method, UnixConnection, free_port, wait_until};
use fipd_tests::toolchain;
use nix::sys::stat::Mode;
use serde_json::json;
use tokio::net::TcpListener;

/// For how many seconds random requests follow those that cover the document; none without it.
const FUZZ_SECONDS: &str = "FIPD_FUZZ_SECONDS";
/// And must have ended by then.
const DEADLINE: Duration = Duration::from_secs(300);
/// The same requests on every machine.
const SEED: &str = "20260301";
/// What is not asked: names and addresses have a grammar that a schema of strings cannot tell, so good data of the schema may
/// be refused; and an operation of many that is refused is told in the answer, with the status 200.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,ignored_auth";

const DOCUMENT: &str = "/api/v1/openapi.json";

/// Something to be found, so that more is asked than what is not there.
async fn fill(fipd: &Fipd) {
    for line in [
        "pool create vips --cidr 192.0.2.0/24 --quarantine 1h",
        "pool create six --cidr 2001:db8::/64",
        "lease allocate --pool vips --pool six --tenant red --count 3 --owner fipd/vm/lab/a",
        "lease allocate --pool vips --owner fipd/vm/lab/b",
        "lease release --owner fipd/vm/lab/b",
        "quota set --tenant red --pool vips --limit 5",
        "token create ci --role viewer --pool vips --from 10.0.0.0/8",
    ] {
        let done = fipd.cli(line.split(' ')).await.unwrap();
        done.success().unwrap();
    }
}

/// How many operations the document has beside the one that serves it, which schemathesis does not ask again.
fn operations(document: &serde_json::Value) -> usize {
    let paths = document["paths"].as_object().unwrap().iter();
    let methods = ["get", "put", "post", "patch", "delete"];
    paths
        .filter(|(path, _)| *path != DOCUMENT)
        .map(|(_, path)| {
            methods
                .iter()
                .filter(|method| path.get(**method).is_some())
                .count()
        })
        .sum()
}

/// How many of them schemathesis says that it has asked.
fn tested(said: &str) -> Option<usize> {
    let lines = said.lines().skip_while(|line| *line != "API Operations:");
    let mut counts = lines.filter_map(|line| line.trim().strip_prefix("Tested: "));
    counts.next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_what_its_document_says() {
    let tool = tokio::task::spawn_blocking(toolchain::python::schemathesis);
    let tool = tool.await.unwrap().unwrap();
    let fipd = Fipd::start(FipdOptions::default()).await.unwrap();
    fill(&fipd).await;
    let made = ["token", "create", "fuzz", "--role", "admin", "-o", "json"];
    let made = fipd.cli(made).await.unwrap().json().unwrap();
    let token = made["token"].as_str().unwrap();
    let (program, first) = tool.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(first).arg("run");
    command.arg(format!("{}{DOCUMENT}", fipd.url()));
    command.args(["--header", &format!("Authorization: Bearer {token}")]);
    command.arg("--tls-verify");
    command.arg(fipd.data_dir().join("tls/ca.crt"));
    command.args(["--mode", "all", "--checks", CHECKS, "--seed", SEED]);
    match std::env::var(FUZZ_SECONDS) {
        Ok(seconds) => {
            command.args(["--phases", "examples,coverage,fuzzing"]);
            command.args(["--max-time", &seconds]);
        }
        Err(_) => {
            command.args(["--phases", "examples,coverage"]);
        }
    }
    command.args([
        "--max-examples",
        "30",
        "--workers",
        "1",
        "--continue-on-failure",
    ]);
    command.args(["--request-timeout", "20", "--no-color", "--warnings", "off"]);
    // It keeps what failed in the directory where it runs.
    command.current_dir(fipd.directory());
    let log = fipd.directory().join("schemathesis.log");
    let run = Process::spawn("schemathesis", command, &log).unwrap();
    let status = run.wait(DEADLINE).await.unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(status.success(), "{said}");
    let document = fipd.get(DOCUMENT).await.unwrap();
    let document = serde_json::from_str(&document.body).unwrap();
    assert_eq!(tested(&said), Some(operations(&document)), "{said}");
    let check = fipd.cli(["check", "-o", "json"]).await.unwrap();
    assert_eq!(check.json().unwrap()["ok"], true);
    let log = fipd.log().unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_up_nobody() {
    let options = FipdOptions {
        arguments: vec![
            "--log-level=trace".to_owned(),
            "--log-format=text".to_owned(),
        ],
        ..FipdOptions::default()
    };
    let mut fipd = Fipd::prepare(options).await.unwrap();
    nix::unistd::mkfifo(&fipd.log_path(), Mode::S_IRWXU).unwrap();
    // Open at both ends, and never read: it takes 64 KiB.
    let mut unread = File::options();
    let _unread = unread.read(true).write(true).open(fipd.log_path()).unwrap();
    fipd.restart().await.unwrap();
    let alert = &alerts("FipdLogDropped").unwrap()["FipdLogDropped"];
    let before = fipd.get("/metrics").await.unwrap().body;
    fill(&fipd).await;
    let firing = wait_until("records are dropped", DEADLINE, || async {
        for _ in 0..200 {
            let reply = fipd.get("/readyz").await;
            let reply = reply.map_err(|error| format!("{error:#}"))?;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        let metrics = fipd.get("/metrics").await;
        let metrics = metrics.map_err(|error| format!("{error:#}"))?.body;
        let firing = holding(alert, &before, &metrics).unwrap();
        let fires = !firing.is_empty();
        fires.then_some(firing).ok_or("none so far".to_owned())
    });
    assert_eq!(firing.await.unwrap(), ["fipd_log_dropped_total"]);
    let made = "lease allocate --pool vips --owner fipd/vm/lab/last".split(' ');
    fipd.cli(made).await.unwrap().success().unwrap();
    let ended = fipd.terminate(Duration::from_secs(15)).await.unwrap();
    assert!(ended.success(), "{ended}");
}

/// Its receiver is down until the audit log has trimmed what it was to be sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_missed_entries_is_alerted() {
    let port = free_port().unwrap();
    let config = format!(
        "[audit]\nkeep = 1000\n\n\
         [[webhook]]\nname = \"ops\"\nurl = \"http://127.0.0.1:{port}/events\"\nsecret-file = \"secret\"\n"
    );
    let options = FipdOptions {
        config: Some(config),
        ..FipdOptions::default()
    };
    let mut fipd = Fipd::prepare(options).await.unwrap();
    fipd.write_file("secret", "0123456789abcdef0123456789abcdef")
        .unwrap();
    let own = Permissions::from_mode(0o600);
    std::fs::set_permissions(fipd.directory().join("secret"), own).unwrap();
    fipd.restart().await.unwrap();
    let noted = fipd.data_dir().join("webhooks/ops.json");
    wait_until("the webhook begins", DEADLINE, || async {
        noted.exists().then_some(()).ok_or("it has no place yet")
    })
    .await
    .unwrap();
    let firing = async |alert: &str, before: &str| {
        let now = fipd.get("/metrics").await.unwrap().body;
        holding(&alerts(alert).unwrap()[alert], before, &now).unwrap()
    };
    let before = fipd.get("/metrics").await.unwrap().body;
    let pool = "pool create p --cidr 10.0.0.0/16".split(' ');
    fipd.cli(pool).await.unwrap().success().unwrap();
    let mut socket = UnixConnection::open(&fipd.socket()).await.unwrap();
    for part in 0..8 {
        let owners = (part * 500..(part + 1) * 500).map(|one| format!("fipd/Host/lab/h{one}"));
        let operations = owners
            .map(|owner| json!({ "allocate": { "owner": owner, "wants": [{ "pool": "p" }] } }));
        let body = json!({ "operations": operations.collect::<Vec<_>>() });
        let done = socket.call(Method::POST, "/api/v1/bulk", Some(&body));
        let done = done.await.unwrap();
        assert_eq!(done.status, 200, "{}", done.body);
    }
    wait_until("the webhook fails", DEADLINE, || async {
        let failing = firing("FipdWebhookFailing", "").await;
        let fails = failing == ["fipd_webhook_up{webhook=\"ops\"}"];
        fails.then_some(()).ok_or_else(|| format!("{failing:?}"))
    })
    .await
    .unwrap();
    let early = firing("FipdWebhookMissed", &before).await;
    assert!(early.is_empty(), "it may yet be reached: {early:?}");

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    let takes = post(|| async { StatusCode::NO_CONTENT });
    let receiver = Router::new().route("/events", takes);
    let serving = tokio::spawn(async move { axum::serve(listener, receiver).await });
    wait_until("the alert fires", DEADLINE, || async {
        let missed = firing("FipdWebhookMissed", &before).await;
        let fires = missed == ["fipd_webhook_missed{webhook=\"ops\"}"];
        fires.then_some(()).ok_or_else(|| format!("{missed:?}"))
    })
    .await
    .unwrap();
    serving.abort();
}
