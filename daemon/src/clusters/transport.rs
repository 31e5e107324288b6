//! The HTTP stack below a Kubernetes client.
//!
//! The same layers as kube's own, with five differences. Answers have bounds ([`answers`](super::answers)). Credentials are
//! fipd's own ([`credentials`](super::credentials)): kube runs a kubeconfig's program without a deadline. The sockets have
//! `TCP_NODELAY`. kube leaves Nagle's algorithm on (RFC 896): the second segment of a request then waits for the server's delayed
//! acknowledgement (RFC 1122, 4.2.3.2; 40 ms on Linux), and every write of a controller takes that long. Idle connections are
//! closed: kube gives hyper no timer, and without one it keeps what it has until the next request. TLS sessions are not resumed.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, Client as Http, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, retry::RetryPolicy},
};
use parking_lot::Mutex;
use rustls::{client::Resumption, pki_types::ServerName};
use tower::{BoxError, Service as _, ServiceBuilder, retry::RetryLayer, service_fn};

use super::{
    answers::Bounded,
    credentials::{Credential, Credentials},
    memory::Memory,
};

/// What a connection may hold of an answer that is being read, in bytes. Many connections wait on watches; hyper's own limit
/// is six times this.
const BUFFER: usize = 64 << 10;

/// A connection that nobody uses is closed after this time, or twice that. Each holds some 100 kB, and a burst leaves as many as
/// there are workers; the one used last is used first, so that steady work keeps its own.
const IDLE: Duration = Duration::from_secs(5);

type Sending = Http<TimeoutConnector<HttpsConnector<HttpConnector>>, Body>;

/// A client for the configuration, with its deadlines and retries, and these credentials; those of the configuration must
/// have been taken out. A proxy it may name is not used. Must be called inside a tokio runtime.
///
/// # Errors
///
/// Certificates or credentials that cannot be used.
pub(super) fn client(
    config: Config,
    credentials: Credentials,
    memory: Memory,
) -> kube::Result<Client> {
    let namespace = config.default_namespace.clone();
    let retry = config.default_retry.then(RetryPolicy::server_retry);
    let (base, headers) = (config.base_uri_layer(), config.extra_headers_layer()?);
    let transport = Arc::new(ApiTransport {
        made: Mutex::new((None, connections(&config)?)),
        config,
        credentials,
    });
    // The connections below are always ready.
    let http = service_fn(move |request| Arc::clone(&transport).send(request));
    let retried = ServiceBuilder::new()
        .option_layer(retry.map(RetryLayer::new))
        .layer(headers)
        .service(http);
    // The deadline is that of all tries: how long to wait between them is the server's word.
    let service = ServiceBuilder::new()
        .layer(base)
        .service(Bounded::new(retried, memory));
    Ok(ClientBuilder::new(service, namespace).build())
}

/// Sends requests with the credentials of the moment.
struct ApiTransport {
    config: Config,
    credentials: Credentials,
    /// The connections, and the credentials whose certificate they show.
    made: Mutex<(Option<Arc<Credential>>, Sending)>,
}

impl ApiTransport {
    /// Connections that show the certificate of the credentials, where they have one.
    fn connections(&self, credential: &Arc<Credential>) -> kube::Result<Sending> {
        let mut made = self.made.lock();
        let Some((certificate, key)) = &credential.certificate else {
            return Ok(made.1.clone());
        };
        let shown = made.0.as_ref();
        if shown.is_none_or(|shown| shown.certificate != credential.certificate) {
            let mut config = self.config.clone();
            let user = &mut config.auth_info;
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
            *made = (Some(Arc::clone(credential)), connections(&config)?);
        }
        Ok(made.1.clone())
    }

    async fn send(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, BoxError> {
        let credential = self.credentials.current().await?;
        if let Some(header) = &credential.header {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        let mut connections = self.connections(&credential)?;
        let response = connections.call(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.credentials.refused();
        }
        Ok(response)
    }
}

fn connections(config: &Config) -> kube::Result<Sending> {
    let mut tcp = HttpConnector::new();
    // TLS is the next layer's; this one may see https.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(tls(config, tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let mut http = Builder::new(TokioExecutor::new());
    http.http1_max_buf_size(BUFFER);
    http.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    Ok(http.build(connector))
}

/// As kube makes it, but without a memory of TLS sessions: with the tickets that API servers send, it is most of what fipd
/// keeps for a guest cluster between two looks.
fn tls(config: &Config, tcp: HttpConnector) -> kube::Result<HttpsConnector<HttpConnector>> {
    let mut tls = config.rustls_client_config()?;
    tls.resumption = Resumption::disabled();
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone());
        let name = name.map_err(|error| kube::Error::Service(error.into()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(tcp))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::clusters::credentials::{Credential, CredentialSource};

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    #[tokio::test]
    async fn a_connection_that_nobody_uses_is_closed() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let config = Config::new(url.parse().unwrap());
        let source = CredentialSource::Fixed(Credential::default());
        let credentials = Credentials::start(source).await.unwrap();
        let client = client(config, credentials, Memory::default()).unwrap();
        let ask = async {
            let request = Request::get("/version").body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap()
        };
        let answer = async {
            let (mut socket, _) = server.accept().await.unwrap();
            let mut request = [0; 1_024];
            assert_ne!(socket.read(&mut request).await.unwrap(), 0);
            socket.write_all(ANSWER).await.unwrap();
            socket
        };
        let (text, mut socket) = tokio::join!(ask, answer);
        assert_eq!(text, "{}");
        tokio::time::pause();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(2 * IDLE, socket.read_to_end(&mut rest)).await;
        assert_eq!(closed.expect("it is closed").unwrap(), 0);
    }
}
