//! How others reach this fipd: its URL, and the CA of its certificate.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{ReconcileError, Reconciled};
use crate::foreign_file;

/// What others are told of fipd itself.
#[derive(Clone, Debug, Default)]
pub struct OwnEndpoint {
    /// The URL by which others reach it.
    pub url: Option<String>,
    /// What its certificate is of where that is its own: TLS for these ends here.
    pub names: BTreeSet<String>,
    /// The CA that its certificate is of; `None` where the certificate is somebody else's.
    pub ca_file: Option<PathBuf>,
    /// The certificate chain that it serves where that is somebody else's.
    pub cert_file: Option<PathBuf>,
    /// The port of a listener with the API for addresses that others reach without TLS.
    pub plain: Option<u16>,
    /// Where it listens.
    pub listen: Option<SocketAddr>,
}

impl OwnEndpoint {
    /// Where other programs ask on behalf of the cluster before they go on; `None`: nobody knows where fipd is.
    pub fn hooks_url(&self, cluster: &str) -> Option<String> {
        let url = self.url.as_ref()?;
        Some(format!("{}/hooks/{cluster}", url.trim_end_matches('/')))
    }

    /// The CA of its certificate, PEM; empty where that is somebody else's.
    ///
    /// Where it cannot be read nothing may be written: a guest that is sent to fipd and does not trust it is cut off.
    pub async fn ca(&self) -> Reconciled<String> {
        match &self.ca_file {
            Some(file) => read(file).await,
            None => Ok(String::new()),
        }
    }
}

/// How an API server, or a program in a cluster, calls fipd. `ca`: PEM; empty where the caller knows it.
pub fn client_config(url: &str, ca: &str) -> Value {
    let mut client = json!({ "url": url });
    if !ca.is_empty() {
        client["caBundle"] = json!(STANDARD.encode(ca));
    }
    client
}

/// Whether both call the same URL with the same CA.
pub fn is_same_client(one: &Value, other: &Value) -> bool {
    one["url"] == other["url"] && one["caBundle"] == other["caBundle"]
}

async fn read(file: &Path) -> Reconciled<String> {
    let unreadable = |why: String| ReconcileError::internal(format!("{}: {why}", file.display()));
    let text = foreign_file::read_text(file, foreign_file::LONGEST).await;
    let text = text.map_err(|error| unreadable(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(unreadable("it is empty".to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ca_that_cannot_be_read_is_none_that_a_guest_is_told_to_do_without() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ca.crt");
        let said = read(&file).await.expect_err("it is not there").to_string();
        assert!(said.contains("ca.crt"), "{said}");
        std::fs::write(&file, "\n").expect("written");
        assert!(read(&file).await.is_err());
        std::fs::write(&file, "A\n").expect("written");
        assert_eq!(read(&file).await.ok().as_deref(), Some("A\n"));
    }
}
