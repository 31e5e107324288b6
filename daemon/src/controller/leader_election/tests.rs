use std::{convert::Infallible, sync::Arc};

use http::{Method, Request, Response};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

/// An API server with at most one Lease, and a namespace that may be missing.
#[derive(Default)]
struct Api {
    namespace: bool,
    lease: Option<Value>,
    version: u64,
    /// Answers nothing.
    silent: bool,
}

type Shared = Arc<Mutex<Api>>;

impl Api {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        if path.ends_with("/namespaces") {
            self.namespace = true;
            return (201, body.clone());
        }
        self.version += 1;
        match (method, self.lease.as_mut()) {
            (&Method::GET, Some(lease)) => (200, lease.clone()),
            (&Method::POST, None) if self.namespace => {
                let mut lease = body.clone();
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.lease = Some(lease.clone());
                (201, lease)
            }
            (&Method::PATCH, Some(lease)) => {
                if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return (409, json!({}));
                }
                lease["spec"] = body["spec"].clone();
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                (200, lease.clone())
            }
            _ => (404, json!({})),
        }
    }

    fn holder(&self) -> Option<String> {
        let lease = self.lease.as_ref()?;
        Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())
    }
}

fn client(api: &Shared) -> Client {
    let api = Arc::clone(api);
    let serve = move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            if api.lock().silent {
                std::future::pending::<()>().await;
            }
            let (code, mut answer) = api.lock().answer(&parts.method, parts.uri.path(), &body);
            if code >= 400 {
                answer = json!({ "kind": "Status", "status": "Failure", "message": "no", "reason": "no", "code": code });
            }
            let body = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(code).body(body);
            Ok::<_, Infallible>(response.expect("a response"))
        }
    };
    Client::new(tower::service_fn(serve), "default")
}

fn keeper(api: &Shared, me: &str) -> LeaseRenewer {
    LeaseRenewer::new(Remote::new(client(api)), "app", "lock", &me.into())
}

async fn acquire(keeper: &mut LeaseRenewer) -> Vec<Waits> {
    let heard = Mutex::new(Vec::new());
    let never = CancellationToken::new();
    let taken = keeper.acquire(&never, |waits| heard.lock().push(waits));
    assert!(taken.await);
    heard.into_inner()
}

#[tokio::test(start_paused = true)]
async fn the_first_makes_lease_and_namespace_and_the_next_waits_until_it_lets_go() {
    let api = Shared::default();
    let mut one = keeper(&api, "one");
    assert_eq!(acquire(&mut one).await, []);
    assert!(api.lock().namespace);
    assert_eq!(api.lock().holder().as_deref(), Some("one"));
    let mut two = keeper(&api, "two");
    let other = tokio::spawn(async move {
        let waited = acquire(&mut two).await;
        (waited, Instant::now())
    });
    let kept = tokio::time::timeout(Duration::from_secs(60), one.keep()).await;
    assert!(kept.is_err(), "lost: {kept:?}");
    let released = Instant::now();
    one.release().await;
    let (waited, taken) = other.await.expect("the other");
    assert!(waited.iter().all(|one| *one == Waits::Held("one".into())));
    assert!(waited.len() > 20, "{waited:?}");
    assert!(taken - released <= Duration::from_secs(2));
    assert_eq!(api.lock().holder().as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_died_is_waited_for_once() {
    let api = Shared::default();
    acquire(&mut keeper(&api, "dead")).await;
    let begun = Instant::now();
    acquire(&mut keeper(&api, "dead")).await;
    assert!(begun.elapsed().is_zero(), "the same daemon again");
    acquire(&mut keeper(&api, "next")).await;
    let waited = begun.elapsed().as_secs();
    assert!((15..=17).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn what_another_took_or_nobody_answers_for_is_lost_before_others_may_take_it() {
    let api = Shared::default();
    let mut one = keeper(&api, "one");
    acquire(&mut one).await;
    if let Some(lease) = &mut api.lock().lease {
        lease["spec"]["holderIdentity"] = json!("original");
        lease["metadata"]["resourceVersion"] = json!("other");
    }
    assert_eq!(one.keep().await, Loss::Taken("original".into()));
    one.release().await;
    assert_eq!(api.lock().holder().as_deref(), Some("original"));

    if let Some(lease) = &mut api.lock().lease {
        lease["spec"]["holderIdentity"] = json!("");
    }
    acquire(&mut one).await;
    let begun = Instant::now();
    api.lock().silent = true;
    assert_eq!(one.keep().await, Loss::Expired);
    assert!(begun.elapsed() <= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_again() {
    let api = Shared::default();
    let mut one = keeper(&api, "one");
    acquire(&mut one).await;
    api.lock().lease = None;
    let kept = tokio::time::timeout(Duration::from_secs(5), one.keep()).await;
    assert!(kept.is_err(), "lost: {kept:?}");
    assert_eq!(api.lock().holder().as_deref(), Some("one"));
}
