//! Clients with deadlines, and the identity of what they reach.

use std::{sync::Arc, time::Duration};

use fipd_core::ClusterId;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    client::{AuthError, RustlsTlsError},
};
use tokio::sync::Semaphore;

use super::{kubeconfig, transport};

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
    #[error("the program its kubeconfig names (exec) has not returned yet")]
    Building,
    #[error("its namespace kube-system has no UID, so it cannot be told from other clusters")]
    NoIdentity,
}

/// A client for the configuration. Blocks a thread of its own: an `exec` plugin runs here.
pub(super) async fn client(
    mut config: Config,
    building: &Arc<Semaphore>,
) -> Result<Client, ConnectError> {
    let Ok(permit) = Arc::clone(building).try_acquire_owned() else {
        return Err(ConnectError::Building);
    };
    config.connect_timeout = Some(CONNECT);
    config.write_timeout = Some(CALL);
    config.read_timeout = Some(SILENCE);
    let agent = http::HeaderValue::from_static(concat!("fipd/", env!("CARGO_PKG_VERSION")));
    config.headers.push((http::header::USER_AGENT, agent));
    let runtime = tokio::runtime::Handle::current();
    let build = tokio::task::spawn_blocking(move || {
        let _until_built = permit;
        let _inside = runtime.enter();
        transport::client(config).map_err(|err| ConnectError::Api(unusable(&err)))
    });
    match tokio::time::timeout(CALL, build).await {
        Err(_) => Err(ConnectError::Deadline(CALL)),
        Ok(Err(err)) => Err(ConnectError::Api(err.to_string())),
        Ok(Ok(client)) => client,
    }
}

/// Why there is no client, without what is in the credentials: what the libraries say of some errors has it.
fn unusable(error: &kube::Error) -> String {
    const PROGRAM: &str = "the program that its kubeconfig names (exec)";
    if let kube::Error::InferKubeconfig(error) = error {
        kubeconfig::told(error)
    } else if let kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) = error {
        "its client certificate or the key is no PEM".to_owned()
    } else if let kube::Error::Auth(AuthError::AuthExecParse(_)) = error {
        format!("{PROGRAM} has not printed what it should")
    } else if let kube::Error::Auth(AuthError::AuthExecRun { out, .. }) = error {
        let said = String::from_utf8_lossy(&out.stderr);
        format!("{PROGRAM} has failed, {}: {}", out.status, said.trim())
    } else {
        error.to_string()
    }
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

/// The connector's own deadline comes as a text only.
fn failed(text: String) -> ConnectError {
    if text.ends_with("deadline has elapsed") {
        ConnectError::Deadline(CONNECT)
    } else {
        ConnectError::Api(text)
    }
}

/// An error with its causes: the outermost text alone says too little ("client error (Connect)").
pub(super) fn explain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}
