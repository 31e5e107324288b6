//! The Secrets of projects whose quota goes. A finalizer on the quota keeps it until they are gone, for a while.

use std::{sync::Arc, time::Duration};

use fipd_core::Timestamp;
use fipd_crds::{
    floating_ip::FloatingIPProjectQuota,
    labels::{SECRET_CLEANUP, project_secret},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::ListParams, core::PartialObjectMeta};

use super::{Guests, Stop, apply, notes::Note, observe::QuotaMeta};
use crate::{
    clock,
    clusters::adoption::complete_list,
    controller::{ReconcileError, kind::SECRET, meta::Meta, owned, queue::Next, store::Key},
    systems::rancher_fip::{clusters::RancherCluster, kinds::QUOTA, settings::RancherFipSettings},
};
use serde::de::IgnoredAny;

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
            None => self
                .keep_quota(&key.name, &quota)
                .await
                .map(|()| Next::Done),
            Some(since) => self.end_quota(&key.name, &quota, since).await,
        };
        done.unwrap_or_else(|trouble| trouble.next("FloatingIPProjectQuota", &key))
    }

    /// The project's Secret in Rancher comes with the quota where the guests of a Harvester cluster use it.
    async fn keep_quota(&self, project: &str, quota: &QuotaMeta) -> Result<(), ReconcileError> {
        if !quota.finalizers.iter().any(|one| one == SECRET_CLEANUP) {
            // What is kept of a quota does not say which version it is of.
            let key = Key::new("", project);
            let target = QUOTA.target(&key);
            let quota: Option<FloatingIPProjectQuota> = self.data.remote.get(&target).await?;
            let meta = quota.map(|quota| Meta::of(&quota.metadata));
            if let Some(meta) = meta.filter(|meta| !meta.is_terminating()) {
                let add = self
                    .quotas
                    .add_finalizer::<IgnoredAny>(&key, &meta, SECRET_CLEANUP);
                add.await?;
            }
        }
        let projects = self.projects().into_iter();
        for project in projects.filter(|one| one.id == project) {
            let owner = self.data.clusters.get(&Key::new("", &project.namespace));
            if owner.is_some_and(|owner| owner.harvester) {
                apply::local(&self.data.remote, &project).await?;
            }
        }
        Ok(())
    }

    async fn end_quota(
        &self,
        project: &str,
        quota: &QuotaMeta,
        since: Timestamp,
    ) -> Result<Next, ReconcileError> {
        if !quota.finalizers.iter().any(|one| one == SECRET_CLEANUP) {
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
            let key = Key::new("", project);
            self.quotas
                .warn(&key, &quota.uid, "SecretsLeftBehind", note);
        }
        let (remote, target) = (&self.data.remote, QUOTA.named("", project));
        remote
            .drop_finalizer(&target, &quota.uid, &quota.finalizers, SECRET_CLEANUP)
            .await?;
        Ok(Next::Done)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
