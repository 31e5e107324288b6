//! The Secrets of projects: those whose quota goes, which a finalizer keeps for a while until they are gone, and new ones. The
//! one before stays beside the new one for a while, so that a guest that gets the new one late can go on asking with the old one: who
//! checks secrets accepts both until then.

use std::{fmt::Display, sync::Arc, time::Duration};

use fipd_core::{Text, Timestamp};
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{
        PREVIOUS_SECRET_UNTIL, SECRET_CLEANUP, SECRET_CLIENT_SECRET, SECRET_PREVIOUS,
        project_secret,
    },
};
use futures::future::BoxFuture;
use k8s_openapi::{api::core::v1::Secret, jiff};
use kube::{Api, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{
    Guests, Stop, apply,
    notes::Note,
    plan::Project,
    rotation::{RotateError, Rotated, SecretRotator},
};
use crate::{
    clock,
    clusters::adoption::complete_list,
    controller::{
        Reconciled,
        client::{CallError, Remote},
        kind::SECRET,
        meta::Meta,
        owned,
        queue::Next,
        store::Key,
    },
    guests::{GuestManager, objects},
    systems::rancher_fip::{clusters::RancherCluster, kinds::QUOTA, settings::RancherFipSettings},
};

/// Removal is tried again after this time.
const AGAIN: Duration = Duration::from_secs(15);
/// What a cluster has for the removal of one Secret.
const ONE_GUEST: Duration = Duration::from_secs(30);

impl Guests {
    pub(super) async fn reconcile_quota(self: Arc<Self>, key: Key) -> Next {
        let Some(quota) = self.quotas.objects.get(&key) else {
            return Next::Done;
        };
        let done = match quota.deleted {
            None => self.keep_quota(&key, &quota).await,
            Some(since) => self.end_quota(&key, &quota, since).await,
        };
        done.unwrap_or_else(|trouble| trouble.next("FloatingIPProjectQuota", &key))
    }

    /// The project's Secret in Rancher comes with the quota where the guests of a Harvester cluster use it.
    async fn keep_quota(&self, key: &Key, quota: &Meta) -> Reconciled {
        if !quota.has_finalizer(SECRET_CLEANUP) {
            // What is kept of a quota does not say which version it is of.
            let target = QUOTA.target(key);
            let quota: Option<FloatingIPProjectQuota> = self.data.remote.get(&target).await?;
            let meta = quota.map(|quota| Meta::of(&quota.metadata));
            if let Some(meta) = meta.filter(|meta| !meta.is_terminating()) {
                let quotas = &self.quotas;
                let add = quotas.add_finalizer::<IgnoredAny>(key, &meta, SECRET_CLEANUP);
                add.await?;
            }
        }
        let projects = self.projects().into_iter();
        for project in projects.filter(|one| *one.id == *key.name) {
            let owner = self.data.clusters.get(&Key::new("", &project.namespace));
            if owner.is_some_and(|owner| owner.harvester) {
                apply::local(&self.data.remote, &project).await?;
            }
        }
        Ok(Next::Done)
    }

    async fn end_quota(&self, key: &Key, quota: &Meta, since: Timestamp) -> Reconciled {
        let project = &*key.name;
        if !quota.has_finalizer(SECRET_CLEANUP) {
            return Ok(Next::Done);
        }
        if let Err(why) = self.remove_secrets(project).await {
            let wait = self.site.settings::<RancherFipSettings>().release_wait;
            if wait.left(since, clock::now()).is_some() {
                tracing::warn!(
                    project,
                    why,
                    "the project's Secrets are not removed yet; it is tried again"
                );
                return Ok(Next::After(AGAIN));
            }
            let note = format!("left behind after {} s of trying: {why}", wait.0.as_secs());
            self.quotas.warn(key, &quota.uid, "SecretsLeftBehind", note);
        }
        let drop = self.quotas.drop_finalizer(key, quota, SECRET_CLEANUP);
        drop.await.map(|()| Next::Done)
    }

    /// First downstream, then in Rancher: what is left there tells which cluster is still to be cleaned.
    async fn remove_secrets(&self, project: &str) -> Result<(), String> {
        let local = self.local_secrets(project).await?;
        let guests = self.data.clusters.all().into_iter();
        let guests = guests.filter(|(key, cluster)| {
            let noted = self.noted(&key.name);
            cluster.is_guest() && may_have(&key.name, project, noted.as_ref(), &local)
        });
        let removals = guests.map(|(key, cluster)| async move {
            let removal = self.remove_downstream(&key.name, &cluster, project);
            let ended = tokio::time::timeout(ONE_GUEST, removal).await;
            match ended {
                Ok(Ok(())) => None,
                Ok(Err(stop)) => Some(format!("cluster {}: {}", key.name, stop.text())),
                Err(_) => Some(format!("cluster {}: no answer in time", key.name)),
            }
        });
        let failed = futures::future::join_all(removals).await;
        let failed: Vec<String> = failed.into_iter().flatten().collect();
        if !failed.is_empty() {
            return Err(failed.join("; "));
        }
        for (namespace, uid) in local {
            let secret = SECRET.named(&namespace, &project_secret(project));
            let removed = self.data.remote.delete(&secret, &uid).await;
            removed.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Namespace and UID of the project's Secrets in Rancher.
    async fn local_secrets(&self, project: &str) -> Result<Vec<(String, String)>, String> {
        let session = &self.site.session;
        let api: Api<PartialObjectMeta<Secret>> = Api::all(session.client.clone());
        let params =
            ListParams::default().fields(&format!("metadata.name={}", project_secret(project)));
        let keep = |secret: PartialObjectMeta<Secret>| {
            Some((secret.namespace()?, secret.uid().unwrap_or_default()))
        };
        let listed = complete_list(session, &api, params, "list the project's Secrets", keep).await;
        listed.map_err(|error| error.to_string())
    }

    async fn remove_downstream(
        &self,
        id: &str,
        cluster: &RancherCluster,
        project: &str,
    ) -> Result<(), Stop> {
        let remote = self.access.client(id, &cluster.display_name).await?;
        for namespace in self.places_of(id) {
            let target = SECRET.named(&namespace, &project_secret(project));
            owned::delete_if(&remote, &target, |_| true).await?;
        }
        let without = |note: Option<Note>| note.map(|note| note.without(project));
        let noted = self.noted(id);
        match without(noted.clone()) == noted {
            true => Ok(()),
            false => self.change_note(id, without).await,
        }
    }
}

/// Whether a guest may have a project's Secret: what fipd gave it is noted beyond a restart. Where nothing is noted the
/// original may have given it one, if it is of the cluster that owns the project.
fn may_have(id: &str, project: &str, note: Option<&Note>, local: &[(String, String)]) -> bool {
    match note {
        Some(note) => note.may_have(project),
        None => local.iter().any(|(namespace, _)| namespace == id),
    }
}

/// How long the secret before is accepted.
const OVERLAP: Duration = Duration::from_secs(3600);

impl SecretRotator for Guests {
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
}

impl GuestManager for Guests {
    fn put_into(&self, names: &[Text]) -> Option<bool> {
        let is = |name: &str| names.iter().any(|own| &**own == name);
        let is_guest = |id: &String| {
            let cluster = self.data.clusters.get(&Key::new("", id));
            is(id) || cluster.is_some_and(|cluster| is(&cluster.display_name))
        };
        let known = self.maps.seen.is_complete() && self.data.clusters.is_complete();
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
    let until = secret.annotations().get(PREVIOUS_SECRET_UNTIL);
    if !until.is_some_and(|until| is_over(until, jiff::Timestamp::now())) {
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
    fn a_quota_waits_only_for_guests_that_may_have_the_secret() {
        let local = [("c-2".to_owned(), "uid".to_owned())];
        let may = |id, note: Option<&str>| {
            let note = note.map(Note::parse);
            may_have(id, "p-1", note.as_ref(), &local)
        };
        assert!(may("c-1", Some("fip\np-0 p-1")));
        assert!(!may("c-1", Some("fip\np-0")), "it never had it");
        assert!(!may("c-2", Some("fip\n")), "whoever owns the project");
        assert!(may("c-1", Some("fip")), "an earlier version did not say");
        assert!(may("c-2", None), "the original may have given it");
        assert!(!may("c-3", None), "it has nothing of fipd");
    }

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
