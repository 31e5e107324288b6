//! The stock LB controller's side of the API: its JSON, over TLS that trusts fipd's own CA alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fipd_tests::testbed::Fipd;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};

/// After which the controller gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The controller of one cluster, for one project.
#[derive(Clone)]
pub struct Client {
    port: u16,
    authority: PathBuf,
    pub cluster: String,
    pub project: String,
    pub secret: String,
}

impl Client {
    pub fn new(fipd: &Fipd, cluster: &str, project: &str) -> Self {
        Self {
            port: fipd.port(),
            authority: fipd.data_dir().join("tls/ca.crt"),
            cluster: cluster.to_owned(),
            project: project.to_owned(),
            secret: super::secret(project),
        }
    }

    /// Status and body; the error: there was no answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(u16, Value), String> {
        let call = async {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(&self.authority)?)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
            let name = ServerName::try_from("localhost")?;
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
            let stream = TokioIo::new(connector.connect(name, stream).await?);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            let mut request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::HOST, "localhost")
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
            anyhow::Ok((status, body))
        };
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?;
        answer.map_err(|error| format!("{error:#}"))
    }

    /// A token, as the controller gets one before each call.
    pub async fn token(&self) -> Result<String, String> {
        let body = json!({ "clientID": format!("client-{}", self.cluster) });
        let path = "/v1/auth/token";
        let (status, answer) = self
            .send(Method::POST, path, None, &body.to_string())
            .await?;
        let token = answer["token"].as_str();
        token
            .map(str::to_owned)
            .ok_or_else(|| format!("{status}: {answer}"))
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value), String> {
        let token = self.token().await?;
        self.send(method, path, Some(&token), &body.to_string())
            .await
    }

    fn body(&self, service: &str, pool: &str, address: &str) -> Value {
        json!({
            "clientSecret": self.secret, "cluster": self.cluster, "project": self.project,
            "floatingippool": pool, "servicenamespace": "shop", "servicename": service, "ipaddr": address,
        })
    }

    pub async fn request(
        &self,
        service: &str,
        pool: &str,
        address: &str,
    ) -> Result<(u16, Value), String> {
        let body = self.body(service, pool, address);
        self.call(Method::POST, "/v1/fip/request", &body).await
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
        self.call(Method::POST, "/v1/fip/request", &body).await
    }

    pub async fn release(&self, service: &str, address: &str) -> Result<(u16, Value), String> {
        let body = self.body(service, "any", address);
        self.call(Method::POST, "/v1/fip/release", &body).await
    }

    pub async fn list(&self) -> Result<(u16, Value), String> {
        let body = json!({
            "clientSecret": self.secret, "cluster": self.cluster, "project": self.project,
            "floatingippool": "any",
        });
        self.call(Method::POST, "/v1/fip/list", &body).await
    }

    pub async fn delete(&self, address: &str) -> Result<(u16, Value), String> {
        let body = json!({
            "clientSecret": self.secret, "project": self.project, "ipaddr": address,
        });
        self.call(Method::DELETE, "/v1/fip/delete", &body).await
    }
}
