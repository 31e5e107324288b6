//! Clients with deadlines, and the identity of what they reach.

use std::{error::Error, iter, sync::Arc, time::Duration};

use fipd_core::ClusterId;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    client::{AuthError, RustlsTlsError},
    config::ExecInteractiveMode,
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
    if let Some(exec) = &mut config.auth_info.exec {
        // There is nobody to answer, and fipd's own output is no place for what it prints.
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
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
    if let kube::Error::InferKubeconfig(error) = error {
        kubeconfig::told(error)
    } else if let kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) = error {
        "its client certificate or the key is no PEM".to_owned()
    } else if let kube::Error::Auth(error) = error {
        told_of_auth(error)
    } else {
        error.to_string()
    }
}

fn told_of_auth(error: &AuthError) -> String {
    const PROGRAM: &str = "the program that its kubeconfig names (exec)";
    if let AuthError::AuthExecParse(_) | AuthError::MalformedTokenExpirationDate(_) = error {
        format!("{PROGRAM} has not printed what it should")
    } else if let AuthError::AuthExecRun { out, .. } = error {
        // It may have repeated what it was given: neither viewers nor the log get that.
        format!(
            "{PROGRAM} has failed, {}; run by hand, as user fipd, it says why",
            out.status
        )
    } else if let AuthError::ReadTokenFile(error, _) = error {
        format!("the file that tokenFile names cannot be read: {error}")
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

/// An error with its causes: the outermost text alone says too little ("client error (Connect)"). Of credentials that cannot be
/// renewed it is told as of a client that cannot be built: a call runs the program again when its token has expired.
pub(crate) fn explain(err: &(dyn Error + 'static)) -> String {
    let mut causes = iter::successors(Some(err), |&err| err.source());
    if let Some(error) = causes.find_map(|err| err.downcast_ref::<AuthError>()) {
        return told_of_auth(error);
    }
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
        let client = client(loaded.unwrap().config, &Arc::new(Semaphore::new(1))).await;
        let client = client.unwrap();
        // Building runs it more than once.
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
