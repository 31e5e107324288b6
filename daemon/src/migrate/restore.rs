//! `restore`: what a backup saved, where it is not there.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{
    MigrateError,
    file::{FileObject, RestoredObject},
    report::{MigratedObject, ObjectOutcome},
    session::MigrationSession,
};
use crate::controller::{
    client::CallError,
    kind::{CUSTOM_RESOURCE_DEFINITION, Kind},
};

/// How long an API server may take to serve a new definition.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Makes the objects of a file, in their order, where they are not there.
///
/// # Errors
/// The cluster does not answer, or nobody answers a question.
pub async fn restore(
    session: &mut MigrationSession,
    objects: Vec<FileObject>,
) -> Result<(), MigrateError> {
    session.reach().await?;
    let mut defined = Vec::new();
    for object in objects {
        match object {
            FileObject::Restored(object) => one(session, object, &mut defined).await?,
            FileObject::Other(kind, name) => {
                let why = "this kind is not restored; apply it with kubectl";
                session.skip_foreign(kind, name, why);
            }
        }
    }
    Ok(())
}

/// Makes an object; adds the name of a definition to those that are there.
async fn one(
    session: &mut MigrationSession,
    object: RestoredObject,
    defined: &mut Vec<String>,
) -> Result<(), MigrateError> {
    let (kind, key) = (object.kind, &object.key);
    let target = kind.target(key);
    match session.remote.get::<Value>(&target).await {
        Ok(None) => {}
        Ok(Some(_)) => {
            if kind == CUSTOM_RESOURCE_DEFINITION {
                defined.push(key.name.to_string());
            }
            session.skip(kind, key, "it exists already", Vec::new());
            return Ok(());
        }
        Err(error) => {
            session.fail(kind, key, &error.to_string());
            return Ok(());
        }
    }
    let change = vec![what(&object)];
    let planned = MigratedObject {
        notes: object.notes,
        ..MigratedObject::new(kind, key, ObjectOutcome::Restored, change)
    };
    if !session.approved(&planned).await? {
        return Ok(());
    }
    let until = Instant::now() + SERVED_WITHIN;
    let is_defined = defined.contains(&definition(kind));
    let made = loop {
        match session.remote.create(&target, &object.body).await {
            // The API server begins to serve a kind some time after its definition was made.
            Err(CallError::NotFound(_)) if is_defined && Instant::now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            made => break made,
        }
    };
    if kind == CUSTOM_RESOURCE_DEFINITION && made.is_ok() {
        defined.push(key.name.to_string());
    }
    session.created(planned, made);
    Ok(())
}

/// What is made; a definition is too long to be shown.
fn what(object: &RestoredObject) -> String {
    let made = format!("make {} {}", object.kind.kind, object.key);
    let spec = &object.body["spec"];
    match object.kind == CUSTOM_RESOURCE_DEFINITION || spec.is_null() {
        true => made,
        false => format!("{made} with spec {spec}"),
    }
}

/// The name of the definition of a kind.
fn definition(kind: Kind) -> String {
    format!("{}.{}", kind.plural, kind.group())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::{
        controller::client::testing::{canned, serving},
        migrate::{
            file::read,
            session::{Consent, MigrationOptions},
        },
    };

    const FILE: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: macvlansubnets.macvlan.cluster.cattle.io}
---
apiVersion: macvlan.cluster.cattle.io/v1
kind: MacvlanSubnet
metadata: {name: lab, namespace: kube-system}
spec: {cidr: 10.0.0.0/24}
---
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: b}
";

    fn outcomes(session: &MigrationSession) -> Vec<(&str, ObjectOutcome)> {
        let objects = session.report.objects.iter();
        objects
            .map(|object| (object.kind.as_str(), object.outcome))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_a_new_definition_are_made_once_it_is_served() {
        let (remote, _) = canned(&[
            ("GET", 200, "{}"),
            ("GET", 404, "no definition"),
            ("POST", 200, "{}"),
            ("GET", 404, "no subnet"),
            ("POST", 404, "not served yet"),
            ("POST", 200, "{}"),
        ]);
        let mut session =
            MigrationSession::new("restore", remote, MigrationOptions::at_once(Consent::Given));
        restore(&mut session, read(FILE).unwrap()).await.unwrap();
        assert_eq!(
            outcomes(&session),
            [
                ("Secret of v1", ObjectOutcome::Skipped),
                ("CustomResourceDefinition", ObjectOutcome::Restored),
                ("MacvlanSubnet", ObjectOutcome::Restored),
            ]
        );
    }

    #[tokio::test]
    async fn what_exists_is_skipped() {
        let (remote, asked) = serving(|_| (200, json!({})));
        let mut session =
            MigrationSession::new("restore", remote, MigrationOptions::at_once(Consent::Given));
        restore(&mut session, read(FILE).unwrap()).await.unwrap();
        assert_eq!(session.report.count(ObjectOutcome::Skipped), 3);
        assert_eq!(asked.lock().len(), 3, "nothing is made");
    }

    #[tokio::test]
    async fn a_failure_of_one_object_does_not_stop_the_others() {
        let calls = AtomicUsize::new(0);
        let (remote, _) = serving(move |path| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => (200, json!({})),
            _ if path.contains("customresourcedefinitions") => (403, json!("forbidden")),
            _ => (200, json!({})),
        });
        let mut session =
            MigrationSession::new("restore", remote, MigrationOptions::at_once(Consent::Given));
        restore(&mut session, read(FILE).unwrap()).await.unwrap();
        assert_eq!(session.report.count(ObjectOutcome::Failed), 1);
        assert_eq!(session.report.count(ObjectOutcome::Skipped), 2);
    }

    #[tokio::test]
    async fn a_dry_run_makes_nothing() {
        let (remote, asked) = serving(|path| match path.contains("kube-system/") {
            true => (404, json!("not there")),
            false => (200, json!({})),
        });
        let mut session = MigrationSession::new(
            "restore",
            remote,
            MigrationOptions::at_once(Consent::DryRun),
        );
        restore(&mut session, read(FILE).unwrap()).await.unwrap();
        assert_eq!(session.report.count(ObjectOutcome::WouldChange), 1);
        assert_eq!(asked.lock().len(), 3);
    }
}
