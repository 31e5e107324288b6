//! Service load balancers in direct mode: nothing is installed in the downstream cluster.
//!
//! The path a user waits for: the decision and its commit, and one patch of the Service that marks it (with the
//! finalizer) and shows the address. What follows is done at leisure: announcer's objects, Events, and the FloatingIP
//! in Rancher, which shows the lease but never holds it while the Service lives. A Service that goes leaves its
//! lease to its FloatingIP, whose deletion frees it, so that nothing here waits for Rancher.

pub mod adopt;
pub mod announce;
mod announcer;
mod floating_ips;
pub mod follow_up;
mod leases;
pub mod observe;
mod originals;
mod placement;
pub mod plan;
mod status;
mod transfer;
pub mod validate;

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{Lease, Ledger, PoolId, Request, Text};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Site,
    names::{self, KIND_SERVICE, ServiceRef},
    rancher::Rancher,
    settings::RancherFipSettings,
};
use crate::controller::{
    Reconciled,
    address_user::settle::AddressAsker,
    client::Remote,
    context::Context,
    events::Events,
    kind::SERVICE,
    meta::Meta,
    queue::{Next, Queue},
    reconcile::Controller,
    store::{Key, Objects, Observed},
    unserved::Unserved,
    waiters::LedgerEvent,
};
use announcer::Announcer;
use observe::{Projects, Svc};
use plan::{LeasesByFamily, PoolsByFamily, ServiceMatch, ServicePlan};
use status::LastShown;
use validate::Wish;

/// The controller of all Services of a downstream cluster. Its queue holds what users wait for.
pub struct Services {
    context: Arc<Context<Svc>>,
    rancher: Arc<Rancher>,
    pub namespaces: Arc<Objects<Projects>>,
    pub announcer: Arc<Announcer>,
    /// What was shown last on each Service.
    shown: Mutex<LastShown>,
    /// Services (by UID) that got their leases in this life of fipd and whose FloatingIP was not tried yet.
    unwritten: Mutex<BTreeSet<Text>>,
    /// What follows when nobody waits.
    follow_ups: Arc<Queue<Key>>,
    /// Told when everything may be different.
    lost_track: Notify,
}

/// One instance of a Service that is brought up to date.
struct ServiceTurn<'a> {
    service: ServiceRef,
    svc: &'a Svc,
    /// Its leases, of whatever instance of its name.
    held: Vec<Arc<Lease>>,
}

/// What a Service wishes, the pools that it names, and the requests by which it first takes over what FloatingIPs made for it
/// hold.
type Wished = (Wish, Option<PoolsByFamily>, Vec<Request>);

impl Controller for Services {
    type View = Svc;

    const METRIC: &'static str = "service";
    const WORKERS: usize = 32;

    fn context(&self) -> &Context<Svc> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        for key in self.context.waiters.affected_keys(ledger, event) {
            self.context.queue.add(key);
        }
        if matches!(event, LedgerEvent::Everything) {
            self.lost_track.notify_one();
        }
    }

    async fn reconcile(&self, key: &Key, svc: Option<Arc<Svc>>) -> Reconciled {
        let Some(svc) = svc else {
            return self.unseen(key).await;
        };
        let turn = self.turn(key, &svc);
        if validate::is_ours(&svc, self.settings().class_less, !turn.held.is_empty()) {
            self.serve(&turn).await
        } else if uses_unserved(&svc, &turn.held) {
            Ok(Next::Done)
        } else if !turn.held.is_empty() || svc.is_marked() {
            self.context.waits_for(key, None);
            self.disown_once_confirmed(&turn).await
        } else {
            self.forget(key);
            Ok(Next::Done)
        }
    }

    async fn release(&self, key: &Key, _: &Meta, svc: Option<Arc<Svc>>) -> Reconciled {
        let Some(svc) = svc else {
            if let Some(Observed::Malformed(object)) = self.context.objects.seen(key) {
                self.context.warn_malformed(key, &object);
            }
            return Ok(Next::Done);
        };
        let turn = self.turn(key, &svc);
        if turn.held.is_empty() && !self.is_left_over(&svc) {
            self.forget(key);
            return Ok(Next::Done);
        }
        self.context.waits_for(key, None);
        self.finalize(&turn).await
    }
}

impl Services {
    pub fn new(
        site: Arc<Site>,
        rancher: Arc<Rancher>,
        remote: Remote,
        events: Arc<Events>,
        queue: Arc<Queue<Key>>,
    ) -> Arc<Self> {
        let context = Context::new(SERVICE, site, remote, events, Objects::new());
        let context = Arc::new(context.with_queue(queue));
        Arc::new(Self {
            announcer: Announcer::new(Arc::clone(&context)),
            context,
            rancher,
            namespaces: Objects::new(),
            shown: Mutex::default(),
            unwritten: Mutex::default(),
            follow_ups: Queue::new(),
            lost_track: Notify::new(),
        })
    }

    /// Queues all Services, also those that only the ledger knows, whenever it is not known what changed.
    pub async fn keep_track(self: Arc<Self>) {
        let cancel = self.context.site.cancel();
        while (cancel.run_until_cancelled(self.lost_track.notified()).await).is_some() {
            let known = self.context.site.owners(KIND_SERVICE, |_| true).await;
            known
                .into_iter()
                .for_each(|key| self.context.queue.add(key));
            self.context.queue_all();
        }
    }

    fn settings(&self) -> &RancherFipSettings {
        self.context.site.settings()
    }

    /// A namespace changed: its Services may have a project now, or all may where it is the app namespace.
    pub fn namespace_changed(&self, key: &Key) {
        if *key.name == *self.settings().app_namespace {
            return self.context.queue_all();
        }
        let keys = self.context.objects.keys_in(&key.name);
        keys.into_iter().for_each(|key| self.context.queue.add(key));
    }

    /// Whether a Service that is being deleted still carries what we wrote.
    fn is_left_over(&self, svc: &Svc) -> bool {
        let by_class = match svc.class.as_deref() {
            Some(class) => class == names::CLASS,
            None => self.settings().class_less,
        };
        svc.is_marked() || (svc.has_finalizer() && by_class)
    }

    async fn serve(&self, turn: &ServiceTurn<'_>) -> Reconciled {
        let problem = match self.wished(turn) {
            Ok(wished) => self.fulfil(turn, wished).await?,
            Err(mut problem) => {
                self.serve_on(turn).await?;
                let cause = problem.cause;
                problem.cause = cause.or_else(|| self.still_shown(turn));
                Some(problem)
            }
        };
        let service = &turn.service;
        let Some(Unserved {
            reason,
            message,
            cause,
        }) = problem
        else {
            self.context.waits_for(&service.key, None);
            return Ok(Next::Done);
        };
        self.context.waits_for(&service.key, cause.clone());
        self.warn(service, reason, message);
        Ok(cause.map_or(Next::Done, |cause| Next::After(cause.ask_again())))
    }

    /// What the Service wishes, unless that is not understood or its pool is not there.
    fn wished(&self, turn: &ServiceTurn<'_>) -> Result<Wished, Unserved> {
        let wish = validate::wish(turn.svc)?;
        let named = wish.pool.as_ref().map(|_| self.pools(&wish)).transpose()?;
        let transfers = self.transfers(turn, &wish, named.as_ref())?;
        Ok((wish, named, transfers))
    }

    /// Gives the Service what it wishes; what it still lacks.
    async fn fulfil(
        &self,
        turn: &ServiceTurn<'_>,
        (wish, named, transfers): Wished,
    ) -> Reconciled<Option<Unserved>> {
        let service = &turn.service;
        for request in transfers {
            self.context.submit(request).await?;
        }
        let plan = self.settle(turn, &wish, named.as_ref()).await?;
        let (mut found, mut problem) = (plan.found, plan.contended);
        if !found.missing.is_empty() && problem.is_none() {
            let (granted, trouble) = self.allocate(turn, &wish, &found, named).await?;
            found.kept.extend(granted);
            problem = trouble;
        }
        if plan::suffices(&wish, &found.kept) {
            self.show(turn, &plan::ordered(&wish, &found.kept)).await?;
            self.release_surplus(service, &wish, &found).await?;
            self.warn_of_contenders(service, &found.kept);
        } else {
            self.serve_on(turn).await?;
        }
        Ok(problem)
    }

    /// Serves a Service with what it has, as long as its wish cannot be met. Nothing is given back.
    async fn serve_on(&self, turn: &ServiceTurn<'_>) -> Reconciled<()> {
        let ServiceTurn { service, svc, .. } = turn;
        if self.held(service).is_empty() {
            return self.hide_anothers(service, svc).await;
        }
        let wish = validate::any(svc);
        let kept = self.settle(turn, &wish, None).await?.found.kept;
        if plan::suffices(&wish, &kept) {
            self.show(turn, &plan::ordered(&wish, &kept)).await?;
            self.warn_of_contenders(service, &kept);
        }
        Ok(())
    }

    /// Compares the Service with the ledger, and makes this instance of it the holder of what it keeps.
    async fn settle(
        &self,
        turn: &ServiceTurn<'_>,
        wish: &Wish,
        named: Option<&PoolsByFamily>,
    ) -> Reconciled<ServicePlan> {
        let (asker, shown) = (self.asker(turn), turn.svc.addresses());
        let plan = |ledger: &Ledger| plan::settle(ledger, &asker, wish, named, &shown);
        let mut plan = self.context.read(plan);
        for request in plan.renew.drain(..) {
            self.context.submit(request).await?;
        }
        Ok(plan)
    }

    /// Asks for what is missing. Where the second family is optional each is asked for alone.
    async fn allocate(
        &self,
        turn: &ServiceTurn<'_>,
        wish: &Wish,
        found: &ServiceMatch,
        named: Option<PoolsByFamily>,
    ) -> Reconciled<(LeasesByFamily, Option<Unserved>)> {
        let (service, asker) = (&turn.service, self.asker(turn));
        let ready = named
            .map_or_else(|| self.pools(wish), Ok)
            .and_then(|pools| {
                let project = self.project(&service.key.namespace)?;
                let missing = placement::served(wish, found, &pools)?;
                Ok((pools, project, missing))
            });
        let (pools, project, missing) = match ready {
            Ok(ready) => ready,
            Err(problem) => return Ok((LeasesByFamily::new(), Some(problem))),
        };
        let asked: Vec<PoolId> = pools.values().map(|pool| pool.id).collect();
        self.context.leave_other_queues(&service.key, &asked);
        let at_once = match wish.second_optional {
            true => 1,
            false => missing.len().max(1),
        };
        let (mut granted, mut trouble) = (LeasesByFamily::new(), None);
        for families in missing.chunks(at_once) {
            let wants = plan::wants(wish, families, &pools);
            let ask = asker.allocate(project.tenant.clone(), wants);
            match self.request(ask, &pools).await? {
                Ok(leases) => granted.extend(leases),
                Err(problem) => trouble = Some(problem),
            }
        }
        if !granted.is_empty() && found.kept.is_empty() {
            // No FloatingIP shows them.
            self.unwritten.lock().insert(Text::clone(&service.uid));
        }
        Ok((granted, trouble))
    }

    /// The Service is gone or not ours: it waits for nothing.
    fn forget(&self, key: &Key) {
        self.context.waits_for(key, None);
        self.announcer.forget(key);
        self.shown.lock().forget(key);
    }

    fn turn<'a>(&self, key: &Key, svc: &'a Svc) -> ServiceTurn<'a> {
        let service = self.service(key, &svc.uid);
        let held = self.held(&service);
        ServiceTurn { service, svc, held }
    }

    fn asker(&self, turn: &ServiceTurn<'_>) -> AddressAsker {
        AddressAsker {
            holder: turn.service.holder(),
            created: turn.svc.created,
            actor: self.context.actor(),
        }
    }

    fn warn(&self, service: &ServiceRef, reason: &'static str, note: impl Into<String>) {
        self.context.warn(&service.key, &service.uid, reason, note);
    }

    /// One instance of a Service of the cluster.
    fn service(&self, key: &Key, uid: &Text) -> ServiceRef {
        ServiceRef {
            cluster: self.context.site.id.clone(),
            key: key.clone(),
            uid: Text::clone(uid),
        }
    }
}

/// Whether another program serves a Service and shows in it an address that is kept for it: the FloatingIP was deleted. Complete
/// lists tell when that ends.
fn uses_unserved(svc: &Svc, held: &[Arc<Lease>]) -> bool {
    !svc.is_marked() && !svc.terminating && leases::shows_one(svc, held)
}

#[cfg(test)]
mod tests;
