//! The other engine for charts: HelmChart objects, which the helm-controller of RKE2 and K3s brings about.
//!
//! An object is fipd's by its label. It is written where it differs, the release and the object's Job tell how it stands,
//! and to uninstall is to delete it. helm-controller upgrades a release that is there already, so that a release of the helm
//! CLI is taken over by making the object; the other way round it is told to keep off before the object goes.

mod apply;
mod engine_switch;
pub mod plan;
mod progress;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use fipd_crds::{
    helm_chart::{HelmChart, HelmChartSpec},
    labels::{ADOPTED, FIELD_MANAGER, MANAGED_BY},
};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::{
    controller::{
        client::{CallError, Remote, Target},
        kind::{CUSTOM_RESOURCE_DEFINITION, JOB, Kind, SECRET},
        owned,
        store::Key,
    },
    guests::{
        GuestSystem,
        charts::{
            BUSY, ChartError, ReachedGuest, ReleaseMark, Settled,
            installed::{ReleaseOwner, newest, owner, revisions},
        },
    },
    helm::{self, HelmError, Noted, Release, SECRET_TYPE, SYSTEM_LABEL, Stored, Why},
};
use engine_switch::SwitchStep;
use progress::{HelmChartProgress, NewestRevision};

const API: &str = "apis/helm.cattle.io/v1";

pub const HELM_CHART: Kind = Kind::namespaced(API, "helmcharts", "HelmChart");
const HELM_CHART_CONFIG: Kind = Kind::namespaced(API, "helmchartconfigs", "HelmChartConfig");

/// Where helm-controllers look.
const NAMESPACE: &str = "kube-system";

/// The HelmCharts of a cluster, as a system sees them.
pub struct HelmCharts {
    /// `None`: the cluster has no such kind.
    found: Option<Vec<HelmChart>>,
    system: GuestSystem,
}

/// The newest revision of a release, and the Secret that it is in.
struct StoredRevision {
    key: Key,
    uid: String,
    stored: Stored,
}

impl HelmCharts {
    pub async fn list(remote: &Remote, system: GuestSystem) -> Result<Self, CallError> {
        let read = |object: Value| serde_json::from_value(object).ok();
        let found = match remote.list_kept(&HELM_CHART.all(), "", read).await {
            Ok(all) => Some(all),
            Err(CallError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { found, system })
    }

    pub fn all(&self) -> &[HelmChart] {
        self.found.as_deref().unwrap_or_default()
    }

    /// The object of this name where helm-controllers look, whatever its release's namespace.
    fn named(&self, name: &str) -> Option<&HelmChart> {
        let named = |chart: &&HelmChart| {
            chart.name_any() == name && chart.namespace().as_deref() == Some(NAMESPACE)
        };
        self.all().iter().find(named)
    }

    pub fn of(&self, namespace: &str, name: &str) -> Option<&HelmChart> {
        plan::find(self.all(), namespace, name)
    }

    /// Whether a release can be brought by an object, as far as these say.
    pub fn check(&self, release: &Release) -> Result<(), ChartError> {
        // Whatever the policy will be.
        spec_of(release, "")?;
        if self.found.is_none() {
            return Err(ChartError::new(
                "NoHelmCharts",
                "the cluster has no HelmChart kind (helm.cattle.io/v1), as RKE2 and K3s have it; the engine \"helm\" does without",
            ));
        }
        match self.named(&release.name) {
            Some(taken) if plan::whose(taken, self.system) == ReleaseOwner::Other => {
                Err(foreign(taken))
            }
            Some(_) | None => self.check_foreign(release),
        }
    }

    /// Whether nobody else's object keeps the release.
    pub fn check_foreign(&self, release: &Release) -> Result<(), ChartError> {
        match self.of(&release.namespace, &release.name) {
            Some(chart) if plan::whose(chart, self.system) == ReleaseOwner::Other => {
                Err(foreign(chart))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn check_chart(revision: Option<&StoredRevision>, release: &Release) -> Result<(), ChartError> {
    let refusal = revision.and_then(|one| helm::other_chart(&release.chart, &one.stored.observed));
    match refusal {
        Some(refusal) => Err(ChartError::of(&release.name, &HelmError::Refused(refusal))),
        None => Ok(()),
    }
}

impl ReachedGuest<'_> {
    /// Brings a release to its chart, version and values.
    pub async fn bring_object(
        &self,
        charts: &HelmCharts,
        release: &Release,
    ) -> Result<Settled, ChartError> {
        let target = self.place(&release.namespace, &release.name);
        let version = Some(release.chart.version.to_string());
        let outcome = self.try_bring_object(charts, release).await;
        let outcome = outcome.map_err(|error| error.without_values_of(release));
        let noted = match &outcome {
            Ok(Settled::Yes) => Noted::Done,
            Ok(Settled::NotYet) => Noted::Running("helm-chart"),
            Err(error) => Noted::Failed(error),
        };
        self.helm.noted(&target, version, noted);
        outcome
    }

    async fn try_bring_object(
        &self,
        charts: &HelmCharts,
        release: &Release,
    ) -> Result<Settled, ChartError> {
        let name = &*release.name;
        charts.check(release)?;
        let revision = self.newest_revision(release).await?;
        let seen = revision.as_ref().map(|revision| &revision.stored.observed);
        // helm-controller would upgrade an object without a version whenever it looks at it again.
        let noted = charts.of(&release.namespace, name);
        let noted = noted.map(|object| &*object.spec.version);
        let release = &*release.kept_at(seen, noted.filter(|version| !version.is_empty()));
        let place = self.place(&release.namespace, name);
        self.helm.found(&place, &release.chart.version);
        check_chart(revision.as_ref(), release)?;
        match charts.of(&release.namespace, name) {
            None => match charts.named(name) {
                // One that fipd made for another namespace is removed before.
                Some(taken) => Err(foreign(taken)),
                None => self.make_object(release).await,
            },
            Some(chart) => self.keep_object(chart, release, revision.as_ref()).await,
        }
    }

    async fn keep_object(
        &self,
        chart: &HelmChart,
        release: &Release,
        revision: Option<&StoredRevision>,
    ) -> Result<Settled, ChartError> {
        let refused = |error: CallError| refused(&release.name, &error);
        let step = engine_switch::keep(chart);
        if step == SwitchStep::Wait {
            return self.wait_uninstalled(chart, release);
        }
        if step != SwitchStep::Write {
            self.switch(chart, step).await?;
            return Ok(Settled::NotYet);
        }
        let policy = match plan::is_policy_ours(chart) {
            true => Some(self.policy().await.map_err(refused)?),
            false => None,
        };
        let said = policy.unwrap_or(&chart.spec.failure_policy);
        let change = plan::change(&chart.spec, &spec_of(release, said)?);
        if let Some(change) = &change {
            let target = target_of(chart);
            let written = owned::put(self.remote, &target, &chart.metadata, change.clone());
            written.await.map_err(refused)?;
        }
        let stored = revision.map(|revision| &revision.stored);
        // The revisions of what another installed are not fipd's to remove.
        let ours = plan::whose(chart, self.system) == ReleaseOwner::Fipd;
        let clears = ours && policy.is_some_and(|policy| plan::is_in_the_way(policy, stored));
        if clears {
            self.clear(release, revision).await.map_err(refused)?;
        }
        match (change, stored) {
            (Some(_), _) => Ok(Settled::NotYet),
            // Nobody finds out later why it failed.
            (None, Some(stored))
                if clears && helm::difference(release, &stored.observed).is_none() =>
            {
                Err(self.attempt_failed(chart, release, &progress::said(stored)))
            }
            (None, stored) => self.judge(chart, release, stored).await,
        }
    }

    /// Somebody deleted the object, and it can be made anew only once helm-controller has let go of it.
    fn wait_uninstalled(
        &self,
        chart: &HelmChart,
        release: &Release,
    ) -> Result<Settled, ChartError> {
        let place = self.place(&release.namespace, &release.name);
        let most = self.helm.deadline();
        let (awaited, _) = self.helm.awaited(&place, release);
        if awaited < most {
            return Ok(Settled::NotYet);
        }
        let seconds = most.as_secs();
        let why = format!(
            "somebody deleted it, and helm-controller has not uninstalled its release within {seconds} s: see Job {}",
            apply::job(chart)
        );
        Err(failed(chart, &why))
    }

    /// How far helm-controller is with what the object says.
    async fn judge(
        &self,
        chart: &HelmChart,
        release: &Release,
        stored: Option<&Stored>,
    ) -> Result<Settled, ChartError> {
        let name = &*release.name;
        let job = self.job(chart).await;
        let job = job.map_err(|error| refused(name, &error))?;
        let newest = match stored {
            None => None,
            Some(stored) => Some(NewestRevision {
                stored,
                as_wanted: match helm::difference(release, &stored.observed) {
                    None => true,
                    Some(Why::Values) => self
                        .has_more_values(chart, job.as_ref())
                        .await
                        .map_err(|error| refused(name, &error))?,
                    Some(_) => false,
                },
            }),
        };
        let progress = progress::progress(chart, job.as_ref(), newest);
        let place = self.place(&release.namespace, name);
        let (awaited, failure) = self.helm.awaited(&place, release);
        let overdue = progress::overdue(&progress, awaited, self.helm.deadline());
        match (progress, overdue) {
            (HelmChartProgress::Failed(why), _) => Err(self.attempt_failed(chart, release, &why)),
            (_, Some(why)) => Err(failed(chart, &why)),
            (HelmChartProgress::Deployed, None) => Ok(Settled::Yes),
            // The next attempt at the same hides nothing.
            (
                HelmChartProgress::Waiting
                | HelmChartProgress::Running { .. }
                | HelmChartProgress::Other { .. },
                None,
            ) => failure.map_or(Ok(Settled::NotYet), |why| Err(failed(chart, &why))),
        }
    }

    /// It is told until an attempt succeeds, or something else is wanted.
    fn attempt_failed(&self, chart: &HelmChart, release: &Release, why: &str) -> ChartError {
        let place = self.place(&release.namespace, &release.name);
        self.helm.attempt_failed(&place, release, why);
        failed(chart, why)
    }

    /// Whether an admin's HelmChartConfig adds values, so that those of the release need not be fipd's alone: then a Job
    /// after fipd's last write has to do.
    async fn has_more_values(
        &self,
        chart: &HelmChart,
        job: Option<&Job>,
    ) -> Result<bool, CallError> {
        if !job.is_some_and(|job| progress::is_newer(job, chart)) {
            return Ok(false);
        }
        let config =
            HELM_CHART_CONFIG.named(&chart.namespace().unwrap_or_default(), &chart.name_any());
        Ok(self.remote.get::<IgnoredAny>(&config).await?.is_some())
    }

    /// Whether no release of another chart is where this one is to be.
    pub async fn check_release(&self, release: &Release) -> Result<(), ChartError> {
        let revision = self.newest_revision(release).await?;
        check_chart(revision.as_ref(), release)
    }

    async fn newest_revision(
        &self,
        release: &Release,
    ) -> Result<Option<StoredRevision>, ChartError> {
        let all = revisions(self.remote, &release.namespace, &release.name)
            .await
            .map_err(ChartError::unreadable)?;
        let Some((key, uid)) = newest(&all).and_then(owned::identify) else {
            return Ok(None);
        };
        let secret = self
            .remote
            .get(&SECRET.named(&release.namespace, &key.name))
            .await;
        let secret: Option<Value> = secret.map_err(ChartError::unreadable)?;
        let helms = |secret: &Value| secret.get("type") == Some(&json!(SECRET_TYPE));
        let Some(secret) = secret.filter(helms) else {
            return Err(ChartError::new(
                BUSY,
                format!("the release {:?} changed meanwhile", release.name),
            ));
        };
        let stored = Stored::read(&secret);
        let stored = stored.map_err(|why| ChartError::new("ReleasesUnreadable", why))?;
        let (key, uid) = owned::identify(&secret).unwrap_or((key, uid));
        Ok(Some(StoredRevision { key, uid, stored }))
    }

    /// Removes a revision that failed, as `kubectl delete secret` does.
    async fn clear(
        &self,
        release: &Release,
        revision: Option<&StoredRevision>,
    ) -> Result<(), CallError> {
        let Some(revision) = revision else {
            return Ok(());
        };
        let (cluster, name) = (&self.name, &release.name);
        let description = release.without_values(&revision.stored.description);
        tracing::info!(%cluster, release = %name, secret = %revision.key.name, %description, "the revision failed, and is removed so that helm-controller tries again");
        let secret = SECRET.named(&release.namespace, &revision.key.name);
        self.remote.delete(&secret, &revision.uid).await
    }

    async fn policy(&self) -> Result<&'static str, CallError> {
        let crd = CUSTOM_RESOURCE_DEFINITION.named("", "helmcharts.helm.cattle.io");
        match self.remote.get::<Value>(&crd).await {
            Ok(crd) => Ok(plan::policy(crd.as_ref())),
            // Whoever may not read it gets what every helm-controller knows.
            Err(CallError::Rejected(..)) => Ok(plan::policy(None)),
            Err(error) => Err(error),
        }
    }

    async fn make_object(&self, release: &Release) -> Result<Settled, ChartError> {
        let (namespace, name) = (&*release.namespace, &*release.name);
        let before = owner(self.remote, namespace, name, self.system)
            .await
            .map_err(ChartError::unreadable)?;
        let policy = self.policy().await;
        let policy = policy.map_err(|error| refused(name, &error))?;
        let mut labels = json!({ MANAGED_BY: FIELD_MANAGER });
        if matches!(before, Some(ReleaseOwner::Adopted | ReleaseOwner::Other)) {
            labels[ADOPTED] = json!("true");
        }
        if let Some(system) = self.system.mark() {
            labels[SYSTEM_LABEL] = json!(system);
        }
        let object = json!({
            "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
            "spec": spec_of(release, policy)?,
        });
        let made = self
            .remote
            .create(&HELM_CHART.named(NAMESPACE, name), &object)
            .await;
        made.map_err(|error| refused(name, &error))?;
        tracing::info!(cluster = self.name, release = name, "made a HelmChart");
        Ok(Settled::NotYet)
    }

    async fn job(&self, chart: &HelmChart) -> Result<Option<Job>, CallError> {
        let name = chart.status.as_ref().map(|status| &status.job_name);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let target = JOB.named(&chart.namespace().unwrap_or_default(), name);
        self.remote.get(&target).await
    }

    pub fn place(&self, namespace: &str, name: &str) -> helm::ReleaseTarget {
        helm::ReleaseTarget::new(&self.name, namespace, name)
    }
}

fn spec_of(release: &Release, policy: &str) -> Result<HelmChartSpec, ChartError> {
    plan::spec(release, policy).map_err(|why| {
        ChartError::new(
            "ChartConfigInvalid",
            format!("chart {:?}: {why}", release.name),
        )
    })
}

/// Namespace and name of an object.
fn called(chart: &HelmChart) -> String {
    format!(
        "{}/{}",
        chart.namespace().unwrap_or_default(),
        chart.name_any()
    )
}

fn failed(chart: &HelmChart, why: &str) -> ChartError {
    let (called, policy) = (called(chart), &chart.spec.failure_policy);
    ChartError::new(
        "HelmChartFailed",
        format!("HelmChart {called}: {why} (failurePolicy: {policy})"),
    )
}

fn foreign(chart: &HelmChart) -> ChartError {
    let (called, name) = (called(chart), chart.name_any());
    if owned::is_ours(&chart.metadata) {
        return ChartError::other_system(&ReleaseMark {
            namespace: chart.release_namespace().to_owned(),
            name,
            owner: ReleaseOwner::Other,
            chart: None,
        });
    }
    ChartError::new(
        "HelmChartForeign",
        format!(
            "HelmChart {called} was not made by fipd and keeps the release {name:?}: delete it, or give the chart another name"
        ),
    )
}

fn busy(chart: &HelmChart, what: &str) -> ChartError {
    ChartError::new(
        BUSY,
        format!("the release of HelmChart {} {what}", called(chart)),
    )
}

fn refused(name: &str, error: &CallError) -> ChartError {
    ChartError::new("HelmChartNotWritten", format!("chart {name:?}: {error}"))
}

fn target_of(chart: &HelmChart) -> Target {
    HELM_CHART.named(&chart.namespace().unwrap_or_default(), &chart.name_any())
}
