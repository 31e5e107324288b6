//! How far helm-controller is with a release: pure.
//!
//! The release itself says what is deployed. Its Job says what helm-controller is doing about it, and under `retry` it
//! succeeds whatever came of the release. Clocks are compared only where the cluster's API server set both.

use std::time::Duration;

use fipd_core::Timestamp;
use fipd_crds::helm_chart::HelmChart;
use k8s_openapi::api::batch::v1::{Job, JobCondition};

use crate::{
    controller::{client::MANAGER, meta::created},
    helm::{Phase, Stored},
};

/// How a release stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelmChartProgress {
    /// helm-controller has not begun.
    Waiting,
    Running {
        job: String,
        failures: i32,
    },
    /// The Job ended, and the newest revision is not what its HelmChart says.
    Other {
        job: String,
        newest: Option<u64>,
    },
    Deployed,
    Failed(String),
}

/// The newest revision of a release, and whether it is of the wanted chart, version and values.
#[derive(Clone, Copy, Debug)]
pub struct NewestRevision<'a> {
    pub stored: &'a Stored,
    pub as_wanted: bool,
}

/// Why helm says that a release failed.
pub fn said(stored: &Stored) -> String {
    format!("helm says {:?}", stored.description)
}

/// How the release stands.
pub fn progress(
    chart: &HelmChart,
    job: Option<&Job>,
    newest: Option<NewestRevision<'_>>,
) -> HelmChartProgress {
    let wanted = newest.filter(|newest| newest.as_wanted);
    if let Some(NewestRevision { stored, .. }) = wanted
        && stored.observed.phase == Phase::Failed
    {
        return HelmChartProgress::Failed(said(stored));
    }
    let Some(job) = job else {
        let refused = condition(chart, "JobCreated", "False").is_some();
        let failed = condition(chart, "Failed", "True").filter(|_| refused);
        return failed.map_or(HelmChartProgress::Waiting, HelmChartProgress::Failed);
    };
    if let Some(why) = ended(job, "Failed").filter(|_| is_newer(job, chart)) {
        return HelmChartProgress::Failed(format!("Job {}: {why}", name(job)));
    }
    if !is_complete(job) {
        return running(job);
    }
    match wanted.map(|newest| newest.stored.observed.phase) {
        Some(Phase::Deployed) => HelmChartProgress::Deployed,
        Some(_) => running(job),
        None => HelmChartProgress::Other {
            job: name(job),
            newest: newest.map(|newest| newest.stored.observed.revision),
        },
    }
}

/// Why it counts as failed, where it was `awaited` for as long as is allowed.
pub fn overdue(progress: &HelmChartProgress, awaited: Duration, most: Duration) -> Option<String> {
    if awaited < most {
        return None;
    }
    let seconds = most.as_secs();
    match progress {
        HelmChartProgress::Waiting => Some(
            "no Job was made for its HelmChart: a helm-controller has to run in the cluster, as RKE2 and K3s have it"
                .to_owned(),
        ),
        HelmChartProgress::Running { job, failures } => Some(format!(
            "Job {job} has not succeeded within {seconds} s, {failures} of its pods failed: see their logs"
        )),
        HelmChartProgress::Other { job, newest } => {
            let newest = newest.map_or("there is none".to_owned(), |newest| {
                format!("the newest is revision {newest}")
            });
            Some(format!(
                "Job {job} ended, but within {seconds} s there is no revision of this chart, version and values; {newest}: see helm history"
            ))
        }
        HelmChartProgress::Deployed | HelmChartProgress::Failed(_) => None,
    }
}

/// Whether helm-controller made the Job after fipd's last write.
pub fn is_newer(job: &Job, chart: &HelmChart) -> bool {
    created(job.metadata.creation_timestamp.as_ref()) >= written(chart)
}

pub fn is_complete(job: &Job) -> bool {
    let succeeded = job.status.as_ref().and_then(|status| status.succeeded);
    ended(job, "Complete").is_some() || succeeded.is_some_and(|some| some > 0)
}

fn running(job: &Job) -> HelmChartProgress {
    let failures = job.status.as_ref().and_then(|status| status.failed);
    HelmChartProgress::Running {
        job: name(job),
        failures: failures.unwrap_or_default(),
    }
}

fn name(job: &Job) -> String {
    job.metadata.name.clone().unwrap_or_default()
}

fn ended(job: &Job, kind: &str) -> Option<String> {
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    let mut of = conditions
        .flatten()
        .filter(|one| one.type_ == kind && one.status == "True");
    of.next().map(told)
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
    use serde_json::{Value, json};

    use super::{
        super::testing::{chart, job},
        *,
    };
    use crate::helm::secret;

    fn revision(status: &str) -> Stored {
        let secret = secret(3, status, ("purelb", "0.14.1"), &json!({ "a": 1 }));
        Stored::read(&secret).unwrap()
    }

    fn stands(job: Option<&Job>, status: &str, as_wanted: bool) -> HelmChartProgress {
        let stored = revision(status);
        let newest = NewestRevision {
            stored: &stored,
            as_wanted,
        };
        progress(&chart(&json!(null)), job, Some(newest))
    }

    fn complete() -> Value {
        json!({ "conditions": [{ "type": "Complete", "status": "True" }] })
    }

    fn running_with(failures: i32) -> HelmChartProgress {
        HelmChartProgress::Running {
            job: "helm-install-purelb".into(),
            failures,
        }
    }

    #[test]
    fn a_release_is_deployed_where_its_revision_and_its_job_say_so() {
        let done = job(11, &complete());
        assert_eq!(
            stands(Some(&done), "deployed", true),
            HelmChartProgress::Deployed
        );
        let other = |newest| HelmChartProgress::Other {
            job: "helm-install-purelb".into(),
            newest,
        };
        assert_eq!(stands(Some(&done), "deployed", false), other(Some(3)));
        assert_eq!(
            progress(&chart(&json!(null)), Some(&done), None),
            other(None)
        );
        let under_way = job(11, &json!({ "failed": 2 }));
        assert_eq!(stands(Some(&under_way), "deployed", true), running_with(2));
        assert_eq!(stands(None, "deployed", true), HelmChartProgress::Waiting);
        let pending = stands(Some(&done), "pending-upgrade", true);
        assert_eq!(pending, running_with(0));
    }

    #[test]
    fn a_job_that_succeeded_hides_no_release_that_failed() {
        let done = job(11, &complete());
        let said = HelmChartProgress::Failed("helm says \"it is failed\"".into());
        assert_eq!(stands(Some(&done), "failed", true), said);
        assert_eq!(stands(None, "failed", true), said, "another is on its way");
        let of_before = stands(Some(&job(11, &json!({}))), "failed", false);
        assert_eq!(of_before, running_with(0), "with values of before");
    }

    #[test]
    fn clocks_of_two_hosts_are_not_compared() {
        // The Job is as old as it is of an API server whose clock is an hour behind that of fipd, or ahead.
        for made in [0, 59] {
            let done = job(made, &complete());
            assert_eq!(
                stands(Some(&done), "deployed", true),
                HelmChartProgress::Deployed
            );
        }
    }

    #[test]
    fn a_job_that_gave_up_counts_where_it_is_newer_than_the_last_write() {
        let failed = json!({ "conditions": [
            { "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often" },
        ] });
        let said = HelmChartProgress::Failed(
            "Job helm-install-purelb: BackoffLimitExceeded: too often".into(),
        );
        assert_eq!(stands(Some(&job(10, &failed)), "deployed", false), said);
        let before = stands(Some(&job(9, &failed)), "deployed", false);
        assert_eq!(before, running_with(0));
        let refused = chart(&json!({ "conditions": [
            { "type": "JobCreated", "status": "False" },
            { "type": "Failed", "status": "True", "reason": "Job create failed", "message": "no" },
        ] }));
        let said = HelmChartProgress::Failed("Job create failed: no".into());
        assert_eq!(progress(&refused, None, None), said);
    }

    #[test]
    fn what_takes_too_long_says_what_is_missing() {
        let (short, most) = (Duration::from_secs(59), Duration::from_secs(60));
        assert_eq!(overdue(&HelmChartProgress::Waiting, short, most), None);
        let said = overdue(&HelmChartProgress::Waiting, most, most).unwrap();
        assert!(said.contains("helm-controller"), "{said}");
        let said = overdue(&running_with(2), most, most).unwrap();
        assert!(said.contains("2 of its pods"), "{said}");
        let other = HelmChartProgress::Other {
            job: "j".into(),
            newest: Some(3),
        };
        let said = overdue(&other, most, most).unwrap();
        assert!(said.contains("revision 3"), "{said}");
        assert_eq!(overdue(&HelmChartProgress::Deployed, most, most), None);
    }
}
