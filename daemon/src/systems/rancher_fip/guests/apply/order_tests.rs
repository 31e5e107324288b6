//! A guest trusts fipd before it is sent there.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::systems::rancher_fip::clusters::LoadBalancer;

/// An empty cluster that takes everything but what `refuses` names; what was written, in order.
async fn written(refuses: &'static str) -> (Vec<String>, bool) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let serve = move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let (method, seen) = (request.method().clone(), Arc::clone(&seen));
        async move {
            let bytes = request.into_body().collect_bytes().await.expect("a body");
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let status = match method {
                Method::GET => StatusCode::NOT_FOUND,
                _ if name == refuses => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::CREATED,
            };
            if status == StatusCode::CREATED {
                seen.lock().push(format!("{path}/{name}"));
            }
            let answer = match status.is_success() {
                true => body,
                false => {
                    json!({ "kind": "Status", "code": status.as_u16(), "message": "no", "reason": "" })
                }
            };
            let answer = Response::builder()
                .status(status)
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(answer.expect("an answer"))
        }
    };
    let remote = Remote::new(Client::new(tower::service_fn(serve), "default"));
    let project = Project {
        id: "p-1".into(),
        namespace: "c-1".into(),
    };
    let desired = GuestContents {
        namespace: "app".into(),
        ca: Some("site and fipd".into()),
        mappings: None,
        label: None,
        access: vec![ProjectAccess {
            project,
            api_url: "https://fipd.example.net/v1".into(),
            cluster: "c-1".into(),
            pool: "net".into(),
            load_balancer: LoadBalancer::PureLb,
        }],
        releases: vec![],
    };
    let done = guest(&remote, &desired, &["s".to_owned()], "now").await;
    let all = log.lock().clone();
    (all, done.is_ok())
}

#[tokio::test]
async fn the_ca_is_there_before_the_url_that_needs_it() {
    let secrets = "/api/v1/namespaces/app/secrets";
    let (all, done) = written("").await;
    assert!(done);
    assert_eq!(
        all[1..],
        [
            format!("{secrets}/cacerts"),
            format!("{secrets}/rancher-fip-config-p-1")
        ]
    );
    let (all, done) = written("cacerts").await;
    assert!(
        !done && !all.iter().any(|one| one.contains("rancher-fip-config")),
        "{all:?}"
    );
}
