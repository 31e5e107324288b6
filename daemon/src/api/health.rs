//! `/healthz`, `/readyz`, `/metrics`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use fipd_core::{Refused, Text};
use http::{HeaderMap, StatusCode, header};

use super::wire::{Checked, Readiness};
use crate::{
    api::{extract::header_text, fip_v1::FipV1},
    host_name::host_name,
    ipam::Ipam,
    liveness::Liveness,
    metrics::Metrics,
    rules::RuleBoard,
    store::Condition,
};
use tokio_util::sync::CancellationToken;

/// Whether the process works: 503 once the writer or a loop that accepts connections has been silent for 60 s. A slow disk is
/// no reason; `/readyz` knows that.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, body = String), (status = 503, body = String)))]
pub async fn healthz(State(ipam): State<Ipam>, State(liveness): State<Liveness>) -> Response {
    health(&liveness.hanging(ipam.silent_for()))
}

fn health(hanging: &[(Text, Duration)]) -> Response {
    if hanging.is_empty() {
        return "ok\n".into_response();
    }
    let lines = hanging.iter();
    let lines =
        lines.map(|(name, age)| format!("{name} has been silent for {} s\n", age.as_secs()));
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect::<String>()).into_response()
}

/// Whether somebody answers, in the words of an original webhook.
pub async fn ping() -> &'static str {
    "pong"
}

/// The name of this host.
pub async fn hostname() -> String {
    host_name().unwrap_or_default()
}

/// A commit that takes longer makes the daemon not ready.
const SLOW_DISK: Duration = Duration::from_secs(5);

/// Whether decisions are taken, and why not. Plain text, or JSON where that is asked for.
#[utoipa::path(get, path = "/readyz", tag = "health",
    security(()),
    responses((status = 200, content((Readiness = "application/json"), (String = "text/plain"))),
        (status = 503, content((Readiness = "application/json"), (String = "text/plain")))))]
pub async fn readyz(
    State(ipam): State<Ipam>,
    State(fip_v1): State<Arc<FipV1>>,
    State(liveness): State<Liveness>,
    State(stop): State<CancellationToken>,
    headers: HeaderMap,
) -> Response {
    let readiness = readiness(&ipam, &fip_v1, &liveness, &stop);
    let (status, word) = match readiness.ready {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    if header_text(&headers, header::ACCEPT).contains("application/json") {
        return (status, Json(readiness)).into_response();
    }
    let mut text = format!("{word}\n");
    for reason in readiness.reasons {
        text.push_str(&format!("{reason}\n"));
    }
    (status, text).into_response()
}

/// What Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(metrics): State<Metrics>) -> Response {
    series(&metrics.text().await)
}

/// What dashboards of the original of a system read.
pub async fn system_metrics(State(metrics): State<Metrics>, system: &'static str) -> Response {
    series(&metrics.of_system(system).await)
}

/// Whether this host's rules were brought into the kernel once, as the agent of an original tells it.
pub async fn ready(State(rules): State<RuleBoard>) -> Response {
    match rules.is_ready() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response(),
    }
}

pub fn series(text: &str) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text.to_owned()).into_response()
}

/// The store's health as one line of a check.
pub fn store(ipam: &Ipam) -> Checked {
    let condition = ipam.health();
    let ok = condition == Condition::Serving;
    Checked::new("writer", ok, store_sentence(&condition))
}

/// The time of the address book as one line of a check.
pub fn time(ipam: &Ipam) -> Checked {
    match ipam.time().warning() {
        Some(wrong) => Checked::new("time", false, wrong),
        None => Checked::new("time", true, "the address book's time is that of the clock"),
    }
}

fn store_sentence(condition: &Condition) -> String {
    match condition {
        Condition::Serving => "takes decisions".to_owned(),
        Condition::OtherHost => Refused::OtherHost.to_string(),
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
fn readiness(
    ipam: &Ipam,
    fip_v1: &FipV1,
    liveness: &Liveness,
    stop: &CancellationToken,
) -> Readiness {
    // Reasons up to `ready` keep fipd from being ready; later ones are only worth knowing.
    let mut reasons = Vec::new();
    let condition = ipam.health();
    if condition != Condition::Serving {
        reasons.push(format!("store: {}", store_sentence(&condition)));
    }
    if let Some(age) = ipam.waits_for_disk().filter(|age| *age >= SLOW_DISK) {
        reasons.push(format!(
            "store: the disk has not answered for {} s; requests wait until it does",
            age.as_secs()
        ));
    }
    if let Some(age) = liveness.blocking_full() {
        reasons.push(format!(
            "threads: all threads for blocking work have been busy for {} s; check that the file systems of the data directory \
             and of /etc/fipd answer",
            age.as_secs()
        ));
    }
    if stop.is_cancelled() {
        reasons.push("fipd is stopping".to_owned());
    }
    let ready = reasons.is_empty();
    if let Some(wrong) = ipam.time().warning() {
        reasons.push(format!("time: {wrong}"));
    }
    let held = ipam.read(fipd_core::Ledger::held_networks);
    if held > 0 {
        reasons.push(format!(
            "{held} networks give nothing new until their clusters are adopted"
        ));
    }
    let followed = fip_v1.not_leading();
    if followed > 0 {
        reasons.push(format!(
            "{followed} management clusters are not led by this fipd: LB controllers there are told to ask again"
        ));
    }
    Readiness { ready, reasons }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use fipd_core::Timestamp;

    use super::*;
    use crate::{
        api::ui::tests::Site,
        rules::{EngineState, View, rows::tests::view},
    };

    #[test]
    fn a_loop_that_hangs_is_named_with_503() {
        assert_eq!(health(&[]).status(), StatusCode::OK);
        let hanging = [("the writer".into(), Duration::from_secs(61))];
        let status = health(&hanging).status();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn an_agent_is_ready_from_its_first_good_pass_on() {
        let site = Site::new().await;
        let status = async || ready(State(site.api.rules.clone())).await.status();
        assert_eq!(status().await, StatusCode::SERVICE_UNAVAILABLE);
        let degraded = || View {
            state: EngineState::Degraded("why".to_owned()),
            ..View::default()
        };
        site.api.rules.show(degraded());
        assert_eq!(status().await, StatusCode::SERVICE_UNAVAILABLE);
        site.api.rules.show(view());
        assert_eq!(status().await, StatusCode::OK);
        site.api.rules.reach(crate::rules::Reached::whole(1));
        site.api.rules.show(degraded());
        assert_eq!(status().await, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_clock_that_was_far_ahead_once_is_told() {
        const DAY: u64 = 86_400_000;
        let dir = tempfile::tempdir().unwrap();
        let wall = Arc::new(AtomicU64::new(10 * DAY));
        let read = Arc::clone(&wall);
        let clock = Arc::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let (ipam, writer) = Ipam::start(dir.path(), clock).unwrap();
        let line = time(&ipam);
        assert!(line.ok, "{line:?}");
        wall.fetch_sub(1_000, Ordering::Relaxed);
        assert!(time(&ipam).ok, "a small correction is nothing unusual");
        wall.store(DAY / 2, Ordering::Relaxed);
        assert_eq!(ipam.now(), Timestamp(10 * DAY));
        let line = time(&ipam);
        assert!(
            !line.ok && line.detail.contains("9 days and 12 hours"),
            "{line:?}"
        );
        wall.store(11 * DAY, Ordering::Relaxed);
        assert!(time(&ipam).ok && ipam.time().ahead.is_zero());
        ipam.shutdown().await;
        writer.join();
    }
}
