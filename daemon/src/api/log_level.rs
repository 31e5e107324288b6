//! `/v1/loglevel` on a socket of its own: the level of the log is read and changed as in an original program. Who may is up to the
//! socket's file.

use axum::{
    Router,
    extract::DefaultBodyLimit,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::StatusCode;

use crate::logging;

/// The largest request: a level.
const MOST: usize = 4 << 10;

/// What the socket serves.
pub fn router() -> Router {
    let route = get(show).post(change);
    Router::new()
        .route("/v1/loglevel", route)
        .layer(DefaultBodyLimit::max(MOST))
}

async fn show() -> String {
    logging::level() + "\n"
}

async fn change(body: String) -> Response {
    let mut fields = form_urlencoded::parse(body.as_bytes());
    let Some((_, given)) = fields.find(|(name, _)| name == "level") else {
        let why = "level: missing; send level=debug\n";
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let level = translated(&given);
    let changed = logging::check_level(level).and_then(|()| {
        // Under the level before: the new one may have no room for it.
        tracing::warn!(level, "the log level is changed at its socket");
        logging::set_level(level)
    });
    match changed {
        Ok(()) => "OK\n".into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

/// The originals have names of their own for some levels.
fn translated(level: &str) -> &str {
    match level {
        "panic" | "fatal" => "error",
        "warning" => "warn",
        level => level,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;

    async fn asked(method: &str, body: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri("/v1/loglevel");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = router().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), MOST).await.unwrap();
        (status, String::from_utf8(body.into()).unwrap())
    }

    #[tokio::test]
    async fn the_level_is_read_and_changed_and_nonsense_changes_nothing() {
        for (given, level) in [("debug", "debug"), ("warning", "warn"), ("fatal", "error")] {
            let answer = asked("POST", &format!("level={given}")).await;
            assert_eq!(answer, (200, "OK\n".to_owned()));
            assert_eq!(asked("GET", "").await, (200, format!("{level}\n")));
        }
        let (status, why) = asked("POST", "level=loud").await;
        assert!(
            status == 400 && why.contains("\"loud\" is not allowed: error, warn"),
            "{why}"
        );
        let (status, why) = asked("POST", "debug").await;
        assert!(status == 400 && why.contains("level: missing"), "{why}");
        let (status, _) = asked("POST", &"level=".repeat(MOST)).await;
        assert_eq!(status, 413);
        assert_eq!(asked("GET", "").await.1, "error\n");
        logging::set_level("info").unwrap();
    }
}
