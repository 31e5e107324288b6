//! Where API servers ask the validating webhook: `/admission/CLUSTER/validate-KIND`, for CLUSTER as it is configured.
//!
//! There is no login: nothing is written. What an answer tells is what the rules look at, so also whether an address is in
//! use and how much a project has. Size, rate and time have limits, and an API server waits longer than an answer takes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    body::{HttpBody as _, to_bytes},
    extract::{ConnectInfo, Path, Request, State},
    response::{IntoResponse as _, Response},
};
use fipd_core::words;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{
    access::{Access, Routes},
    body::is_too_large,
    fip_v1::limiter::{Limiter, Rate, Whom},
    problem::{Code, Problem},
};
use crate::{
    admission::{
        Admission, ReviewedKind,
        review::{Question, Verdict},
    },
    metrics::Metrics,
};

/// The largest review: far more than two pools with all that their status may list.
const MOST: usize = 3 * 1024 * 1024;
/// Below the shortest time that an API server may be told to wait.
const DEADLINE: Duration = Duration::from_millis(900);
/// Of one API server. fipd's own writes are asked about as well.
const RATE: Rate = Rate {
    per_second: 1000.0,
    burst: 2000.0,
};
/// What nearly all reviews are no larger than.
const USUAL: u64 = 128 * 1024;
/// Larger ones that are read at once.
const AT_ONCE: usize = 4;

/// What the webhook works with.
pub struct Desk {
    admission: Admission,
    limiter: Limiter,
    places: Semaphore,
}

words! {
    /// What became of a call, for the figures.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    enum CallOutcome {
        Allowed = "allowed",
        Warned = "warned",
        Denied = "denied",
        /// Let through, because not enough is known.
        Unchecked = "unchecked",
        Malformed = "malformed",
        Limited = "limited",
        Late = "late",
    }
}

/// Why there is no answer.
type Refused = (CallOutcome, Box<Problem>);

impl Desk {
    pub fn new(admission: Admission) -> Self {
        Self {
            admission,
            limiter: Limiter::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }
}

/// The calls, for any listener.
pub fn routes(routes: Routes) -> Routes {
    routes.post("/admission/{cluster}/{rule}", Access::Own, validate)
}

async fn validate(
    State(admission): State<Arc<Desk>>,
    State(metrics): State<Metrics>,
    Path((cluster, rule)): Path<(String, String)>,
    request: Request,
) -> Response {
    let began = Instant::now();
    let Some(kind) = admission.admission.kind(&rule) else {
        return Problem::not_found("such path:", request.uri().path()).into_response();
    };
    let answer = admission.answer(&cluster, kind, request);
    let (result, answer) = match tokio::time::timeout(DEADLINE, answer).await {
        Ok(Ok((result, answer))) => (result, Json(answer).into_response()),
        Ok(Err((result, problem))) => (result, problem.into_response()),
        Err(_) => {
            let text = format!("no answer within {} ms", DEADLINE.as_millis());
            let problem = Problem::new(Code::Timeout, text);
            (CallOutcome::Late, problem.into_response())
        }
    };
    metrics.admission(kind.plural, result.as_str(), began.elapsed());
    answer
}

impl Desk {
    async fn answer(
        &self,
        cluster: &str,
        kind: &'static ReviewedKind,
        request: Request,
    ) -> Result<(CallOutcome, Value), Refused> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        if let Some(ConnectInfo(peer)) = peer {
            self.within(peer.ip())?;
        }
        let question = self.read(kind, request).await?;
        let judged = self.admission.judge(cluster, kind, &question).await;
        let outcome = CallOutcome::of(&judged.verdict, judged.checked);
        if let Some(denial) = &judged.verdict.denied {
            // Not louder: whoever writes is told, and anybody may ask.
            tracing::debug!(
                cluster,
                kind = kind.plural,
                namespace = question.namespace,
                name = question.name,
                user = question.user,
                why = denial.message,
                "a write was refused"
            );
        }
        Ok((outcome, judged.verdict.answer(&question.uid)))
    }

    async fn read(
        &self,
        kind: &'static ReviewedKind,
        request: Request,
    ) -> Result<Question, Refused> {
        // Who sends a large one slowly keeps only other large ones waiting. Never closed.
        let length = request.body().size_hint().upper();
        let _place = match length {
            Some(length) if length <= USUAL => None,
            Some(_) | None => self.places.acquire().await.ok(),
        };
        let body = to_bytes(request.into_body(), MOST).await.map_err(|error| {
            if is_too_large(&error) {
                let text = format!("the review is larger than {MOST} bytes");
                return (
                    CallOutcome::Malformed,
                    Box::new(Problem::new(Code::TooLarge, text)),
                );
            }
            malformed("the review is cut short".to_owned())
        })?;
        Question::read(&body, kind).map_err(|error| malformed(error.to_string()))
    }

    /// Whether who asks there has not asked too often.
    pub(super) fn takes(&self, peer: IpAddr) -> bool {
        self.limiter.take(Whom::peer(peer), RATE, Instant::now())
    }

    fn within(&self, peer: IpAddr) -> Result<(), Refused> {
        if self.takes(peer) {
            return Ok(());
        }
        let problem = Problem::new(Code::Busy, "more reviews than fipd answers; ask later");
        Err((CallOutcome::Limited, Box::new(problem)))
    }
}

fn malformed(why: String) -> Refused {
    let mut problem = Problem::new(Code::Invalid, why);
    problem.status = StatusCode::BAD_REQUEST.as_u16();
    (CallOutcome::Malformed, Box::new(problem))
}

impl CallOutcome {
    fn of(verdict: &Verdict, checked: bool) -> Self {
        if verdict.denied.is_some() {
            Self::Denied
        } else if !checked {
            Self::Unchecked
        } else if verdict.warnings.is_empty() {
            Self::Allowed
        } else {
            Self::Warned
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::header;
    use http_body_util::BodyExt as _;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        api::{open_router, ui::tests::Site},
        config::Serve,
    };

    async fn send(site: &Site, path: &str, body: &str) -> (StatusCode, Value) {
        let router = open_router(site.api.clone(), &[Serve::Admission].into());
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&text).unwrap())
    }

    fn review(object: &Value) -> String {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-7", "operation": "CREATE", "name": "a",
                "resource": {
                    "group": "rancher.k8s.binbash.org", "version": "v1beta2", "resource": "floatingippools",
                },
                "object": object,
            },
        })
        .to_string()
    }

    #[tokio::test]
    async fn what_is_not_known_is_let_through_with_a_warning_and_what_is_no_review_is_not() {
        let site = Site::new().await;
        let path = "/admission/rancher/validate-floatingippool";
        let wrong = review(&json!({ "metadata": {}, "spec": {} }));
        let (status, answer) = send(&site, path, &wrong).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answer["response"]["uid"], "u-7");
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        let warning = answer["response"]["warnings"][0].as_str().unwrap();
        assert!(warning.contains("not checked"), "{warning}");

        let (status, answer) = send(&site, path, "{}").await;
        assert_eq!(
            (status, &answer["status"]),
            (StatusCode::BAD_REQUEST, &json!(400))
        );
        assert!(
            answer["detail"].as_str().unwrap().starts_with("apiVersion"),
            "{answer}"
        );
        let other = "/admission/rancher/validate-floatingip";
        assert_eq!(send(&site, other, &wrong).await.0, StatusCode::BAD_REQUEST);
        let unknown = "/admission/rancher/validate-secrets";
        assert_eq!(send(&site, unknown, &wrong).await.0, StatusCode::NOT_FOUND);
        let large = review(&json!({ "metadata": {}, "spec": { "x": "y".repeat(MOST) } }));
        let (status, answer) = send(&site, path, &large).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(
            answer["detail"].as_str().unwrap().contains("larger"),
            "{answer}"
        );

        let text = site.api.metrics.text().await;
        for line in [
            "fipd_admission_requests_total{resource=\"floatingippools\",result=\"unchecked\"} 1",
            "fipd_admission_requests_total{resource=\"floatingippools\",result=\"malformed\"} 2",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }

    #[test]
    fn one_api_server_does_not_keep_all_others_from_being_answered() {
        let limiter = Limiter::default();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let now = Instant::now();
        let granted = (0..5000).filter(|_| limiter.take(Whom::peer(one), RATE, now));
        assert_eq!(granted.count(), 2000);
        assert!(limiter.take(Whom::peer(other), RATE, now));
    }
}
