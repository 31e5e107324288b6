//! A TCP proxy of our own between fipd and an API server, whose faults are switched while connections live.
//!
//! TLS is end to end, so the proxy sees only bytes; just for [`Fault::TooManyRequests`] it answers in the server's place,
//! with a certificate of the same authority. It runs in a thread of its own: a blocked test does not stop it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::certificates::CertificateAuthority;
use super::kubeconfig::with_server;
use super::ports::free_port;

/// What the proxy does to traffic, new and existing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// Closes what is open and every new connection at once.
    Cut,
    /// Accepts and never answers; what is open goes silent, and goes on when the fault ends.
    BlackHole,
    /// Every byte arrives this much later, in each direction.
    Delay(Duration),
    /// At most this many bytes a second in each direction of each connection; at least 1.
    Throttle(u32),
    /// Closes what is open and answers every request with HTTP status 429.
    TooManyRequests,
}

/// A running proxy. Dropping it closes all its connections.
pub struct FaultProxy {
    port: u16,
    kubeconfig: String,
    fault: watch::Sender<Fault>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    acceptor: TlsAcceptor,
    connections: AtomicU64,
    refused_requests: AtomicU64,
}

impl FaultProxy {
    /// Listens on a free port for `target`, a port of loopback whose server has a certificate of `authority`.
    /// `kubeconfig` is the one that reaches the target directly.
    pub fn start(
        target: u16,
        authority: &CertificateAuthority,
        kubeconfig: String,
    ) -> Result<Self> {
        let port = free_port()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .context("listen for the fault proxy")?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            target,
            acceptor: TlsAcceptor::from(Arc::new(authority.server_config()?)),
            connections: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
        });
        let (fault, faults) = watch::channel(Fault::Pass);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let for_thread = Arc::clone(&shared);
        let thread =
            std::thread::spawn(move || runtime.block_on(serve(listener, for_thread, faults)));
        let kubeconfig = with_server(&kubeconfig, &format!("https://127.0.0.1:{port}"));
        Ok(Self {
            port,
            kubeconfig,
            fault,
            shared,
            thread: Some(thread),
        })
    }

    /// Switches what happens from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// An administrator's kubeconfig that goes through the proxy.
    pub fn kubeconfig_yaml(&self) -> &str {
        &self.kubeconfig
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many requests were answered with 429 so far.
    pub fn refused_requests(&self) -> u64 {
        self.shared.refused_requests.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The accept loop ends when its side of the channel sees the sender gone.
        let (closed, _) = watch::channel(Fault::Cut);
        drop(std::mem::replace(&mut self.fault, closed));
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Accepts until the proxy is dropped. The runtime drops the connections' tasks with itself.
async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut faults: watch::Receiver<Fault>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        tokio::select! {
            changed = faults.changed() => if changed.is_err() { return },
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(connection(client, Arc::clone(&shared), faults.clone()));
            },
        }
    }
}

async fn connection(client: TcpStream, shared: Arc<Shared>, mut faults: watch::Receiver<Fault>) {
    let _no_delay = client.set_nodelay(true);
    let fault = *faults.borrow_and_update();
    match fault {
        Fault::Cut => {}
        Fault::TooManyRequests => tokio::select! {
            () = refuse(client, shared) => {}
            () = until(&mut faults, |fault| fault != Fault::TooManyRequests) => {}
        },
        Fault::Pass | Fault::BlackHole | Fault::Delay(_) | Fault::Throttle(_) => {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)).await else {
                return;
            };
            let _no_delay = server.set_nodelay(true);
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            let mut for_end = faults.clone();
            tokio::select! {
                _ = futures::future::join(
                    forward(client_read, server_write, faults.clone()),
                    forward(server_read, client_write, faults),
                ) => {}
                () = until(&mut for_end, |fault| matches!(fault, Fault::Cut | Fault::TooManyRequests)) => {}
            }
        }
    }
}

/// Returns when the fault is one that `wanted` accepts, or when the proxy is dropped.
async fn until(faults: &mut watch::Receiver<Fault>, wanted: impl Fn(Fault) -> bool) {
    let _dropped = faults.wait_for(|fault| wanted(*fault)).await;
}

/// One direction of a connection: a reader stamps each chunk with its time of arrival, a writer lets it go when it may.
async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: watch::Receiver<Fault>,
) {
    let (queue, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(256);
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let chunk = buffer.get(..count).unwrap_or_default().to_vec();
            if queue.send((Instant::now(), chunk)).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        let mut faults = faults;
        while let Some((arrived, chunk)) = chunks.recv().await {
            if deliver(&mut to, &mut faults, arrived, &chunk)
                .await
                .is_err()
            {
                return;
            }
        }
        let _already_closed = to.shutdown().await;
    };
    futures::future::join(read, write).await;
}

/// Writes one chunk under the fault of the moment; a change of fault takes hold within a chunk.
async fn deliver(
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    faults: &mut watch::Receiver<Fault>,
    arrived: Instant,
    chunk: &[u8],
) -> std::io::Result<()> {
    let mut rest = chunk;
    while !rest.is_empty() {
        let fault = *faults.borrow_and_update();
        match fault {
            Fault::Pass => return to.write_all(rest).await,
            Fault::Delay(by) if arrived + by <= Instant::now() => return to.write_all(rest).await,
            Fault::Delay(by) => tokio::select! {
                () = tokio::time::sleep_until(arrived + by) => {}
                changed = faults.changed() => changed.map_err(std::io::Error::other)?,
            },
            Fault::Throttle(per_second) => {
                // Twenty slices a second, so that a slow link trickles rather than bursts.
                let slice = usize::try_from(per_second / 20)
                    .unwrap_or(usize::MAX)
                    .clamp(1, rest.len());
                let (now, later) = rest.split_at(slice);
                to.write_all(now).await?;
                rest = later;
                let pause = slice as f64 / f64::from(per_second.max(1));
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
            Fault::BlackHole | Fault::Cut | Fault::TooManyRequests => {
                faults.changed().await.map_err(std::io::Error::other)?;
            }
        }
    }
    Ok(())
}

/// Speaks TLS and HTTP in the server's place and answers 429 to everything.
async fn refuse(client: TcpStream, shared: Arc<Shared>) {
    let Ok(stream) = shared.acceptor.accept(client).await else {
        return;
    };
    let service = service_fn(|_request: Request<hyper::body::Incoming>| {
        shared.refused_requests.fetch_add(1, Ordering::Relaxed);
        async { too_many_requests() }
    });
    let _client_went = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn too_many_requests() -> Result<Response<Full<Bytes>>, http::Error> {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests, please try again later","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
    Response::builder()
        .status(429)
        .header("retry-after", "1")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(status.as_bytes())))
}
