//! What a browser does without showing anything: one connection over TLS, and the cookies of a session.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::json;

use super::fipd::Fipd;
use super::http::UnixConnection;

/// Of an admin's account.
pub struct Login {
    pub name: String,
    pub password: String,
}

impl Login {
    /// That of the first start, before the first login, which ends the file.
    pub fn first(fipd: &Fipd) -> Result<Self> {
        let text = std::fs::read_to_string(fipd.data_dir().join("initial-admin"))?;
        let (name, password) = text.trim().split_once('\n').context("initial-admin")?;
        Ok(Self {
            name: name.to_owned(),
            password: password.to_owned(),
        })
    }

    /// One that is made for it.
    pub async fn new(fipd: &Fipd, number: u64) -> Result<Self> {
        let (name, password) = (format!("bench-{number}"), "a-long-password".to_owned());
        let user = json!({ "name": name, "role": "admin", "password": password });
        let mut connection = UnixConnection::open(&fipd.socket()).await?;
        let reply = connection
            .call(Method::POST, "/api/v1/users", Some(&user))
            .await?;
        if !(200..300).contains(&reply.status) {
            bail!("{}: {}", reply.status, reply.body);
        }
        Ok(Self { name, password })
    }
}

/// One connection and its cookies.
pub struct Visitor {
    sender: SendRequest<Full<Bytes>>,
    cookies: Vec<String>,
}

impl Visitor {
    pub async fn connect(fipd: &Fipd) -> Result<Self> {
        let authority = fipd.data_dir().join("tls/ca.crt");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", fipd.port())).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            cookies: Vec::new(),
        })
    }

    /// Another connection of the same session.
    pub async fn again(&self, fipd: &Fipd) -> Result<Self> {
        let cookies = self.cookies.clone();
        Ok(Self {
            cookies,
            ..Self::connect(fipd).await?
        })
    }

    /// As that admin.
    pub async fn sign_in(&mut self, login: &Login) -> Result<()> {
        let (form, _) = self.send(Method::GET, "/ui/login", "").await?;
        let token = form
            .split_once("name=\"csrf\" value=\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .context("the form's token")?
            .0;
        let Login { name, password } = login;
        let fields = format!("csrf={token}&name={name}&password={password}");
        let (_, status) = self.send(Method::POST, "/ui/login", &fields).await?;
        if !status.is_redirection() {
            bail!("not signed in: {status}");
        }
        Ok(())
    }

    /// The answer as it begins.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        form: &str,
    ) -> Result<Response<Incoming>> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::COOKIE, self.cookies.join("; "))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::copy_from_slice(form.as_bytes())))?;
        let response = self.sender.send_request(request).await?;
        self.remember(&response);
        Ok(response)
    }

    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        form: &str,
    ) -> Result<(String, StatusCode)> {
        let response = self.open(method, path, form).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((String::from_utf8_lossy(&body).into_owned(), status))
    }

    fn remember<B>(&mut self, response: &Response<B>) {
        for cookie in response.headers().get_all(header::SET_COOKIE) {
            let pair = cookie.to_str().ok().and_then(|text| text.split(';').next());
            self.cookies.extend(pair.map(str::to_owned));
        }
    }
}
