//! Writes addresses and conditions into a Cluster.

use std::time::Duration;

use fipd_crds::cluster_api::Cluster;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    VipController,
    choose::{VipRole, VipSlot},
    observe::CapiClusterView,
    plan::{CONDITIONS, ENDPOINT_READY, INGRESS_READY, POOL_NOT_FOUND, VipPlan},
    second::{SECOND_ENDPOINT_READY, SECOND_INGRESS_READY, SecondPlan},
    write::{self, CONDITION_MANAGER, claim_key},
};
use crate::{
    clock,
    controller::{
        Reconciled,
        client::{CallError, Patch},
        conditions::{ConditionUpdate, REFUSED, set, unset},
        confirm_absence::RECHECK_AFTER,
        context::STATUS_PAUSE,
        queue::Next,
        store::Key,
    },
    systems::cluster_api::metrics::VipFailure,
};

/// When a Cluster is looked at again that somebody changed while it was written.
const CHANGED_PAUSE: Duration = Duration::from_millis(10);

impl VipController {
    /// Writes the addresses and what there is to say. Half of the addresses wait a moment for the other half.
    pub(super) async fn publish(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        plan: &VipPlan,
    ) -> Reconciled {
        match self.half_ready.pause(key, plan.is_half, Instant::now()) {
            Some(pause) => Ok(Next::After(pause)),
            None => self.write(key, cluster, plan).await,
        }
    }

    /// Writes the addresses, then what there is to say. Those of the second family hold up nothing.
    async fn write(&self, key: &Key, cluster: &CapiClusterView, plan: &VipPlan) -> Reconciled {
        let api = self.context.kind().api_version();
        let mut applied = None;
        if plan.differs {
            let body = write::addresses(api, key, cluster, &plan.apply);
            let endpoint = plan.apply.endpoint.is_some() && cluster.endpoint.is_none();
            let ingress = plan.apply.ingress.is_some() && cluster.ingress.address.is_none();
            let fresh = [
                endpoint.then_some(VipSlot::ENDPOINT),
                ingress.then_some(VipSlot::INGRESS),
            ];
            let manager = write::manager(&plan.apply);
            let of_endpoint = plan.apply.endpoint.is_some()
                || plan.apply.variable.is_some()
                || plan.apply.annotation.is_some();
            let written = (manager, role_of(of_endpoint));
            match self.apply((key, cluster), written, &body, &fresh).await {
                Ok(now) => applied = Some(now),
                Err(CallError::Rejected(_, why)) => {
                    return self.refused(key, cluster, plan, &why).await;
                }
                Err(CallError::Conflict(..)) => return self.look_again(key, cluster).await,
                Err(error) => return Err(error.into()),
            }
            self.note_all((key, cluster), plan, [ENDPOINT_READY, INGRESS_READY]);
        }
        // The second apply is on top of the first.
        let now = applied.as_ref().unwrap_or(cluster);
        let second = self.write_second(key, now, plan).await;
        for says in plan.conditions.iter().filter(|says| !says.status) {
            let note = says.message.clone();
            self.context.warn(key, &cluster.meta.uid, says.reason, note);
        }
        // Where many wait for addresses, these go before what is to be said.
        let is_put_off = applied.is_some() && self.context.queue.is_crowded();
        if !is_put_off {
            self.say(key, cluster, &plan.conditions).await?;
        }
        match second {
            Err(CallError::Conflict(..)) => return self.look_again(key, cluster).await,
            second => second?,
        }
        let served = plan.conditions.iter().all(|says| says.status);
        let next = match served {
            true => {
                self.waiting.lock().remove(key);
                Next::Done
            }
            false => {
                self.waiting.lock().insert(key.clone());
                Next::After(RECHECK_AFTER)
            }
        };
        Ok(match is_put_off {
            true => Next::After(STATUS_PAUSE),
            false => next,
        })
    }

    /// Somebody changed the Cluster meanwhile: what is planned next is planned for the Cluster as it is now, which the watch may
    /// not show yet.
    async fn look_again(&self, key: &Key, cluster: &CapiClusterView) -> Reconciled {
        let target = self.context.kind().target(key);
        let found: Option<Cluster> = self.context.remote.get(&target).await?;
        let found = found.map(CapiClusterView::of);
        let Some(found) = found.filter(|found| found.meta.uid == cluster.meta.uid) else {
            return Ok(Next::Retry);
        };
        self.context.objects.keep(key, found);
        Ok(Next::After(CHANGED_PAUSE))
    }

    /// Says that the API server refuses the addresses: a class may want another sort of variable, or be gone.
    async fn refused(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        plan: &VipPlan,
        why: &str,
    ) -> Reconciled {
        let mut says = plan.conditions.clone();
        for one in &mut says {
            one.status = false;
            one.reason = REFUSED;
            one.message = format!(
                "the API server refuses the addresses: {why}; correct the Cluster or its ClusterClass, it is tried again"
            );
            let note = one.message.clone();
            self.context.warn(key, &cluster.meta.uid, REFUSED, note);
        }
        self.say(key, cluster, &says).await?;
        self.waiting.lock().insert(key.clone());
        Ok(Next::After(RECHECK_AFTER))
    }

    async fn write_second(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        plan: &VipPlan,
    ) -> Result<(), CallError> {
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
        let written = (manager, role_of(apply.control_plane.is_some()));
        self.apply((key, cluster), written, &body, &fresh).await?;
        let kinds = [SECOND_ENDPOINT_READY, SECOND_INGRESS_READY];
        self.note_all((key, cluster), plan, kinds);
        Ok(())
    }

    /// Applies addresses; the Cluster did not show those of `fresh` before. The Cluster as it is then.
    async fn apply(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        (manager, role): (&'static str, VipRole),
        body: &Value,
        fresh: &[Option<VipSlot>],
    ) -> Result<CapiClusterView, CallError> {
        let target = self.context.kind().target(key);
        let remote = self.context.remote.with_manager(manager);
        let written: Result<Cluster, _> = remote.patch_seen(&target, Patch::Apply, body).await;
        if !matches!(written, Err(CallError::Conflict(..))) {
            match written {
                Ok(_) => self.count_written(key, cluster, fresh),
                // It was one write.
                Err(_) => {
                    let class = cluster.class_name().unwrap_or_default();
                    self.counts.failed(role, class, VipFailure::Patch);
                }
            }
        }
        let now = CapiClusterView::of(written?);
        self.context.objects.keep(key, now.clone());
        Ok(now)
    }

    /// Tells by Events which addresses of these kinds the Cluster has.
    fn note_all(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
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
    fn count_written(&self, key: &Key, cluster: &CapiClusterView, fresh: &[Option<VipSlot>]) {
        let class = cluster.class_name().unwrap_or_default();
        for slot in fresh.iter().flatten() {
            let now = clock::now().0;
            let claim = self.claims.context.objects.get(&claim_key(key, *slot));
            let since = claim.map_or(now, |claim| claim.meta.created.0);
            let after = now.saturating_sub(since);
            self.counts
                .allocated(slot.role, class, Duration::from_millis(after));
        }
    }

    /// Counts that a role finds no pool, once for as long as it does not.
    fn count_poolless(&self, cluster: &CapiClusterView, says: &ConditionUpdate) {
        let mut before = cluster.conditions.iter();
        let known = before.any(|one| one.type_ == says.kind && one.reason == says.reason);
        if says.reason == POOL_NOT_FOUND && !known {
            let role = match says.kind {
                INGRESS_READY | SECOND_INGRESS_READY => VipRole::Ingress,
                _ => VipRole::ControlPlane,
            };
            let class = cluster.class_name().unwrap_or_default();
            self.counts.failed(role, class, VipFailure::Claim);
        }
    }

    /// The conditions by an apply of their own: those of others stay.
    pub(super) async fn say(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
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
        let now: Cluster = remote
            .patch_status_seen(&target, Patch::Apply, &body)
            .await?;
        says.iter()
            .for_each(|one| self.count_poolless(cluster, one));
        // The watch lags: without this the same condition is written and counted twice.
        self.context.objects.keep(key, CapiClusterView::of(now));
        Ok(())
    }
}

/// Whose addresses a write has.
fn role_of(is_endpoint: bool) -> VipRole {
    match is_endpoint {
        true => VipRole::ControlPlane,
        false => VipRole::Ingress,
    }
}
