//! A stand-in for a Runtime Extension: answers discovery by itself and leaves the hooks to the test.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::testbed::base64;
use crate::testbed::certificates::CertificateAuthority;
use crate::testbed::ports::free_port;

/// Group and version of the hooks; their paths begin with it.
pub const HOOKS: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
const DEADLINE: Duration = Duration::from_secs(60);

/// A call of a hook. The core manager waits until the test answers it.
#[derive(Debug)]
pub struct HookCall {
    /// Path and query.
    pub path: String,
    pub body: Value,
    answer: oneshot::Sender<Value>,
}

struct Shared {
    acceptor: TlsAcceptor,
    discovery: Value,
    calls: mpsc::UnboundedSender<HookCall>,
}

impl HookCall {
    pub fn answer(self, body: Value) {
        let _it_no_longer_waits = self.answer.send(body);
    }
}

/// A running extension. Dropping it closes the port.
pub struct RuntimeExtension {
    name: String,
    port: u16,
    authority: String,
    calls: Mutex<mpsc::UnboundedReceiver<HookCall>>,
    task: JoinHandle<()>,
}

impl Drop for RuntimeExtension {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RuntimeExtension {
    /// Listens on a free port and offers these handlers. Ends with the runtime that it is started in.
    pub async fn start(
        name: &str,
        handlers: Value,
        authority: &CertificateAuthority,
    ) -> Result<Self> {
        let port = free_port()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let (sender, calls) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            acceptor: TlsAcceptor::from(Arc::new(authority.server_config()?)),
            discovery: json!({
                "apiVersion": HOOKS, "kind": "DiscoveryResponse", "status": "Success", "handlers": handlers,
            }),
            calls: sender,
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self {
            name: name.to_owned(),
            port,
            authority: authority.pem(),
            calls: Mutex::new(calls),
            task,
        })
    }

    /// The ExtensionConfig that registers it for the Clusters of one namespace.
    pub fn config(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig",
            "metadata": { "name": self.name },
            "spec": {
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{}", self.port),
                    "caBundle": base64::encode(self.authority.as_bytes()),
                },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            },
        })
    }

    /// Waits for the next call.
    pub async fn next(&self) -> Result<HookCall> {
        let mut calls = self.calls.lock().await;
        let call = tokio::time::timeout(DEADLINE, calls.recv()).await;
        call.with_context(|| format!("no call of a hook within {DEADLINE:?}"))?
            .context("the extension has ended")
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(stream) = shared.acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request| answer(request, Arc::clone(&shared)));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _closed = connection.await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().to_string();
    let body = match request.into_body().collect().await {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        Err(_cut_off) => Value::Null,
    };
    let is_discovery = path.starts_with(&format!("/{HOOKS}/discovery?"))
        && body == json!({ "apiVersion": HOOKS, "kind": "DiscoveryRequest" });
    let answered = if is_discovery {
        Some(shared.discovery.clone())
    } else {
        let (answer, answered) = oneshot::channel();
        let _nobody_listens = shared.calls.send(HookCall { path, body, answer });
        answered.await.ok()
    };
    let mut response = Response::new(Full::default());
    match answered {
        Some(body) => *response.body_mut() = Full::new(Bytes::from(body.to_string())),
        None => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    Ok(response)
}
