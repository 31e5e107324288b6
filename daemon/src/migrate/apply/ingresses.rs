//! Ingresses that send their clients to the flat network.

use fipd_crds::{
    flat_network::names::INGRESS as FLAT_INGRESS, macvlan::names::INGRESS as OLD_INGRESS,
};
use serde_json::{Value, json};

use crate::{
    controller::{kind::INGRESS, owned::identify},
    migrate::{
        MigrateError,
        metadata::{MetadataChange, Texts, texts},
        report::{MigratedObject, ObjectOutcome},
        session::MigrationSession,
    },
};

/// Migrates all Ingresses.
pub async fn migrate(session: &mut MigrationSession) -> Result<(), MigrateError> {
    let flat = |found: Value| {
        let annotations = texts(&found["metadata"], "annotations");
        let mut keys = [FLAT_INGRESS, OLD_INGRESS].into_iter();
        keys.any(|key| annotations.contains_key(key))
            .then_some(found)
    };
    for object in session.list_or_fail(INGRESS, flat).await {
        one(session, &object).await?;
    }
    Ok(())
}

async fn one(session: &mut MigrationSession, object: &Value) -> Result<(), MigrateError> {
    let Some((key, _)) = identify(object) else {
        return Ok(());
    };
    let annotations = texts(&object["metadata"], "annotations");
    let change = MetadataChange::of(&annotations, &Texts::new(), &Texts::new());
    if change.is_empty() {
        session.skip(INGRESS, &key, "it is on flat-network already", change.notes);
        return Ok(());
    }
    let planned = MigratedObject {
        notes: change.notes,
        ..MigratedObject::new(INGRESS, &key, ObjectOutcome::Migrated, change.lines)
    };
    if session.approved(&planned).await? {
        let patch = json!({ "metadata": { "annotations": change.annotations } });
        let made = session.patch((INGRESS, &key), object, patch).await;
        session.changed(planned, made);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controller::client::testing::canned,
        migrate::session::{Consent, MigrationOptions},
    };

    #[tokio::test]
    async fn the_annotation_of_an_ingress_gets_its_new_name() {
        let all = r#"{"items":[
            {"metadata":{"namespace":"shop","name":"plain","uid":"p"}},
            {"metadata":{"namespace":"shop","name":"done","uid":"d","annotations":{"flatnetwork.pandaria.io/ingress":"true"}}},
            {"metadata":{"namespace":"shop","name":"web","uid":"w","resourceVersion":"7","annotations":{"macvlan.panda.io/ingress":"true"}}}]}"#;
        let (remote, asked) = canned(&[("GET", 200, all), ("PATCH", 200, "{}")]);
        let options = MigrationOptions::at_once(Consent::Given);
        let mut session = MigrationSession::new("migrate", remote, options);
        migrate(&mut session).await.unwrap();
        let objects = session.report.objects.iter();
        let outcomes: Vec<_> = objects.map(|one| (&*one.name, one.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                ("shop/done", ObjectOutcome::Skipped),
                ("shop/web", ObjectOutcome::Migrated),
            ]
        );
        assert_eq!(
            asked.lock()[1].body["metadata"],
            json!({
                "uid": "w", "resourceVersion": "7",
                "annotations": { "flatnetwork.pandaria.io/ingress": "true", "macvlan.panda.io/ingress": null },
            })
        );
    }
}
