//! Clients for clusters that are reached now and then only, by kubeconfigs out of Secrets.

use std::sync::Arc;

use kube::Client;
use tokio::sync::Semaphore;

use super::{
    KubeconfigRefused, connect,
    kubeconfig::{self, Allow},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error(transparent)]
    Refused(#[from] KubeconfigRefused),
    #[error("{0}")]
    Failed(String),
}

/// A client for the text of a kubeconfig, which must be self-contained. `origin` is what errors call it. Its calls
/// have no deadline of their own.
///
/// # Errors
/// A kubeconfig that is refused, or credentials that cannot be used.
pub async fn client_of(text: &str, origin: &str, insecure: bool) -> Result<Client, NoClient> {
    let allow = Allow {
        code: false,
        insecure,
    };
    let loaded = kubeconfig::accept(text, None, origin, None, allow).await?;
    // Nothing is run to build it, so that no build waits for another.
    let building = Arc::new(Semaphore::new(1));
    let client = connect::client(loaded.config, &building).await;
    client.map_err(|error| NoClient::Failed(error.to_string()))
}
