//! How much of a request's body is read.

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::header;
use http_body_util::{LengthLimitError, Limited};

use super::{
    problem::{Code, Problem},
    wire::ImportQuery,
};

/// The largest body but that of an import, in bytes: a pool of 100,000 ranges fits.
const MOST: usize = 8 * 1024 * 1024;

/// Refuses a body that says of itself that it is too large, and ends one that turns out to be.
pub async fn limited(request: Request, next: Next) -> Response {
    let import = request.uri().path() == "/api/v1/import";
    let most = if import { ImportQuery::MAX_BYTES } else { MOST };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length.filter(|length| *length > most as u64) {
        let mut detail = format!("the body has {length} bytes, and up to {most} are read");
        if import {
            detail = format!("{detail}: {}", ImportQuery::MOST);
        }
        return Problem::new(Code::TooLarge, detail).into_response();
    }
    next.run(request.map(|body| Body::new(Limited::new(body, most))))
        .await
}

/// Whether a body was not read to its end because it has more bytes than are read.
pub fn is_too_large(error: &axum::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        if one.is::<LengthLimitError>() {
            return true;
        }
        cause = one.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Bytes, extract::DefaultBodyLimit, middleware, routing::post};
    use http::StatusCode;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn send(path: &str, length: usize, says: bool) -> (StatusCode, String) {
        let echo = post(|body: Bytes| async move { body.len().to_string() });
        let router = Router::new()
            .route("/api/v1/import", echo.clone())
            .route("/api/v1/pools", echo)
            .layer(middleware::from_fn(limited))
            .layer(DefaultBodyLimit::disable());
        let body = Body::from_stream(futures::stream::iter([Ok::<_, std::io::Error>(
            Bytes::from(vec![b' '; length]),
        )]));
        let mut request = Request::post(path);
        if says {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let answer = router.oneshot(request.body(body).unwrap()).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn an_import_may_be_larger_than_other_bodies_and_both_have_an_end() {
        for says in [true, false] {
            for (path, most) in [
                ("/api/v1/pools", MOST),
                ("/api/v1/import", ImportQuery::MAX_BYTES),
            ] {
                let whole = (StatusCode::OK, most.to_string());
                assert_eq!(send(path, most, says).await, whole, "{path} {says}");
                let (status, text) = send(path, most + 1, says).await;
                assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path} {says}");
                assert!(!says || text.contains(&most.to_string()), "{text}");
            }
        }
        let (_, text) = send("/api/v1/import", ImportQuery::MAX_BYTES + 1, true).await;
        assert!(text.contains("200,000 rows"), "{text}");
    }
}
