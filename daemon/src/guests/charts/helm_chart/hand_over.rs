//! Gives releases back to the helm CLI, and removes them.

use fipd_crds::{helm_chart::HelmChart, labels::ADOPTED};
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    HelmCharts, busy,
    crossing::{self, HandOver, Removal},
    foreign,
    plan::{self, Whose},
    refused, target_of,
};
use crate::{
    controller::{
        client::{CallError, Patch},
        kind::SECRET,
    },
    guests::{
        charts::{
            Guest,
            error::ChartError,
            marks::{Owner, newest, owner, revisions},
        },
        objects,
    },
    helm::{HelmError, OWNER, OWNER_LABEL},
};

impl Guest<'_> {
    /// Takes the release from helm-controller without uninstalling it; an error until that is done.
    pub async fn take_back(&self, chart: &HelmChart) -> Result<(), ChartError> {
        if plan::whose(chart) == Whose::Other {
            return Err(foreign(chart));
        }
        self.hand_over(chart, crossing::hand_over(chart)).await
    }

    /// One step, and an error as more follow: every step can be the last before fipd is killed.
    async fn hand_over(&self, chart: &HelmChart, step: HandOver) -> Result<(), ChartError> {
        let uid = chart.metadata.uid.as_deref().unwrap_or_default();
        let what = match step {
            HandOver::Wait => "is being uninstalled, as somebody deleted the HelmChart",
            HandOver::KeepOff | HandOver::Delete | HandOver::DropFinalizer => {
                "is given back to helm"
            }
        };
        let done = match step {
            HandOver::Wait => Ok(()),
            HandOver::KeepOff => self.manage(chart, false).await,
            // Where helm-controller never held the object there is no step after this.
            HandOver::Delete => match self.mark(chart).await {
                Ok(()) => self.remote.delete(&target_of(chart), uid).await,
                Err(error) => Err(error),
            },
            HandOver::DropFinalizer => self.let_go(chart).await,
        };
        done.map_err(|error| refused(&chart.name_any(), &error))?;
        Err(busy(chart, what))
    }

    /// Tells helm-controller to look after an object, or to keep off it.
    pub async fn manage(&self, chart: &HelmChart, managed: bool) -> Result<(), CallError> {
        let off = (!managed).then_some("true");
        let change = json!({ "metadata": { "annotations": { crossing::UNMANAGED: off } } });
        objects::put(self.remote, &target_of(chart), &chart.metadata, change).await
    }

    /// Lets an object go that helm-controller keeps off.
    pub async fn let_go(&self, chart: &HelmChart) -> Result<(), CallError> {
        self.mark(chart).await?;
        let meta = &chart.metadata;
        let uid = meta.uid.as_deref().unwrap_or_default();
        let all = meta.finalizers.as_deref().unwrap_or_default();
        self.remote
            .drop_finalizer(&target_of(chart), uid, all, crossing::FINALIZER)
            .await
    }

    /// Says of a release without its object what the object said: that fipd installed it, or took it over.
    async fn mark(&self, chart: &HelmChart) -> Result<(), CallError> {
        let (namespace, name) = (chart.release_namespace(), chart.name_any());
        let mut labels = json!({ OWNER_LABEL: OWNER });
        match plan::whose(chart) {
            Whose::Fipd => {}
            Whose::Adopted => labels[ADOPTED] = json!("true"),
            Whose::Other => return Ok(()),
        }
        let all = revisions(self.remote, namespace, &name).await?;
        let Some((secret, uid)) = newest(&all).and_then(plan::identity) else {
            // helm-controller keeps off, and somebody uninstalled it: nothing is left to be anybody's.
            return Ok(());
        };
        let secret = SECRET.named(namespace, secret);
        let mark = json!({ "metadata": { "uid": uid, "labels": labels } });
        self.remote.patch(&secret, Patch::Merge, &mark).await
    }

    /// Removes a release that fipd installed, by whichever engine; whose it is where it stays.
    pub async fn remove(
        &self,
        charts: &HelmCharts,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Owner>, ChartError> {
        if let Some(chart) = charts.of(namespace, name) {
            return match plan::whose(chart) {
                Whose::Other => Ok(Some(Owner::Other)),
                Whose::Adopted => {
                    // Nobody would look after an object of which helm-controller keeps off, and nobody could delete it.
                    if let Some(step) = crossing::rest_of_hand_over(chart) {
                        self.hand_over(chart, step).await?;
                    }
                    Ok(Some(Owner::Adopted))
                }
                Whose::Fipd => {
                    let uid = chart.metadata.uid.as_deref().unwrap_or_default();
                    let done = match crossing::removal(chart) {
                        Removal::Manage => self.manage(chart, true).await,
                        Removal::Delete => self.remote.delete(&target_of(chart), uid).await,
                        Removal::Wait => Ok(()),
                    };
                    done.map_err(|error| refused(name, &error))?;
                    let what = format!("is being uninstalled by Job {}", job(chart));
                    Err(busy(chart, &what))
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
}

/// The Job by which helm-controller uninstalls a release.
pub fn job(chart: &HelmChart) -> String {
    let namespace = chart.namespace().unwrap_or_default();
    format!("{namespace}/helm-delete-{}", chart.name_any())
}
