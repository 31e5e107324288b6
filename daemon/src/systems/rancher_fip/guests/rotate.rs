//! New secrets for projects. The one before stays beside the new one for a while, so that a guest that gets the new
//! one late can go on asking with the old one: who checks secrets accepts both until then.

use std::{fmt::Display, time::Duration};

use fipd_core::Text;
use fipd_crds::labels::{
    PREVIOUS_SECRET_UNTIL, SECRET_CLIENT_SECRET, SECRET_PREVIOUS, project_secret,
};
use futures::future::BoxFuture;
use k8s_openapi::{api::core::v1::Secret, jiff};
use serde_json::json;

use super::{Guests, apply, plan::Project};
use crate::{
    controller::{
        client::{CallError, Remote},
        kind::SECRET,
        owned,
        store::Key,
    },
    guests::{GuestManager, RotateError, Rotated, objects},
};

/// How long the secret before is accepted.
const OVERLAP: Duration = Duration::from_secs(3600);

impl GuestManager for Guests {
    fn has_project(&self, project: &str) -> bool {
        self.projects().iter().any(|one| one.id == project)
    }

    fn rotate<'a>(&'a self, project: &'a str) -> BoxFuture<'a, Result<Rotated, RotateError>> {
        Box::pin(async move {
            let mut projects = self.projects().into_iter();
            let found = projects.find(|one| one.id == project);
            let found = found.ok_or_else(|| RotateError::UnknownProject(project.to_owned()))?;
            let until = renew(&self.data.remote, &found).await?;
            self.everything_changed();
            Ok(Rotated {
                rancher: Text::clone(&self.site.name),
                until,
            })
        })
    }

    fn put_into(&self, names: &[Text]) -> Option<bool> {
        let is = |name: &str| names.iter().any(|own| &**own == name);
        let is_guest = |id: &String| {
            let cluster = self.data.clusters.get(&Key::new("", id));
            is(id) || cluster.is_some_and(|cluster| is(&cluster.display_name))
        };
        let known = self.seen.maps.is_complete() && self.data.clusters.is_complete();
        known.then(|| self.noted_ids().iter().any(is_guest))
    }
}

/// Gives a project a new secret; until when the one before is accepted.
async fn renew(remote: &Remote, project: &Project) -> Result<String, RotateError> {
    let target = SECRET.named(&project.namespace, &project_secret(&project.id));
    let found: Option<Secret> = remote.get(&target).await.map_err(failed)?;
    let missing = || RotateError::NoSecret(project.id.clone());
    let found = found.ok_or_else(missing)?;
    let old = objects::texts(&found).remove(SECRET_CLIENT_SECRET);
    let old = old.filter(|text| !text.is_empty()).ok_or_else(missing)?;
    let until = (jiff::Timestamp::now() + OVERLAP).round(jiff::Unit::Second);
    let until = until.map_err(failed)?.to_string();
    let new = apply::client_secret().map_err(failed)?;
    let change = json!({
        "metadata": { "annotations": { PREVIOUS_SECRET_UNTIL: until } },
        "stringData": { SECRET_CLIENT_SECRET: new, SECRET_PREVIOUS: old },
    });
    // Two at once: the second would lose what the first gave to guests.
    match owned::put_unchanged(remote, &target, &found.metadata, change).await {
        Err(CallError::Conflict(what, why)) => Err(RotateError::Conflict(format!(
            "{what} was changed meanwhile: {why}"
        ))),
        other => other.map_err(failed).map(|()| until),
    }
}

fn failed(error: impl Display) -> RotateError {
    RotateError::Failed(error.to_string())
}

/// Removes the secret before once its time is over.
pub(super) async fn expire(
    remote: &Remote,
    project: &Project,
    secret: &Secret,
) -> Result<(), CallError> {
    let annotations = secret.metadata.annotations.as_ref();
    let until = annotations.and_then(|all| all.get(PREVIOUS_SECRET_UNTIL));
    let Some(until) = until else {
        return Ok(());
    };
    if !is_over(until, jiff::Timestamp::now()) {
        return Ok(());
    }
    let target = SECRET.named(&project.namespace, &project_secret(&project.id));
    let change = json!({
        "metadata": { "annotations": { PREVIOUS_SECRET_UNTIL: null } },
        "data": { SECRET_PREVIOUS: null },
    });
    // A rotation meanwhile began another overlap.
    owned::put_unchanged(remote, &target, &secret.metadata, change).await
}

/// A time that cannot be read is over.
fn is_over(until: &str, now: jiff::Timestamp) -> bool {
    until
        .parse::<jiff::Timestamp>()
        .map_or(true, |until| until <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::client::testing::canned;

    #[test]
    fn the_secret_before_ends_with_its_time_and_when_nobody_knows_it() {
        let now: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert!(!is_over("2026-01-02T03:04:06Z", now));
        assert!(is_over("2026-01-02T03:04:05Z", now) && is_over("soon", now));
    }

    #[tokio::test]
    async fn a_secret_that_was_rotated_meanwhile_is_not_cut_short() {
        let project = Project {
            id: "p-1".into(),
            namespace: "c-1".into(),
        };
        let mut secret = Secret::default();
        secret.metadata.uid = Some("u".into());
        secret.metadata.resource_version = Some("7".into());
        let over = (PREVIOUS_SECRET_UNTIL.to_owned(), "soon".to_owned());
        secret.metadata.annotations = Some([over].into());
        let (remote, asked) = canned(&[("PATCH", 409, "changed")]);
        let error = expire(&remote, &project, &secret).await.unwrap_err();
        assert!(matches!(error, CallError::Conflict(..)));
        let body = asked.lock().pop().unwrap().body;
        assert_eq!(body["metadata"]["resourceVersion"], "7");
    }
}
