//! The REST API held against its own OpenAPI document by schemathesis: what the document says must be so, and nothing that
//! is sent may make the daemon fail.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use fipd_tests::process::Process;
use fipd_tests::testbed::{Fipd, FipdOptions, wait_until};
use fipd_tests::toolchain;
use nix::sys::stat::Mode;

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
    fill(&fipd).await;
    let dropped = wait_until("records are dropped", DEADLINE, || async {
        for _ in 0..200 {
            let reply = fipd.get("/readyz").await;
            let reply = reply.map_err(|error| format!("{error:#}"))?;
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        let metrics = fipd.get("/metrics").await;
        let metrics = metrics.map_err(|error| format!("{error:#}"))?.body;
        let mut values = metrics
            .lines()
            .filter_map(|line| line.strip_prefix("fipd_log_dropped_total "));
        match values.next().and_then(|value| value.parse::<u64>().ok()) {
            None => Err("there is no such series".to_owned()),
            Some(0) => Err("none so far".to_owned()),
            Some(dropped) => Ok(dropped),
        }
    });
    assert!(dropped.await.unwrap() > 0);
    let made = "lease allocate --pool vips --owner fipd/vm/lab/last".split(' ');
    fipd.cli(made).await.unwrap().success().unwrap();
    let ended = fipd.terminate(Duration::from_secs(15)).await.unwrap();
    assert!(ended.success(), "{ended}");
}
