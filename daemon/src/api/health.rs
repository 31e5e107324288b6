//! `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Api,
    wire::{Checked, Readiness},
};
use crate::{ipam::Ipam, store::Condition};

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether decisions are taken, and why not. Plain text, or JSON where that is asked for.
#[utoipa::path(get, path = "/readyz", tag = "health",
    security(()),
    responses((status = 200, content((Readiness = "application/json"), (String = "text/plain"))),
        (status = 503, content((Readiness = "application/json"), (String = "text/plain")))))]
pub async fn readyz(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    let readiness = readiness(&api);
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|kinds| kinds.contains("application/json")) {
        return (status, Json(readiness)).into_response();
    }
    let mut text = if readiness.ready {
        "ready\n"
    } else {
        "not ready\n"
    }
    .to_owned();
    for reason in readiness.reasons {
        text.push_str(&format!("{reason}\n"));
    }
    (status, text).into_response()
}

/// What Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(api): State<Arc<Api>>) -> Response {
    let text = api.metrics.text().await;
    let mut response = text.to_string().into_response();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The store's health as one line of a check.
pub fn store(ipam: &Ipam) -> Checked {
    let condition = ipam.health();
    let ok = condition == Condition::Serving;
    Checked {
        what: "writer".into(),
        ok,
        detail: store_sentence(&condition),
    }
}

fn store_sentence(condition: &Condition) -> String {
    match condition {
        Condition::Serving => "takes decisions".to_owned(),
        Condition::Full { free, needed } => format!(
            "the disk is full: {free} bytes are free, {needed} needed; nothing new is given until there is room"
        ),
        Condition::Reopening { error, attempts } => {
            format!("a write failed ({error}); the file is being reopened, attempt {attempts}")
        }
        Condition::Stopped { reason } => format!("gave up: {reason}; start the daemon again"),
    }
}

/// Names nobody: anybody may read it.
fn readiness(api: &Api) -> Readiness {
    let mut reasons = Vec::new();
    let mut ready = true;
    let condition = api.ipam.health();
    if condition != Condition::Serving {
        ready = false;
        reasons.push(format!("store: {}", store_sentence(&condition)));
    }
    if api.stop.is_cancelled() {
        ready = false;
        reasons.push("fipd is stopping".to_owned());
    }
    let held = api.ipam.read(|ledger| {
        let held = |network: &&fipd_core::Network| !ledger.holds(network.id).is_empty();
        ledger.networks().filter(held).count()
    });
    if held > 0 {
        reasons.push(format!(
            "{held} networks give nothing new until their clusters are adopted"
        ));
    }
    Readiness { ready, reasons }
}
