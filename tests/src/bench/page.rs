//! The page of a large pool: time from request to the last byte, and bytes, over TLS on one connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};

use super::{Figure, fill, percentile};
use crate::testbed::{Fipd, FipdOptions};

const LEASES: u32 = 30_000;
const WARM_UP: usize = 3;
const LOADS: usize = 30;
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Milliseconds that a page may take.
const LIMIT: f64 = 50.0;

/// Lists and searches that are fast whatever there is, in every size. The last ones find little or nothing, so that all
/// that may be looked at is looked at.
const LISTS: [&str; 14] = [
    "/ui/",
    "/ui/pools",
    "/ui/leases",
    "/ui/leases?sort=-since",
    "/ui/leases?within=10.0.3.0/24",
    "/ui/leases?pool=bench&state=allocated",
    "/ui/leases?namespace=team-7",
    "/ui/leases?state=quarantined",
    "/ui/leases?tenant=nobody",
    "/ui/leases?q=service-99999",
    "/ui/leases?sort=owner",
    "/ui/leases?sort=-state",
    "/ui/search?q=service-9",
    "/ui/audit",
];

/// The page of a /16 with 30,000 leases, and the slowest of the lists with 1,000, 100,000 and 1,000,000.
pub async fn run() -> Result<Vec<Figure>> {
    let mut figures = pool().await?;
    for (leases, name) in [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1M")] {
        figures.push(lists(leases, name).await?);
    }
    Ok(figures)
}

async fn pool() -> Result<Vec<Figure>> {
    let (_fipd, mut visitor) = filled("10.0.0.0/16", LEASES).await?;
    let (time, bytes) = visitor.load("/ui/pools/1", "10.0.0.1").await?;
    let bytes = bytes as f64 / 1e3;
    Ok(vec![
        Figure::at_most("page-pool-30k", "ms", time, "-", LIMIT),
        Figure::at_most("page-pool-30k-size", "KB", bytes, "-", 150.0),
    ])
}

async fn lists(leases: u32, name: &str) -> Result<Figure> {
    let (_fipd, mut visitor) = filled("10.0.0.0/8", leases).await?;
    let mut slowest = (0.0, "");
    for path in LISTS {
        let (time, _) = visitor.load(path, "</html>").await?;
        if time > slowest.0 {
            slowest = (time, path);
        }
    }
    let (time, path) = slowest;
    Ok(Figure::at_most(
        &format!("pages-{name}, slowest"),
        "ms",
        time,
        path,
        LIMIT,
    ))
}

/// fipd with so many leases in the pool `bench`, and a browser that has signed in.
async fn filled(cidr: &str, leases: u32) -> Result<(Fipd, Visitor)> {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
    let store = fipd.data_dir().join("fipd.redb");
    std::fs::create_dir_all(fipd.data_dir())?;
    let pools = fill::Pools::one(cidr)?;
    let filled = move || fill::fill(&store, &pools, leases, u64::from(leases));
    tokio::task::spawn_blocking(filled).await??;
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    let mut visitor = Visitor::connect(&fipd).await?;
    visitor.sign_in(&fipd).await?;
    Ok((fipd, visitor))
}

/// A browser's part: one connection and its cookies.
struct Visitor {
    sender: SendRequest<Full<Bytes>>,
    cookies: Vec<String>,
}

impl Visitor {
    async fn connect(fipd: &Fipd) -> Result<Self> {
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

    async fn sign_in(&mut self, fipd: &Fipd) -> Result<()> {
        let login = std::fs::read_to_string(fipd.data_dir().join("initial-admin"))?;
        let (name, password) = login.trim().split_once('\n').context("initial-admin")?;
        let (form, _) = self.send(Method::GET, "/ui/login", "").await?;
        let token = form
            .split_once("name=\"csrf\" value=\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .context("the form's token")?
            .0;
        let fields = format!("csrf={token}&name={name}&password={password}");
        let (_, status) = self.send(Method::POST, "/ui/login", &fields).await?;
        if !status.is_redirection() {
            bail!("not signed in: {status}");
        }
        Ok(())
    }

    /// The median time of a page in milliseconds, and how many bytes it has.
    async fn load(&mut self, path: &str, shows: &str) -> Result<(f64, usize)> {
        let (mut times, mut bytes) = (Vec::new(), 0);
        for _ in 0..WARM_UP + LOADS {
            let began = Instant::now();
            let (page, status) = self.send(Method::GET, path, "").await?;
            times.push(began.elapsed());
            if status != http::StatusCode::OK || !page.contains(shows) {
                bail!("{path}: {status}, without {shows:?}");
            }
            bytes = page.len();
        }
        let p50 = percentile(&times.split_off(WARM_UP), 0.5).context("no sample")?;
        Ok((p50.as_secs_f64() * 1_000.0, bytes))
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        form: &str,
    ) -> Result<(String, http::StatusCode)> {
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
