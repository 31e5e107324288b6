//! The controller of the Clusters of a management cluster.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use fipd_core::{Change, Ledger};
use futures::future::join_all;
use parking_lot::Mutex;

use super::{
    choose::{VipPool, VipSlot, VipWish},
    half_ready::HalfReady,
    leave::cluster_of,
    observe::{CapiClusterView, ClassView},
    plan::{ENDPOINT_READY, INGRESS_READY, VipFacts, VipPlan, plan},
    report::{self, VipReport, VipState},
    second::{SECOND_ENDPOINT_READY, SECOND_INGRESS_READY, SecondFacts},
    watched::WatchedPools,
    write::claim_key,
};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::CallError,
        conditions::{ConditionUpdate, REFUSED},
        context::Context,
        kind::Kind,
        meta::Meta,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed, Objects},
        waiters::LedgerEvent,
    },
    systems::cluster_api::{
        claim::IpClaimController,
        metrics::{VipCounts, VipReconcile},
        names::{GLOBAL_POOL, POOL, READY},
        pool::InClusterView,
        settings::ClusterApiSettings,
    },
};

/// See the module.
pub struct VipController {
    pub context: Context<CapiClusterView>,
    pub claims: Arc<IpClaimController>,
    pub classes: Arc<Objects<ClassView>>,
    pub counts: VipCounts,
    /// Clusters that lack an address, and those that are being looked at: what changes meanwhile counts for them.
    pub(super) waiting: Mutex<BTreeSet<Key>>,
    /// Clusters with an address of somebody else's choice that no pool has.
    pub(super) unplaced: Mutex<BTreeSet<Key>>,
    pub(super) half_ready: HalfReady,
    watched: Mutex<WatchedPools>,
}

impl Controller for VipController {
    type View = CapiClusterView;

    const METRIC: &'static str = "clustervip";
    const WORKERS: usize = 16;

    fn context(&self) -> &Context<CapiClusterView> {
        &self.context
    }

    /// A pool that appears, is edited or gets room may serve who waits. It may also have an address that none had before.
    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let (affected, edited) = self.context.waiters.affected(ledger, event);
        affected
            .into_iter()
            .for_each(|key| self.context.queue.add(key));
        let changes: &[Arc<Change>] = match event {
            LedgerEvent::Everything => &[],
            LedgerEvent::Changes(changes) => changes,
        };
        let pools = changes.iter().flat_map(|change| change.pools.iter());
        let has_room = |pool| ledger.usage(pool).map(|usage| usage.free > 0);
        let gained = self.watched.lock().has_gained(pools.copied(), has_room);
        if edited || gained {
            self.queue_waiting();
        }
        if edited {
            let unplaced = std::mem::take(&mut *self.unplaced.lock());
            unplaced
                .into_iter()
                .for_each(|key| self.context.queue.add(key));
        }
    }

    /// A class says whether the address is a variable as well.
    async fn completed(&self) {
        self.context.objects.completed().await;
        if self.context.site.settings::<ClusterApiSettings>().vips {
            self.classes.completed().await;
        }
    }

    async fn reconcile(&self, key: &Key, cluster: Option<Arc<CapiClusterView>>) -> Reconciled {
        match cluster {
            None => self.gone(key).await,
            Some(cluster) => self.counted(key, &cluster).await,
        }
    }

    /// A Cluster that is deleted keeps its addresses until it is gone.
    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<CapiClusterView>>) -> Reconciled {
        Ok(Next::Done)
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Reconciled {
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl VipController {
    pub fn new(
        context: Context<CapiClusterView>,
        claims: &Arc<IpClaimController>,
        counts: &VipCounts,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            claims: Arc::clone(claims),
            classes: Objects::new(),
            counts: counts.clone(),
            waiting: Mutex::default(),
            unplaced: Mutex::default(),
            half_ready: HalfReady::default(),
            watched: Mutex::default(),
        })
    }

    /// A pool object appeared, changed or went.
    pub fn pool_changed(&self, kind: Kind, key: &Key) {
        let store = self.claims.user.pools_of(kind.kind);
        let store = store.filter(|_| serves_clusters(kind));
        let pool = store.and_then(|(_, pools)| pools.get(key));
        let now = pool.and_then(|pool| self.pool(kind, key, &pool));
        if self.watched.lock().object_changed(kind.kind, key, now) {
            self.queue_waiting();
        }
    }

    /// Queues the Clusters that lack an address.
    fn queue_waiting(&self) {
        let waiting = self.waiting.lock();
        waiting
            .iter()
            .for_each(|key| self.context.queue.add(key.clone()));
    }

    /// A claim or its IPAddress changed.
    pub fn claim_changed(&self, claim: &Key) {
        if let Some(cluster) = cluster_of(claim) {
            self.context.queue.add(cluster);
        }
    }

    /// A class appeared, changed or went.
    pub fn class_changed(&self, class: &Key) {
        for (key, cluster) in self.context.objects.all() {
            if cluster.class.as_ref() == Some(class) {
                self.context.queue.add(key);
            }
        }
    }

    /// What was reserved for it is free, or of the Cluster that it is elsewhere; its claims go with it.
    async fn gone(&self, key: &Key) -> Reconciled {
        self.waiting.lock().remove(key);
        self.unplaced.lock().remove(key);
        self.half_ready.forget(key);
        self.context.waiters.wait(key, None);
        if self.context.moved_away(key).await? {
            self.context.pass_to_moved(key).await?;
        }
        let identity = self.context.identity(key);
        let held = self.context.read(|ledger| {
            !ledger.leases_of(&identity).is_empty() || !ledger.contentions_of(&identity).is_empty()
        });
        if held {
            self.context.site.session.suspect();
        }
        Ok(Next::Done)
    }

    fn idle(&self, key: &Key, cluster: &CapiClusterView) -> Option<VipReport> {
        report::idle(self.context.site.settings(), key, cluster)
    }

    async fn counted(&self, key: &Key, cluster: &CapiClusterView) -> Reconciled {
        let began = Instant::now();
        let done = self.serve(key, cluster).await;
        let class = cluster.class_name().unwrap_or_default();
        let ended = match &done {
            Ok(_) if self.idle(key, cluster).is_some() => VipReconcile::Skipped,
            Ok(Next::Done) => VipReconcile::Success,
            Ok(Next::After(_) | Next::Retry) => VipReconcile::Requeued,
            Err(_) => VipReconcile::Error,
        };
        self.counts.reconciled(class, ended, began.elapsed());
        done
    }

    /// A Cluster that fipd does not serve keeps what it shows and what another provider allocated for its claims. Its earlier
    /// conditions no longer apply.
    async fn leave_alone(
        &self,
        key: &Key,
        cluster: &CapiClusterView,
        state: VipState,
    ) -> Reconciled {
        self.waiting.lock().remove(key);
        let cause = if state == VipState::Deleting {
            None
        } else {
            self.reserve_allocated((key, cluster), &self.pools())
                .await?;
            self.reserve_shown(key, cluster).await?
        };
        self.context.waiters.wait(key, cause);
        if state == VipState::LeftAlone {
            let _writing = self.claims.user.writing.lock(key).await;
            self.release_unshown(key, cluster).await?;
            // Where `vips` is off, the Clusters are only read.
            if self.context.site.settings::<ClusterApiSettings>().vips {
                self.say(key, cluster, &[]).await?;
            }
        }
        Ok(Next::Done)
    }

    async fn serve(&self, key: &Key, cluster: &CapiClusterView) -> Reconciled {
        if let Some(idle) = self.idle(key, cluster) {
            return self.leave_alone(key, cluster, idle.state).await;
        }
        self.waiting.lock().insert(key.clone());
        // From the look at the claims on: an address that is about to be written is not released meanwhile.
        let _writing = self.claims.user.writing.lock(key).await;
        self.assign(key, cluster).await
    }

    async fn assign(&self, key: &Key, cluster: &CapiClusterView) -> Reconciled {
        let class = cluster.class_name().unwrap_or_default();
        let settings = self.context.site.settings::<ClusterApiSettings>();
        let pools = self.pools();
        let owned = self.own_claims(key, cluster, &pools).await;
        self.release_unshown(key, cluster).await?;
        let of = (key, cluster);
        self.reserve_allocated(of, &pools).await?;
        let families = cluster.families;
        let wish = |slot, family| VipWish {
            slot,
            class,
            namespace: &key.namespace,
            family,
        };
        let state = |wish| self.state(of, wish, &pools);
        let first = families.map(|all| all.first);
        let endpoint = wish(VipSlot::ENDPOINT, first);
        let front = wish(VipSlot::INGRESS, first);
        let (control_plane, ingress) = (state(endpoint), state(front));
        let beside = |address| families.and_then(|all| all.beside(address));
        let host = cluster.host().or(control_plane.address());
        let second_endpoint = wish(VipSlot::SECOND_ENDPOINT, beside(host));
        let shown = cluster.ingress_host().or(ingress.address());
        let second_front = wish(VipSlot::SECOND_INGRESS, beside(shown));
        let is_dual = families.is_some_and(|all| all.second.is_some());
        let found = cluster.class.as_ref();
        let found = found.and_then(|class| self.classes.get(class));
        let mut plan = plan(&VipFacts {
            cluster,
            class: found.as_deref(),
            replaced: self.replaced(of, [endpoint, front], &pools),
            control_plane,
            ingress,
            second: is_dual.then(|| SecondFacts {
                control_plane: state(second_endpoint),
                ingress: state(second_front),
            }),
            default_port: i32::from(settings.default_port.get()),
        });
        let steps = [
            (&plan.control_plane, endpoint),
            (&plan.ingress, front),
            (&plan.second.control_plane, second_endpoint),
            (&plan.second.ingress, second_front),
        ];
        // None waits for what another lacks.
        let steps = steps.map(|(step, wish)| self.step(of, step, wish, &pools));
        let done = join_all(steps).await;
        tell_refusals(key, &mut plan, &done);
        self.tell_rivals(of, &mut plan, &pools);
        let written = self.publish(key, cluster, &plan).await;
        // A claim that refuses its owner holds up nothing else.
        done.into_iter()
            .chain([owned])
            .collect::<Reconciled<()>>()?;
        written
    }

    /// An address that another has in the address book is not well given, whoever chose it.
    fn tell_rivals(
        &self,
        (key, cluster): (&Key, &CapiClusterView),
        plan: &mut VipPlan,
        pools: &[VipPool],
    ) {
        let endpoint = plan.apply.endpoint.as_ref();
        let endpoint = endpoint.and_then(|(host, _)| host.parse().ok());
        let second = &plan.second.apply;
        let written = [
            endpoint,
            plan.apply.ingress,
            second.control_plane,
            second.ingress,
        ];
        let withheld = |slot| self.withheld((key, cluster), slot, pools)?.cause;
        let mut cause = VipSlot::ALL.into_iter().find_map(withheld);
        for ((slot, kind), written) in SLOTS.into_iter().zip(written) {
            let mut says = plan.conditions.iter_mut();
            let says = says.find(|says| says.kind == kind && says.status);
            let shown = || cluster.shown().find(|(one, _)| *one == slot);
            let address = written.or_else(|| shown().map(|(_, address)| address));
            let (Some(says), Some(address)) = (says, address) else {
                continue;
            };
            if let Some(rival) = self.rival((key, cluster), slot, address, pools) {
                says.status = false;
                says.reason = rival.reason;
                says.message = format!("{}; {}", says.message, rival.message);
                cause = cause.or(rival.cause);
            }
        }
        self.context.waiters.wait(key, cause);
    }

    /// The pools of addresses of the cluster, with what they say of Clusters.
    pub(super) fn pools(&self) -> Vec<VipPool> {
        let stores = self.claims.user.pools.iter();
        let stores = stores.filter(|(kind, _)| serves_clusters(*kind));
        let pools = stores.flat_map(|(kind, objects)| {
            let (kind, all) = (*kind, objects.all().into_iter());
            all.filter_map(move |(key, pool)| self.pool(kind, &key, &pool))
        });
        pools.collect()
    }

    /// A pool, with what it says of Clusters; `None`: it serves none.
    fn pool(&self, kind: Kind, key: &Key, pool: &InClusterView) -> Option<VipPool> {
        let labels = pool.vip.clone().filter(|_| !pool.meta.is_terminating())?;
        let site = &self.context.site;
        let of_mirror = |ledger: &Ledger| {
            let pool = site.mirror_in(ledger, &key.to_string())?;
            let room = ledger.usage(pool.id).map(|usage| usage.free > 0);
            if room == Some(false) {
                self.watched.lock().found_full(pool.id);
            }
            Some((pool.spec.family(), room))
        };
        let (family, has_room) = self.context.read(of_mirror).unwrap_or_default();
        let served = site
            .settings::<ClusterApiSettings>()
            .serves_in_cluster_kinds();
        let counted = pool.status.ip_addresses.map(|counts| counts.free > 0);
        // One that is paused gives nothing, nor does one that is known to be none.
        let mut conditions = pool.status.conditions.iter();
        let unready = conditions.any(|one| one.type_ == READY && one.status == "False");
        let has_room = match has_room.or(counted.filter(|_| !served)) {
            _ if pool.paused => Some(false),
            None if unready => Some(false),
            room => room,
        };
        Some(VipPool {
            kind,
            labels,
            family: family.or_else(|| pool.spec.family()),
            has_room,
            key: key.clone(),
        })
    }
}

/// The addresses of a Cluster, with the types of their conditions.
const SLOTS: [(VipSlot, &str); 4] = [
    (VipSlot::ENDPOINT, ENDPOINT_READY),
    (VipSlot::INGRESS, INGRESS_READY),
    (VipSlot::SECOND_ENDPOINT, SECOND_ENDPOINT_READY),
    (VipSlot::SECOND_INGRESS, SECOND_INGRESS_READY),
];

/// Says of each claim that the API server refuses that it does.
fn tell_refusals(key: &Key, plan: &mut VipPlan, done: &[Reconciled<()>]) {
    for ((slot, kind), done) in SLOTS.into_iter().zip(done) {
        if let Err(ReconcileError::Call(CallError::Rejected(_, why))) = done
            && !plan.conditions.iter().any(|says| says.kind == kind)
        {
            let message = format!(
                "the API server refuses IPAddressClaim {}: {why}; let it take the claim, which is tried again",
                claim_key(key, slot).name
            );
            plan.conditions.push(ConditionUpdate {
                kind,
                status: false,
                reason: REFUSED,
                message,
            });
        }
    }
}

/// Whether Clusters get addresses of pools of this kind.
pub(super) fn serves_clusters(kind: Kind) -> bool {
    kind.kind == POOL.kind || kind.kind == GLOBAL_POOL.kind
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
