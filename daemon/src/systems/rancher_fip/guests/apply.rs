//! Writes what a guest is to have. Everything is read first, and only what differs is written: what the originals
//! made keeps its form, and what fipd makes carries its mark.

use data_encoding::HEXLOWER;
use fipd_crds::labels::{
    CA_KEY, CA_SECRET, INTERFACE_MAPPINGS, LB_CONTROLLER, PROJECT_NAME, RESTARTED_AT,
    SECRET_API_URL, SECRET_CLIENT_SECRET, SECRET_CLUSTER, SECRET_LOAD_BALANCER_TYPE, SECRET_POOL,
    SECRET_PROJECT, project_secret,
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    plan::{GuestContents, Project, ProjectAccess},
    quotas,
};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::{CallError, Patch, Remote},
        kind::{CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET},
        owned::{create, put, put_unchanged},
    },
    guests::objects::{Texts, texts, write_config_map, write_secret},
};

/// On a downstream namespace: its controller is to be restarted for the project label that was written.
const RESTART_DUE: &str = "fipd.io/lb-controller-restart-due";

/// Writes all of it. `secrets` are the client secrets of the projects, in the order of `desired.access`.
pub async fn guest(
    remote: &Remote,
    desired: &GuestContents,
    secrets: &[String],
    now: &str,
) -> Result<(), CallError> {
    let namespace = &*desired.namespace;
    self::namespace(remote, namespace, desired.label.as_deref(), now).await?;
    contents(remote, namespace, desired, secrets, true).await
}

/// Writes what is in the namespace of a guest. One that is being left is kept in step as long as somebody uses it, but
/// nothing is made (`makes`) there.
pub async fn contents(
    remote: &Remote,
    namespace: &str,
    desired: &GuestContents,
    secrets: &[String],
    makes: bool,
) -> Result<(), CallError> {
    if let Some(mappings) = &desired.mappings {
        let target = CONFIG_MAP.named(namespace, INTERFACE_MAPPINGS);
        write_config_map(remote, &target, mappings, makes).await?;
    }
    let ca = desired.ca.iter();
    let ca = ca.map(|ca| {
        (
            CA_SECRET.to_owned(),
            Texts::from([(CA_KEY.to_owned(), ca.clone())]),
        )
    });
    let access = desired.access.iter().zip(secrets);
    let access =
        access.map(|(access, secret)| (project_secret(&access.project.id), keys(access, secret)));
    for (name, want) in ca.chain(access) {
        write_secret(remote, &SECRET.named(namespace, &name), &want, makes).await?;
    }
    Ok(())
}

/// The project's secret in Rancher: the one that is there, else a new one.
pub async fn local(remote: &Remote, project: &Project) -> Reconciled<String> {
    let name = project_secret(&project.id);
    let target = SECRET.named(&project.namespace, &name);
    let found: Option<Secret> = remote.get(&target).await?;
    let have = found.as_ref().map(texts).unwrap_or_default();
    let kept = have
        .get(SECRET_CLIENT_SECRET)
        .filter(|text| !text.is_empty());
    if let Some(kept) = kept {
        if let Some(found) = &found {
            quotas::expire(remote, project, found).await?;
        }
        return Ok(kept.clone());
    }
    let fresh = client_secret()?;
    let want = Texts::from([
        (SECRET_CLIENT_SECRET.to_owned(), fresh.clone()),
        (SECRET_PROJECT.to_owned(), project.id.clone()),
    ]);
    // Somebody who made one meanwhile is a conflict: the next look finds it.
    match found {
        Some(found) => {
            let change = json!({ "stringData": want });
            put_unchanged(remote, &target, &found.metadata, change).await?
        }
        None => create(remote, SECRET, &target, json!({ "stringData": want })).await?,
    }
    tracing::info!(
        project = project.id,
        namespace = project.namespace,
        "made the project's secret"
    );
    Ok(fresh)
}

/// 16 random bytes as hex.
pub fn client_secret() -> Reconciled<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| ReconcileError::internal(error.to_string()))?;
    Ok(HEXLOWER.encode(&bytes))
}

fn keys(access: &ProjectAccess, client_secret: &str) -> Texts {
    let pairs = [
        (SECRET_API_URL, &*access.api_url),
        (SECRET_CLUSTER, &*access.cluster),
        (SECRET_CLIENT_SECRET, client_secret),
        (SECRET_PROJECT, &*access.project.id),
        (SECRET_POOL, &*access.pool),
        (SECRET_LOAD_BALANCER_TYPE, access.load_balancer.as_str()),
    ];
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Makes the namespace with its label. Where the label changes, the controller there is restarted: it reads it
/// only once.
async fn namespace(
    remote: &Remote,
    name: &str,
    label: Option<&str>,
    now: &str,
) -> Result<(), CallError> {
    let target = NAMESPACE.named("", name);
    let Some(found) = remote.get::<Namespace>(&target).await? else {
        let mut labels = json!({});
        if let Some(label) = label {
            labels[PROJECT_NAME] = json!(label);
        }
        // Nothing runs in a namespace that was not there.
        let namespace = json!({ "metadata": { "labels": labels } });
        return create(remote, NAMESPACE, &target, namespace).await;
    };
    let meta = &found.metadata;
    let set = found.labels().get(PROJECT_NAME);
    let mut due = found.annotations().contains_key(RESTART_DUE);
    if let Some(label) = label.filter(|label| set.map(String::as_str) != Some(*label)) {
        let change = json!({ "metadata": {
            "labels": { PROJECT_NAME: label }, "annotations": { RESTART_DUE: "true" },
        } });
        put(remote, &target, meta, change).await?;
        due = true;
    }
    if due {
        restart(remote, name, now).await?;
        let done = json!({ "metadata": { "annotations": { RESTART_DUE: null } } });
        put(remote, &target, meta, done).await?;
    }
    Ok(())
}

async fn restart(remote: &Remote, namespace: &str, now: &str) -> Result<(), CallError> {
    let target = DEPLOYMENT.named(namespace, LB_CONTROLLER);
    let change = json!({ "spec": { "template": { "metadata": {
        "annotations": { RESTARTED_AT: now },
    } } } });
    match remote.patch(&target, Patch::Merge, &change).await {
        Err(CallError::NotFound(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

    #[test]
    fn a_client_secret_is_32_hex_digits_and_never_the_same() {
        let (one, other) = (client_secret().unwrap(), client_secret().unwrap());
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }

    #[tokio::test]
    async fn two_that_give_a_project_its_secret_at_once_are_a_conflict() {
        let project = Project {
            id: "p-1".into(),
            namespace: "c-1".into(),
        };
        let empty = r#"{ "metadata": { "uid": "u", "resourceVersion": "7" } }"#;
        let (remote, asked) = canned(&[("GET", 200, empty), ("PATCH", 409, "changed")]);
        let trouble = local(&remote, &project).await.unwrap_err();
        assert!(matches!(
            trouble,
            ReconcileError::Call(CallError::Conflict(..))
        ));
        let body = asked.lock().pop().unwrap().body;
        assert_eq!(
            body["metadata"],
            json!({ "uid": "u", "resourceVersion": "7" })
        );
    }
}
