//! `backup`: definitions, subnets and companion Services in one file.

use std::path::Path;

use fipd_crds::flat_network::names::NAMESPACE as FLAT_NAMESPACE;
use fipd_crds::macvlan::names as macvlan;
use serde_json::Value;

use super::{
    MigrateError,
    file::{saved, write},
    kinds::{FLAT_NETWORK_SUBNET, MACVLAN_SUBNET},
    prompt::{self, PromptAnswer},
    report::ObjectOutcome,
    service,
    session::{Consent, MigrationSession},
};
use crate::{
    controller::{
        kind::{CUSTOM_RESOURCE_DEFINITION, Kind, NAMESPACE, SERVICE},
        owned::identify,
    },
    private_file,
};

/// Names of the definitions of flat-network.
const FLAT_NETWORK_DEFINITIONS: [&str; 2] = [
    "flatnetworksubnets.flatnetwork.pandaria.io",
    "flatnetworkips.flatnetwork.pandaria.io",
];

/// What is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedParts {
    /// Definitions and subnets of macvlan.
    pub v1: bool,
    /// Definitions, namespace and subnets of flat-network.
    pub v2: bool,
    /// Companion Services of macvlan.
    pub v1_service: bool,
}

/// Writes the objects to a file that only its owner can read. One that is there is replaced, where somebody agrees.
///
/// # Errors
/// Something cannot be read or written: then there is no file.
pub async fn backup(
    session: &mut MigrationSession,
    parts: SavedParts,
    file: &Path,
) -> Result<(), MigrateError> {
    if !(parts.v1 || parts.v2 || parts.v1_service) {
        return Err(MigrateError::Input(
            "--v1, --v2, --v1-service: all false is not allowed: nothing would be saved; leave one of them out".to_owned(),
        ));
    }
    may_replace(session.options.consent, file).await?;
    session.reach().await?;
    let mut objects = Vec::new();
    if parts.v1 {
        for name in [macvlan::SUBNET_DEFINITION, macvlan::IP_DEFINITION] {
            one(session, CUSTOM_RESOURCE_DEFINITION, name, &mut objects).await?;
        }
        all(session, MACVLAN_SUBNET, Some, &mut objects).await?;
    }
    if parts.v2 {
        for name in FLAT_NETWORK_DEFINITIONS {
            one(session, CUSTOM_RESOURCE_DEFINITION, name, &mut objects).await?;
        }
        one(session, NAMESPACE, FLAT_NAMESPACE, &mut objects).await?;
        all(session, FLAT_NETWORK_SUBNET, Some, &mut objects).await?;
    }
    if parts.v1_service {
        let companions = |found: Value| Some(found).filter(service::is_companion);
        all(session, SERVICE, companions, &mut objects).await?;
    }
    if objects.is_empty() {
        return Err(MigrateError::Failed(
            "the cluster has nothing of what is to be saved; no file is written".to_owned(),
        ));
    }
    let text = write(&objects).map_err(MigrateError::Failed)?;
    let written = std::path::absolute(file).and_then(|file| private_file::write(&file, text));
    written.map_err(|error| MigrateError::Failed(format!("{}: {error}", file.display())))
}

/// A file that is there may be the only backup.
async fn may_replace(consent: Consent, file: &Path) -> Result<(), MigrateError> {
    if !file.exists() || consent == Consent::Given {
        return Ok(());
    }
    let shown = file.display();
    if consent == Consent::Ask && prompt::somebody_is_there() {
        let asked = prompt::ask(format!("{shown} exists already. Replace it?")).await;
        if matches!(asked, Ok(PromptAnswer::Yes)) {
            return Ok(());
        }
    }
    Err(MigrateError::Input(format!(
        "--output: \"{shown}\" is not allowed: it exists already; name another file, or replace it with --yes"
    )))
}

/// Saves an object without namespace, where it is there.
async fn one(
    session: &mut MigrationSession,
    kind: Kind,
    name: &str,
    objects: &mut Vec<Value>,
) -> Result<(), MigrateError> {
    match session.remote.get::<Value>(&kind.named("", name)).await? {
        Some(object) => {
            objects.push(saved(kind, object));
            session.note(kind, name, ObjectOutcome::Saved, "", Vec::new());
        }
        None => session.skip(kind, name, "it is not there", Vec::new()),
    }
    Ok(())
}

/// Saves all objects of a kind that `keep` keeps.
async fn all(
    session: &mut MigrationSession,
    kind: Kind,
    keep: impl Fn(Value) -> Option<Value>,
    objects: &mut Vec<Value>,
) -> Result<(), MigrateError> {
    for object in session.list(kind, keep).await? {
        let Some((key, _)) = identify(&object) else {
            continue;
        };
        objects.push(saved(kind, object));
        session.note(kind, &key, ObjectOutcome::Saved, "", Vec::new());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;
    use crate::{
        controller::client::testing::serving,
        migrate::{
            file::{FileObject, read},
            session::MigrationOptions,
        },
    };

    fn session(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> MigrationSession {
        let options = MigrationOptions::at_once(Consent::Given);
        MigrationSession::new("backup", serving(answer).0, options)
    }

    const V1: SavedParts = SavedParts {
        v1: true,
        v2: false,
        v1_service: false,
    };

    /// The original decodes subnets as addresses, of which only the CIDR is left.
    #[tokio::test]
    async fn g1_23_subnets_are_saved_as_they_are_in_a_private_file() {
        let spec = json!({ "master": "eth0", "vlan": 10, "cidr": "10.0.0.0/24", "unknown": [1] });
        let subnet = json!({
            "apiVersion": "macvlan.cluster.cattle.io/v1", "kind": "MacvlanSubnet",
            "metadata": { "name": "lab", "namespace": "kube-system", "uid": "u", "annotations": { "a": "b" } },
            "spec": spec,
        });
        let listed = json!({ "items": [subnet] });
        let mut session = session(move |path| match path.ends_with("/macvlansubnets") {
            true => (200, listed.clone()),
            false if path.contains("customresourcedefinitions") => (404, json!("not there")),
            false => (200, json!({})),
        });
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backup.yaml");
        backup(&mut session, V1, &file).await.unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let objects = read(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let [FileObject::Restored(object)] = objects.as_slice() else {
            panic!("{objects:?}");
        };
        assert_eq!(object.body["spec"], spec);
        assert_eq!(object.body["metadata"]["annotations"], json!({ "a": "b" }));
        assert_eq!(session.report.count(ObjectOutcome::Saved), 1);
        assert_eq!(session.report.count(ObjectOutcome::Skipped), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_read_leaves_no_file() {
        let mut session = session(|path| match path.contains("macvlansubnets") {
            true => (500, json!("out of luck")),
            false => (200, json!({ "metadata": { "name": "x", "uid": "u" } })),
        });
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backup.yaml");
        let error = backup(&mut session, V1, &file).await.unwrap_err();
        assert!(error.to_string().contains("out of luck"), "{error}");
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_there_is_not_replaced_unasked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = may_replace(Consent::DryRun, file.path()).await.unwrap_err();
        assert!(refused.to_string().contains("--yes"), "{refused}");
        assert_eq!(may_replace(Consent::Given, file.path()).await, Ok(()));
    }
}
