//! Secrets of projects without a quota, left behind while nobody looked: removed at start and every six hours. Where
//! it is not certain that a quota is missing, nothing is.

use std::{collections::BTreeSet, fmt::Display, sync::Arc, time::Duration};

use fipd_crds::{floating_ip::FloatingIPProjectQuota, labels::PROJECT_SECRET_PREFIX};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Guests;
use crate::{
    clusters::{CallError, adoption::complete_list},
    controller::{
        client::{CallError as RemoteError, Remote},
        kind::SECRET,
    },
    systems::rancher_fip::{clusters::RancherCluster, kinds::QUOTA},
};

const PERIOD: Duration = Duration::from_secs(6 * 3600);
/// A sweep that did not find out what it needs is tried again after this time.
const AGAIN: Duration = Duration::from_secs(300);

/// A Secret with the name of a project's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProjectSecret {
    namespace: String,
    name: String,
    uid: String,
    version: String,
}

impl Guests {
    /// Sweeps until the session ends.
    pub(super) async fn keep_swept(self: Arc<Self>) {
        let cancel = self.site.cancel();
        loop {
            let pause = match self.sweep().await {
                Ok(()) => PERIOD,
                Err(why) => {
                    tracing::warn!(
                        why,
                        "Secrets left behind were not looked for; it is tried again"
                    );
                    AGAIN
                }
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Secrets are listed before quotas: one that is made meanwhile, with its quota, is in no list.
    async fn sweep(&self) -> Result<(), String> {
        let local = self.fresh_secrets().await.map_err(text)?;
        let ours = |found: &ProjectSecret| self.is_of_rancher(&found.namespace);
        let local: Vec<ProjectSecret> = local.into_iter().filter(ours).collect();
        let guests = self.data.clusters.all().into_iter();
        let guests = guests.filter(|(_, cluster)| cluster.is_guest());
        let lists = guests.map(|(key, cluster)| async move {
            let listed = self.secrets_of(&key.name, &cluster).await;
            listed.map_err(|why| skipped(&key.name, &why)).ok()
        });
        let guests = futures::future::join_all(lists).await;
        let quotas = self.fresh_quotas().await.map_err(text)?;
        let rancher = &self.data.remote;
        for found in orphans(local, &quotas)? {
            remove(rancher, rancher, &found).await.map_err(text)?;
        }
        let sweeps = guests.into_iter().flatten().map(|(id, remote, found)| {
            let quotas = &quotas;
            async move {
                if let Err(why) = remove_all(rancher, &remote, found, quotas).await {
                    skipped(&id, &why);
                }
            }
        });
        futures::future::join_all(sweeps).await;
        Ok(())
    }

    /// The Secrets of projects in a guest, and the way to it.
    async fn secrets_of(
        &self,
        id: &str,
        cluster: &RancherCluster,
    ) -> Result<(String, Remote, Vec<ProjectSecret>), String> {
        let remote = self.access.client(id, &cluster.display_name).await;
        let remote = remote.map_err(|stop| stop.text())?;
        let mut named = Vec::new();
        for namespace in self.places_of(id) {
            let all = SECRET.named(&namespace, "");
            let listed = remote.list_meta(&all, "").await.map_err(text)?;
            named.extend(listed.iter().filter_map(|object| found(&namespace, object)));
        }
        Ok((id.to_owned(), remote, named))
    }

    /// Projects are in the namespaces of their clusters, and so are their Secrets.
    fn is_of_rancher(&self, namespace: &str) -> bool {
        let cluster = self
            .data
            .clusters
            .keys()
            .iter()
            .any(|key| *key.name == *namespace);
        cluster
            || self
                .projects()
                .iter()
                .any(|project| project.namespace == namespace)
    }

    async fn fresh_quotas(&self) -> Result<BTreeSet<String>, CallError> {
        let session = &self.site.session;
        let api: Api<PartialObjectMeta<FloatingIPProjectQuota>> = Api::all(session.client.clone());
        let keep = |quota: PartialObjectMeta<FloatingIPProjectQuota>| Some(quota.name_any());
        let params = ListParams::default();
        let listed = complete_list(session, &api, params, "list quotas", keep).await?;
        session.verify_identity().await?;
        Ok(listed.into_iter().collect())
    }

    async fn fresh_secrets(&self) -> Result<Vec<ProjectSecret>, CallError> {
        let session = &self.site.session;
        let api: Api<PartialObjectMeta<Secret>> = Api::all(session.client.clone());
        let keep = |secret: PartialObjectMeta<Secret>| ProjectSecret::of(secret.metadata);
        complete_list(session, &api, ListParams::default(), "list Secrets", keep).await
    }
}

fn found(namespace: &str, object: &Value) -> Option<ProjectSecret> {
    let text = |path: &str| object.pointer(path)?.as_str().map(str::to_owned);
    ProjectSecret::of(ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
        resource_version: text("/metadata/resourceVersion"),
        ..ObjectMeta::default()
    })
}

impl ProjectSecret {
    /// `None`: its name is not that of a project's Secret.
    fn of(meta: ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: meta.namespace?,
            name: meta
                .name
                .filter(|name| name.starts_with(PROJECT_SECRET_PREFIX))?,
            uid: meta.uid?,
            version: meta.resource_version?,
        })
    }
}

async fn remove_all(
    rancher: &Remote,
    guest: &Remote,
    found: Vec<ProjectSecret>,
    quotas: &BTreeSet<String>,
) -> Result<(), String> {
    for found in orphans(found, quotas)? {
        remove(rancher, guest, &found).await.map_err(text)?;
    }
    Ok(())
}

/// Deletes the Secret that was listed, unless its project got a quota or somebody changed it since.
async fn remove(
    rancher: &Remote,
    holder: &Remote,
    found: &ProjectSecret,
) -> Result<(), RemoteError> {
    let Some(project) = found.name.strip_prefix(PROJECT_SECRET_PREFIX) else {
        return Ok(());
    };
    let quota = rancher.get::<IgnoredAny>(&QUOTA.named("", project)).await?;
    if quota.is_some() {
        return Ok(());
    }
    let target = SECRET.named(&found.namespace, &found.name);
    let removed = holder.delete_version(&target, &found.uid, &found.version);
    match removed.await {
        Err(RemoteError::Conflict(..)) => return Ok(()),
        other => other?,
    }
    let (namespace, name) = (&*found.namespace, &*found.name);
    tracing::info!(
        namespace,
        name,
        "removed a Secret of a project without quota"
    );
    Ok(())
}

fn skipped(cluster: &str, why: &str) {
    tracing::warn!(
        cluster,
        why,
        "Secrets left behind there stay until the next sweep"
    );
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Those whose project has no quota. No quota at all says that the list is wrong rather than that all are gone.
fn orphans(
    found: Vec<ProjectSecret>,
    quotas: &BTreeSet<String>,
) -> Result<Vec<ProjectSecret>, String> {
    if quotas.is_empty() {
        return Err("there is no FloatingIPProjectQuota at all".to_owned());
    }
    let has_quota = |project: &str| quotas.contains(project);
    let is_orphan = |one: &ProjectSecret| left_by(&one.name, has_quota).is_some();
    Ok(found.into_iter().filter(is_orphan).collect())
}

/// The project that a Secret of this name is of, where that has no quota.
pub fn left_by(secret: &str, has_quota: impl Fn(&str) -> bool) -> Option<&str> {
    let project = secret.strip_prefix(PROJECT_SECRET_PREFIX)?;
    (!project.is_empty() && !has_quota(project)).then_some(project)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::client::testing::canned;

    #[test]
    fn a_guest_may_answer_with_anything() {
        let whole = json!({ "metadata": { "name": format!("{PROJECT_SECRET_PREFIX}p-a"), "uid": "u", "resourceVersion": "7" } });
        assert_eq!(found("c-1", &whole).unwrap().namespace, "c-1");
        for odd in [
            json!(1),
            json!("x"),
            json!([{}]),
            json!(null),
            json!({ "metadata": 1 }),
            json!({ "metadata": { "name": 7, "uid": "u", "resourceVersion": "7" } }),
        ] {
            assert!(found("c-1", &odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn only_secrets_of_projects_without_quota_are_orphans_and_none_where_there_is_no_quota() {
        let found = |name: &str| ProjectSecret {
            namespace: "c-1".into(),
            name: name.into(),
            uid: "u".into(),
            version: "7".into(),
        };
        let all = [
            "rancher-fip-config-p-1",
            "rancher-fip-config-p-2",
            "cacerts",
            "rancher-fip-config-",
        ];
        let all: Vec<ProjectSecret> = all.map(found).into();
        let quotas = BTreeSet::from(["p-1".to_owned()]);
        assert_eq!(
            orphans(all.clone(), &quotas),
            Ok(vec![found("rancher-fip-config-p-2")])
        );
        assert!(orphans(all, &BTreeSet::new()).is_err());
    }

    #[tokio::test]
    async fn a_secret_is_deleted_only_as_it_was_listed_and_while_there_is_no_quota() {
        let found = ProjectSecret {
            namespace: "c-1".into(),
            name: "rancher-fip-config-p-1".into(),
            uid: "u".into(),
            version: "7".into(),
        };
        let (remote, asked) = canned(&[("GET", 200, "{}")]);
        remove(&remote, &remote, &found).await.unwrap();
        assert_eq!(asked.lock().len(), 1, "a quota that came meanwhile");

        let (remote, asked) = canned(&[("GET", 404, "{}"), ("DELETE", 200, "{}")]);
        remove(&remote, &remote, &found).await.unwrap();
        let body = asked.lock().pop().unwrap().body;
        let only = json!({ "uid": "u", "resourceVersion": "7" });
        assert_eq!(body["preconditions"], only);

        let (remote, asked) = canned(&[("GET", 403, "{}")]);
        remove(&remote, &remote, &found).await.unwrap_err();
        assert_eq!(asked.lock().len(), 1, "nothing is deleted on a doubt");
    }
}
