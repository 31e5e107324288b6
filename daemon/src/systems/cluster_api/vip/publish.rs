//! What is written into a Cluster, and what is said of it.

use std::time::Duration;

use fipd_crds::cluster_api::Cluster;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    VipController,
    choose::{VipRole, VipSlot},
    observe::ClusterView,
    plan::{ENDPOINT_READY, INGRESS_READY, VipPlan},
    second::{SECOND_ENDPOINT_READY, SECOND_INGRESS_READY, SecondPlan},
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

/// Types of the conditions that are fipd's in a Cluster.
const CONDITIONS: [&str; 4] = [
    ENDPOINT_READY,
    INGRESS_READY,
    SECOND_ENDPOINT_READY,
    SECOND_INGRESS_READY,
];

impl VipController {
    /// Writes the addresses, then what there is to say. Those of the second family hold up nothing.
    pub(super) async fn write(
        &self,
        key: &Key,
        cluster: &ClusterView,
        plan: &VipPlan,
    ) -> Reconciled {
        let api = self.context.kind().api_version();
        if plan.differs {
            let body = write::addresses(api, key, cluster, &plan.apply);
            let endpoint = plan.apply.endpoint.is_some() && cluster.endpoint.is_none();
            let ingress = plan.apply.ingress.is_some() && cluster.ingress.address.is_none();
            let fresh = [
                endpoint.then_some(VipSlot::ENDPOINT),
                ingress.then_some(VipSlot::INGRESS),
            ];
            let manager = write::manager(&plan.apply);
            self.apply((key, cluster), manager, &body, &fresh).await?;
            self.note_all((key, cluster), plan, [ENDPOINT_READY, INGRESS_READY]);
        }
        let second = self.write_second(key, cluster, plan).await;
        for says in plan.conditions.iter().filter(|says| !says.status) {
            let note = says.message.clone();
            self.context.warn(key, &cluster.meta.uid, says.reason, note);
        }
        self.say(key, cluster, &plan.conditions).await?;
        second?;
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

    async fn write_second(
        &self,
        key: &Key,
        cluster: &ClusterView,
        plan: &VipPlan,
    ) -> Reconciled<()> {
        let SecondPlan { apply, differs, .. } = &plan.second;
        if !differs {
            return Ok(());
        }
        let api = self.context.kind().api_version();
        let body = write::second_addresses(api, key, cluster, apply);
        let before = &cluster.second;
        let endpoint = apply.control_plane.is_some() && before.control_plane.is_none();
        let ingress = apply.ingress.is_some() && before.ingress.is_none();
        let fresh = [
            endpoint.then_some(VipSlot::SECOND_ENDPOINT),
            ingress.then_some(VipSlot::SECOND_INGRESS),
        ];
        let manager = write::second_manager(apply);
        self.apply((key, cluster), manager, &body, &fresh).await?;
        let kinds = [SECOND_ENDPOINT_READY, SECOND_INGRESS_READY];
        self.note_all((key, cluster), plan, kinds);
        Ok(())
    }

    /// Applies addresses; the Cluster did not show those of `fresh` before.
    async fn apply(
        &self,
        (key, cluster): (&Key, &ClusterView),
        manager: &'static str,
        body: &Value,
        fresh: &[Option<VipSlot>],
    ) -> Reconciled<()> {
        let target = self.context.kind().target(key);
        let remote = self.context.remote.with_manager(manager);
        let written = remote.patch_seen(&target, Patch::Apply, body).await;
        self.count_written(key, cluster, fresh, written.is_ok());
        let now: Cluster = written?;
        self.context.objects.keep(key, ClusterView::of(now));
        Ok(())
    }

    /// Tells by Events which addresses of these kinds the Cluster has.
    fn note_all(
        &self,
        (key, cluster): (&Key, &ClusterView),
        plan: &VipPlan,
        kinds: [&'static str; 2],
    ) {
        let says = plan.conditions.iter().filter(|says| says.status);
        for says in says.filter(|says| kinds.contains(&says.kind)) {
            let note = says.message.clone();
            self.context.note(key, &cluster.meta.uid, says.reason, note);
        }
    }

    /// Counts the addresses that the Cluster did not show before.
    fn count_written(
        &self,
        key: &Key,
        cluster: &ClusterView,
        fresh: &[Option<VipSlot>],
        written: bool,
    ) {
        let class = cluster.class_name().unwrap_or_default();
        let mut fresh = fresh.iter().flatten();
        if !written {
            // It was one write.
            let role = fresh.next().map_or(VipRole::Ingress, |slot| slot.role);
            return self.counts.failed(role, class, VipFailure::Patch);
        }
        for slot in fresh {
            let claim = self.claims.context.objects.get(&claim_key(key, *slot));
            let since = claim.map_or(0, |claim| claim.meta.created.0);
            let after = clock::now().0.saturating_sub(since);
            self.counts
                .allocated(slot.role, class, Duration::from_millis(after));
        }
    }

    /// The conditions by an apply of their own: those of others stay.
    async fn say(
        &self,
        key: &Key,
        cluster: &ClusterView,
        says: &[ConditionUpdate],
    ) -> Reconciled<()> {
        let ours = |one: &&Condition| CONDITIONS.contains(&&*one.type_);
        let before: Vec<_> = cluster.conditions.iter().filter(ours).cloned().collect();
        let mut after = before.clone();
        for kind in CONDITIONS {
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
