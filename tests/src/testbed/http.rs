//! The smallest HTTP client that does: requests over a TCP or a Unix socket, without TLS.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
pub use hyper::Method;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

const DEADLINE: Duration = Duration::from_secs(10);

/// Status and body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body: String,
}

/// GET `path` from a loopback port.
pub async fn get_tcp(port: u16, path: &str) -> Result<Reply> {
    within(
        async { get(TcpStream::connect(("127.0.0.1", port)).await?, path).await },
        path,
    )
    .await
}

/// Any request with an optional JSON body to a loopback port. The deadline is longer than for GET: a browser's driver
/// answers only when the page has loaded.
pub(super) async fn call_tcp(
    port: u16,
    method: Method,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<Reply> {
    let request = json_request(method, path, body)?;
    let call = async { exchange(TcpStream::connect(("127.0.0.1", port)).await?, request).await };
    let deadline = DEADLINE * 6;
    tokio::time::timeout(deadline, call)
        .await
        .with_context(|| format!("{path}: no answer within {deadline:?}"))?
}

/// GET `path` over a Unix socket.
pub async fn get_unix(socket: &Path, path: &str) -> Result<Reply> {
    within(
        async { get(UnixStream::connect(socket).await?, path).await },
        path,
    )
    .await
}

/// A connection to a Unix socket that stays open for many requests, one after the other.
pub struct UnixConnection {
    sender: SendRequest<Full<Bytes>>,
}

impl UnixConnection {
    pub async fn open(socket: &Path) -> Result<Self> {
        let stream = TokioIo::new(UnixStream::connect(socket).await?);
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        // Ends with the connection, and that when the sender is dropped or the other side goes.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// One request with an optional JSON body. An error means that the answer is not known.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Reply> {
        let request = json_request(method, path, body)?;
        within(
            async {
                self.sender.ready().await?;
                read(self.sender.send_request(request).await?).await
            },
            path,
        )
        .await
    }
}

async fn within(call: impl Future<Output = Result<Reply>>, path: &str) -> Result<Reply> {
    tokio::time::timeout(DEADLINE, call)
        .await
        .with_context(|| format!("GET {path}: no answer within {DEADLINE:?}"))?
}

async fn get<S>(stream: S, path: &str) -> Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::get(path)
        .header("host", "localhost")
        .body(Full::new(Bytes::new()))?;
    exchange(stream, request).await
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answer = async { read(sender.send_request(request).await?).await };
    // The connection is driven here rather than in a task, so nothing is left behind.
    tokio::pin!(connection);
    tokio::pin!(answer);
    let mut open = true;
    loop {
        tokio::select! {
            reply = &mut answer => return reply,
            ended = &mut connection, if open => { open = false; ended?; }
        }
    }
}

async fn read(response: hyper::Response<hyper::body::Incoming>) -> Result<Reply> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Reply {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

fn json_request(
    method: Method,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<Request<Full<Bytes>>> {
    let body = body
        .map(|body| Bytes::from(body.to_string()))
        .unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    Ok(request
        .header("content-type", "application/json")
        .body(Full::new(body))?)
}
