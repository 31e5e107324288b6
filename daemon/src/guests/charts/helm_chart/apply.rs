//! Gives releases back to the helm CLI, and uninstalls them by their HelmChart.

use fipd_crds::{helm_chart::HelmChart, labels::ADOPTED};
use kube::ResourceExt as _;
use serde_json::json;

use super::{busy, foreign, plan, refused, target_of};
use crate::{
    controller::{
        client::{CallError, Patch},
        kind::SECRET,
        owned,
    },
    guests::charts::{
        ChartError, ReachedGuest,
        helm_chart::engine_switch::{self, SwitchStep},
        installed::{ReleaseOwner, newest, revisions},
    },
    helm::{OWNER, OWNER_LABEL, SYSTEM_LABEL},
};

impl ReachedGuest<'_> {
    /// Takes the release from helm-controller without uninstalling it; an error until that is done.
    pub async fn hand_to_helm(&self, chart: &HelmChart) -> Result<(), ChartError> {
        if plan::whose(chart, self.system) == ReleaseOwner::Other {
            return Err(foreign(chart));
        }
        self.hand_back(chart, engine_switch::hand_back(chart)).await
    }

    /// One step, and an error as more follow: every step can be the last before fipd is killed.
    async fn hand_back(&self, chart: &HelmChart, step: SwitchStep) -> Result<(), ChartError> {
        if step == SwitchStep::Delete {
            // Where helm-controller never held the object there is no step after this.
            let marked = self.mark(chart).await;
            marked.map_err(|error| refused(&chart.name_any(), &error))?;
        }
        self.switch(chart, step).await?;
        let what = match step == SwitchStep::Wait {
            true => "is being uninstalled, as somebody deleted the HelmChart",
            false => "is given back to helm",
        };
        Err(busy(chart, what))
    }

    /// Does what a step asks for, but for writing the object.
    pub async fn switch(&self, chart: &HelmChart, step: SwitchStep) -> Result<(), ChartError> {
        let uid = chart.metadata.uid.as_deref().unwrap_or_default();
        let done = match step {
            SwitchStep::Write | SwitchStep::Wait => Ok(()),
            SwitchStep::KeepOff => self.manage(chart, false).await,
            SwitchStep::Manage => self.manage(chart, true).await,
            SwitchStep::Delete => self.remote.delete(&target_of(chart), uid).await,
            SwitchStep::DropFinalizer => self.release_object(chart).await,
        };
        done.map_err(|error| refused(&chart.name_any(), &error))
    }

    /// Tells helm-controller to look after an object, or to keep off it.
    async fn manage(&self, chart: &HelmChart, managed: bool) -> Result<(), CallError> {
        let off = (!managed).then_some("true");
        let change = json!({ "metadata": { "annotations": { engine_switch::UNMANAGED: off } } });
        owned::put(self.remote, &target_of(chart), &chart.metadata, change).await
    }

    /// Lets an object go that helm-controller keeps off.
    async fn release_object(&self, chart: &HelmChart) -> Result<(), CallError> {
        self.mark(chart).await?;
        let meta = &chart.metadata;
        let uid = meta.uid.as_deref().unwrap_or_default();
        let all = meta.finalizers.as_deref().unwrap_or_default();
        self.remote
            .drop_finalizer(&target_of(chart), uid, all, engine_switch::FINALIZER)
            .await
    }

    /// Says of a release without its object what the object said: that fipd installed it, or took it over.
    async fn mark(&self, chart: &HelmChart) -> Result<(), CallError> {
        let (namespace, name) = (chart.release_namespace(), chart.name_any());
        let mut labels = json!({ OWNER_LABEL: OWNER });
        if let Some(system) = self.system.mark() {
            labels[SYSTEM_LABEL] = json!(system);
        }
        match plan::whose(chart, self.system) {
            ReleaseOwner::Fipd => {}
            ReleaseOwner::Adopted => labels[ADOPTED] = json!("true"),
            ReleaseOwner::Other => return Ok(()),
        }
        let all = revisions(self.remote, namespace, &name).await?;
        let Some((key, uid)) = newest(&all).and_then(owned::identify) else {
            // helm-controller keeps off, and somebody uninstalled it: nothing is left to be anybody's.
            return Ok(());
        };
        let mark = json!({ "metadata": { "uid": uid, "labels": labels } });
        let secret = SECRET.named(namespace, &key.name);
        self.remote.patch(&secret, Patch::Merge, &mark).await
    }

    /// Removes the release of an object that fipd made, one step at a time and with an error as more follow; whose it is
    /// where it stays.
    pub async fn remove_object(&self, chart: &HelmChart) -> Result<ReleaseOwner, ChartError> {
        let owner = plan::whose(chart, self.system);
        match owner {
            ReleaseOwner::Other => {}
            ReleaseOwner::Adopted => {
                // Nobody would look after an object of which helm-controller keeps off, and nobody could delete it.
                if let Some(step) = engine_switch::rest_of_hand_back(chart) {
                    self.hand_back(chart, step).await?;
                }
            }
            ReleaseOwner::Fipd => {
                self.switch(chart, engine_switch::removal(chart)).await?;
                let what = format!("is being uninstalled by Job {}", job(chart));
                return Err(busy(chart, &what));
            }
        }
        Ok(owner)
    }
}

/// The Job by which helm-controller uninstalls a release.
pub fn job(chart: &HelmChart) -> String {
    let namespace = chart.namespace().unwrap_or_default();
    format!("{namespace}/helm-delete-{}", chart.name_any())
}
