//! HTTP requests of fipd to others: with a deadline, a bound on the answer, and the system's CAs and those that are named.

use std::{
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
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(30);

/// Sends requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Outgoing(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

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
    /// Reads the CAs. Blocks on the disk.
    ///
    /// # Errors
    /// The file has no certificates.
    pub fn new(ca_file: Option<&Path>) -> Result<Self, OutgoingError> {
        let mut roots = RootCertStore::empty();
        // One that cannot be read is as if it were not there.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca_file {
            let failed = |why: String| OutgoingError::CaFile {
                path: path.to_owned(),
                why,
            };
            let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
            let mut found = 0;
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots
                    .add(certificate)
                    .map_err(|error| failed(error.to_string()))?;
                found += 1;
            }
            if found == 0 {
                return Err(failed("it has no PEM certificate".to_owned()));
            }
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
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(2)
            .build(connector);
        Ok(Self(client))
    }

    /// Sends it and reads the answer, of which at most `most` bytes; redirects are not followed.
    ///
    /// # Errors
    /// There is no whole answer by then.
    pub async fn send(
        &self,
        request: Request<Vec<u8>>,
        deadline: Duration,
        most: usize,
    ) -> Result<Response<Vec<u8>>, OutgoingError> {
        let work = async {
            let request = request.map(|body| Full::new(Bytes::from(body)));
            let response = self
                .0
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
        match tokio::time::timeout(deadline, work).await {
            Ok(answer) => answer,
            Err(_) => Err(OutgoingError::Late(deadline)),
        }
    }
}

/// The innermost cause says what is wrong.
fn causes(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_there_and_nobody_answering_are_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let outgoing = Outgoing::new(None).unwrap();
        let send = async || {
            let request = Request::get(format!("http://{address}/"));
            let request = request.body(Vec::new()).unwrap();
            outgoing
                .send(request, Duration::from_millis(200), 10)
                .await
                .unwrap_err()
        };
        assert!(matches!(send().await, OutgoingError::Late(_)));
        drop(listener);
        assert!(matches!(send().await, OutgoingError::Connect(_)));
    }

    #[test]
    fn a_ca_file_without_certificates_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        std::fs::write(&path, "nothing").unwrap();
        let error = Outgoing::new(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("ca.pem"), "{error}");
    }
}
