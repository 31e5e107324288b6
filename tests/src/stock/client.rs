//! The stock LB controller's side of the REST API: its JSON, over TLS that trusts one CA alone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

/// After which the controller gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The controller of one cluster, for one project. Each call has a connection of its own.
#[derive(Clone)]
pub struct FipClient {
    host: String,
    port: u16,
    prefix: String,
    tls: TlsConnector,
    pub cluster: String,
    pub project: String,
    pub secret: String,
    /// Of the Services that it asks for.
    pub namespace: String,
}

impl FipClient {
    /// `url` is what guests are told, `authority` the PEM of the CAs to trust.
    pub fn new(
        url: &str,
        authority: &[u8],
        cluster: &str,
        project: &str,
        secret: &str,
    ) -> Result<Self> {
        let url: Uri = url.parse().with_context(|| format!("URL {url}"))?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // The original's keeps no sessions either.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self {
            host: url.host().context("the URL names a host")?.to_owned(),
            port: url.port_u16().unwrap_or(443),
            prefix: url.path().trim_end_matches('/').to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
            cluster: cluster.to_owned(),
            project: project.to_owned(),
            secret: secret.to_owned(),
            namespace: "shop".to_owned(),
        })
    }

    /// Status and body; the error: there was no answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(u16, Value), String> {
        let answer = tokio::time::timeout(PATIENCE, self.exchange(method, path, token, body)).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?;
        answer.map_err(|error| format!("{error:#}"))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(u16, Value)> {
        let stream = tokio::net::TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TokioIo::new(self.tls.connect(name, stream).await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let response = sender.send_request(request.body(body)?).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((status, body))
    }

    /// A token, as the controller gets one before each call.
    pub async fn token(&self) -> Result<String, String> {
        let body = json!({ "clientID": format!("client-{}", self.cluster) }).to_string();
        let path = format!("{}/auth/token", self.prefix);
        let (status, answer) = self.send(Method::POST, &path, None, &body).await?;
        let token = answer["token"].as_str();
        token
            .map(str::to_owned)
            .ok_or_else(|| format!("{status}: {answer}"))
    }

    async fn call(&self, method: Method, call: &str, body: &Value) -> Result<(u16, Value), String> {
        let token = self.token().await?;
        let path = format!("{}/fip/{call}", self.prefix);
        self.send(method, &path, Some(&token), &body.to_string())
            .await
    }

    fn body(&self, service: &str, pool: &str, address: &str) -> Value {
        json!({
            "clientSecret": self.secret, "cluster": self.cluster, "project": self.project,
            "floatingippool": pool, "servicenamespace": self.namespace, "servicename": service,
            "ipaddr": address,
        })
    }

    pub async fn request(
        &self,
        service: &str,
        pool: &str,
        address: &str,
    ) -> Result<(u16, Value), String> {
        let body = self.body(service, pool, address);
        self.call(Method::POST, "request", &body).await
    }

    pub async fn request_in(
        &self,
        group: &str,
        service: &str,
        pool: &str,
        address: &str,
    ) -> Result<(u16, Value), String> {
        let mut body = self.body(service, pool, address);
        body["floatingipgroup"] = json!(group);
        self.call(Method::POST, "request", &body).await
    }

    pub async fn release(&self, service: &str, address: &str) -> Result<(u16, Value), String> {
        let body = self.body(service, "any", address);
        self.call(Method::POST, "release", &body).await
    }

    pub async fn list(&self) -> Result<(u16, Value), String> {
        let body = json!({
            "clientSecret": self.secret, "cluster": self.cluster, "project": self.project,
            "floatingippool": "any",
        });
        self.call(Method::POST, "list", &body).await
    }

    pub async fn delete(&self, address: &str) -> Result<(u16, Value), String> {
        let body = json!({
            "clientSecret": self.secret, "project": self.project, "ipaddr": address,
        });
        self.call(Method::DELETE, "delete", &body).await
    }
}
