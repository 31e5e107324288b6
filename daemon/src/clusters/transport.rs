//! The HTTP stack below a Kubernetes client.
//!
//! The same layers as kube's own, but the sockets have `TCP_NODELAY`. kube leaves Nagle's algorithm on (RFC 896): the
//! second segment of a request then waits for the server's delayed acknowledgement (RFC 1122, 4.2.3.2; 40 ms on Linux),
//! and every write of a controller takes that long.

use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

/// What a connection may hold of an answer that is being read, in bytes. Many connections wait on watches; hyper's own limit
/// is six times this.
const BUFFER: usize = 64 << 10;

/// A client for the configuration, with its credentials, its deadlines and its retries. A proxy it may name is not used.
/// Blocks where the configuration names a program (`exec`). Must be called inside a tokio runtime.
///
/// # Errors
///
/// Certificates or credentials that cannot be used.
pub fn client(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    // TLS is the next layer's; this one may see https.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector =
        hyper_timeout::TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let mut http = Builder::new(TokioExecutor::new());
    http.http1_max_buf_size(BUFFER);
    let retry = config.default_retry.then(RetryPolicy::server_retry);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry.map(RetryLayer::new))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http.build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}
