//! How much of a request's body is read.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, Version, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::{
    problem::{Code, Problem},
    wire::ImportQuery,
};

/// The largest body but that of an import, in bytes: a pool of 100,000 ranges fits.
const MOST: usize = 8 * 1024 * 1024;
/// How much of a body that no handler wanted is read, and for how long.
const REST: usize = 256 * 1024;
const REST_WITHIN: Duration = Duration::from_secs(2);

/// Refuses a body that says of itself that it is too large, and ends one that turns out to be.
pub async fn limited(request: Request, next: Next) -> Response {
    let import = request.uri().path() == "/api/v1/import";
    let most = if import { ImportQuery::MAX_BYTES } else { MOST };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let version = request.version();
    if let Some(length) = length.filter(|length| *length > most as u64) {
        let mut detail = format!("the body has {length} bytes, and up to {most} are read");
        if import {
            detail = format!("{detail}: {}", ImportQuery::MOST);
        }
        let answer = Problem::new(Code::TooLarge, detail).into_response();
        return last(version, answer);
    }
    let left = Arc::new(Mutex::new(None));
    let request = request.map(|body| {
        let body = Some(Body::new(Limited::new(body, most)));
        let left = Arc::clone(&left);
        Body::new(CountedBody { body, left })
    });
    let answer = next.run(request).await;
    let rest = left.lock().take();
    let whole = match rest {
        Some(rest) => is_read(rest).await,
        None => true,
    };
    if whole { answer } else { last(version, answer) }
}

/// Whoever is answered before all of a request was read must hear that the connection ends, or sends the next request into it.
fn last(version: Version, mut answer: Response) -> Response {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
    }
    answer
}

/// Reads what no handler wanted, so that the connection goes on. Whether that was all.
async fn is_read(rest: Body) -> bool {
    let mut rest = Limited::new(rest, REST);
    let read = async {
        while let Some(frame) = rest.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(REST_WITHIN, read)
        .await
        .unwrap_or(false)
}

/// A body that is left where it can be found when nobody reads it to its end.
struct CountedBody {
    body: Option<Body>,
    left: Arc<Mutex<Option<Body>>>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        let body = self.body.take().filter(|body| !body.is_end_stream());
        *self.left.lock() = body;
    }
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
    use axum::{
        Router,
        extract::DefaultBodyLimit,
        middleware,
        routing::{get, post},
    };
    use http::StatusCode;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tokio_util::sync::CancellationToken;
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

    /// What is answered to a request whose body comes late and is not wanted, and to one behind it.
    async fn both(length: usize, sent: usize) -> String {
        let port = crate::api::listen::Port::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut stream = TcpStream::connect(port.address).await.unwrap();
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .layer(middleware::from_fn(limited));
        let most = crate::api::listen::MOST;
        tokio::spawn(port.serve(None, router, most, CancellationToken::new()));
        let first = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(first.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let second = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let rest = [vec![b' '; sent], second.as_bytes().to_vec()].concat();
        // A connection that was closed may be reset.
        let _ = stream.write_all(&rest).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn a_body_that_nobody_wants_does_not_end_the_connection() {
        let answer = both(1_000, 1_000).await;
        assert!(
            answer.contains("405 Method") && answer.ends_with("here"),
            "{answer}"
        );
        assert_eq!(answer.matches("connection: close").count(), 1, "{answer}");
    }

    #[tokio::test]
    async fn who_may_not_go_on_is_told_so() {
        for length in [REST + 1, MOST + 1] {
            let answer = both(length, 0).await;
            let head = answer.split("\r\n\r\n").next().unwrap();
            assert!(head.contains("connection: close"), "{answer}");
        }
    }
}
