//! What fipd's hook answers to those who send nonsense over HTTP: a failure in the form of Cluster API, or a plain status.

use std::time::Instant;

use anyhow::Context;
use fipd_tests::testbed::cluster_api::HOOKS;
use fipd_tests::testbed::{Fipd, FipdOptions, Method, Visitor, free_port};
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// The largest question that fipd reads.
const LARGEST: usize = 512 * 1024;
/// What fipd answers to one address, a second and at once.
const RATE: (f64, f64) = (1000.0, 2000.0);

/// fipd with a cluster that nobody can reach, and a listener without TLS; its port.
async fn start() -> (Fipd, u16) {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await.unwrap();
    let port = free_port().unwrap();
    let nobody = free_port().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("https://127.0.0.1:{nobody}") } }],
        "users": [{ "name": "c", "user": { "token": "none" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
    });
    fipd.write_file("management.kubeconfig", &kubeconfig.to_string())
        .unwrap();
    fipd.write_config(&format!(
        "[[listener]]\naddress = \"127.0.0.1:{port}\"\ntls = false\nserve = [\"hooks\"]\n\
         [[cluster]]\nname = \"management\"\nkubeconfig = \"management.kubeconfig\"\nsystems = [\"cluster-api\"]\n"
    ))
    .unwrap();
    fipd.restart().await.unwrap();
    (fipd, port)
}

/// Sends these bytes and reads until fipd closes: status and body of the answer.
async fn exchange(port: u16, request: &[u8]) -> (u16, String) {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let mut answer = Vec::new();
    let both = async {
        // Who is refused early cannot send the rest.
        let (_sent, read) = tokio::join!(to.write_all(request), from.read_to_end(&mut answer));
        read
    };
    let _reset = tokio::time::timeout(ANSWERED_WITHIN, both).await.unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|one| one.parse().ok());
    let status = status
        .with_context(|| format!("no answer: {text:?}"))
        .unwrap();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The path of a call.
fn path(call: &str) -> String {
    format!("/hooks/management/{HOOKS}/{call}")
}

/// Of Cluster API's form, with this status.
fn assert_answer(body: &str, kind: &str, status: &str, what: &str) {
    let answer: Value = serde_json::from_str(body)
        .with_context(|| format!("{what}: {body}"))
        .unwrap();
    let seen = (&answer["apiVersion"], &answer["kind"], &answer["status"]);
    assert_eq!(
        seen,
        (&json!(HOOKS), &json!(kind), &json!(status)),
        "{what}"
    );
    let is_failure = status == "Failure";
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!(is_failure, !message.is_empty(), "{what}: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_answered_in_the_form_of_the_api_or_by_a_status() {
    let (fipd, port) = start().await;
    let deep = "[".repeat(100_000);
    let huge = vec![b'a'; 4 * LARGEST];
    let other = json!({ "apiVersion": HOOKS, "kind": "AfterClusterUpgradeRequest" }).to_string();
    let bodies: [(&str, &[u8]); 9] = [
        ("nothing", b""),
        ("no JSON", b"not json"),
        ("half of it", b"{\"kind\": \"Disc"),
        ("a list", b"[]"),
        ("null", b"null"),
        ("no UTF-8", b"{\"kind\": \"\xff\xfe\"}"),
        ("another kind", other.as_bytes()),
        ("very deep", deep.as_bytes()),
        ("too large", &huge),
    ];
    for (call, kind) in [
        ("discovery", "DiscoveryResponse"),
        (
            "beforeclustercreate/fipd-vip",
            "BeforeClusterCreateResponse",
        ),
    ] {
        for (what, body) in bodies {
            let what = format!("{call}: {what}");
            let request = post(&path(call), "application/json", body);
            let (status, body) = exchange(port, &request).await;
            assert!(status == 200 || status == 413, "{what}: {status} {body}");
            if status == 200 {
                assert_answer(&body, kind, "Failure", &what);
            }
        }
    }
    // What is right is understood, whatever its type is said to be.
    let discovery = json!({ "apiVersion": HOOKS, "kind": "DiscoveryRequest" }).to_string();
    for kind in ["application/json", "text/xml", "\u{1}"] {
        let request = post(&path("discovery?timeout=10s"), kind, discovery.as_bytes());
        let (status, body) = exchange(port, &request).await;
        if status == 200 {
            assert_answer(&body, "DiscoveryResponse", "Success", kind);
        } else {
            assert!((400..500).contains(&status), "{kind:?}: {status} {body}");
        }
    }
    for (path, wanted) in [
        (path("afterclusterupgrade/fipd-vip"), 404),
        (path("beforeclustercreate/other"), 404),
        (path(""), 404),
        (format!("/hooks/nobody/{HOOKS}/discovery"), 404),
        ("/hooks/management/v1/discovery".to_owned(), 404),
        ("/hooks/management".to_owned(), 404),
        (
            "/hooks/management/%2e%2e/%2e%2e/api/v1/pools".to_owned(),
            404,
        ),
        ("/hooks/%ff/x".to_owned(), 400),
        ("/".to_owned(), 404),
        ("/metrics".to_owned(), 404),
        ("/api/v1/pools".to_owned(), 404),
        (
            "/admission/management/validate-inclusterippool".to_owned(),
            404,
        ),
    ] {
        let request = post(&path, "application/json", discovery.as_bytes());
        let (status, body) = exchange(port, &request).await;
        assert_eq!(status, wanted, "{path}: {body}");
    }
    let get = format!(
        "GET {} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        path("discovery")
    );
    assert_eq!(exchange(port, get.as_bytes()).await.0, 405);
    let (status, body) = exchange(port, b"\x01\x02 nonsense\r\n\r\n").await;
    assert_eq!(status, 400, "no request: {body}");
    // The same door of `[api] listen`, under TLS.
    let mut visitor = Visitor::connect(&fipd).await.unwrap();
    for (body, status) in [(&*discovery, "Success"), ("nonsense", "Failure")] {
        let (answer, _) = visitor
            .send(Method::POST, &path("discovery"), body)
            .await
            .unwrap();
        assert_answer(&answer, "DiscoveryResponse", status, body);
    }
}

/// However fast they come: each question is answered, and no more of them than the rate allows by the hook.
#[tokio::test(flavor = "multi_thread")]
async fn more_questions_than_the_rate_are_refused_and_none_stays_without_an_answer() {
    const CLIENTS: usize = 16;
    const EACH: usize = 300;
    let (_fipd, port) = start().await;
    let discovery = json!({ "apiVersion": HOOKS, "kind": "DiscoveryRequest" });
    let discovery = discovery.to_string();
    let length = discovery.len();
    let path = path("discovery");
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{discovery}"
    );
    let last = request.replace("host:", "connection: close\r\nhost:");
    // Without waiting for answers in between.
    let all = format!("{}{last}", request.repeat(EACH - 1));
    let began = Instant::now();
    let client = async || {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut from, mut to) = stream.into_split();
        let mut answers = String::new();
        let both = async {
            let sent = to.write_all(all.as_bytes());
            tokio::join!(sent, from.read_to_string(&mut answers))
        };
        let (sent, read) = tokio::time::timeout(DEADLINE, both).await.unwrap();
        sent.unwrap();
        read.unwrap();
        let of = |status: &str| answers.matches(&format!("HTTP/1.1 {status} ")).count();
        (of("200"), of("429"))
    };
    let counts = join_all((0..CLIENTS).map(|_| client())).await;
    let took = began.elapsed();
    let (answered, refused) = counts
        .into_iter()
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!(
        answered + refused,
        CLIENTS * EACH,
        "{answered} and {refused}"
    );
    let (second, burst) = RATE;
    let answered_most = burst + second * took.as_secs_f64() + 1.0;
    let counted = f64::from(u32::try_from(answered).unwrap());
    assert!(counted <= answered_most, "{answered} in {took:?}");
    progress(format_args!(
        "{answered} questions answered and {refused} refused in {took:?}"
    ));
    let (status, _) = exchange(port, &post(&path, "application/json", b"{}")).await;
    assert!(status == 200 || status == 429, "{status}");
}
