//! The releases in a guest that carry fipd's mark, whichever settings they were installed by: the Secrets in which helm
//! keeps a release, and HelmCharts. Those of another system of fipd are as foreign as any that fipd did not install.

use std::collections::{BTreeMap, BTreeSet};

use fipd_crds::{helm_chart::HelmChart, labels::ADOPTED};
use kube::ResourceExt as _;
use serde_json::Value;

use super::helm_chart::{HelmCharts, plan::whose};
use crate::{
    controller::{
        client::{CallError, Remote},
        kind::SECRET,
        owned::{is_marked, is_ours},
    },
    guests::{GuestSystem, ReleaseView, charts::ChartError},
    helm::{CHART_LABEL, SYSTEM_LABEL},
};

/// Whose a release is for the system that looks, as the Secrets say in which helm keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOwner {
    Fipd,
    /// fipd keeps in step what another installed.
    Adopted,
    /// Somebody else's, or another system's of fipd.
    Other,
}

/// A release that carries fipd's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseMark {
    pub namespace: String,
    pub name: String,
    /// [`ReleaseOwner::Other`]: a HelmChart of somebody else keeps it.
    pub owner: ReleaseOwner,
    /// The name of its chart; `None`: nobody noted it.
    pub chart: Option<String>,
}

/// The releases in a guest, at one look.
pub struct InstalledReleases {
    pub objects: HelmCharts,
    pub marks: Vec<ReleaseMark>,
    /// What other systems of fipd keep here, or what they want and somebody else installed.
    pub others: Vec<ReleaseMark>,
    /// All releases that helm keeps, whoever installed them.
    found: BTreeMap<Place, FoundRelease>,
    system: GuestSystem,
}

/// A release, by the Secret of its newest revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundRelease {
    owner: ReleaseOwner,
    is_deployed: bool,
    /// Name and `resourceVersion` of that Secret, a space between them.
    state: Option<String>,
}

/// Namespace and name of a release.
type Place = (String, String);

impl InstalledReleases {
    /// As `system` sees them.
    pub async fn read(remote: &Remote, system: GuestSystem) -> Result<Self, CallError> {
        let objects = HelmCharts::list(remote, system).await?;
        let revisions = remote
            .list_meta(&SECRET.named("", ""), "owner=helm")
            .await?;
        let releases = newest_by_place(&revisions);
        let (marks, others) = marks(&releases, &marked(&revisions), objects.all(), system);
        Ok(Self {
            found: found(&releases, system),
            objects,
            marks,
            others,
            system,
        })
    }

    /// Whether the release of this place is deployed, with or without a mark, and nothing is left to be done about it: a HelmChart
    /// gets the version that was installed, or helm-controller would take the newest on any occasion.
    pub async fn is_complete(
        &self,
        remote: &Remote,
        namespace: &str,
        name: &str,
    ) -> Result<bool, CallError> {
        let object = self.objects.of(namespace, name);
        let is_open = |object: &HelmChart| {
            object.spec.version.is_empty() || object.metadata.deletion_timestamp.is_some()
        };
        let ours = |object: &HelmChart| whose(object, self.system) != ReleaseOwner::Other;
        if object.is_some_and(|object| ours(object) && is_open(object)) {
            return Ok(false);
        }
        if self
            .found(namespace, name)
            .is_some_and(|found| found.is_deployed)
        {
            return Ok(true);
        }
        // The steps before this one may have taken minutes.
        let revisions = revisions(remote, namespace, name).await?;
        let status = newest(&revisions).and_then(|newest| label(newest, "status"));
        Ok(status == Some(DEPLOYED))
    }

    /// Counts a release among those of other systems where one of them wants it and somebody else installed it.
    pub fn note_other(&mut self, release: &ReleaseView) {
        let same = |mark: &ReleaseMark| {
            (&mark.namespace, &mark.name) == (&release.namespace, &release.name)
        };
        let found = self.unmarked().find(same);
        self.others.extend(found);
    }

    /// The releases, in any namespace, that carry no mark of fipd.
    pub fn unmarked(&self) -> impl Iterator<Item = ReleaseMark> {
        let is_marked = |place: &Place| {
            let mut marks = self.marks.iter().chain(&self.others);
            marks.any(|mark| (&mark.namespace, &mark.name) == (&place.0, &place.1))
        };
        let found = self
            .found
            .iter()
            .filter(move |(place, found)| found.owner == ReleaseOwner::Other && !is_marked(place));
        found.map(|((namespace, name), found)| ReleaseMark {
            namespace: namespace.clone(),
            name: name.clone(),
            owner: found.owner,
            chart: None,
        })
    }

    /// Whether no other system of fipd has a release in the guest: each brings a load balancer, and two would answer for
    /// the same Services. Who is there already stays.
    pub fn check_system(&self, namespace: &str, name: &str) -> Result<(), ChartError> {
        let same = |mark: &&ReleaseMark| mark.namespace == namespace && mark.name == name;
        let own =
            self.marks.iter().any(|mark| same(&mark)) || self.found(namespace, name).is_some();
        match self.others.iter().find(same).or(self.others.first()) {
            Some(mark) if same(&mark) => Err(ChartError::other_system(mark)),
            Some(mark) if !own => Err(ChartError::other_load_balancer(mark)),
            Some(_) | None => Ok(()),
        }
    }

    /// What helm's Secrets alone said of the release of this place at the look.
    fn found(&self, namespace: &str, name: &str) -> Option<&FoundRelease> {
        let place = (namespace.to_owned(), name.to_owned());
        self.found.get(&place)
    }

    /// Tells apart the states of a release; another revision is another state. `None`: it is not known.
    pub fn state(&self, namespace: &str, name: &str) -> Option<&str> {
        self.found(namespace, name)?.state.as_deref()
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
            None => owner(remote, namespace, name, self.system).await,
        }
    }
}

/// Helm's word for a release whose last operation went well.
const DEPLOYED: &str = "deployed";

/// The release that a revision is of.
fn place_of(revision: &Value) -> Option<Place> {
    let namespace = revision.pointer("/metadata/namespace")?.as_str()?;
    Some((namespace.to_owned(), label(revision, "name")?.to_owned()))
}

/// The newest revision of each release.
fn newest_by_place(revisions: &[Value]) -> BTreeMap<Place, &Value> {
    let mut releases: BTreeMap<Place, Vec<&Value>> = BTreeMap::new();
    for revision in revisions {
        let Some(place) = place_of(revision) else {
            continue;
        };
        releases.entry(place).or_default().push(revision);
    }
    let releases = releases.into_iter();
    releases
        .filter_map(|(place, revisions)| Some((place, newest(revisions)?)))
        .collect()
}

fn found(releases: &BTreeMap<Place, &Value>, system: GuestSystem) -> BTreeMap<Place, FoundRelease> {
    let found = releases.iter().filter_map(|(place, newest)| {
        let text = |path| newest.pointer(path).and_then(Value::as_str);
        let version = text("/metadata/resourceVersion");
        let release = FoundRelease {
            owner: owner_of(Some(newest), system)?,
            is_deployed: label(newest, "status") == Some(DEPLOYED),
            state: text("/metadata/name")
                .zip(version)
                .map(|(name, version)| format!("{name} {version}")),
        };
        Some((place.clone(), release))
    });
    found.collect()
}

/// Releases of which a revision carries fipd's mark: an upgrade by hand may have left the newest one without.
fn marked(revisions: &[Value]) -> BTreeSet<Place> {
    let marked = revisions.iter().filter(|revision| is_marked(revision));
    marked.filter_map(place_of).collect()
}

/// Those of the system and those of others of fipd. A HelmChart says whose its release is, before the Secrets do.
fn marks(
    releases: &BTreeMap<Place, &Value>,
    marked: &BTreeSet<Place>,
    charts: &[HelmChart],
    system: GuestSystem,
) -> (Vec<ReleaseMark>, Vec<ReleaseMark>) {
    let mut owners: BTreeMap<Place, ReleaseOwner> = BTreeMap::new();
    let mut others = BTreeSet::new();
    for (place, newest) in releases.iter().filter(|(place, _)| marked.contains(*place)) {
        match owner_of(Some(newest), system) {
            Some(ReleaseOwner::Other) if is_marked(newest) => {
                others.insert(place.clone());
            }
            Some(owner) => {
                owners.insert(place.clone(), owner);
            }
            None => {}
        }
    }
    for chart in charts {
        let place = (chart.release_namespace().to_owned(), chart.name_any());
        let owner = whose(chart, system);
        if owner == ReleaseOwner::Other && is_ours(&chart.metadata) {
            owners.remove(&place);
            others.insert(place);
        } else if owner != ReleaseOwner::Other || owners.contains_key(&place) {
            others.remove(&place);
            owners.insert(place, owner);
        }
    }
    let mark = |(place, owner): (Place, ReleaseOwner)| {
        let noted = releases
            .get(&place)
            .and_then(|newest| label(newest, CHART_LABEL));
        let mut objects = charts.iter();
        let object = objects.find(|chart| {
            (chart.release_namespace(), &*chart.name_any()) == (&*place.0, &*place.1)
        });
        let chart = object.map_or(noted, |object| object.spec.chart.rsplit('/').next());
        ReleaseMark {
            chart: chart.filter(|chart| !chart.is_empty()).map(str::to_owned),
            namespace: place.0,
            name: place.1,
            owner,
        }
    };
    let others = others.into_iter().map(|place| (place, ReleaseOwner::Other));
    (
        owners.into_iter().map(mark).collect(),
        others.map(mark).collect(),
    )
}

/// Whose a release is; `None`: there is none.
pub async fn owner(
    remote: &Remote,
    namespace: &str,
    name: &str,
    system: GuestSystem,
) -> Result<Option<ReleaseOwner>, CallError> {
    let revisions = revisions(remote, namespace, name).await?;
    Ok(owner_of(newest(&revisions), system))
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

/// Name of the Secret with the newest revision of a release; `None`: there is none.
pub async fn newest_revision(
    remote: &Remote,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, CallError> {
    let revisions = revisions(remote, namespace, name).await?;
    let newest = newest(&revisions).and_then(|newest| newest.pointer("/metadata/name"));
    Ok(newest.and_then(Value::as_str).map(str::to_owned))
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
fn owner_of(newest: Option<&Value>, system: GuestSystem) -> Option<ReleaseOwner> {
    let newest = newest?;
    if label(newest, "status") == Some("uninstalled") {
        return None;
    }
    let ours = is_marked(newest) && label(newest, SYSTEM_LABEL) == system.mark();
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
    use crate::{
        guests::system::testing::{FIRST, SECOND},
        helm::{OWNER, OWNER_LABEL},
    };

    /// The labels of a revision.
    fn deployed_by_fipd(name: &str, version: &str) -> Value {
        json!({ "name": name, "version": version, "status": "deployed", OWNER_LABEL: OWNER })
    }

    /// What two systems of fipd installed, by either engine, and what a third party did.
    #[test]
    fn no_system_takes_the_releases_of_another_for_its_own() {
        let labels = |name: &str, system: Option<&str>| {
            let mut labels = deployed_by_fipd(name, "1");
            if let Some(system) = system {
                labels[SYSTEM_LABEL] = json!(system);
            }
            labels
        };
        let secret = |name: &str, system| json!({ "metadata": { "namespace": "lb", "labels": labels(name, system) } });
        let chart = |name: &str, labels: Value| -> HelmChart {
            serde_json::from_value(json!({
                "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
                "metadata": { "name": name, "namespace": "kube-system", "labels": labels },
                "spec": { "targetNamespace": "lb" },
            }))
            .unwrap()
        };
        let revisions = [
            secret("a", None),
            secret("b", Some("second")),
            secret("moved", None),
        ];
        let charts = [
            chart("c", labels("c", None)),
            chart("d", labels("d", Some("second"))),
            chart("foreign", json!({})),
            // The object says it, whoever installed the release before.
            chart("moved", labels("moved", Some("second"))),
        ];
        let named = |marks: Vec<ReleaseMark>, owner: ReleaseOwner| -> Vec<String> {
            assert!(marks.iter().all(|mark| mark.owner == owner), "{marks:?}");
            marks.into_iter().map(|mark| mark.name).collect()
        };
        let of = |system| {
            let (own, others) = marks(
                &newest_by_place(&revisions),
                &marked(&revisions),
                &charts,
                system,
            );
            let own = named(own, ReleaseOwner::Fipd);
            (own, named(others, ReleaseOwner::Other))
        };
        let both = |one: &[&str], other: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            (owned(one), owned(other))
        };
        assert_eq!(of(FIRST), both(&["a", "c"], &["b", "d", "moved"]));
        assert_eq!(of(SECOND), both(&["b", "d", "moved"], &["a", "c"]));
        let unknown = GuestSystem {
            name: "third",
            unnamed: false,
        };
        assert!(of(unknown).0.is_empty());
    }

    #[test]
    fn a_release_is_of_the_chart_that_is_noted_whatever_its_name() {
        let secret = |name: &str, chart: Option<&str>| {
            let mut labels = deployed_by_fipd(name, "1");
            if let Some(chart) = chart {
                labels[CHART_LABEL] = json!(chart);
            }
            json!({ "metadata": { "namespace": "lb", "labels": labels } })
        };
        let object = |name: &str, chart: &str| -> HelmChart {
            serde_json::from_value(json!({
                "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
                "metadata": { "name": name, "namespace": "kube-system", "labels": { OWNER_LABEL: OWNER } },
                "spec": { "targetNamespace": "lb", "chart": chart },
            }))
            .unwrap()
        };
        let revisions = [
            secret("by-helm", Some("vip")),
            secret("unnoted", None),
            secret("by-object", Some("other")),
        ];
        let objects = [
            object("by-object", "vip"),
            object("by-reference", "oci://registry.example.net/charts/vip"),
            object("unsaid", ""),
        ];
        let (marks, _) = marks(
            &newest_by_place(&revisions),
            &marked(&revisions),
            &objects,
            FIRST,
        );
        let charts = marks
            .iter()
            .map(|mark| (&*mark.name, mark.chart.as_deref()));
        let expected = [
            ("by-helm", Some("vip")),
            ("by-object", Some("vip")),
            ("by-reference", Some("vip")),
            ("unnoted", None),
            ("unsaid", None),
        ];
        assert_eq!(charts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_newest_revision_says_whose_a_release_is() {
        let newest_owner = |revisions: &[Value]| owner_of(newest(revisions), FIRST);
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
    fn the_newest_revision_says_whether_a_release_is_deployed() {
        let secret = |name: &str, version: &str, status: &str| {
            let labels = json!({ "name": name, "version": version, "status": status });
            json!({ "metadata": {
                "namespace": "lb", "labels": labels, "name": format!("{name}.v{version}"), "resourceVersion": "7",
            } })
        };
        let revisions = [
            secret("a", "9", "superseded"),
            secret("a", "10", "deployed"),
            secret("b", "1", "deployed"),
            secret("b", "2", "failed"),
        ];
        let place = |name: &str| ("lb".to_owned(), name.to_owned());
        let expected = [("a", true, "a.v10 7"), ("b", false, "b.v2 7")];
        let expected = expected.map(|(name, is_deployed, state)| {
            let found = FoundRelease {
                owner: ReleaseOwner::Other,
                is_deployed,
                state: Some(state.to_owned()),
            };
            (place(name), found)
        });
        let found = found(&newest_by_place(&revisions), FIRST);
        assert_eq!(found, BTreeMap::from(expected), "whoever installed them");
    }

    #[test]
    fn releases_are_found_wherever_they_are() {
        let secret = |namespace: &str, name: &str, version: &str, adopted: bool| {
            let mut labels = deployed_by_fipd(name, version);
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
            secret("old", "by-hand", "1", false),
            json!({ "metadata": { "namespace": "old", "labels": {
                "name": "by-hand", "version": "2", "status": "deployed",
            } } }),
        ];
        let ours = json!({ OWNER_LABEL: OWNER });
        let charts = [
            chart("metallb", "new", ours.clone()),
            chart("x", "theirs", json!({})),
            chart("foreign", "new", json!({})),
        ];
        let (found, others) = marks(
            &newest_by_place(&revisions),
            &marked(&revisions),
            &charts,
            FIRST,
        );
        assert_eq!(others, []);
        let found: Vec<_> = found
            .into_iter()
            .map(|mark| (format!("{}/{}", mark.namespace, mark.name), mark.owner))
            .collect();
        let expected = [
            ("new/metallb", ReleaseOwner::Fipd),
            ("old/by-hand", ReleaseOwner::Other),
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
