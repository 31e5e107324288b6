//! Clients with deadlines, and the identity of what they reach.

use std::{error::Error, iter, path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use fipd_core::{ClusterId, Text};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    client::RustlsTlsError,
    config::{AuthInfo, LoadDataError},
};
use sha2::{Digest as _, Sha256};

use super::{
    credentials::{CredentialError, CredentialSource, Credentials},
    kubeconfig,
    memory::Memory,
    transport,
};
use crate::{foreign_file, logging::shortened};

/// For the TCP and TLS handshakes.
const CONNECT: Duration = Duration::from_secs(5);
/// For one request that is no watch.
pub(super) const CALL: Duration = Duration::from_secs(10);
/// Silence after which a watch counts as dead; API servers send bookmarks about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Why a cluster cannot be used now; it is tried again.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("no answer within {} s", .0.as_secs())]
    Deadline(Duration),
    #[error("{0}")]
    Api(String),
    #[error("its namespace kube-system has no UID, so it cannot be told from other clusters")]
    NoIdentity,
}

/// A client for the configuration, whose answers are charged to `memory`. `home` is that of a program which the kubeconfig may name.
pub(super) async fn client(
    mut config: Config,
    home: &Path,
    memory: Memory,
) -> Result<Client, ConnectError> {
    let failed = |error: CredentialError| ConnectError::Api(error.to_string());
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(CALL);
    config.read_timeout = Some(SILENCE);
    let agent = http::HeaderValue::from_static(concat!("fipd/", env!("CARGO_PKG_VERSION")));
    config.headers.push((http::header::USER_AGENT, agent));
    take_in_certificate(&mut config.auth_info).await?;
    let source = CredentialSource::take(&mut config.auth_info, home).map_err(failed)?;
    let credentials = Credentials::start(source).await.map_err(failed)?;
    transport::client(config, credentials, memory).map_err(|err| ConnectError::Api(unusable(&err)))
}

/// Reads the files of the client certificate, where the kubeconfig names some.
async fn take_in_certificate(user: &mut AuthInfo) -> Result<(), ConnectError> {
    // As with kubectl, the data counts where there are both.
    let (certificate, key) = (user.client_certificate.take(), user.client_key.take());
    let certificate = certificate.filter(|_| user.client_certificate_data.is_none());
    if let Some(path) = certificate {
        user.client_certificate_data = Some(encoded("client-certificate", &path).await?);
    }
    if let Some(path) = key.filter(|_| user.client_key_data.is_none()) {
        user.client_key_data = Some(encoded("client-key", &path).await?.into());
    }
    Ok(())
}

async fn encoded(field: &str, path: &str) -> Result<String, ConnectError> {
    match foreign_file::read(Path::new(path), foreign_file::LONGEST).await {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let error = LoadDataError::ReadFile(error, path.into());
            Err(ConnectError::Api(kubeconfig::told_of_data(field, &error)))
        }
    }
}

/// Why there is no client, without what is in the credentials: what the libraries say of some errors has it.
fn unusable(error: &kube::Error) -> String {
    if let kube::Error::InferKubeconfig(error) = error {
        kubeconfig::told(error)
    } else if let kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) = error {
        "its client certificate or the key is no PEM".to_owned()
    } else {
        error.to_string()
    }
}

/// SHA-256 in hex of the certificates that a configuration trusts, or of the server's address where it names none. Empty: they
/// cannot be read.
pub(super) async fn ca_of(config: &Config) -> Text {
    let mut hash = Sha256::new();
    if let Some(certificates) = &config.root_cert {
        let mut certificates: Vec<_> = certificates.iter().collect();
        certificates.sort();
        certificates.into_iter().for_each(|one| hash.update(one));
    } else if let Some(path) = &config.root_cert_file {
        match foreign_file::read(path, foreign_file::LONGEST).await {
            Ok(text) => hash.update(text),
            Err(_) => return Text::default(),
        }
    } else {
        hash.update(b"server:");
        hash.update(config.cluster_url.to_string());
    }
    HEXLOWER.encode(&hash.finalize()).into()
}

/// The cluster that answers.
pub(super) async fn identity(client: &Client) -> Result<ClusterId, ConnectError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = match tokio::time::timeout(CALL, namespaces.get("kube-system")).await {
        Err(_) => return Err(ConnectError::Deadline(CALL)),
        Ok(Err(err)) => return Err(failed(explain(&err))),
        Ok(Ok(namespace)) => namespace,
    };
    match namespace.metadata.uid {
        Some(uid) if !uid.is_empty() => Ok(ClusterId(uid.into())),
        Some(_) | None => Err(ConnectError::NoIdentity),
    }
}

/// The UID that a cluster's `kube-system` shows, whether it is set apart from another with that UID or not.
pub(super) fn uid(id: &ClusterId) -> &str {
    id.0.split_once('.').map_or(&*id.0, |(uid, _)| uid)
}

/// The connector's own deadline comes as a text only.
fn failed(text: String) -> ConnectError {
    if text.ends_with("deadline has elapsed") {
        ConnectError::Deadline(CONNECT)
    } else {
        ConnectError::Api(text)
    }
}

/// The longest text of an error that is shown and logged, in bytes: an API server may have written it.
const LONGEST: usize = 2 << 10;

/// A text of an API server, cut where it is too long.
pub(crate) fn short(text: &str) -> String {
    shortened(text.to_owned(), LONGEST)
}

/// An error with its causes: the outermost text alone says too little ("client error (Connect)"). Credentials that cannot be had
/// are the only cause that counts. What is too long is cut.
pub(crate) fn explain(err: &(dyn Error + 'static)) -> String {
    let mut causes = iter::successors(Some(err), |&err| err.source());
    if let Some(error) = causes.find_map(|err| err.downcast_ref::<CredentialError>()) {
        return error.to_string();
    }
    let mut text = shortened(err.to_string(), LONGEST);
    let mut cause = err.source();
    while let Some(inner) = cause.filter(|_| text.len() < LONGEST) {
        let more = shortened(inner.to_string(), LONGEST);
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::kubeconfig::Allow;

    /// Why there is no answer with a program that prints a token that has expired, and then does this.
    async fn renewed(later: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let (program, built) = (dir.path().join("program"), dir.path().join("built"));
        let expired =
            r#"{"status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}"#;
        let script = format!(
            "if test -e '{}'; then {later}; exit; fi\necho '{expired}'\n",
            built.display()
        );
        std::fs::write(&program, script).unwrap();
        let text = format!(
            "current-context: a\n\
             clusters: [{{ name: a, cluster: {{ server: 'https://127.0.0.1:1', certificate-authority-data: bm9uZQ== }} }}]\n\
             users: [{{ name: a, user: {{ exec: {{ command: sh, args: ['{}'] }} }} }}]\n\
             contexts: [{{ name: a, context: {{ cluster: a, user: a }} }}]\n",
            program.display()
        );
        let allow = Allow {
            code: true,
            insecure: false,
        };
        let loaded = kubeconfig::accept(&text, None, "test", None, allow).await;
        let client = client(loaded.unwrap().config, dir.path(), Memory::default()).await;
        let client = client.unwrap();
        std::fs::write(&built, "").unwrap();
        let failed = identity(&client).await;
        failed.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn what_a_program_prints_at_a_renewal_is_not_told() {
        for (later, says) in [
            (
                "echo hunter2; echo hunter2 >&2; false",
                "status: 1; run by hand",
            ),
            ("echo hunter2", "has not printed what it should"),
            (
                r#"echo '{"status": {"token": "t", "expirationTimestamp": "hunter2"}}'"#,
                "has not printed what it should",
            ),
        ] {
            let said = renewed(later).await;
            assert!(said.contains(says), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
