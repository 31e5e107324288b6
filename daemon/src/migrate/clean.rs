//! `clean`: subnets and definitions of macvlan go, once no pod has an address of it, and what subnets of flat-network exclude for it.

use fipd_crds::macvlan::names::{IP_DEFINITION, SUBNET_DEFINITION};
use serde_json::Value;

use super::{
    MigrateError,
    apply::lift_all,
    kinds::{MACVLAN_IP, MACVLAN_SUBNET},
    report::{MigratedObject, ObjectOutcome},
    session::MigrationSession,
};
use crate::controller::{
    kind::{CUSTOM_RESOURCE_DEFINITION, Kind},
    owned::identify,
    store::Key,
};

/// How many pods the one line of the error names; the report names all.
const NAMED: usize = 10;

/// Deletes what is left of macvlan.
///
/// # Errors
/// A pod has an address of macvlan, the cluster does not answer, or nobody answers a question.
pub async fn clean(session: &mut MigrationSession) -> Result<(), MigrateError> {
    session.reach().await?;
    unused(session).await?;
    lift_all(session).await?;
    for subnet in session.list(MACVLAN_SUBNET, Some).await? {
        if let Some((key, _)) = identify(&subnet) {
            one(session, MACVLAN_SUBNET, &key, &subnet).await?;
        }
    }
    // Pods may have come while questions were asked.
    unused(session).await?;
    for name in [IP_DEFINITION, SUBNET_DEFINITION] {
        let (kind, key) = (CUSTOM_RESOURCE_DEFINITION, Key::new("", name));
        match session.remote.get::<Value>(&kind.target(&key)).await {
            Ok(Some(definition)) => one(session, kind, &key, &definition).await?,
            Ok(None) => session.skip(kind, &key, "it is not there", Vec::new()),
            Err(error) => session.fail(kind, &key, &error.to_string()),
        }
    }
    Ok(())
}

/// Refuses while a pod has an address.
async fn unused(session: &mut MigrationSession) -> Result<(), MigrateError> {
    let pod = |ip: Value| identify(&ip).map(|(key, _)| key);
    let pods = session.list(MACVLAN_IP, pod).await?;
    if pods.is_empty() {
        return Ok(());
    }
    for pod in &pods {
        let why = "the pod of this name has the address; migrate or delete the pod";
        session.skip(MACVLAN_IP, pod, why, Vec::new());
    }
    let named: Vec<String> = pods.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match pods.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(MigrateError::Failed(format!(
        "{} pods have addresses of macvlan: {}{more}; migrate or delete them, and run it again",
        pods.len(),
        named.join(", ")
    )))
}

/// Deletes the object that was read.
async fn one(
    session: &mut MigrationSession,
    kind: Kind,
    key: &Key,
    object: &Value,
) -> Result<(), MigrateError> {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array();
    let finalizers = finalizers.filter(|all| !all.is_empty() && kind == MACVLAN_SUBNET);
    let waits = finalizers.map(|_| {
        format!(
            "it goes once its finalizers {} are off: the programs that put them must run, or remove them by hand",
            metadata["finalizers"]
        )
    });
    if !metadata["deletionTimestamp"].is_null() {
        let notes = waits.into_iter().collect();
        session.skip(kind, key, "it is being deleted", notes);
        return Ok(());
    }
    let change = vec![format!("delete {} {key}", kind.kind)];
    let mut planned = MigratedObject::new(kind, key, ObjectOutcome::Deleted, change);
    planned.notes.extend(waits);
    if session.approved(&planned).await? {
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let deleted = session.remote.delete(&kind.target(key), uid).await;
        session.changed(planned, deleted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        controller::client::testing::serving,
        migrate::session::{Consent, MigrationOptions},
    };

    fn object(namespace: &str, name: &str) -> Value {
        json!({ "metadata": { "namespace": namespace, "name": name, "uid": "u" } })
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_pods_have_addresses() {
        let (remote, asked) = serving(|path| match path.ends_with("/macvlanips") {
            true => {
                let pods = (0..12).map(|pod| object("shop", &format!("web-{pod}")));
                (200, json!({ "items": pods.collect::<Vec<_>>() }))
            }
            false => (200, json!({})),
        });
        let mut session =
            MigrationSession::new("clean", remote, MigrationOptions::at_once(Consent::Given));
        let refused = clean(&mut session).await.unwrap_err().to_string();
        for part in ["12 pods", "shop/web-0, shop/web-1", "and 2 more"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(session.report.count(ObjectOutcome::Skipped), 12);
        assert_eq!(asked.lock().len(), 2, "nothing more is asked");
    }

    #[tokio::test]
    async fn a_cluster_without_macvlan_is_clean() {
        let (remote, _) = serving(|path| match path.contains("macvlan") {
            true => (404, json!("not there")),
            false => (200, json!({})),
        });
        let mut session =
            MigrationSession::new("clean", remote, MigrationOptions::at_once(Consent::Given));
        clean(&mut session).await.unwrap();
        assert_eq!(session.report.count(ObjectOutcome::Skipped), 2);
        assert_eq!(session.report.objects.len(), 2);
    }

    #[tokio::test]
    async fn finalizers_of_subnets_are_named() {
        let (remote, _) = serving(|path| match path.ends_with("/macvlansubnets") {
            true => {
                let mut lab = object("kube-system", "lab");
                lab["metadata"]["finalizers"] = json!(["macvlan.panda.io/x"]);
                (200, json!({ "items": [lab] }))
            }
            false if path.contains("macvlan") => (404, json!("not there")),
            false => (200, json!({})),
        });
        let mut session =
            MigrationSession::new("clean", remote, MigrationOptions::at_once(Consent::DryRun));
        clean(&mut session).await.unwrap();
        let lab = &session.report.objects[0];
        assert_eq!(lab.outcome, ObjectOutcome::WouldChange);
        assert!(lab.notes[0].contains("macvlan.panda.io/x"), "{lab:?}");
    }
}
