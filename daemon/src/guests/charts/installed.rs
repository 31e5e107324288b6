//! The releases in a guest that carry fipd's mark, whichever settings they were installed by: the Secrets in which helm
//! keeps a release, and HelmCharts.

use std::collections::{BTreeMap, BTreeSet};

use fipd_crds::{helm_chart::HelmChart, labels::ADOPTED};
use kube::ResourceExt as _;
use serde_json::Value;

use super::helm_chart::{HelmCharts, plan::whose};
use crate::{
    controller::{
        client::{CallError, Remote},
        kind::SECRET,
    },
    helm::{OWNER, OWNER_LABEL},
};

/// Whose a release is, as the Secrets say in which helm keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOwner {
    Fipd,
    /// fipd keeps in step what another installed.
    Adopted,
    Other,
}

/// A release that carries fipd's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseMark {
    pub namespace: String,
    pub name: String,
    /// [`ReleaseOwner::Other`]: a HelmChart of somebody else keeps it.
    pub owner: ReleaseOwner,
}

/// The releases in a guest, at one look.
pub struct InstalledReleases {
    pub objects: HelmCharts,
    pub marks: Vec<ReleaseMark>,
}

impl InstalledReleases {
    pub async fn read(remote: &Remote) -> Result<Self, CallError> {
        let objects = HelmCharts::list(remote).await?;
        let all = SECRET.named("", "");
        let marked = format!("owner=helm,{OWNER_LABEL}={OWNER}");
        let revisions = remote.list_meta(&all, &marked).await?;
        Ok(Self {
            marks: marks(&revisions, objects.all()),
            objects,
        })
    }

    /// Whose the release of this place is, with or without a mark; `None`: there is none.
    pub async fn owner(
        &self,
        remote: &Remote,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ReleaseOwner>, CallError> {
        let at = |mark: &&ReleaseMark| mark.namespace == namespace && mark.name == name;
        if let Some(mark) = self.marks.iter().find(at) {
            return Ok(Some(mark.owner));
        }
        match self.objects.of(namespace, name) {
            Some(_) => Ok(Some(ReleaseOwner::Other)),
            None => owner(remote, namespace, name).await,
        }
    }
}

/// A HelmChart says whose its release is, before the Secrets do.
fn marks(revisions: &[Value], charts: &[HelmChart]) -> Vec<ReleaseMark> {
    let mut releases: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for revision in revisions {
        let namespace = revision.pointer("/metadata/namespace");
        let (Some(namespace), Some(name)) =
            (namespace.and_then(Value::as_str), label(revision, "name"))
        else {
            continue;
        };
        let place = (namespace.to_owned(), name.to_owned());
        releases.entry(place).or_default().push(revision);
    }
    let owned = releases.into_iter();
    let mut owners: BTreeMap<(String, String), ReleaseOwner> = owned
        .filter_map(|(place, revisions)| Some((place, owner_of(newest(revisions))?)))
        .collect();
    for chart in charts {
        let place = (chart.release_namespace().to_owned(), chart.name_any());
        let owner = whose(chart);
        if owner != ReleaseOwner::Other || owners.contains_key(&place) {
            owners.insert(place, owner);
        }
    }
    let mark = |((namespace, name), owner)| ReleaseMark {
        namespace,
        name,
        owner,
    };
    owners.into_iter().map(mark).collect()
}

/// Whose a release is; `None`: there is none.
pub async fn owner(
    remote: &Remote,
    namespace: &str,
    name: &str,
) -> Result<Option<ReleaseOwner>, CallError> {
    let revisions = revisions(remote, namespace, name).await?;
    Ok(owner_of(newest(&revisions)))
}

/// The Secrets in which helm keeps a release.
pub async fn revisions(
    remote: &Remote,
    namespace: &str,
    name: &str,
) -> Result<Vec<Value>, CallError> {
    let all = SECRET.named(namespace, "");
    let named = format!("owner=helm,name={name}");
    remote.list_meta(&all, &named).await
}

/// The releases in a namespace, whoever installed them.
pub async fn release_names(
    remote: &Remote,
    namespace: &str,
) -> Result<BTreeSet<String>, CallError> {
    let all = SECRET.named(namespace, "");
    let revisions = remote.list_meta(&all, "owner=helm").await?;
    let there = revisions
        .iter()
        .filter(|one| label(one, "status") != Some("uninstalled"));
    let names = there.filter_map(|one| Some(label(one, "name")?.to_owned()));
    Ok(names.collect())
}

fn label<'a>(secret: &'a Value, key: &str) -> Option<&'a str> {
    let labels = secret.get("metadata")?.get("labels")?;
    labels.get(key)?.as_str()
}

pub fn newest<'a>(revisions: impl IntoIterator<Item = &'a Value>) -> Option<&'a Value> {
    let revision = |secret: &&Value| label(secret, "version")?.parse::<u64>().ok();
    revisions.into_iter().max_by_key(revision)
}

/// Whose a release is, by its newest revision.
fn owner_of(newest: Option<&Value>) -> Option<ReleaseOwner> {
    let newest = newest?;
    if label(newest, "status") == Some("uninstalled") {
        return None;
    }
    let ours = label(newest, OWNER_LABEL) == Some(OWNER);
    Some(match (ours, label(newest, ADOPTED)) {
        (true, None) => ReleaseOwner::Fipd,
        (true, Some(_)) => ReleaseOwner::Adopted,
        (false, _) => ReleaseOwner::Other,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_revision_says_whose_a_release_is() {
        let newest_owner = |revisions: &[Value]| owner_of(newest(revisions));
        let secret = |version: &str, status: &str, ours: bool| {
            let mut labels = json!({ "version": version, "status": status });
            if ours {
                labels[OWNER_LABEL] = json!(OWNER);
            }
            json!({ "metadata": { "labels": labels } })
        };
        assert_eq!(newest_owner(&[]), None);
        let adopted = [
            secret("9", "superseded", false),
            secret("10", "deployed", true),
        ];
        assert_eq!(newest_owner(&adopted), Some(ReleaseOwner::Fipd));
        assert_eq!(newest_owner(&adopted[..1]), Some(ReleaseOwner::Other));
        assert_eq!(newest_owner(&[secret("1", "uninstalled", false)]), None);
        let mut taken_over = secret("11", "deployed", true);
        taken_over["metadata"]["labels"][ADOPTED] = json!("true");
        assert_eq!(newest_owner(&[taken_over]), Some(ReleaseOwner::Adopted));
    }

    #[test]
    fn releases_are_found_wherever_they_are() {
        let secret = |namespace: &str, name: &str, version: &str, adopted: bool| {
            let mut labels = json!({
                "name": name, "version": version, "status": "deployed", OWNER_LABEL: OWNER,
            });
            if adopted {
                labels[ADOPTED] = json!("true");
            }
            json!({ "metadata": { "namespace": namespace, "labels": labels } })
        };
        let chart = |name: &str, namespace: &str, labels: Value| -> HelmChart {
            serde_json::from_value(json!({
                "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
                "metadata": { "name": name, "namespace": "kube-system", "labels": labels },
                "spec": { "targetNamespace": namespace },
            }))
            .unwrap()
        };
        let revisions = [
            secret("old", "lb", "1", false),
            secret("old", "lb", "2", false),
            secret("old", "purelb", "3", true),
            secret("theirs", "x", "1", false),
        ];
        let ours = json!({ OWNER_LABEL: OWNER });
        let charts = [
            chart("metallb", "new", ours.clone()),
            chart("x", "theirs", json!({})),
            chart("foreign", "new", json!({})),
        ];
        let found: Vec<_> = marks(&revisions, &charts)
            .into_iter()
            .map(|mark| (format!("{}/{}", mark.namespace, mark.name), mark.owner))
            .collect();
        let expected = [
            ("new/metallb", ReleaseOwner::Fipd),
            ("old/lb", ReleaseOwner::Fipd),
            ("old/purelb", ReleaseOwner::Adopted),
            ("theirs/x", ReleaseOwner::Other),
        ];
        assert_eq!(
            found,
            expected.map(|(place, owner)| (place.to_owned(), owner))
        );
    }
}
