//! The flow from an object to its lease, its status and its end.

use std::{sync::Arc, time::Duration};

use fipd_core::{Holder, Lease, LeaseState, Ledger, NetworkId, Pool, Request};
use futures::{FutureExt as _, future::OptionFuture};
use k8s_openapi::jiff;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    AddressHooks, AddressUser,
    last_writes::LastWrites,
    marking::{Marking, beside, not_failed},
    outcome::{AddressOutcome, ShownLease, cause, conflict},
    recent_uids::RecentUids,
    refusal::judged,
    request::{NotGranted, ask, ask_new},
    settle::{AddressAsker, AddressPlan, AddressPolicy, Wished, holds_any, settle, to_take_in},
};
use crate::{
    controller::{
        Reconciled,
        conditions::CONFLICT,
        confirm_absence::AbsenceCheck,
        context::Context,
        meta::{Meta, View},
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        unserved::{PROBING, TAKEN, Unserved, contended, has_prefix, refused, withheld},
        waiters::LedgerEvent,
    },
    ipam::IpamError,
};

/// Reason of the Event of an object that asks for another address than it has.
const KEPT: &str = "AddressKept";

/// The controller of all objects of a kind in a cluster.
pub struct AddressController<U: AddressUser> {
    pub context: Context<U::View>,
    pub user: U,
    writes: Mutex<LastWrites>,
    /// Objects that have a lease and were found missing.
    pub missing: AbsenceCheck<Key>,
    /// Objects whose leases were released. A list that was read before, or whose object waits for its finalizer to go, shows their
    /// addresses still, and nobody else allocated those.
    pub(super) released: RecentUids,
}

impl<U: AddressHooks> Controller for AddressController<U> {
    type View = U::View;

    const METRIC: &'static str = U::METRIC;
    const WORKERS: usize = 32; // 16 fall behind 16 creators: each address takes several writes.

    fn context(&self) -> &Context<U::View> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let (affected, edited) = self.context.waiters.affected(ledger, event);
        for key in affected {
            self.context.queue.add(key);
        }
        if edited && U::SHOWS_POOL {
            self.context.queue_all();
        }
        U::affected(self, ledger, event);
    }

    async fn reconcile(&self, key: &Key, object: Option<Arc<U::View>>) -> Reconciled {
        let Some(object) = object else {
            return self.gone(key).await;
        };
        self.missing.forget(key);
        let version = object.meta().version;
        if let Some(rest) = self.writes.lock().wait(key, &version, Instant::now()) {
            return Ok(Next::After(rest));
        }
        match U::before(self, key, &object).await? {
            Some(next) => Ok(next),
            None => self.serve(key, &object).await,
        }
    }

    /// The address is free before the finalizer goes.
    async fn release(&self, key: &Key, meta: &Meta, object: Option<Arc<U::View>>) -> Reconciled {
        self.missing.forget(key);
        self.context.waits_for(key, None);
        // The write of its finalizer may have failed beside that of its address.
        let holder = self.context.holder(key, &meta.uid);
        let holds = || self.context.read(|ledger| holds_any(ledger, &holder));
        if !meta.has_finalizer(U::FINALIZER) && !holds() {
            return Ok(Next::Done);
        }
        let object = match object {
            Some(object) => Some(object),
            None => self.read_bare(key).await?.map(Arc::new),
        };
        let Some(object) = object else {
            return Ok(Next::Done);
        };
        let meta = object.meta();
        self.released.note(&meta.uid);
        if let Some(next) = U::before_release(self, key, &object).await? {
            return Ok(next);
        }
        let holder = self.context.holder(key, &meta.uid);
        self.give_back(holder, "deleted").await?;
        let drop = self.context.drop_finalizer(key, &meta, U::FINALIZER);
        drop.await.map(|()| Next::Done)
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Reconciled {
        self.missing.forget(key);
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl<U: AddressHooks> AddressController<U> {
    pub fn new(context: Context<U::View>, user: U) -> Arc<Self> {
        Arc::new(Self {
            context,
            user,
            writes: Mutex::default(),
            missing: AbsenceCheck::default(),
            released: RecentUids::default(),
        })
    }

    /// An object that does not fit its schema, while it is being deleted.
    async fn read_bare(&self, key: &Key) -> Reconciled<Option<U::View>> {
        let target = self.context.kind().target(key);
        let read = self.context.remote.get(&target).await?;
        let read = read.map(|object: PartialObjectMeta<U::Raw>| U::bare_view(object.metadata));
        Ok(read.filter(|object| object.meta().is_terminating()))
    }

    /// There is no such object: a lease that it left passes to the object that it is in another cluster, or waits for the sweep
    /// of this one, which may look at once.
    async fn gone(&self, key: &Key) -> Reconciled {
        let site = &self.context.site;
        self.writes.lock().forget(key);
        self.context.waits_for(key, None);
        if self.context.moved_away(key).await? {
            U::moved_away(self, key).await?;
            self.context.pass_to_moved(key).await?;
        }
        let identity = self.context.identity(key);
        let left = |ledger: &Ledger| !ledger.leases_with(&identity, None, 1).is_empty();
        if self.context.read(left) {
            site.session.suspect();
        }
        U::absent(self, key).await
    }

    /// Who the object is to the ledger.
    pub fn asker(&self, key: &Key, meta: &Meta) -> AddressAsker {
        AddressAsker {
            holder: self.context.holder(key, &meta.uid),
            created: meta.created,
            actor: self.context.actor(),
        }
    }

    /// Serves an object that holds its address itself.
    async fn serve(&self, key: &Key, object: &U::View) -> Reconciled {
        let site = &self.context.site;
        let wish = site
            .ipam
            .read(|ledger| self.user.wish(ledger, site, key, object));
        if let Ok(wish) = &wish {
            self.context.leave_other_queues(key, &[wish.pool.id]);
            self.expected(&wish.pool).await?;
        }
        let asker = self.asker(key, &object.meta());
        let policy = AddressPolicy {
            probes: U::probes(site),
            ..AddressPolicy::of::<U>()
        };
        let plan = site
            .ipam
            .read(|ledger| settle(ledger, policy, &asker, &wish));
        if let AddressPlan::Unserved(problem) = plan {
            return self.show(key, object, Err(problem), None).await;
        }
        let protected = match U::FINALIZER_FIRST {
            true => self.mark(key, object, None).await?,
            false => None,
        };
        let object = protected.as_ref().unwrap_or(object);
        let network = wish
            .as_ref()
            .map_or(NetworkId::DEFAULT, |wish| wish.pool.spec.network);
        let takes = matches!(&plan, AddressPlan::Ask(ask) if matches!(**ask, Request::Handover(_)));
        let mut marking = None;
        let outcome = match plan {
            AddressPlan::Show(shown) => Ok(shown),
            AddressPlan::Charge(shown, request) => self.charge(shown, *request).await?,
            AddressPlan::Ask(request) => {
                let is_early = U::FINALIZER_BESIDE && self.is_likely(&request, &wish);
                marking = is_early.then(|| self.mark(key, object, None).boxed());
                let ask = self.ask(*request, &asker.holder, network);
                match beside(&mut marking, ask).await? {
                    Ok(lease) if policy.probes && lease.state == LeaseState::Probing => {
                        U::probe(self, key, object, &lease).await?
                    }
                    // It was not in use so far, and is before anything shows it.
                    Ok(lease) if takes && lease.state == LeaseState::Reserved => {
                        return Ok(Next::After(Duration::ZERO));
                    }
                    // Somebody was faster, and it would do with another.
                    Err(problem)
                        if problem.reason == TAKEN && self.wishes_anew(key, object, &wish) =>
                    {
                        return Ok(Next::Retry);
                    }
                    asked => asked.map(|lease| self.shown(&lease)),
                }
            }
            AddressPlan::Move(held, request) => self.replace(held, *request, network).await?,
            AddressPlan::Probe(lease) => U::probe(self, key, object, &lease).await?,
            AddressPlan::Unserved(problem) => Err(problem),
        };
        let first = policy.probes && !U::shows_address(object);
        let outcome = outcome.map(|shown| ShownLease {
            unchecked: first.then(|| U::unchecked(self, &shown)).flatten(),
            ..judged::<U>(object, shown, &wish)
        });
        self.show(key, object, outcome, marking).await
    }

    /// Whether the pool most likely grants the request. An object that is refused has its finalizer for nothing.
    fn is_likely(&self, request: &Request, wish: &Wished) -> bool {
        let has_room = |pool: &Pool| {
            self.context.read(|ledger| {
                let is_free = ledger.usage(pool.id).is_some_and(|usage| usage.free > 0);
                is_free && ledger.holds(pool.spec.network).is_empty()
            })
        };
        let allocates = matches!(request, Request::Allocate(_));
        let wish = wish.as_ref().ok();
        allocates && wish.is_some_and(|wish| wish.address.is_none() && has_room(&wish.pool))
    }

    /// Whether the object asks for something else than it did, by what the ledger knows now.
    fn wishes_anew(&self, key: &Key, object: &U::View, wish: &Wished) -> bool {
        let site = &self.context.site;
        let wished = |ledger: &Ledger| self.user.wish(ledger, site, key, object);
        let now = site.ipam.read(wished);
        let asked = |wish: &Wished| {
            let wish = wish.as_ref().ok();
            let kept = wish.and_then(|wish| wish.kept.clone());
            (wish.and_then(|wish| wish.address), kept)
        };
        asked(&now) != asked(wish)
    }

    /// Takes into the ledger what an object shows that is not served now: nobody else gets it meanwhile.
    pub async fn keep_recorded(&self, key: &Key, object: &U::View) -> Reconciled<()> {
        let site = &self.context.site;
        let asker = self.asker(key, &object.meta());
        let unknown = site.ipam.read(|ledger| {
            let wish = self.user.wish(ledger, site, key, object).ok()?;
            Some((to_take_in(ledger, &asker, &wish)?, wish.pool))
        });
        let Some((request, pool)) = unknown else {
            return Ok(());
        };
        self.expected(&pool).await?;
        self.context.take_in(request).await
    }

    /// A network gives to this cluster only once it has adopted it: it must know that it waits for it.
    async fn expected(&self, pool: &Pool) -> Reconciled<()> {
        let site = &self.context.site;
        let (session, network) = (&site.session, pool.spec.network);
        if session.networks(&site.system).contains(&network) {
            return Ok(());
        }
        let name = site
            .ipam
            .read(|ledger| ledger.network(network).map(|network| network.name.clone()));
        let expected = site.expect_network(&pool.spec.name, name.as_deref());
        expected.await?;
        Ok(())
    }

    /// Charges another tenant; what it may not be charged with stays as it is.
    pub(super) async fn charge(
        &self,
        shown: ShownLease,
        request: Request,
    ) -> Reconciled<AddressOutcome> {
        match self.context.submit(request).await {
            Ok(_) => Ok(Ok(shown)),
            Err(IpamError::Refused(refusal)) => {
                let mut problem = self.unserved(&NotGranted::Refused(refusal), shown.key.network);
                problem.message = format!(
                    "{} stays charged to the {} that it was of before: {}",
                    shown.address(),
                    U::TENANT,
                    problem.message
                );
                let uncharged = Some(problem);
                Ok(Ok(ShownLease { uncharged, ..shown }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks for the lease of the holder.
    pub async fn ask(
        &self,
        request: Request,
        holder: &Holder,
        network: NetworkId,
    ) -> Reconciled<Result<Arc<Lease>, Unserved>> {
        let ipam = &self.context.site.ipam;
        let asked = ask(ipam, request, holder, network, U::PREFIXES).await?;
        Ok(asked.map_err(|problem| self.unserved(&problem, network)))
    }

    /// Why an object is not served as it asks, whichever way it asked.
    fn unserved(&self, problem: &NotGranted, network: NetworkId) -> Unserved {
        match problem {
            NotGranted::Contended(lease) => contended(lease),
            NotGranted::Whole(lease) => has_prefix(lease),
            NotGranted::Refused(refusal) => self
                .context
                .read(|ledger| withheld(ledger, refusal))
                .unwrap_or_else(|| refused(refusal, network)),
        }
    }

    pub fn shown(&self, lease: &Lease) -> ShownLease {
        self.context.read(|ledger| ShownLease::of(ledger, lease))
    }

    /// Takes another address in the place of the one that the object has, which stays where that is refused.
    async fn replace(
        &self,
        held: ShownLease,
        request: Request,
        network: NetworkId,
    ) -> Reconciled<AddressOutcome> {
        let ipam = &self.context.site.ipam;
        Ok(Ok(match ask_new(ipam, request, U::PREFIXES).await? {
            Ok(lease) => {
                let surplus = Some(held.key).filter(|key| *key != lease.key);
                let shown = ipam.read(|ledger| ShownLease::of(ledger, &lease));
                ShownLease {
                    surplus: surplus.into_iter().collect(),
                    ..shown
                }
            }
            Err(problem) => held.staying(&self.unserved(&problem, network)),
        }))
    }

    /// Writes finalizer and specification into the object, then its status; then gives up what that replaces. `marking` is the
    /// write of the finalizer, where that is under way.
    pub async fn show(
        &self,
        key: &Key,
        object: &U::View,
        outcome: AddressOutcome,
        marking: Option<Marking<'_, U::View>>,
    ) -> Reconciled {
        let cause = cause(&outcome);
        self.context.waits_for(key, cause.clone());
        let marked = match &outcome {
            Ok(shown) => {
                // The first of the two reaches the API server first, and it takes longer.
                let mark = match marking {
                    Some(marking) => not_failed(marking)?,
                    None => self.mark(key, object, Some(shown)).boxed(),
                };
                let (wait, marked) = tokio::join!(U::publish(self, key, object, shown), mark);
                let marked = marked?;
                if let Some(next) = wait? {
                    return Ok(next);
                }
                marked
            }
            Err(_) => OptionFuture::from(marking).await.transpose()?.flatten(),
        };
        if U::SPEC_FIRST && marked.is_some() && self.context.queue.is_crowded() {
            self.context.put_status_off(key);
        }
        // Its status is about the generation that it has by then.
        let object = marked.as_ref().unwrap_or(object);
        let status = U::status(object, &outcome, jiff::Timestamp::now());
        if let Some(rest) = self.write_status(key, object, &status).await? {
            return Ok(rest);
        }
        if let Ok(shown) = &outcome {
            let reason = "the object has another address";
            self.give_up(key, object, &shown.surplus, reason).await?;
        }
        self.tell(key, object, &outcome);
        Ok(cause.map_or(Next::Done, |cause| Next::After(cause.ask_again())))
    }

    /// Writes the finalizer, and with `shown` the specification, where the object has them not; what it is then.
    pub async fn mark(
        &self,
        key: &Key,
        object: &U::View,
        shown: Option<&ShownLease>,
    ) -> Reconciled<Option<U::View>> {
        let meta = object.meta();
        let write = shown.and_then(|shown| U::spec(object, shown));
        let (spec, overrules) =
            write.map_or((None, None), |write| (Some(write.spec), write.overrules));
        if let Some(note) = overrules {
            self.context.warn(key, &meta.uid, KEPT, note);
        }
        if !meta.has_finalizer(U::FINALIZER) {
            U::marks(self, key, object);
        }
        let write = self.context.mark::<U::Raw>(key, &meta, U::FINALIZER, spec);
        let now = write.await?.map(U::view);
        if let Some(now) = &now {
            self.note_write(key, &now.meta().version);
        }
        Ok(now)
    }

    /// Writes what differs of the status, unless it must rest.
    async fn write_status(
        &self,
        key: &Key,
        object: &U::View,
        status: &U::Status,
    ) -> Reconciled<Option<Next>> {
        let (uid, before) = (object.meta().uid, U::last_status(object));
        if before != status
            && let Some(rest) = self.context.status_rests(key)
        {
            return Ok(Some(rest));
        }
        let write = self
            .context
            .write_status_seen::<_, Value>(key, &uid, (before, status));
        if let Some(now) = write.await? {
            let version = now.pointer("/metadata/resourceVersion");
            self.note_write(key, version.and_then(Value::as_str).unwrap_or_default());
        }
        Ok(None)
    }

    fn note_write(&self, key: &Key, version: &str) {
        self.writes.lock().note(key, version, Instant::now());
    }

    /// One Event per reason.
    fn tell(&self, key: &Key, object: &U::View, outcome: &AddressOutcome) {
        let uid = &object.meta().uid;
        if let Some(message) = conflict(outcome) {
            return self.context.warn(key, uid, CONFLICT, message);
        }
        let problem = match outcome {
            Ok(shown) => match U::news(object, shown) {
                Some(note) => return self.context.note(key, uid, "Allocated", note),
                None => shown.refused.as_ref().or(shown.uncharged.as_ref()),
            },
            // It takes some seconds.
            Err(problem) if problem.reason == PROBING => None,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem {
            self.context
                .warn(key, uid, problem.reason, problem.message.clone());
        }
    }
}
