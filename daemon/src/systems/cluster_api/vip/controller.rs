//! The controller of the Clusters of a management cluster.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use fipd_core::{LeaseKey, Ledger, NetworkId};
use fipd_crds::cluster_api::Cluster;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff};
use kube::{Resource as _, api::ListParams};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    choose::{VipPool, VipRole, best, candidates},
    leave::cluster_of,
    observe::{ClassView, ClusterView},
    plan::{
        ClaimState, ENDPOINT_READY, INGRESS_READY, POOL_NOT_FOUND, VipFacts, VipPlan, VipStep, plan,
    },
    report,
    write::{self, CONDITION_MANAGER, claim_key},
};
use crate::{
    clock,
    clusters::{
        CallError as ClustersCallError,
        absence::Presence,
        adoption::{Sighting, complete_list},
        lenient::Lenient,
    },
    controller::{
        Reconciled,
        address_user::settle::AddressAsker,
        client::{CallError, Patch},
        conditions::{ConditionUpdate, set, unset},
        confirm_absence::RECHECK_AFTER,
        context::Context,
        meta::Meta,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed, Objects},
        waiters::LedgerEvent,
    },
    ipam::IpamError,
    systems::cluster_api::{
        claim::{IpClaimController, observe::IpClaimView},
        metrics::{VipCounts, VipFailure, VipReconcile},
        names::{GLOBAL_POOL, POOL, POOL_EXHAUSTED},
        settings::ClusterApiSettings,
    },
};

/// See the module.
pub struct VipController {
    pub context: Context<ClusterView>,
    pub claims: Arc<IpClaimController>,
    pub classes: Arc<Objects<ClassView>>,
    pub counts: VipCounts,
    /// Clusters that lack an address.
    waiting: Mutex<BTreeSet<Key>>,
}

impl Controller for VipController {
    type View = ClusterView;

    const METRIC: &'static str = "clustervip";
    const WORKERS: usize = 16;

    fn context(&self) -> &Context<ClusterView> {
        &self.context
    }

    /// A pool that appears, changes or gets room may serve who waits.
    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let affected = self.context.waiters.affected_keys(ledger, event);
        affected
            .into_iter()
            .for_each(|key| self.context.queue.add(key));
        let touched = match event {
            LedgerEvent::Everything => true,
            LedgerEvent::Changes(changes) => changes.iter().any(|change| !change.pools.is_empty()),
        };
        if touched {
            self.queue_waiting();
        }
    }

    async fn reconcile(&self, key: &Key, cluster: Option<Arc<ClusterView>>) -> Reconciled {
        match cluster {
            None => Ok(self.gone(key)),
            Some(cluster) => self.counted(key, &cluster).await,
        }
    }

    /// A Cluster that is deleted keeps its addresses until it is gone.
    async fn release(&self, _: &Key, _: &Meta, _: Option<Arc<ClusterView>>) -> Reconciled {
        Ok(Next::Done)
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Reconciled {
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl VipController {
    pub fn new(
        context: Context<ClusterView>,
        claims: &Arc<IpClaimController>,
        counts: &VipCounts,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            claims: Arc::clone(claims),
            classes: Objects::new(),
            counts: counts.clone(),
            waiting: Mutex::default(),
        })
    }

    /// Queues the Clusters that lack an address: a pool is another one now, or its labels are.
    pub fn queue_waiting(&self) {
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
            let of_class = |(namespace, name): &(String, String)| {
                **namespace == *class.namespace && **name == *class.name
            };
            if cluster.class.as_ref().is_some_and(of_class) {
                self.context.queue.add(key);
            }
        }
    }

    /// Every Cluster that is there, from a complete list. What somebody else chose for it is reserved once its pools are
    /// known, so none shows an address here.
    pub async fn sightings(&self) -> Result<Vec<Sighting>, ClustersCallError> {
        let context = &self.context;
        let session = &context.site.session;
        match context.kind.served(&context.remote).await {
            Ok(Some(_)) => {}
            // A cluster without Clusters.
            Ok(None) => return Ok(Vec::new()),
            Err(error) => {
                let what = error.to_string();
                let source = kube::Error::Service(what.clone().into());
                return Err(ClustersCallError::Api { what, source });
            }
        }
        let api = context.kind().all_as::<Cluster>(session.client.clone());
        let keep = |cluster: Lenient<Cluster>| {
            let meta = Meta::of(cluster.meta());
            Some(Sighting {
                holder: context.holder(&Key::of(cluster.meta()), &meta.uid),
                tenant: None,
                uses: Vec::new(),
                since: meta.created,
            })
        };
        complete_list(session, &api, ListParams::default(), "list Clusters", keep).await
    }

    /// Whether the Cluster is there, by a fresh read.
    pub async fn presence(&self, key: &Key) -> Presence {
        let target = self.context.kind().target(key);
        self.context.remote.presence(&target).await
    }

    /// What was reserved for it is free; its claims go with it.
    fn gone(&self, key: &Key) -> Next {
        self.waiting.lock().remove(key);
        let identity = self.context.identity(key);
        let held = self.context.read(|ledger| {
            !ledger.leases_of(&identity).is_empty() || !ledger.contentions_of(&identity).is_empty()
        });
        if held {
            self.context.site.session.suspect();
        }
        Next::Done
    }

    fn idle(&self, key: &Key, cluster: &ClusterView) -> bool {
        report::idle(self.context.site.settings(), key, cluster).is_some()
    }

    async fn counted(&self, key: &Key, cluster: &ClusterView) -> Reconciled {
        let began = Instant::now();
        let done = self.serve(key, cluster).await;
        let class = cluster.class_name().unwrap_or_default();
        let ended = match &done {
            Ok(_) if self.idle(key, cluster) => VipReconcile::Skipped,
            Ok(Next::Done) => VipReconcile::Success,
            Ok(Next::After(_) | Next::Retry) => VipReconcile::Requeued,
            Err(_) => VipReconcile::Error,
        };
        self.counts.reconciled(class, ended, began.elapsed());
        done
    }

    async fn serve(&self, key: &Key, cluster: &ClusterView) -> Reconciled {
        let Some(class) = cluster.class_name().filter(|_| !self.idle(key, cluster)) else {
            return Ok(Next::Done);
        };
        let settings = self.context.site.settings::<ClusterApiSettings>();
        let pools = self.pools();
        let fits = |role| candidates(&pools, class, role, &key.namespace);
        let (planes, ingresses) = (fits(VipRole::ControlPlane), fits(VipRole::Ingress));
        let of_class = cluster.class.as_ref();
        let found = of_class.map(|(namespace, name)| Key::new(namespace, name));
        let found = found.and_then(|class| self.classes.get(&class));
        let state = |role, fits: &[&VipPool]| self.state((key, cluster), role, (class, fits));
        let facts = VipFacts {
            cluster,
            class: found.as_deref(),
            control_plane: state(VipRole::ControlPlane, &planes),
            ingress: state(VipRole::Ingress, &ingresses),
            default_port: i32::from(settings.default_port.get()),
        };
        let plan = plan(&facts);
        let control_plane = (VipRole::ControlPlane, &plan.control_plane, &planes[..]);
        let ingress = (VipRole::Ingress, &plan.ingress, &ingresses[..]);
        // Neither role waits for what the other lacks.
        let (one, two) = tokio::join!(
            self.step(key, cluster, control_plane),
            self.step(key, cluster, ingress),
        );
        let written = self.write(key, cluster, &plan).await;
        one.and(two)?;
        written
    }

    /// The pools of addresses of the cluster, with what they say of Clusters.
    fn pools(&self) -> Vec<VipPool> {
        let site = &self.context.site;
        let mut pools = Vec::new();
        for (kind, objects) in &self.claims.user.pools {
            if kind.kind != POOL.kind && kind.kind != GLOBAL_POOL.kind {
                continue;
            }
            for (key, pool) in objects.all() {
                let Some(labels) = pool.vip.clone().filter(|_| !pool.meta.is_terminating()) else {
                    continue;
                };
                let room = |ledger: &Ledger| {
                    let pool = site.mirror_in(ledger, &key.to_string())?;
                    Some(ledger.usage(pool.id)?.free > 0)
                };
                let has_room = self.context.read(room);
                let counted = pool.status.ip_addresses.map(|counts| counts.free > 0);
                pools.push(VipPool {
                    kind: *kind,
                    labels,
                    has_room: has_room.or(counted),
                    key,
                });
            }
        }
        pools
    }

    /// What is known of the claim of a role.
    fn state(
        &self,
        (key, cluster): (&Key, &ClusterView),
        role: VipRole,
        (class, fits): (&str, &[&VipPool]),
    ) -> ClaimState {
        let name = claim_key(key, role);
        let Some(claim) = self.claims.context.objects.get(&name) else {
            return ClaimState::Absent(match best(fits) {
                Some(pool) => Ok(pool.key.to_string()),
                None => Err(format!(
                    "no matching ip pool for class {class:?} and role {:?}: label an InClusterIPPool of this namespace or a GlobalInClusterIPPool vip.capi.gorizond.io/cluster-class={class} and vip.capi.gorizond.io/role={}",
                    role.name(),
                    role.name()
                )),
            });
        };
        if !claim.owners.iter().any(|uid| **uid == *cluster.meta.uid) {
            let message = format!(
                "IPAddressClaim {} is there and is not of this Cluster; delete it, and one is made",
                name.name
            );
            return ClaimState::Foreign(message);
        }
        if let Some(address) = self.address_of(&name, &claim) {
            return ClaimState::Fulfilled(address);
        }
        let ready = claim.ready();
        let why = ready.map(|ready| ready.message.clone());
        let why = why.unwrap_or_else(|| format!("IPAddressClaim {} has no address yet", name.name));
        let exhausted = ready.is_some_and(|ready| ready.reason == POOL_EXHAUSTED);
        let other = best(fits).filter(|pool| {
            pool.has_room == Some(true)
                && (pool.kind.kind != claim.pool.kind || *pool.key.name != *claim.pool.name)
        });
        match other.filter(|_| exhausted && !claim.meta.is_terminating()) {
            Some(pool) => ClaimState::Misplaced(format!("{why}; pool {} has room", pool.key)),
            None => ClaimState::Pending(why),
        }
    }

    /// The address of a claim: by its IPAddress, which is there before the claim refers to it.
    fn address_of(&self, key: &Key, claim: &IpClaimView) -> Option<IpAddr> {
        let there = self.claims.user.address_of(key, &claim.pool)?;
        let owned = there.owners.iter().any(|uid| **uid == *claim.meta.uid);
        there
            .address
            .filter(|_| owned && !claim.meta.is_terminating())
    }

    async fn step(
        &self,
        key: &Key,
        cluster: &ClusterView,
        (role, step, fits): (VipRole, &VipStep, &[&VipPool]),
    ) -> Reconciled<()> {
        let (done, failure) = match step {
            VipStep::Nothing => return Ok(()),
            VipStep::Claim => match best(fits) {
                Some(pool) => {
                    let made = self.claim(key, cluster, role, pool).await;
                    (made, VipFailure::Claim)
                }
                None => return Ok(()),
            },
            VipStep::ClaimAnew => {
                let deleted = self.delete_claim(&claim_key(key, role)).await;
                (deleted, VipFailure::Claim)
            }
            VipStep::Reserve(address) => {
                let reserved = self.reserve(key, cluster, *address, fits).await;
                (reserved, VipFailure::Resolution)
            }
        };
        if done.is_err() {
            let class = cluster.class_name().unwrap_or_default();
            self.counts.failed(role, class, failure);
        }
        done
    }

    async fn claim(
        &self,
        key: &Key,
        cluster: &ClusterView,
        role: VipRole,
        pool: &VipPool,
    ) -> Reconciled<()> {
        let kind = self.claims.context.kind();
        let api = self.context.kind().api_version();
        let body = write::claim((kind, api), (key, cluster), role, pool);
        let target = kind.target(&claim_key(key, role));
        match self.context.remote.create(&target, &body).await {
            Ok(()) => Ok(()),
            // The watch tells of it, and of whose it is.
            Err(CallError::Conflict(..)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_claim(&self, claim: &Key) -> Reconciled<()> {
        let Some(there) = self.claims.context.objects.get(claim) else {
            return Ok(());
        };
        let target = self.claims.context.kind().target(claim);
        Ok(self.context.remote.delete(&target, &there.meta.uid).await?)
    }

    /// Keeps an address that somebody else chose from others, where a pool has it.
    async fn reserve(
        &self,
        key: &Key,
        cluster: &ClusterView,
        address: IpAddr,
        fits: &[&VipPool],
    ) -> Reconciled<()> {
        let holder = self.context.holder(key, &cluster.meta.uid);
        let Some(network) = self.network_of(address, fits) else {
            return Ok(());
        };
        let place = LeaseKey { network, address };
        let known = self.context.read(|ledger| {
            ledger.lease_around(place).is_some_and(|lease| {
                lease.held_by(&holder.identity) || lease.contender(&holder.identity).is_some()
            })
        });
        if known {
            return Ok(());
        }
        let asker = AddressAsker {
            holder,
            created: cluster.meta.created,
            actor: self.context.actor(),
        };
        let tenant = self.context.site.tenant_of(&key.namespace);
        match self
            .context
            .submit(asker.adopt(place.into(), Some(tenant)))
            .await
        {
            Ok(_) | Err(IpamError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The network of the first pool of its class that has the address, else of any pool of the cluster that has.
    fn network_of(&self, address: IpAddr, fits: &[&VipPool]) -> Option<NetworkId> {
        let site = &self.context.site;
        self.context.read(|ledger| {
            let mirrors = fits
                .iter()
                .filter_map(|pool| site.mirror_in(ledger, &pool.key.to_string()));
            let mut networks: Vec<_> = mirrors.map(|pool| pool.spec.network).collect();
            networks.extend(site.session.networks(&site.system));
            networks.into_iter().find(|network| {
                let key = LeaseKey {
                    network: *network,
                    address,
                };
                ledger.pool_in_range(key).is_some()
            })
        })
    }

    /// Writes the addresses, then what there is to say.
    async fn write(&self, key: &Key, cluster: &ClusterView, plan: &VipPlan) -> Reconciled {
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
            let now = clock::now().0;
            let claim = self.claims.context.objects.get(&claim_key(key, role));
            let since = claim.map_or(now, |claim| claim.meta.created.0);
            let after = now.saturating_sub(since);
            self.counts
                .allocated(role, class, Duration::from_millis(after));
        }
    }

    /// Counts that a role finds no pool, once for as long as it does not.
    fn count_poolless(&self, cluster: &ClusterView, says: &ConditionUpdate) {
        let mut before = cluster.conditions.iter();
        let known = before.any(|one| one.type_ == says.kind && one.reason == says.reason);
        if says.reason == POOL_NOT_FOUND && !known {
            let role = match says.kind {
                INGRESS_READY => VipRole::Ingress,
                _ => VipRole::ControlPlane,
            };
            let class = cluster.class_name().unwrap_or_default();
            self.counts.failed(role, class, VipFailure::Claim);
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
        let now: Cluster = remote
            .patch_status_seen(&target, Patch::Apply, &body)
            .await?;
        says.iter()
            .for_each(|one| self.count_poolless(cluster, one));
        // Until the watch tells of it the same is not said, and counted, twice.
        self.context.objects.keep(key, ClusterView::of(now));
        Ok(())
    }
}
