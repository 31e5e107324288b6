//! A server of canned answers.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;

/// A call as it came in.
pub struct Asked {
    pub path: String,
    pub body: Value,
}

/// Answers every call by its path with a code and a body, or the text of a failure.
pub fn serving(
    answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
) -> (Remote, Arc<Mutex<Vec<Asked>>>) {
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let (all, answer) = (Arc::clone(&asked), Arc::new(answer));
    let serve = move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let (code, body) = answer(&path);
        let body = match code {
            200 => body,
            _ => json!({ "status": "Failure", "code": code, "message": body, "reason": "" }),
        };
        all.lock().push(Asked {
            path,
            body: Value::Null,
        });
        let answer = http::Response::builder().status(code);
        let answer = answer.body(Body::from(body.to_string().into_bytes()));
        std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
    };
    let client = Client::new(tower::service_fn(serve), "default");
    (Remote::new(client), asked)
}

/// Answers with these in order: method that is expected, code and body.
pub fn canned(answers: &[(&'static str, u16, &'static str)]) -> (Remote, Arc<Mutex<Vec<Asked>>>) {
    let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let all = Arc::clone(&asked);
    let serve = move |request: Request<Body>| {
        let (answers, all) = (Arc::clone(&answers), Arc::clone(&all));
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.map(|body| body.to_bytes());
            let body = serde_json::from_slice(&bytes.unwrap_or_default());
            all.lock().push(Asked {
                path: head.uri.path().to_owned(),
                body: body.unwrap_or_default(),
            });
            let (method, code, text) = answers.lock().pop_front().unwrap();
            assert_eq!(head.method.as_str(), method, "{}", head.uri);
            let text = match code {
                200 => text.to_owned(),
                _ => json!({ "status": "Failure", "code": code, "message": text, "reason": "" })
                    .to_string(),
            };
            let answer = http::Response::builder().status(code);
            Ok::<_, Infallible>(answer.body(Body::from(text.into_bytes())).unwrap())
        }
    };
    let client = Client::new(tower::service_fn(serve), "default");
    (Remote::new(client), asked)
}
