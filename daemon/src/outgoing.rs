//! HTTP requests of fipd to others: with a deadline, a bound on the answer, and the system's CAs and those that are named.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::foreign_file;

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(30);

type Sending = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends requests; cheap to clone. The CA file is read each time, so that another one counts at once, the system's CAs first and
/// again after there was no connection.
#[derive(Clone, Debug)]
pub struct Outgoing(Arc<OutgoingClients>);

#[derive(Debug)]
struct OutgoingClients {
    ca_file: Option<PathBuf>,
    /// What the file said, and a client that trusts it.
    built: Mutex<Option<(Vec<u8>, Sending)>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    #[error("ca-file {path}: {why}", path = .path.display())]
    CaFile { path: PathBuf, why: String },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("no connection: {0}")]
    Connect(String),
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}

impl Outgoing {
    /// Trusts the CAs of the file beside the system's.
    pub fn new(ca_file: Option<&Path>) -> Self {
        Self(Arc::new(OutgoingClients {
            ca_file: ca_file.map(Path::to_owned),
            built: Mutex::default(),
        }))
    }

    /// Whether anything can be sent.
    ///
    /// # Errors
    /// The CA file has no certificates.
    pub async fn ready(&self) -> Result<(), OutgoingError> {
        self.client().await.map(drop)
    }

    /// One that trusts the CAs as they are.
    async fn client(&self) -> Result<Sending, OutgoingError> {
        let inner = Arc::clone(&self.0);
        let read = match &inner.ca_file {
            Some(path) => {
                let read = foreign_file::read(path, foreign_file::LONGEST).await;
                read.map_err(|error| inner.unusable(&error))?
            }
            None => Vec::new(),
        };
        let built = inner.built.lock().clone();
        if let Some((_, client)) = built.filter(|(before, _)| *before == read) {
            return Ok(client);
        }
        // The system's CAs are read with it.
        let client = tokio::task::spawn_blocking(move || inner.build(read)).await;
        client.unwrap_or_else(|error| Err(OutgoingError::Connect(error.to_string())))
    }

    /// Sends it and reads the answer, of which at most `most` bytes; redirects are not followed.
    ///
    /// # Errors
    /// There is no whole answer by then, or the CA file has no certificates.
    pub async fn send(
        &self,
        request: Request<Vec<u8>>,
        deadline: Duration,
        most: usize,
    ) -> Result<Response<Vec<u8>>, OutgoingError> {
        let client = self.client().await?;
        let work = async {
            let request = request.map(|body| Full::new(Bytes::from(body)));
            let response = client
                .request(request)
                .await
                .map_err(|error| OutgoingError::Connect(causes(&error)))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, most)
                .collect()
                .await
                .map_err(|error| OutgoingError::Answer(error.to_string()))?;
            Ok(Response::from_parts(parts, body.to_bytes().to_vec()))
        };
        let answer = match tokio::time::timeout(deadline, work).await {
            Ok(answer) => answer,
            Err(_) => Err(OutgoingError::Late(deadline)),
        };
        if matches!(answer, Err(OutgoingError::Connect(_))) {
            // The system may know the CA by the next time.
            *self.0.built.lock() = None;
        }
        answer
    }
}

impl OutgoingClients {
    /// One that trusts the CAs of the text. Blocks on the disk.
    fn build(&self, read: Vec<u8>) -> Result<Sending, OutgoingError> {
        let mut roots = RootCertStore::empty();
        // One that cannot be read is as if it were not there.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let of_system = roots.len();
        for certificate in CertificateDer::pem_slice_iter(&read) {
            let certificate = certificate.map_err(|error| self.unusable(&error))?;
            roots
                .add(certificate)
                .map_err(|error| self.unusable(&error))?;
        }
        if self.ca_file.is_some() && roots.len() == of_system {
            return Err(self.unusable(&"it has no PEM certificate"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .build();
        let client: Sending = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(2)
            .build(connector);
        *self.built.lock() = Some((read, client.clone()));
        Ok(client)
    }

    fn unusable(&self, why: &dyn fmt::Display) -> OutgoingError {
        OutgoingError::CaFile {
            path: self.ca_file.clone().unwrap_or_default(),
            why: why.to_string(),
        }
    }
}

/// The innermost cause says what is wrong.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_there_and_nobody_answering_are_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let outgoing = Outgoing::new(None);
        let send = async || {
            let request = Request::get(format!("http://{address}/"));
            let request = request.body(Vec::new()).unwrap();
            outgoing
                .send(request, Duration::from_millis(200), 10)
                .await
                .unwrap_err()
        };
        let built = || outgoing.0.built.lock().is_some();
        assert!(matches!(send().await, OutgoingError::Late(_)));
        assert!(built());
        drop(listener);
        assert!(matches!(send().await, OutgoingError::Connect(_)));
        assert!(!built(), "the system's CAs are read again");
    }

    #[tokio::test]
    async fn a_ca_file_counts_as_it_is_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let outgoing = Outgoing::new(Some(&path));
        let refused = async || outgoing.ready().await.unwrap_err().to_string();
        assert!(refused().await.contains("ca.pem"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&path, made.cert.pem()).unwrap();
        outgoing.ready().await.unwrap();
        std::fs::write(&path, "nothing").unwrap();
        let error = refused().await;
        assert!(
            error.contains("ca.pem") && error.contains("no PEM"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_fifo_as_ca_file_is_refused_and_waits_for_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = Outgoing::new(Some(&path)).ready().await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
