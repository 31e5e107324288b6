//! The other engine for charts: HelmChart objects, which the helm-controller of RKE2 and K3s brings about.
//!
//! An object is fipd's by its label. It is written where it differs, its Job tells how it stands, and to uninstall is to
//! delete it. helm-controller upgrades a release that is there already, so that a release of the helm CLI is taken over
//! by making the object; the other way round it is told to keep off before the object goes.

pub mod plan;

use fipd_crds::{
    helm_chart::HelmChart,
    labels::{ADOPTED, FIELD_MANAGER, MANAGED_BY},
};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    apply,
    charts::{ChartError, Guest, Owner, newest, owner, revisions},
};
use crate::{
    clock,
    controllers::remote::{CallError, Patch, Remote, Target},
    helm::{self, HelmError, Noted, OWNER, OWNER_LABEL, Release as Wanted},
};
use plan::{HandOver, Keep, Removal, Standing, Whose};

/// Where helm-controllers look.
const NAMESPACE: &str = "kube-system";
/// It leaves a release that failed as it is: the other policies uninstall it first, and all addresses with it.
const FAILURE_POLICY: &str = "abort";

/// The HelmCharts of a cluster; `None`: it has no such kind.
pub struct HelmCharts(Option<Vec<HelmChart>>);

/// Whether there is more to be done soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    NotYet,
}

impl HelmCharts {
    pub async fn list(remote: &Remote) -> Result<Self, CallError> {
        let all = match remote.list(&target("", ""), "").await {
            Ok(all) => all,
            Err(CallError::NotFound(_)) => return Ok(Self(None)),
            Err(error) => return Err(error),
        };
        let read = |object: Value| serde_json::from_value(object).ok();
        Ok(Self(Some(all.into_iter().filter_map(read).collect())))
    }

    pub fn of(&self, namespace: &str, name: &str) -> Option<&HelmChart> {
        plan::find(self.0.as_deref().unwrap_or_default(), namespace, name)
    }
}

impl Guest<'_> {
    /// Brings a release to its chart, version and values.
    pub(super) async fn bring_object(
        &self,
        charts: &HelmCharts,
        release: &Wanted,
    ) -> Result<Settled, ChartError> {
        let target = self.place(&release.namespace, &release.name);
        let version = Some(release.chart.version.to_string());
        let outcome = self.try_bring_object(charts, release).await;
        let noted = match &outcome {
            Ok(Settled::Yes) => Noted::Done,
            Ok(Settled::NotYet) => Noted::Running("helm-chart"),
            Err(error) => Noted::Failed(error.reason, &error.message),
        };
        self.helm.noted(&target, version, noted, clock::now());
        outcome
    }

    async fn try_bring_object(
        &self,
        charts: &HelmCharts,
        release: &Wanted,
    ) -> Result<Settled, ChartError> {
        let (namespace, name) = (&*release.namespace, &*release.name);
        let want = plan::spec(release).map_err(|why| ChartError {
            reason: "ChartConfigInvalid",
            message: format!("chart {name:?}: {why}"),
        })?;
        if charts.0.is_none() {
            return Err(ChartError {
                reason: "NoHelmCharts",
                message: "the cluster has no HelmChart kind (helm.cattle.io/v1), as RKE2 and K3s have it; the engine \"helm\" does without".to_owned(),
            });
        }
        let Some(chart) = charts.of(namespace, name) else {
            return self.make_object(release, json!(want)).await;
        };
        if plan::whose(chart) == Whose::Other {
            return Err(foreign(chart));
        }
        let turned = match plan::keep(chart) {
            Keep::Write => None,
            Keep::Wait => Some(Ok(())),
            Keep::Manage => Some(self.manage(chart, true).await),
            Keep::DropFinalizer => Some(self.let_go(chart).await),
        };
        if let Some(turned) = turned {
            return turned
                .map(|()| Settled::NotYet)
                .map_err(|error| refused(name, &error));
        }
        if let Some(change) = plan::change(&chart.spec, &want) {
            let target = target_of(chart);
            let written = apply::put(self.remote, &target, &chart.metadata, change).await;
            written.map_err(|error| refused(name, &error))?;
            return Ok(Settled::NotYet);
        }
        self.judge(chart).await
    }

    /// How far helm-controller is with what the object says.
    async fn judge(&self, chart: &HelmChart) -> Result<Settled, ChartError> {
        let name = chart.name_any();
        let job = self.job(chart).await;
        let job = job.map_err(|error| refused(&name, &error))?;
        let standing = plan::standing(chart, job.as_ref());
        let overdue = plan::overdue(&standing, clock::now(), self.helm.deadline());
        let why = match (standing, overdue) {
            (Standing::Failed(why), _) | (_, Some(why)) => why,
            (Standing::Deployed, None) => return Ok(Settled::Yes),
            (Standing::Waiting { .. } | Standing::Running { .. }, None) => {
                return Ok(Settled::NotYet);
            }
        };
        Err(ChartError {
            reason: "HelmChartFailed",
            message: format!(
                "HelmChart {}/{name}: {why}; the release is left as it is (failurePolicy: {FAILURE_POLICY})",
                chart.namespace().unwrap_or_default()
            ),
        })
    }

    async fn make_object(&self, release: &Wanted, mut spec: Value) -> Result<Settled, ChartError> {
        let (namespace, name) = (&*release.namespace, &*release.name);
        let before = owner(self.remote, namespace, name).await;
        let before = before.map_err(|error| ChartError::unreadable(&error))?;
        spec["failurePolicy"] = json!(FAILURE_POLICY);
        let mut labels = json!({ MANAGED_BY: FIELD_MANAGER });
        if matches!(before, Some(Owner::Adopted | Owner::Other)) {
            labels[ADOPTED] = json!("true");
        }
        let object = json!({
            "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
            "spec": spec,
        });
        let made = self.remote.create(&target(NAMESPACE, name), &object).await;
        made.map_err(|error| refused(name, &error))?;
        tracing::info!(cluster = self.name, release = name, "made a HelmChart");
        Ok(Settled::NotYet)
    }

    async fn job(&self, chart: &HelmChart) -> Result<Option<Job>, CallError> {
        let name = chart.status.as_ref().map(|status| &status.job_name);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let target = Target {
            api: "apis/batch/v1",
            plural: "jobs",
            namespace: chart.namespace().unwrap_or_default(),
            name: name.clone(),
        };
        self.remote.get(&target).await
    }

    /// Takes the release from helm-controller without uninstalling it; an error until that is done.
    pub(super) async fn take_back(&self, chart: &HelmChart) -> Result<(), ChartError> {
        let name = chart.name_any();
        if plan::whose(chart) == Whose::Other {
            return Err(foreign(chart));
        }
        let uid = chart.metadata.uid.as_deref().unwrap_or_default();
        let done = match plan::hand_over(chart) {
            HandOver::Wait => Ok(()),
            HandOver::KeepOff => self.manage(chart, false).await,
            HandOver::Delete => self.remote.delete(&target_of(chart), uid).await,
            HandOver::DropFinalizer => self.let_go(chart).await,
        };
        done.map_err(|error| refused(&name, &error))?;
        Err(busy(chart, "is given back to helm"))
    }

    /// Tells helm-controller to look after an object, or to keep off it.
    async fn manage(&self, chart: &HelmChart, managed: bool) -> Result<(), CallError> {
        let off = (!managed).then_some("true");
        let change = json!({ "metadata": { "annotations": { plan::UNMANAGED: off } } });
        apply::put(self.remote, &target_of(chart), &chart.metadata, change).await
    }

    /// Lets an object go that helm-controller keeps off. A release that fipd installed by it stays known as fipd's.
    async fn let_go(&self, chart: &HelmChart) -> Result<(), CallError> {
        let (remote, meta) = (self.remote, &chart.metadata);
        if plan::whose(chart) == Whose::Fipd {
            let (namespace, name) = (chart.release_namespace(), chart.name_any());
            let all = revisions(remote, namespace, &name).await?;
            if let Some((secret, uid)) = newest(&all).and_then(plan::identity) {
                let secret = apply::core("secrets", namespace, secret);
                let mark = json!({ "metadata": { "uid": uid, "labels": { OWNER_LABEL: OWNER } } });
                remote.patch(&secret, Patch::Merge, &mark).await?;
            }
        }
        let uid = meta.uid.as_deref().unwrap_or_default();
        let all = meta.finalizers.as_deref().unwrap_or_default();
        remote
            .drop_finalizer(&target_of(chart), uid, all, plan::FINALIZER)
            .await
    }

    /// Removes a release that fipd installed, by whichever engine; whose it is where it stays.
    pub(super) async fn remove(
        &self,
        charts: &HelmCharts,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Owner>, ChartError> {
        if let Some(chart) = charts.of(namespace, name) {
            return match plan::whose(chart) {
                Whose::Other => Ok(Some(Owner::Other)),
                Whose::Adopted => Ok(Some(Owner::Adopted)),
                Whose::Fipd => {
                    let uid = chart.metadata.uid.as_deref().unwrap_or_default();
                    let done = match plan::removal(chart) {
                        Removal::Manage => self.manage(chart, true).await,
                        Removal::Delete => self.remote.delete(&target_of(chart), uid).await,
                        Removal::Wait => Ok(()),
                    };
                    done.map_err(|error| refused(name, &error))?;
                    Err(busy(chart, "is being uninstalled"))
                }
            };
        }
        let owner = owner(self.remote, namespace, name).await;
        let owner = owner.map_err(|error| ChartError::unreadable(&error))?;
        if owner != Some(Owner::Fipd) {
            return Ok(owner);
        }
        let gone = self.helm.uninstall(self.access(), namespace, name).await;
        gone.map_err(|error: HelmError| ChartError::of(name, &error))?;
        Ok(None)
    }

    pub(super) fn place(&self, namespace: &str, name: &str) -> helm::Target {
        helm::Target {
            cluster: self.name.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

fn foreign(chart: &HelmChart) -> ChartError {
    let (namespace, name) = (chart.namespace().unwrap_or_default(), chart.name_any());
    ChartError {
        reason: "HelmChartForeign",
        message: format!(
            "HelmChart {namespace}/{name} was not made by fipd and keeps the release {name:?}: delete it, or give the chart another name"
        ),
    }
}

fn busy(chart: &HelmChart, what: &str) -> ChartError {
    let (namespace, name) = (chart.namespace().unwrap_or_default(), chart.name_any());
    ChartError {
        reason: "ReleaseBusy",
        message: format!("the release of HelmChart {namespace}/{name} {what}"),
    }
}

fn refused(name: &str, error: &CallError) -> ChartError {
    ChartError {
        reason: "HelmChartNotWritten",
        message: format!("chart {name:?}: {error}"),
    }
}

fn target(namespace: &str, name: &str) -> Target {
    Target {
        api: "apis/helm.cattle.io/v1",
        plural: "helmcharts",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn target_of(chart: &HelmChart) -> Target {
    target(&chart.namespace().unwrap_or_default(), &chart.name_any())
}
