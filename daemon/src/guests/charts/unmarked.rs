//! The charts of releases that carry no mark of fipd. What helm stores in the Secret of a revision says them, and the HelmChart of
//! a release that helm-controller may not have installed yet.

use kube::ResourceExt as _;
use serde_json::Value;

use super::{BUSY, ChartError, InstalledReleases, ReleaseMark, ReleaseOwner};
use crate::{
    controller::{client::Remote, kind::SECRET, owned::is_ours},
    helm::{self, SECRET_TYPE},
};

/// Releases that are looked into at most: each look reads up to a megabyte.
const MOST: usize = 256;

impl InstalledReleases {
    /// A release without a mark of fipd, at another place than `release`, that is of one of these `charts`: by its HelmChart or by
    /// its newest revision.
    ///
    /// # Errors
    /// It is not known of each whether it is of such a chart: then a second one may not come.
    pub async fn unmarked_of(
        &self,
        remote: &Remote,
        release: (&str, &str),
        charts: &[&str],
    ) -> Result<Option<ReleaseMark>, ChartError> {
        let place = |mark: &ReleaseMark| (&*mark.namespace, &*mark.name) != release;
        let is_wanted = |chart: &str| charts.contains(&chart);
        let object = self.foreign_objects(is_wanted).find(place);
        if object.is_some() {
            return Ok(object);
        }
        let unmarked: Vec<ReleaseMark> = self.unmarked().filter(place).collect();
        let all = unmarked.len();
        if all > MOST {
            let why = format!(
                "{all} releases in the cluster are not fipd's, and no more than {MOST} are asked for their charts: install {} by helm, and fipd keeps it",
                release.1
            );
            return Err(ChartError::new("ReleaseUnclear", why));
        }
        for mark in unmarked {
            let chart = self.chart_of(remote, &mark).await?;
            if chart.is_some_and(|chart| charts.contains(&&*chart)) {
                return Ok(Some(mark));
            }
        }
        Ok(None)
    }

    /// Every release without a mark of fipd that `is_named` knows by its name, or that is of one of these `charts` by its newest
    /// revision or its HelmChart; and why that is not known of others.
    pub async fn all_unmarked_of(
        &self,
        remote: &Remote,
        is_named: impl Fn(&ReleaseMark) -> bool,
        charts: &[String],
    ) -> (Vec<ReleaseMark>, Vec<String>) {
        let (mut found, others): (Vec<_>, Vec<_>) = self.unmarked().partition(is_named);
        let mut unclear = Vec::new();
        if others.len() > MOST {
            let count = others.len();
            let why = format!("{count} releases are not fipd's, and {MOST} are asked for charts");
            unclear.push(why);
        }
        for mark in others.into_iter().take(MOST) {
            match self.chart_of(remote, &mark).await {
                Ok(Some(chart)) if charts.contains(&chart) => found.push(ReleaseMark {
                    chart: Some(chart),
                    ..mark
                }),
                Ok(Some(_) | None) => {}
                Err(error) => {
                    let is_last = error.is_unreadable();
                    unclear.push(error.message);
                    // Each of the others may take the whole deadline of a request as well.
                    if is_last {
                        break;
                    }
                }
            }
        }
        found.extend(self.foreign_objects(|chart| charts.iter().any(|one| one == chart)));
        (found, unclear)
    }

    /// The releases of the HelmCharts that are not fipd's and whose chart `is_wanted` knows by its name.
    fn foreign_objects(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = ReleaseMark> {
        let objects = self.objects.all().iter();
        let theirs = objects.filter(|object| !is_ours(&object.metadata));
        theirs.filter_map(move |object| {
            let chart = object.spec.chart.rsplit('/').next()?;
            is_wanted(chart).then(|| ReleaseMark {
                namespace: object.release_namespace().to_owned(),
                name: object.name_any(),
                owner: ReleaseOwner::Other,
                chart: Some(chart.to_owned()),
            })
        })
    }

    /// The chart of a release; `None`: its Secret is not one of helm's.
    async fn chart_of(
        &self,
        remote: &Remote,
        mark: &ReleaseMark,
    ) -> Result<Option<String>, ChartError> {
        let ReleaseMark {
            namespace, name, ..
        } = mark;
        let state = self.state(namespace, name).unwrap_or_default();
        let secret = state.split(' ').next().unwrap_or_default();
        let found = remote.get(&SECRET.named(namespace, secret)).await;
        let found: Option<Value> = found.map_err(ChartError::unreadable)?;
        let Some(found) = found else {
            let why = format!("the release {name:?} in namespace {namespace:?} changed meanwhile");
            return Err(ChartError::new(BUSY, why));
        };
        if found["type"] != SECRET_TYPE {
            return Ok(None);
        }
        let chart = helm::chart_name(&found).map_err(|why| {
            let why = format!(
                "Secret {namespace}/{secret} does not say of which chart the release {name:?} is ({why}), which may be the one that is wanted: upgrade or uninstall the release, or delete the Secret where `helm list` does not show it"
            );
            ChartError::new("ReleaseUnclear", why)
        })?;
        Ok(Some(chart))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{controller::client::testing::serving, guests::system::testing::FIRST};

    /// Finds a second release of the chart `vip` in a guest with these: namespace, name, and the Secret of the newest revision.
    async fn second(
        releases: &[(&'static str, &'static str, Value)],
    ) -> (Result<Option<String>, &'static str>, usize) {
        let listed = releases.iter().map(|(namespace, name, secret)| {
            let labels = json!({ "name": name, "version": "1", "status": "deployed" });
            let mut meta = json!({
                "namespace": namespace, "name": name, "resourceVersion": "7", "labels": labels,
            });
            if secret["ours"] == true {
                meta["labels"]["app.kubernetes.io/managed-by"] = json!("fipd");
            }
            json!({ "metadata": meta })
        });
        let listed = json!({ "metadata": {}, "items": listed.collect::<Vec<_>>() });
        let secrets: Vec<(String, Value)> = releases
            .iter()
            .map(|(namespace, name, secret)| {
                let path = format!("/namespaces/{namespace}/secrets/{name}");
                (path, secret.clone())
            })
            .collect();
        let (remote, asked) = serving(move |path| {
            let mut secrets = secrets.iter();
            match secrets.find(|(end, _)| path.ends_with(end.as_str())) {
                Some((_, Value::Null)) => (404, json!("no")),
                Some((_, secret)) => (200, secret.clone()),
                None if path.ends_with("/secrets") => (200, listed.clone()),
                None => (404, json!("no")),
            }
        });
        let installed = InstalledReleases::read(&remote, FIRST).await.unwrap();
        let before = asked.lock().len();
        let found = installed.unmarked_of(&remote, ("lb", "wanted"), &["vip"]);
        let found = found.await.map(|mark| mark.map(|mark| mark.name));
        let asked = asked.lock().len() - before;
        (found.map_err(|error| error.reason), asked)
    }

    fn of(chart: &str) -> Value {
        helm::secret(1, "deployed", (chart, "1.0.0"), &json!({}))
    }

    #[tokio::test]
    async fn a_release_of_the_chart_is_found_under_any_name_in_any_namespace() {
        let releases = [
            ("db", "vip", of("postgres")),
            ("lb", "wanted", of("vip")),
            ("lb", "fipds", json!({ "ours": true })),
            ("other", "theirs", of("vip")),
        ];
        assert_eq!(second(&releases).await, (Ok(Some("theirs".into())), 2));
        assert_eq!(second(&releases[..3]).await, (Ok(None), 1));
    }

    #[tokio::test]
    async fn what_cannot_be_read_keeps_a_second_one_out() {
        let broken = json!({ "type": SECRET_TYPE, "data": { "release": "?" } });
        for (secret, expected) in [
            (broken, Err("ReleaseUnclear")),
            (Value::Null, Err(BUSY)),
            (json!({ "type": "Opaque" }), Ok(None)),
        ] {
            let found = second(&[("lb", "theirs", secret)]).await;
            assert_eq!(found, (expected, 1));
        }
        let many: Vec<_> = (0..=MOST).map(|number| format!("r{number}")).collect();
        let many: Vec<_> = (many.into_iter())
            .map(|name| ("lb", &*name.leak(), Value::Null))
            .collect();
        assert_eq!(second(&many).await, (Err("ReleaseUnclear"), 0));
    }

    #[tokio::test]
    async fn a_helm_chart_that_is_not_installed_yet_keeps_a_second_one_out() {
        let object = |name: &str, chart: &str, labels: Value| {
            json!({
                "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
                "metadata": { "name": name, "namespace": "kube-system", "labels": labels },
                "spec": { "chart": chart, "targetNamespace": "lb" },
            })
        };
        let ours = json!({ "app.kubernetes.io/managed-by": "fipd" });
        for (object, expected) in [
            (object("pending", "repo/vip", json!({})), Some("pending")),
            (object("pending", "postgres", json!({})), None),
            (object("wanted", "vip", json!({})), None),
            (object("pending", "vip", ours), None),
        ] {
            let listed = json!({ "metadata": {}, "items": [object] });
            let (remote, _) = serving(move |path| match path.ends_with("/helmcharts") {
                true => (200, listed.clone()),
                false => (200, json!({ "metadata": {}, "items": [] })),
            });
            let installed = InstalledReleases::read(&remote, FIRST).await.unwrap();
            let found = installed.unmarked_of(&remote, ("lb", "wanted"), &["vip"]);
            let found = found.await.unwrap().map(|mark| mark.name);
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[tokio::test]
    async fn no_more_secrets_are_asked_for_once_one_cannot_be_read() {
        let revision = |name: &str| {
            let labels = json!({ "name": name, "version": "1", "status": "deployed" });
            let meta = json!({
                "namespace": "lb", "name": name, "resourceVersion": "7", "labels": labels,
            });
            json!({ "metadata": meta })
        };
        let listed = ["a", "b", "vip"].map(revision);
        let listed = json!({ "metadata": {}, "items": listed });
        for (code, looks) in [(500, 1), (403, 1), (404, 2)] {
            let listed = listed.clone();
            let (remote, asked) = serving(move |path| match path.rsplit('/').next() {
                Some("secrets") => (200, listed.clone()),
                Some("a" | "b") => (code, json!("no")),
                Some(_) | None => (404, json!("no")),
            });
            let installed = InstalledReleases::read(&remote, FIRST).await.unwrap();
            let before = asked.lock().len();
            let is_named = |mark: &ReleaseMark| mark.name == "vip";
            let charts = ["vip".to_owned()];
            let all = installed.all_unmarked_of(&remote, is_named, &charts);
            let (found, unclear) = all.await;
            assert_eq!((found.len(), unclear.len()), (1, looks), "{unclear:?}");
            assert_eq!(asked.lock().len() - before, looks);
        }
    }
}
