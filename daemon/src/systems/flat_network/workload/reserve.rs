//! Keeps addresses for the pods of workloads that name them: no other pod gets them meanwhile.
//!
//! ```text
//!  template names it, nobody has it --> workload <--> its pod --> workload names it no more, or is gone --> free
//! ```

use std::{net::IpAddr, sync::Arc, time::Duration};

use fipd_core::{
    Adopt, Holder, Identity, LeaseKey, Ledger, Pool, PoolId, ReleaseScope, Request, Text,
};
use fipd_crds::flat_network::names::IP;
use futures::FutureExt as _;
use serde_json::Value;

use super::{
    WorkloadController, WorkloadView, Workloads,
    reservation::{self, ReservationPlan},
};
use crate::{
    clusters::adoption::for_each_held,
    controller::{
        ReconcileError, Reconciled,
        confirm_absence::RECHECK_AFTER,
        queue::Next,
        store::Key,
        tasks::quiet,
        unserved::{Unserved, refused},
        waiters::{Cause, LedgerEvent},
    },
    ipam::IpamError,
    systems::flat_network::{
        names::{FLAT_IP, pod_key},
        settings::FlatNetworkSettings,
    },
    validation::flat_network::workload::WorkloadRef,
};

/// Reason of the Event of a workload that names addresses which are not kept for its pods.
const NOT_RESERVED: &str = "AddressNotReserved";
/// What the audit log says.
const NAMED_NO_MORE: &str = "its workload does not name it any more";
/// How many addresses an Event names.
const NAMED: usize = 5;

impl WorkloadController {
    /// Brings what is kept for a workload up to date; `None`: it is gone.
    pub(super) async fn reserve(&self, key: &Key, workload: Option<&WorkloadView>) -> Reconciled {
        let named = workload.and_then(WorkloadView::named);
        let own = self.context.identity(key);
        let (pool, plan) = self.context.read(|ledger| {
            let pool = named.and_then(|named| self.pool(ledger, &named.subnet));
            self.note_naming(key, pool.as_ref().map(|pool| pool.id));
            let addresses = named.map(|named| named.addresses.as_slice());
            let wanted = (pool.as_deref(), addresses.unwrap_or_default());
            let is_own = |pod: &Identity| self.is_own_pod(key, pod);
            let plan = reservation::plan(ledger, &own, wanted, is_own);
            (pool, plan)
        });
        for (holder, keys) in &plan.release {
            let scope = ReleaseScope::HolderAddresses(holder.clone(), keys.clone());
            self.context.site.release(scope, NAMED_NO_MORE).await?;
        }
        let problem = match (workload, &pool) {
            (Some(workload), Some(pool)) => self.keep(key, workload, pool, &plan).await?,
            (Some(_) | None, _) => None,
        };
        if let Some(workload) = workload {
            self.tell(key, workload, &plan, problem.as_ref());
        }
        let cause = match (problem, pool) {
            (Some(problem), _) => problem.cause,
            (None, None) => named.map(|_| Cause::Pools),
            (None, Some(_)) => None,
        };
        self.context.waits_for(key, cause.clone());
        Ok(cause.map_or(Next::Done, |cause| Next::After(cause.ask_again())))
    }

    /// There is no such workload, or none that is on a flat network. What was kept for it is free once two looks do not find it.
    pub(super) async fn release_absent(&self, key: &Key) -> Reconciled {
        let own = self.context.identity(key);
        if self
            .context
            .read(|ledger| ledger.leases_of(&own).is_empty())
        {
            self.missing.forget(key);
            return self.reserve(key, None).await;
        }
        let target = self.context.kind.target(key);
        let found: Option<Value> = self.context.remote.get(&target).await?;
        let Some(found) = found else {
            if let Some(left) = self.missing.missing(key) {
                return Ok(Next::After(left));
            }
            // Only where it is this cluster that answered.
            let verified = self.context.site.session.verify_identity().await;
            verified.map_err(|error| ReconcileError::internal(error.to_string()))?;
            self.missing.forget(key);
            return self.reserve(key, None).await;
        };
        self.missing.forget(key);
        match (self.read)(found) {
            Ok(now) => self.reserve(key, now.as_ref()).await,
            // What was in force stays.
            Err(_) => Ok(Next::After(RECHECK_AFTER)),
        }
    }

    /// Queues the workloads that a change of the address book concerns.
    pub(super) fn queue_affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let mut keys = self.context.waiters.affected_keys(ledger, event);
        let naming = self.naming.lock();
        match event {
            LedgerEvent::Everything => keys.extend(naming.values().flatten().cloned()),
            LedgerEvent::Changes(changes) => {
                let pools = changes.iter().flat_map(|change| &change.pools);
                let touched = pools.filter_map(|pool| naming.get(pool));
                keys.extend(touched.flatten().cloned());
            }
        }
        keys.into_iter().for_each(|key| self.context.queue.add(key));
    }

    /// Notes of which pool the workload names addresses.
    fn note_naming(&self, key: &Key, pool: Option<PoolId>) {
        let mut naming = self.naming.lock();
        naming.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
        if let Some(pool) = pool {
            naming.entry(pool).or_default().insert(key.clone());
        }
    }

    /// The pool of a subnet.
    fn pool(&self, ledger: &Ledger, subnet: &str) -> Option<Arc<Pool>> {
        let site = &self.context.site;
        let namespace = &site.settings::<FlatNetworkSettings>().namespace;
        let object = Key::new(namespace, subnet).to_string();
        let pool = site.mirror_in(ledger, &object);
        pool.filter(|pool| !pool.spec.closed).cloned()
    }

    fn is_own_pod(&self, key: &Key, pod: &Identity) -> bool {
        let own = self.reference(key);
        let of = || self.ips.get(&Key::of_identity(pod))?.workload.clone();
        self.is_pod(pod)
            && (own.has_ordinal(&pod.namespace, &pod.name) || of().is_some_and(|of| of == own))
    }

    /// Whether it is a pod of this cluster.
    fn is_pod(&self, identity: &Identity) -> bool {
        let site = &self.context.site;
        let here = identity.cluster.as_ref() == Some(&site.id) && identity.system == site.system;
        here && *identity.kind == *FLAT_IP.kind
    }

    fn reference(&self, key: &Key) -> WorkloadRef {
        WorkloadRef::new(self.context.kind.kind, &key.namespace, &key.name)
    }

    /// Keeps what is free; the first refusal.
    async fn keep(
        &self,
        key: &Key,
        workload: &WorkloadView,
        pool: &Pool,
        plan: &ReservationPlan,
    ) -> Reconciled<Option<Unserved>> {
        let holder = self.context.holder(key, &workload.meta.uid);
        let tenant = self.context.site.tenant_of(&key.namespace);
        for place in &plan.revive {
            let adopt = Adopt {
                key: *place,
                length: None,
                holder: holder.clone(),
                tenant: Some(tenant.clone()),
                since: workload.meta.created,
                actor: self.context.actor(),
            };
            self.context.take_in(Request::Adopt(adopt)).await?;
        }
        let mut problem = None;
        for place in &plan.reserve {
            let (holder, tenant) = (holder.clone(), tenant.clone());
            let wanted = (pool, place.address);
            let request = reservation::request(holder, tenant, wanted, self.context.actor());
            match self.context.submit(request).await {
                Ok(_) => {}
                Err(IpamError::Refused(refusal)) => {
                    let network = pool.spec.network;
                    problem.get_or_insert_with(|| refused(&refusal, network));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(problem)
    }

    /// Says which addresses are not kept for its pods, and why.
    fn tell(
        &self,
        key: &Key,
        workload: &WorkloadView,
        plan: &ReservationPlan,
        problem: Option<&Unserved>,
    ) {
        let uid = &workload.meta.uid;
        if !plan.taken.is_empty() {
            let text = |(address, owner): &(IpAddr, Identity)| {
                format!("{address} is that of {}", self.owner_text(owner))
            };
            let mut texts: Vec<String> = plan.taken.iter().take(NAMED).map(text).collect();
            if plan.taken.len() > NAMED {
                texts.push("...".to_owned());
            }
            let note = format!(
                "annotation {IP} of its pods: {}; who has an address keeps it, and it is reserved for this workload once it is free",
                texts.join(", ")
            );
            self.context.warn(key, uid, NOT_RESERVED, note);
        }
        // An adoption ends by itself.
        let waits = |problem: &&Unserved| matches!(problem.cause, Some(Cause::Held(_)));
        if let Some(problem) = problem.filter(|problem| !waits(problem)) {
            let note = format!("annotation {IP} of its pods: {}", problem.message);
            self.context.warn(key, uid, NOT_RESERVED, note);
        }
    }

    /// Users of this cluster learn nothing of others.
    fn owner_text(&self, owner: &Identity) -> String {
        let site = &self.context.site;
        if owner.cluster.as_ref() != Some(&site.id) || owner.system != site.system {
            return "another system or cluster".to_owned();
        }
        match self.is_pod(owner) {
            true => format!("pod {}", pod_key(&Key::of_identity(owner))),
            false => WorkloadRef::new(&owner.kind, &owner.namespace, &owner.name).to_string(),
        }
    }

    /// Who keeps the address, if the workload names it.
    fn keeper(&self, ledger: &Ledger, key: &Key, place: LeaseKey) -> Option<Holder> {
        let workload = self.context.objects.get(key)?;
        let named = workload.named()?;
        let pool = self.pool(ledger, &named.subnet)?;
        let is_named = named.addresses.contains(&place.address);
        let is_place = reservation::place(&pool, place.address) == Some(place);
        (is_named && is_place).then(|| self.context.holder(key, &workload.meta.uid))
    }
}

impl Workloads {
    /// Until what each workload names is kept for its pods. Not for longer than `most`: a kind that cannot be listed holds up no pod.
    pub async fn reserved(&self, most: Duration) {
        let all = async {
            for one in &self.0 {
                one.context.objects.completed().await;
                quiet(Arc::clone(&one.context.queue)).await;
            }
        };
        let _ = tokio::time::timeout(most, all).await;
    }

    /// Looks at workloads for which something is kept: one that is gone is seen by nobody else.
    pub(super) fn queue_held(&self) {
        let [first, ..] = &self.0;
        let site = &first.context.site;
        for_each_held(&site.session, &site.system, |lease| {
            let Some(owner) = lease.owner().map(|owner| &owner.identity) else {
                return;
            };
            if let Some(one) = self.of(&owner.kind) {
                one.context.queue.add(Key::of_identity(owner));
            }
        });
    }

    /// Whether all workloads of this kind are known.
    pub fn knows(&self, kind: &str) -> bool {
        let completed = |one: &Arc<WorkloadController>| {
            let completed = one.context.objects.completed().now_or_never();
            completed.is_some()
        };
        self.of(kind).is_none_or(completed)
    }

    /// Who keeps an address that a pod of the workload gives back; `None`: nobody, as the workload does not name it.
    pub fn keeper(
        &self,
        ledger: &Ledger,
        workload: &WorkloadRef,
        place: LeaseKey,
    ) -> Option<Holder> {
        let key = Key::new(&workload.namespace, &workload.name);
        self.of(&workload.kind)?.keeper(ledger, &key, place)
    }

    /// The same of an address of which only the namespace of its pod is known: the oldest of its workloads that name it.
    pub fn heir(&self, ledger: &Ledger, namespace: &Text, place: LeaseKey) -> Option<Holder> {
        let keepers = self.0.iter().flat_map(|one| {
            let keys = one.context.objects.keys_in(namespace).into_iter();
            keys.filter_map(move |key| {
                let created = one.context.objects.get(&key)?.meta.created;
                Some((created, one.keeper(ledger, &key, place)?))
            })
        });
        keepers.min().map(|(_, keeper)| keeper)
    }

    fn of(&self, kind: &str) -> Option<&Arc<WorkloadController>> {
        self.0.iter().find(|one| one.context.kind.kind == kind)
    }
}
