//! The leases of a Service: what it holds, asks for and gives back, also when it goes or is not ours any more.

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Answer, Family, Holder, Identity, Lease, LeaseKey, NetworkId, ReleaseScope, Request,
};
use k8s_openapi::api::core::v1::Service;

use super::{
    ServiceTurn, Services,
    observe::{self, Svc},
    plan::{LeasesByFamily, PoolsByFamily, ServiceMatch},
    status::{self, BEHIND},
    validate::{self, Wish},
};
use crate::{
    controller::{
        ReconcileError, Reconciled,
        client::{CallError, Remote, Target},
        context::Context,
        kind::SERVICE,
        meta::View as _,
        queue::Next,
        store::Key,
        unserved::{Unserved, refused},
        waiters::Cause,
    },
    ipam::IpamError,
    systems::rancher_fip::names::{FINALIZER, ServiceRef},
};

/// What was granted, or why not.
type Granted = Result<LeasesByFamily, Unserved>;

impl Services {
    /// Asks for addresses of pools, which are all of one network.
    pub(super) async fn request(&self, ask: Request, pools: &PoolsByFamily) -> Reconciled<Granted> {
        let first = pools.values().next();
        let network = first.map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
        match self.context.submit(ask).await {
            Ok(Answer::Granted { leases, .. }) => {
                let by_family = |lease: Arc<Lease>| (Family::of(lease.key.address), lease);
                Ok(Ok(leases.into_iter().map(by_family).collect()))
            }
            Ok(other) => Err(ReconcileError::unexpected(&other)),
            Err(IpamError::Refused(refusal)) => Ok(Err(refused(&refusal, network))),
            Err(error) => Err(error.into()),
        }
    }

    /// All leases of the Service, by whatever instance of its name.
    pub(super) fn held(&self, service: &ServiceRef) -> Vec<Arc<Lease>> {
        let identity = service.holder().identity;
        self.context.read(|ledger| ledger.leases_of(&identity))
    }

    /// A Service that has no lease waits for the end of the address it still shows: when another gets it, it is
    /// to be hidden.
    pub(super) fn still_shown(&self, turn: &ServiceTurn<'_>) -> Option<Cause> {
        let svc = turn.svc;
        let held = self.held(&turn.service);
        if !svc.is_marked() || held.iter().any(|lease| lease.prefix().is_address()) {
            return None;
        }
        let address: IpAddr = svc.ingress.first()?.parse().ok()?;
        // Where it is given from. A prefix around it changes under its own key.
        let place = self.context.site.ipam.find_network(|ledger, network| {
            let key = LeaseKey { network, address };
            let around = ledger.lease_around(key).map_or(key, |lease| lease.key);
            (!ledger.pools_at(key).is_empty()).then_some(around)
        });
        place.map(Cause::Address)
    }

    /// No Service that matters is seen under this name. What it holds goes once a fresh read finds it turned into
    /// one that is not ours; where there is none, or another in its place, the sweep of the cluster decides.
    pub(super) async fn unseen(&self, key: &Key) -> Reconciled {
        self.forget(key);
        if self.held(&self.service(key, &"".into())).is_empty() {
            return Ok(Next::Done);
        }
        let Some(svc) = fresh(&self.context, key).await? else {
            self.context.site.session.suspect();
            return Ok(Next::Done);
        };
        if svc.matters() {
            // The watch is behind.
            return Ok(Next::After(BEHIND));
        }
        self.disown(&self.turn(key, &svc)).await
    }

    /// A Service that lives on, is not ours, or not any more, and has something of ours.
    pub(super) async fn disown_once_confirmed(&self, turn: &ServiceTurn<'_>) -> Reconciled {
        let ServiceTurn { service, svc, held } = turn;
        let Some(fresh) = fresh(&self.context, &service.key).await? else {
            return Ok(Next::After(BEHIND));
        };
        if fresh.uid != svc.uid
            || fresh.terminating
            || validate::is_ours(&fresh, self.settings().class_less, !held.is_empty())
            || super::uses_unserved(&fresh, held)
        {
            // The watch is behind.
            return Ok(Next::After(BEHIND));
        }
        let (service, held) = (service.clone(), held.clone());
        let svc = &fresh;
        self.disown(&ServiceTurn { service, svc, held }).await
    }

    /// A Service that is being deleted: what it has goes, our finalizer last. One without that finalizer may live
    /// on for others; its leases are for the sweep, once it is gone.
    pub(super) async fn finalize(&self, turn: &ServiceTurn<'_>) -> Reconciled {
        let ServiceTurn { service, svc, .. } = turn;
        if !svc.has_finalizer() || self.is_anothers(&service.key, svc) {
            return Ok(Next::Done);
        }
        // Other finalizers keep it for who knows how long: it must not show what may soon be another's.
        let lives_on = svc.finalizers.len() > 1;
        if lives_on {
            self.hide(turn).await?;
        }
        self.end(turn).await?;
        self.shown.lock().forget(&service.key);
        if lives_on && let Some(patch) = status::disclaim(svc) {
            self.patch(service, &patch).await?;
            return Ok(Next::Done);
        }
        let meta = svc.meta();
        let drop = self.context.drop_finalizer(&service.key, &meta, FINALIZER);
        drop.await?;
        Ok(Next::Done)
    }

    /// Takes everything of ours from a Service that a fresh read found to be not ours. What another instance of
    /// its name has is for the sweep of the cluster.
    async fn disown(&self, turn: &ServiceTurn<'_>) -> Reconciled {
        let (service, svc) = (&turn.service, turn.svc);
        let holder = service.holder();
        let (held, others): (Vec<_>, Vec<_>) =
            (turn.held.iter().cloned()).partition(|lease| has(lease, &holder));
        if !others.is_empty() {
            self.context.site.session.suspect();
        }
        let own = ServiceTurn {
            service: service.clone(),
            held,
            svc,
        };
        self.hide(&own).await?;
        self.end(&own).await?;
        self.shown.lock().forget(&service.key);
        if let Some(patch) = status::disclaim(svc) {
            match self.patch(service, &patch).await {
                Ok(()) | Err(CallError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }

    /// Ends what one instance of a Service has: announcer's objects, leases, places in queues.
    async fn end(&self, turn: &ServiceTurn<'_>) -> Reconciled<()> {
        let ServiceTurn { service, svc, held } = turn;
        self.announcer.withdraw(service, svc).await?;
        let holder = service.holder();
        for lease in held.iter().filter(|lease| has(lease, &holder)) {
            self.leave_to_heir(service, lease).await?;
        }
        self.unwritten.lock().remove(&service.uid);
        let reason = if svc.terminating {
            "the Service is deleted"
        } else {
            "the Service is not ours any more"
        };
        let (site, scope) = (&self.context.site, ReleaseScope::Holder(holder));
        Ok(site.release(scope, reason).await?)
    }

    /// Gives back what a Service that lives on does not wish any more. A family it does without takes its
    /// FloatingIP along; otherwise that object moves to the new address, unless it was there before fipd.
    pub(super) async fn release_surplus(
        &self,
        service: &ServiceRef,
        wish: &Wish,
        found: &ServiceMatch,
    ) -> Reconciled<()> {
        let goes = |lease: &&Arc<Lease>| {
            let family = Family::of(lease.key.address);
            !wish.families.contains(&family) || found.kept.contains_key(&family)
        };
        let surplus: Vec<_> = found.surplus.iter().filter(goes).collect();
        if surplus.is_empty() || !really_wishes(&self.context, service, wish).await? {
            return Ok(());
        }
        for lease in surplus {
            if !wish.families.contains(&Family::of(lease.key.address))
                || self.was_there(service, lease.key)
            {
                self.leave_to_heir(service, lease).await?;
            } else {
                let reason = "another address took its place";
                self.free(service, lease, reason).await?;
            }
        }
        Ok(())
    }

    /// Leaves a lease to its heir; where it has none it is free at once.
    async fn leave_to_heir(&self, service: &ServiceRef, lease: &Lease) -> Reconciled<()> {
        let reason = "given up by its Service";
        let Some(to) = self.heir_of(service, lease.key) else {
            return self.free(service, lease, reason).await;
        };
        let (site, from) = (&self.context.site, holder_of(lease, service));
        Ok(site.transfer(from, to, lease.key, reason).await?)
    }

    async fn free(&self, service: &ServiceRef, lease: &Lease, reason: &str) -> Reconciled<()> {
        let holder = holder_of(lease, service);
        let scope = ReleaseScope::HolderAddresses(holder, vec![lease.key]);
        Ok(self.context.site.release(scope, reason).await?)
    }
}

fn has(lease: &Lease, holder: &Holder) -> bool {
    lease.members.iter().any(|member| member.holder == *holder)
}

/// The member of the lease that is this Service, of whatever instance.
fn holder_of(lease: &Lease, service: &ServiceRef) -> Holder {
    let own = service.holder();
    let mut holders = lease.members.iter().map(|member| &member.holder);
    let member = holders.find(|holder| holder.identity == own.identity);
    member.cloned().unwrap_or(own)
}

/// The Service as it is, if the answer is one at all: some proxies say 200 to everything.
pub async fn read(remote: &Remote, target: &Target) -> Result<Option<Svc>, CallError> {
    let Some(object) = remote.get::<Service>(target).await? else {
        return Ok(None);
    };
    let key = Key::of(&object.metadata);
    let svc = observe::all(object);
    let asked = Key::new(&target.namespace, &target.name);
    if key != asked || svc.uid.is_empty() {
        let why = "the answer is not this Service".to_owned();
        return Err(CallError::Unavailable(target.to_string(), why));
    }
    Ok(Some(svc))
}

/// Whether an object keeps the leases held under its name: as the instance that has one, as one that is served
/// and takes them over, or as one that shows the address, whoever serves it.
pub fn keeps(svc: &Svc, class_less: bool, identity: &Identity, held: &[Arc<Lease>]) -> bool {
    let mut members = held.iter().flat_map(|lease| &lease.members);
    held.is_empty()
        || members.any(|one| one.holder.identity == *identity && one.holder.instance == svc.uid)
        || validate::is_ours(svc, class_less, true)
        || shows_one(svc, held)
}

/// Whether the Service shows the address of one of these leases.
pub fn shows_one(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    held.iter().any(|lease| svc.shows(lease.key.address))
}

/// The Service as this cluster has it.
pub async fn fresh(context: &Context<Svc>, key: &Key) -> Reconciled<Option<Svc>> {
    let target = SERVICE.target(key);
    let svc = read(&context.remote, &target).await?;
    let verified = context.site.session.verify_identity().await;
    verified.map_err(|error| CallError::Unavailable(target.to_string(), error.to_string()))?;
    Ok(svc)
}

/// Whether the Service really wishes what the watch told. If not, the watch is about to tell more.
pub async fn really_wishes(
    context: &Context<Svc>,
    service: &ServiceRef,
    wish: &Wish,
) -> Reconciled<bool> {
    let fresh = fresh(context, &service.key).await?;
    let same = fresh.is_some_and(|svc| {
        svc.uid == service.uid
            && !svc.terminating
            && validate::wish(&svc).is_ok_and(|now| now == *wish)
    });
    if !same {
        context.queue.add_after(service.key.clone(), BEHIND);
    }
    Ok(same)
}
