//! What is written into a Cluster, and what is said of it.

use std::time::Duration;

use fipd_crds::cluster_api::Cluster;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    VipController,
    choose::VipRole,
    observe::ClusterView,
    plan::{ENDPOINT_READY, INGRESS_READY, VipPlan},
    write::{self, CONDITION_MANAGER, claim_key},
};
use crate::{
    clock,
    controller::{
        Reconciled,
        client::Patch,
        conditions::{ConditionUpdate, set, unset},
        confirm_absence::RECHECK_AFTER,
        queue::Next,
        store::Key,
    },
    systems::cluster_api::metrics::VipFailure,
};

impl VipController {
    /// Writes the addresses, then what there is to say.
    pub(super) async fn write(
        &self,
        key: &Key,
        cluster: &ClusterView,
        plan: &VipPlan,
    ) -> Reconciled {
        let kind = self.context.kind();
        let (api, target) = (kind.api_version(), kind.target(key));
        if plan.differs {
            let body = write::addresses(api, key, cluster, &plan.apply);
            let remote = self
                .context
                .remote
                .with_manager(write::manager(&plan.apply));
            let written = remote.patch_seen(&target, Patch::Apply, &body).await;
            self.count_written(key, cluster, plan, written.is_ok());
            let now: Cluster = written?;
            self.context.objects.keep(key, ClusterView::of(now));
            for says in plan.conditions.iter().filter(|says| says.status) {
                let note = says.message.clone();
                self.context.note(key, &cluster.meta.uid, says.reason, note);
            }
        }
        for says in plan.conditions.iter().filter(|says| !says.status) {
            let note = says.message.clone();
            self.context.warn(key, &cluster.meta.uid, says.reason, note);
        }
        self.say(key, cluster, &plan.conditions).await?;
        let served = plan.conditions.iter().all(|says| says.status);
        Ok(match served {
            true => {
                self.waiting.lock().remove(key);
                Next::Done
            }
            false => {
                self.waiting.lock().insert(key.clone());
                Next::After(RECHECK_AFTER)
            }
        })
    }

    /// Counts the addresses that the Cluster did not show before.
    fn count_written(&self, key: &Key, cluster: &ClusterView, plan: &VipPlan, written: bool) {
        let class = cluster.class_name().unwrap_or_default();
        let endpoint = plan.apply.endpoint.is_some() && cluster.endpoint.is_none();
        let ingress = plan.apply.ingress.is_some() && cluster.ingress.address.is_none();
        let roles = [
            (VipRole::ControlPlane, endpoint),
            (VipRole::Ingress, ingress),
        ];
        if !written {
            // It was one write.
            let role = if endpoint {
                VipRole::ControlPlane
            } else {
                VipRole::Ingress
            };
            return self.counts.failed(role, class, VipFailure::Patch);
        }
        for (role, _) in roles.into_iter().filter(|(_, fresh)| *fresh) {
            let claim = self.claims.context.objects.get(&claim_key(key, role));
            let since = claim.map_or(0, |claim| claim.meta.created.0);
            let after = clock::now().0.saturating_sub(since);
            self.counts
                .allocated(role, class, Duration::from_millis(after));
        }
    }

    /// The conditions by an apply of their own: those of others stay.
    async fn say(
        &self,
        key: &Key,
        cluster: &ClusterView,
        says: &[ConditionUpdate],
    ) -> Reconciled<()> {
        let ours = |one: &&Condition| [ENDPOINT_READY, INGRESS_READY].contains(&&*one.type_);
        let before: Vec<_> = cluster.conditions.iter().filter(ours).cloned().collect();
        let mut after = before.clone();
        for kind in [ENDPOINT_READY, INGRESS_READY] {
            match says.iter().find(|one| one.kind == kind) {
                Some(one) => {
                    let now = jiff::Timestamp::now();
                    set(&mut after, one, cluster.meta.generation, now);
                }
                None => unset(&mut after, kind),
            }
        }
        let same = before.len() == after.len()
            && before.iter().zip(&after).all(|(one, two)| {
                (&one.type_, &one.status, &one.reason, &one.message)
                    == (&two.type_, &two.status, &two.reason, &two.message)
            });
        if same {
            return Ok(());
        }
        let kind = self.context.kind();
        let all: Value = serde_json::to_value(&after).unwrap_or_default();
        let body = write::conditions(kind.api_version(), key, cluster, &all);
        let remote = self.context.remote.with_manager(CONDITION_MANAGER);
        let target = kind.target(key);
        let write = remote.patch_status_seen::<IgnoredAny>(&target, Patch::Apply, &body);
        Ok(write.await.map(drop)?)
    }
}
