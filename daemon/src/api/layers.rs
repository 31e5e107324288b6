//! What requests and answers go through, whatever they are for.

use std::{any::Any, time::Duration};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};

use super::{
    Api, body,
    extract::header_text,
    problem::{Code, MEDIA_TYPE, Problem},
    ui,
};
use crate::metrics::Metrics;

/// How long a handler may take until its answer begins.
const HANDLER_DEADLINE: Duration = Duration::from_secs(60);
/// The same where a cluster is left, one object after the other.
pub const LEAVE_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// As [`layered`], counted.
pub(super) fn measured(router: Router<Api>, api: &Api, is_page: fn(&str) -> bool) -> Router<Api> {
    layered(router, is_page)
        .layer(middleware::from_fn_with_state(api.metrics.clone(), measure))
        .layer(middleware::map_response(common_headers))
}

/// What every request goes through, whatever it is for. Errors at a path that `is_page` are told to people.
pub(super) fn layered<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    is_page: fn(&str) -> bool,
) -> Router<S> {
    let told = move |request, next| as_problem(is_page, request, next);
    // From the inside out: the last layer sees the request first.
    router
        .layer(middleware::from_fn(body::limited))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(middleware::from_fn(in_time))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(told))
}

async fn in_time(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let leaves = route.is_some_and(|route| route.as_str().ends_with("/{name}/detach"));
    let deadline = match leaves {
        true => LEAVE_DEADLINE,
        false => HANDLER_DEADLINE,
    };
    let answer = tokio::time::timeout(deadline, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
}

/// A bug in one handler is one failed request, not a failed daemon.
fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let what = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(
        panic = what,
        "a request handler panicked; this is a bug in fipd"
    );
    Problem::new(Code::Internal, "a bug in fipd; its log has the details").into_response()
}

/// Answers that were made by the router or a limit, and are errors without a body for people, become problems.
async fn as_problem(is_page: fn(&str) -> bool, request: Request, next: Next) -> Response {
    let page = is_page(request.uri().path());
    let response = next.run(request).await;
    let status = response.status();
    let kind = header_text(response.headers(), header::CONTENT_TYPE);
    let has_body =
        kind == MEDIA_TYPE || kind.starts_with("text/html") || kind.starts_with("application/json");
    let for_programs = page && kind == MEDIA_TYPE;
    // Readiness answers 503 in plain text on purpose.
    let plain_on_purpose = status == StatusCode::SERVICE_UNAVAILABLE;
    let fine = !status.is_client_error() && !status.is_server_error();
    if !for_programs && (has_body || plain_on_purpose || fine) {
        return response;
    }
    let mut answer = if page {
        ui::failed(status)
    } else {
        let code = Code::of_status(status);
        let reason = status.canonical_reason().unwrap_or("the request failed");
        let mut problem = Problem::new(code, reason);
        problem.status = status.as_u16();
        problem.into_response()
    };
    for name in [header::ALLOW, header::RETRY_AFTER] {
        if let Some(value) = response.headers().get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

async fn measure(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let started = std::time::Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.request(&method, route, response.status(), started.elapsed());
    response
}

/// What every answer says to browsers, where it says nothing stricter itself: it is data, not a page, and for nobody else.
pub async fn common_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut default = |name, value| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(header::X_FRAME_OPTIONS, "DENY");
    default(header::REFERRER_POLICY, "same-origin");
    default(header::CACHE_CONTROL, "no-store");
    default(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    );
    default(ui::PERMISSIONS.0, ui::PERMISSIONS.1);
    response
}

/// Has browsers ask for nothing but TLS from now on. For ports with TLS.
pub fn strict_transport(router: Router) -> Router {
    let value = HeaderValue::from_static(ui::STRICT_TRANSPORT);
    router.layer(SetResponseHeaderLayer::overriding(
        header::STRICT_TRANSPORT_SECURITY,
        value,
    ))
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_told_anew_keeps_what_may_be_done_and_when() {
        let refused = |status: StatusCode| {
            let headers = [(header::ALLOW, "POST"), (header::RETRY_AFTER, "7")];
            get(move || async move { (status, headers) })
        };
        let told = |request, next| as_problem(ui::is_page, request, next);
        let busy = StatusCode::TOO_MANY_REQUESTS;
        let router = Router::new()
            .route("/ui/never", refused(StatusCode::METHOD_NOT_ALLOWED))
            .route("/ui/later", refused(busy))
            .route("/api/v1/later", refused(busy))
            .layer(middleware::from_fn(told));
        for (path, kind) in [
            ("/ui/never", "text/html; charset=utf-8"),
            ("/ui/later", "text/html; charset=utf-8"),
            ("/api/v1/later", MEDIA_TYPE),
        ] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let headers = answer.headers();
            assert_eq!(headers[header::CONTENT_TYPE], kind, "{path}");
            assert_eq!(headers[header::ALLOW], "POST", "{path}");
            assert_eq!(headers[header::RETRY_AFTER], "7", "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leaving_a_cluster_may_take_longer_than_anything_else() {
        let slow = get(|| async { tokio::time::sleep(HANDLER_DEADLINE * 2).await });
        let router = Router::new()
            .route("/clusters/{name}", slow.clone())
            .route("/clusters/{name}/detach", slow)
            .layer(middleware::from_fn(in_time));
        for (path, expected) in [
            ("/clusters/detach", StatusCode::GATEWAY_TIMEOUT),
            ("/clusters/a/detach", StatusCode::OK),
        ] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), expected, "{path}");
        }
    }
}
