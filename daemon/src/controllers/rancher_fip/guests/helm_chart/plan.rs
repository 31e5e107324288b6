//! What to do about the HelmChart of a release, and what came of it: pure.

use std::time::Duration;

use fipd_core::Timestamp;
use fipd_crds::{
    helm_chart::{HelmChart, HelmChartSpec},
    labels::ADOPTED,
};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use serde_json::{Value, json};

use crate::{
    controllers::{objects::created, rancher_fip::guests::apply::is_ours, remote::MANAGER},
    helm::{Reference, Release},
};

/// helm-controller leaves an object with this annotation alone.
pub const UNMANAGED: &str = "helmcharts.helm.cattle.io/unmanaged";
/// helm-controller holds an object by it until the release is uninstalled.
pub const FINALIZER: &str = "wrangler.cattle.io/on-helm-chart-remove";

/// Whose a HelmChart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Fipd,
    /// fipd's, for a release that another installed.
    Adopted,
    Other,
}

/// How a release stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// helm-controller has not begun.
    Waiting {
        since: Timestamp,
    },
    Running {
        since: Timestamp,
        job: String,
        failures: i32,
    },
    Deployed,
    Failed(String),
}

/// The next step in giving a release back to the helm CLI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOver {
    KeepOff,
    Delete,
    DropFinalizer,
    /// Somebody deleted the object: helm-controller uninstalls the release first.
    Wait,
}

/// The next step in keeping a release by an object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    Write,
    /// It was to be given back to the helm CLI, and is not any more.
    Manage,
    /// helm-controller was told to keep off: the object goes without the release, and is made anew.
    DropFinalizer,
    /// helm-controller uninstalls the release first.
    Wait,
}

/// The next step in uninstalling a release by its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// helm-controller was told to keep off, and would leave the release behind or the object for ever.
    Manage,
    Delete,
    Wait,
}

/// The object that keeps this release.
pub fn find<'a>(all: &'a [HelmChart], namespace: &str, name: &str) -> Option<&'a HelmChart> {
    let keeps = |chart: &&HelmChart| {
        chart.metadata.name.as_deref() == Some(name) && chart.release_namespace() == namespace
    };
    all.iter().find(keeps)
}

pub fn whose(chart: &HelmChart) -> Whose {
    let labels = chart.metadata.labels.as_ref();
    match labels.is_some_and(|labels| labels.contains_key(ADOPTED)) {
        _ if !is_ours(&chart.metadata) => Whose::Other,
        true => Whose::Adopted,
        false => Whose::Fipd,
    }
}

/// What the object is to say, without what only a new one says.
///
/// # Errors
/// Why a HelmChart cannot say it.
pub fn spec(release: &Release) -> Result<HelmChartSpec, String> {
    let chart = &release.chart;
    let (name, repo) = match &chart.reference {
        Reference::Repository(url) => (chart.name.clone(), url.clone()),
        Reference::Oci(url) => (url.clone(), String::new()),
        Reference::Local(path) => {
            return Err(format!(
                "ChartRef = {:?} is a path on fipd's host, which a HelmChart cannot name; allowed are a repository and an OCI reference, or the engine \"helm\"",
                path.display()
            ));
        }
    };
    Ok(HelmChartSpec {
        chart: name,
        repo,
        version: chart.version.to_string(),
        target_namespace: release.namespace.clone(),
        create_namespace: true,
        values_content: release.values.to_json(),
        failure_policy: String::new(),
    })
}

/// What makes `have` say what is wanted; nothing else of it is touched.
pub fn change(have: &HelmChartSpec, want: &HelmChartSpec) -> Option<Value> {
    let same = HelmChartSpec {
        failure_policy: have.failure_policy.clone(),
        ..want.clone()
    };
    let repo = (!want.repo.is_empty()).then_some(&want.repo);
    (same != *have).then(|| {
        json!({ "spec": {
            "chart": want.chart, "repo": repo, "version": want.version,
            "targetNamespace": want.target_namespace, "createNamespace": true,
            "valuesContent": want.values_content,
        } })
    })
}

/// How the release stands. A Job from before fipd's last write says nothing about that.
pub fn standing(chart: &HelmChart, job: Option<&Job>) -> Standing {
    let since = written(chart);
    let made = |job: &&Job| created(job.metadata.creation_timestamp.as_ref()) >= since;
    let Some(job) = job.filter(made) else {
        let refused = condition(chart, "JobCreated", "False").is_some();
        let failed = condition(chart, "Failed", "True").filter(|_| refused);
        return failed.map_or(Standing::Waiting { since }, Standing::Failed);
    };
    let status = job.status.clone().unwrap_or_default();
    let is = |kind: &str| {
        let conditions = status.conditions.iter().flatten();
        let mut of = conditions.filter(|one| one.type_ == kind && one.status == "True");
        of.next().map(told)
    };
    let name = job.metadata.name.clone().unwrap_or_default();
    if is("Complete").is_some() || status.succeeded.is_some_and(|some| some > 0) {
        Standing::Deployed
    } else if let Some(why) = is("Failed") {
        Standing::Failed(format!("Job {name}: {why}"))
    } else {
        Standing::Running {
            since,
            job: name,
            failures: status.failed.unwrap_or_default(),
        }
    }
}

/// Why it counts as failed, where it takes longer than `most`.
pub fn overdue(standing: &Standing, now: Timestamp, most: Duration) -> Option<String> {
    let late = |since: &Timestamp| Duration::from_millis(now.0.saturating_sub(since.0)) >= most;
    match standing {
        Standing::Waiting { since } if late(since) => Some(
            "no Job was made for its HelmChart: a helm-controller has to run in the cluster, as RKE2 and K3s have it"
                .to_owned(),
        ),
        Standing::Running {
            since,
            job,
            failures,
        } if late(since) => Some(format!(
            "Job {job} has not succeeded within {} s, {failures} of its pods failed: see their logs",
            most.as_secs()
        )),
        Standing::Waiting { .. }
        | Standing::Running { .. }
        | Standing::Deployed
        | Standing::Failed(_) => None,
    }
}

/// What is to be done so that helm-controller lets go of the release without uninstalling it.
pub fn hand_over(chart: &HelmChart) -> HandOver {
    match crossing(chart) {
        (false, false) => HandOver::KeepOff,
        (false, true) => HandOver::Wait,
        (true, false) => HandOver::Delete,
        (true, true) => HandOver::DropFinalizer,
    }
}

/// What is to be done about an object that is to keep its release, whatever was begun with it.
pub fn keep(chart: &HelmChart) -> Keep {
    match crossing(chart) {
        (false, false) => Keep::Write,
        (true, false) => Keep::Manage,
        (true, true) => Keep::DropFinalizer,
        (false, true) => Keep::Wait,
    }
}

/// What is to be done so that helm-controller uninstalls the release, whatever was begun with its object.
pub fn removal(chart: &HelmChart) -> Removal {
    match crossing(chart) {
        (true, _) => Removal::Manage,
        (false, false) => Removal::Delete,
        (false, true) => Removal::Wait,
    }
}

/// Whether helm-controller is told to keep off, and whether the object is being deleted.
fn crossing(chart: &HelmChart) -> (bool, bool) {
    let annotations = chart.metadata.annotations.as_ref();
    let off = annotations.is_some_and(|all| all.contains_key(UNMANAGED));
    (off, chart.metadata.deletion_timestamp.is_some())
}

/// When fipd last wrote the object.
fn written(chart: &HelmChart) -> Timestamp {
    let meta = &chart.metadata;
    let ours = meta.managed_fields.iter().flatten();
    let ours = ours.filter(|one| {
        one.manager.as_deref() == Some(MANAGER)
            && one.subresource.as_deref().unwrap_or("").is_empty()
    });
    let last = ours.map(|one| created(one.time.as_ref())).max();
    last.unwrap_or_else(|| created(meta.creation_timestamp.as_ref()))
}

/// Name and UID of an object.
pub fn identity(object: &Value) -> Option<(&str, &str)> {
    let meta = object.get("metadata")?;
    Some((meta.get("name")?.as_str()?, meta.get("uid")?.as_str()?))
}

fn condition(chart: &HelmChart, kind: &str, status: &str) -> Option<String> {
    let conditions = chart.status.iter().flat_map(|status| &status.conditions);
    let mut of = conditions.filter(|one| one.type_ == kind && one.status == status);
    of.next()
        .map(|one| format!("{}: {}", one.reason, one.message))
}

fn told(condition: &JobCondition) -> String {
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    format!("{reason}: {message}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff;

    use super::*;
    use crate::helm::Keys;

    fn release(reference: &str) -> Release {
        let keys = Keys {
            chart_name: "purelb",
            chart_ref: reference,
            chart_version: "0.14.1",
            namespace: "lb",
            values: "a: 1",
        };
        Release::from_keys("PureLBController", keys).unwrap()
    }

    /// Written by fipd at 10 s.
    fn chart(status: Value) -> HelmChart {
        serde_json::from_value(json!({
            "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
            "metadata": {
                "name": "purelb", "namespace": "kube-system",
                "labels": { "app.kubernetes.io/managed-by": "fipd" },
                "creationTimestamp": "1970-01-01T00:00:01Z",
                "managedFields": [
                    { "manager": "fipd", "operation": "Update", "time": "1970-01-01T00:00:10Z" },
                    { "manager": "helm-controller", "operation": "Update", "time": "1970-01-01T00:00:30Z" },
                ],
            },
            "spec": { "targetNamespace": "lb" }, "status": status,
        }))
        .unwrap()
    }

    fn job(made: u64, status: Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {
                "name": "helm-install-purelb",
                "creationTimestamp": format!("1970-01-01T00:00:{made:02}Z"),
            },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn charts_of_repositories_and_registries_can_be_said_and_paths_cannot() {
        let of = |reference: &str| spec(&release(reference));
        let repository = of("https://example.com/charts/").unwrap();
        assert_eq!(
            (&*repository.chart, &*repository.repo),
            ("purelb", "https://example.com/charts")
        );
        assert_eq!(repository.values_content, r#"{"a":1}"#);
        assert_eq!(repository.target_namespace, "lb");
        let oci = of("oci://r/p/purelb").unwrap();
        assert_eq!((&*oci.chart, &*oci.repo), ("oci://r/p/purelb", ""));
        assert!(of("/srv/purelb").unwrap_err().contains("/srv/purelb"));
    }

    #[test]
    fn only_a_difference_is_written_and_the_policy_of_an_admin_stays() {
        let want = spec(&release("https://example.com/charts")).unwrap();
        let mut have = want.clone();
        have.failure_policy = "reinstall".into();
        assert_eq!(change(&have, &want), None);
        have.values_content = "{}".into();
        let patch = change(&have, &want).unwrap();
        assert_eq!(patch["spec"]["valuesContent"], r#"{"a":1}"#);
        assert_eq!(patch["spec"].get("failurePolicy"), None);
        let oci = spec(&release("oci://r/p/purelb")).unwrap();
        assert_eq!(change(&want, &oci).unwrap()["spec"]["repo"], Value::Null);
    }

    #[test]
    fn only_a_job_that_is_newer_than_the_last_write_tells_how_it_stands() {
        let none = chart(json!(null));
        let since = Timestamp(10_000);
        let complete = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
        assert_eq!(standing(&none, None), Standing::Waiting { since });
        let old = job(9, complete.clone());
        assert_eq!(standing(&none, Some(&old)), Standing::Waiting { since });
        assert_eq!(
            standing(&none, Some(&job(10, complete))),
            Standing::Deployed
        );
        let failed = json!({ "conditions": [
            { "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often" },
        ] });
        let said =
            Standing::Failed("Job helm-install-purelb: BackoffLimitExceeded: too often".into());
        assert_eq!(standing(&none, Some(&job(11, failed))), said);
        let running = standing(&none, Some(&job(11, json!({ "failed": 2 }))));
        let expected = Standing::Running {
            since,
            job: "helm-install-purelb".into(),
            failures: 2,
        };
        assert_eq!(running, expected);
        let refused = chart(json!({ "conditions": [
            { "type": "JobCreated", "status": "False" },
            { "type": "Failed", "status": "True", "reason": "Job create failed", "message": "no" },
        ] }));
        let said = Standing::Failed("Job create failed: no".into());
        assert_eq!(standing(&refused, None), said);
    }

    #[test]
    fn what_takes_too_long_says_what_is_missing() {
        let most = Duration::from_secs(60);
        let waiting = Standing::Waiting {
            since: Timestamp(1_000),
        };
        assert_eq!(overdue(&waiting, Timestamp(60_999), most), None);
        let said = overdue(&waiting, Timestamp(61_000), most).unwrap();
        assert!(said.contains("helm-controller"), "{said}");
        assert_eq!(overdue(&Standing::Deployed, Timestamp(61_000), most), None);
    }

    #[test]
    fn a_release_is_given_back_without_being_uninstalled() {
        let mut chart = chart(json!(null));
        assert_eq!(hand_over(&chart), HandOver::KeepOff);
        let now = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        chart.metadata.deletion_timestamp = now.clone();
        assert_eq!(hand_over(&chart), HandOver::Wait);
        chart.metadata.annotations = Some([(UNMANAGED.to_owned(), "true".to_owned())].into());
        assert_eq!(hand_over(&chart), HandOver::DropFinalizer);
        chart.metadata.deletion_timestamp = None;
        assert_eq!(hand_over(&chart), HandOver::Delete);
    }

    fn crossed(off: bool, deleted: bool) -> HelmChart {
        let mut chart = chart(json!(null));
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        chart.metadata.deletion_timestamp = deleted.then_some(now);
        chart.metadata.annotations =
            off.then(|| [(UNMANAGED.to_owned(), "true".to_owned())].into());
        chart
    }

    #[test]
    fn a_hand_over_that_was_cut_off_is_turned_round() {
        assert_eq!(keep(&crossed(true, false)), Keep::Manage);
        assert_eq!(keep(&crossed(true, true)), Keep::DropFinalizer);
        assert_eq!(keep(&crossed(false, true)), Keep::Wait);
        assert_eq!(keep(&crossed(false, false)), Keep::Write);
    }

    #[test]
    fn a_removal_after_half_a_hand_over_uninstalls_the_release() {
        assert_eq!(removal(&crossed(true, false)), Removal::Manage);
        assert_eq!(removal(&crossed(true, true)), Removal::Manage);
        assert_eq!(removal(&crossed(false, false)), Removal::Delete);
        assert_eq!(removal(&crossed(false, true)), Removal::Wait);
    }

    #[test]
    fn a_release_has_one_object_wherever_that_is() {
        let all = [chart(json!(null))];
        assert!(find(&all, "lb", "purelb").is_some());
        assert!(find(&all, "kube-system", "purelb").is_none());
        assert_eq!(whose(&all[0]), Whose::Fipd);
        let mut other = all[0].clone();
        other.metadata.labels = None;
        assert_eq!(whose(&other), Whose::Other);
    }
}
