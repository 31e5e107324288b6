//! New secrets for projects. The one before stays beside the new one for a while, so that a guest that gets the new
//! one late can go on asking with the old one: who checks secrets accepts both until then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use fipd_core::Text;
use fipd_crds::labels::{
    PREVIOUS_SECRET_UNTIL, SECRET_CLIENT_SECRET, SECRET_PREVIOUS, project_secret,
};
use k8s_openapi::{api::core::v1::Secret, jiff};
use parking_lot::RwLock;
use serde_json::json;

use super::{Guests, apply, plan::Project};
use crate::controllers::{
    Trouble,
    remote::{CallError, Remote},
};

/// How long the secret before is accepted.
const OVERLAP: Duration = Duration::from_secs(3600);

/// The cluster managers that are connected, by the configured name of their Rancher.
#[derive(Clone, Default)]
pub struct Managers(Arc<RwLock<BTreeMap<Text, Weak<Guests>>>>);

/// What a rotation did.
#[derive(Debug)]
pub struct Rotated {
    pub rancher: Text,
    /// Until when the secret before is accepted, RFC 3339.
    pub until: String,
}

/// Why a secret is not rotated; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(
        "no Rancher that is connected with its cluster manager switched on has a project {0:?}"
    )]
    UnknownProject(String),
    #[error("project {project:?} is in several Ranchers: {ranchers}; nothing was changed")]
    Several { project: String, ranchers: String },
    #[error("project {0:?} has no secret yet: it gets one with its first guest")]
    NoSecret(String),
    #[error(transparent)]
    Failed(#[from] Trouble),
}

impl From<CallError> for RotateError {
    fn from(error: CallError) -> Self {
        Self::Failed(error.into())
    }
}

impl Managers {
    pub(super) fn connected(&self, rancher: &Text, guests: &Arc<Guests>) {
        let mut managers = self.0.write();
        managers.insert(Text::clone(rancher), Arc::downgrade(guests));
    }

    /// Gives a project a new secret; its guests get it with their next look, which begins at once.
    pub async fn rotate(&self, project: &str) -> Result<Rotated, RotateError> {
        let managers: Vec<Arc<Guests>> = {
            let managers = self.0.read();
            managers.values().filter_map(Weak::upgrade).collect()
        };
        let knows = |guests: &Arc<Guests>| {
            let mut projects = guests.projects().into_iter();
            let found = projects.find(|one| one.id == project)?;
            Some((Arc::clone(guests), found))
        };
        let found: Vec<(Arc<Guests>, Project)> = managers.iter().filter_map(knows).collect();
        match found.as_slice() {
            [] => Err(RotateError::UnknownProject(project.to_owned())),
            [(guests, project)] => guests.rotate(project).await,
            several => {
                let names = several
                    .iter()
                    .map(|(guests, _)| guests.site.name.to_string());
                Err(RotateError::Several {
                    project: project.to_owned(),
                    ranchers: names.collect::<Vec<_>>().join(", "),
                })
            }
        }
    }
}

impl Guests {
    async fn rotate(&self, project: &Project) -> Result<Rotated, RotateError> {
        let target = apply::core("secrets", &project.namespace, &project_secret(&project.id));
        let remote = &self.data.remote;
        let found: Option<Secret> = remote.get(&target).await?;
        let missing = || RotateError::NoSecret(project.id.clone());
        let found = found.ok_or_else(missing)?;
        let old = apply::texts(&found).remove(SECRET_CLIENT_SECRET);
        let old = old.filter(|text| !text.is_empty()).ok_or_else(missing)?;
        let until = (jiff::Timestamp::now() + OVERLAP).round(jiff::Unit::Second);
        let until = until.map_err(|error| Trouble::internal(error.to_string()))?;
        let until = until.to_string();
        let change = json!({
            "metadata": {
                // Two at once: the second would lose what the first gave to guests.
                "resourceVersion": found.metadata.resource_version,
                "annotations": { PREVIOUS_SECRET_UNTIL: until },
            },
            "stringData": {
                SECRET_CLIENT_SECRET: apply::client_secret()?, SECRET_PREVIOUS: old,
            },
        });
        apply::put(remote, &target, &found.metadata, change).await?;
        self.everything_changed();
        Ok(Rotated {
            rancher: Text::clone(&self.site.name),
            until,
        })
    }
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
    let target = apply::core("secrets", &project.namespace, &project_secret(&project.id));
    let change = json!({
        "metadata": { "annotations": { PREVIOUS_SECRET_UNTIL: null } },
        "data": { SECRET_PREVIOUS: null },
    });
    apply::put(remote, &target, &secret.metadata, change).await
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

    #[test]
    fn the_secret_before_ends_with_its_time_and_when_nobody_knows_it() {
        let now: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert!(!is_over("2026-01-02T03:04:06Z", now));
        assert!(is_over("2026-01-02T03:04:05Z", now) && is_over("soon", now));
    }
}
