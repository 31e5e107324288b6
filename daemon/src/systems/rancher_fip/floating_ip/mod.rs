//! FloatingIPs: each gets the address it asks for or the lowest free one of its pool, and shows it.
//!
//! One that we wrote for a Service of a downstream cluster only shows that Service's lease. When the Service
//! gives it up, the lease passes to the FloatingIP, which is then deleted; the lease goes with it. One that another
//! program made and fipd took over stays, with the lease. No error is final: whatever an object waits for wakes it.

pub mod adopt;
mod hand_back;
mod in_use;
mod leases;
pub mod observe;
pub mod plan;
mod release;
pub mod status;
mod unassigned;
mod unseen;
pub mod validate;
mod written;

pub use hand_back::unassigned as without_users;
pub use unassigned::return_after;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{ClusterId, Identity, Ledger, Pool, System};
use fipd_crds::floating_ip::{FloatingIP, ServiceRef as Assignee};
use k8s_openapi::jiff;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::{
    names::{self, FINALIZER, KIND_SERVICE, ServiceRef},
    rancher::{Data, Rancher},
};
use crate::controller::confirm_absence::AbsenceCheck;
use crate::{
    controller::{
        ReconcileError,
        client::Patch,
        conditions::CONFLICT,
        context::Context,
        meta::Meta,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        waiters::LedgerEvent,
    },
    systems::rancher_fip::kinds::FLOATING_IP,
    validation::floating_ip as rules,
};
use observe::Fip;
use plan::Plan;
use status::{Outcome, Shown};
use validate::Unserved;
use written::Written;

/// The controller of all FloatingIPs of a management cluster.
pub struct FloatingIps {
    context: Context<Fip>,
    rancher: Arc<Rancher>,
    data: Arc<Data>,
    /// The Service that each object was last seen to show.
    shows: Mutex<BTreeMap<Key, ServiceRef>>,
    written: Mutex<Written>,
    /// When an object that has a lease was first found missing.
    missing: AbsenceCheck<Key>,
    /// Objects with a cluster that Rancher never had.
    clusterless: AbsenceCheck<(Key, String)>,
    /// Told when everything may be different.
    lost_track: Notify,
}

impl Controller for FloatingIps {
    type View = Fip;

    const METRIC: &'static str = "floatingip";
    const WORKERS: usize = 16;

    fn context(&self) -> &Context<Fip> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        for key in self.context.waiters.woken(ledger, event) {
            self.context.queue.add(key);
        }
        match event {
            LedgerEvent::Everything => self.lost_track.notify_one(),
            LedgerEvent::Changes(changes) => {
                let services = changes
                    .iter()
                    .flat_map(|change| change.identities.iter())
                    .filter_map(service_key);
                for (cluster, service) in services {
                    for (key, _) in self.data.fips_of(cluster, &service) {
                        self.context.queue.add(key);
                    }
                    let made = match self.rancher.id_of(cluster) {
                        Some(id) => self.data.stock.made_for(&id, &service),
                        None => self.data.stock.made_for_any(&service),
                    };
                    made.into_iter().for_each(|key| self.context.queue.add(key));
                }
            }
        }
    }

    async fn reconcile(&self, key: &Key, fip: Option<Arc<Fip>>) -> Result<Next, ReconcileError> {
        let Some(fip) = fip else {
            self.written.lock().forget(key);
            return self.gone(key).await;
        };
        self.missing.forget(key);
        let now = Instant::now();
        if let Some(rest) = self.written.lock().ahead(key, &fip.meta.version, now) {
            return Ok(Next::After(rest));
        }
        match &fip.holder {
            Some(service) => self.show_service(key, &fip, service).await,
            None => self.serve_its_cluster(key, &fip).await,
        }
    }

    async fn release(
        &self,
        key: &Key,
        _: &Meta,
        fip: Option<Arc<Fip>>,
    ) -> Result<Next, ReconcileError> {
        self.missing.forget(key);
        match fip {
            Some(fip) => self.finalize(key, &fip).await,
            None => self.finalize_malformed(key).await,
        }
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Result<Next, ReconcileError> {
        self.missing.forget(key);
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl FloatingIps {
    pub fn new(context: Context<Fip>, rancher: Arc<Rancher>, data: Arc<Data>) -> Arc<Self> {
        Arc::new(Self {
            context,
            rancher,
            data,
            shows: Mutex::new(BTreeMap::new()),
            written: Mutex::default(),
            missing: AbsenceCheck::default(),
            clusterless: AbsenceCheck::default(),
            lost_track: Notify::new(),
        })
    }

    /// An object appeared, changed or went.
    pub fn changed(&self, key: &Key) {
        let fip = self.data.fips.get(key);
        let now = fip.as_ref().and_then(|fip| fip.holder.clone());
        let before = match &now {
            Some(service) => self.shows.lock().insert(key.clone(), service.clone()),
            None => self.shows.lock().remove(key),
        };
        // An object that is taken over must not be in neither index for a moment.
        self.data.index(key, None, now.as_ref());
        let users = self.data.stock.note(key, fip.as_deref());
        if before != now {
            self.data.index(key, before.as_ref(), None);
        }
        for service in before.iter().chain(now.iter()).collect::<BTreeSet<_>>() {
            self.rancher.fip_changed(service);
        }
        self.rancher.stock_changed(&users);
        self.context.queue.add(key.clone());
    }

    /// Serves an object that holds its address itself.
    async fn serve(&self, key: &Key, fip: &Fip) -> Result<Next, ReconcileError> {
        let (wish, pool) = match self.understood(fip) {
            Ok(understood) => understood,
            Err(problem) => return self.show(key, fip, Err(problem)).await,
        };
        let holder = self.context.holder(key, &fip.meta.uid);
        let actor = self.context.site.actor();
        let others = self.rancher.others(fip.cluster.as_deref());
        let plan = self.context.site.ipam.read(|ledger| {
            plan::own(ledger, &holder, fip, &wish, &pool, &actor, &|user| {
                is_for(fip, user, &others)
            })
        });
        let outcome = match plan {
            Plan::Show(shown) => Ok(shown),
            Plan::Unserved(problem) => Err(problem),
            Plan::Charge(shown, request) => Ok(self.charge(shown, *request, &pool).await?),
            Plan::Delete | Plan::HandBack | Plan::Leave => return Ok(Next::Done),
            Plan::Ask(request) => self.ask(*request, &holder, &pool).await?,
        };
        self.show(key, fip, outcome).await
    }

    fn understood(&self, fip: &Fip) -> Result<(validate::Wish, Arc<Pool>), Unserved> {
        let wish = validate::wish(fip)?;
        let pool = self
            .context
            .site
            .ipam
            .read(|ledger| self.context.site.mirror_in(ledger, &fip.pool).cloned());
        let pool = pool.ok_or_else(|| validate::unknown_pool("spec.floatingIPPool", &fip.pool))?;
        Ok((wish, pool))
    }

    /// Shows the lease of a Service.
    async fn show_service(
        &self,
        key: &Key,
        fip: &Fip,
        service: &ServiceRef,
    ) -> Result<Next, ReconcileError> {
        let own = self.context.identity(key);
        match self
            .context
            .site
            .ipam
            .read(|ledger| plan::view(ledger, &own, service, fip))
        {
            Plan::Show(shown) => self.show(key, fip, Ok(shown)).await,
            Plan::Unserved(problem) => self.show(key, fip, Err(problem)).await,
            Plan::Delete => {
                self.data
                    .remote
                    .delete(&FLOATING_IP.target(key), &fip.meta.uid)
                    .await?;
                Ok(Next::Done)
            }
            Plan::HandBack => self.hand_back(key, fip).await,
            Plan::Leave | Plan::Ask(_) | Plan::Charge(..) => Ok(Next::Done),
        }
    }

    /// Writes finalizer and address into the object, then its status.
    async fn show(&self, key: &Key, fip: &Fip, outcome: Outcome) -> Result<Next, ReconcileError> {
        let problem = match &outcome {
            Ok(shown) => shown.uncharged.as_ref(),
            Err(problem) => Some(problem),
        };
        let cause = problem.and_then(|problem| problem.cause.clone());
        if self.context.waiters.wait(key, cause.clone()) {
            self.context
                .site
                .ipam
                .forget_waiter(&self.context.identity(key));
        }
        let claimed = match &outcome {
            Ok(shown) => self.claim(key, fip, shown).await?,
            Err(_) => None,
        };
        // Its status is about the generation that it has by then.
        let fip = claimed.as_ref().unwrap_or(fip);
        let after = status::desired(fip, &outcome, jiff::Timestamp::now());
        let (uid, change) = (&fip.meta.uid, (&fip.status, &after));
        let write = self.context.write_status_seen::<_, Value>(key, uid, change);
        if let Some(now) = write.await? {
            let version = now.pointer("/metadata/resourceVersion");
            let version = version.and_then(Value::as_str).unwrap_or_default();
            self.written.lock().note(key, version, Instant::now());
        }
        self.tell(key, fip, &outcome);
        if let Some(cause) = cause {
            return Ok(Next::After(cause.ask_again()));
        }
        match outcome {
            Ok(_) if fip.holder.is_none() => self.keep_for_a_while(key, fip, &after).await,
            Ok(_) | Err(_) => Ok(Next::Done),
        }
    }

    /// Writes finalizer and address into the object where it has not both; what it is then.
    async fn claim(
        &self,
        key: &Key,
        fip: &Fip,
        shown: &Shown,
    ) -> Result<Option<Fip>, ReconcileError> {
        let Some(patch) = claim(fip, shown) else {
            return Ok(None);
        };
        self.tell_kept(key, fip, shown);
        let (remote, target) = (&self.data.remote, FLOATING_IP.target(key));
        let now: FloatingIP = remote.patch_seen(&target, Patch::Merge, &patch).await?;
        let now = observe::slim(now);
        self.written
            .lock()
            .note(key, &now.meta.version, Instant::now());
        Ok(Some(now))
    }

    fn tell(&self, key: &Key, fip: &Fip, outcome: &Outcome) {
        let reference = FLOATING_IP.reference(key, &fip.meta.uid);
        if let Some(message) = status::conflict(outcome) {
            self.context.events.warning(&reference, CONFLICT, message);
            return;
        }
        match outcome {
            Ok(shown) if fip.status.ip_addr.is_empty() => {
                self.context.events.normal(
                    &reference,
                    "Allocated",
                    format!("{} is allocated", shown.address),
                );
            }
            Ok(Shown {
                uncharged: None, ..
            }) => {}
            Ok(Shown {
                uncharged: Some(problem),
                ..
            })
            | Err(problem) => {
                self.context
                    .events
                    .warning(&reference, problem.reason, problem.message.clone())
            }
        }
    }

    /// Says that another address was asked for in vain.
    fn tell_kept(&self, key: &Key, fip: &Fip, shown: &Shown) {
        let other = rules::address(&fip.wanted).is_ok_and(|wanted| wanted != Some(shown.address));
        if other && !fip.wanted.is_empty() {
            let note = format!(
                "spec.ipAddr: {:?} is not allowed: the object has {} and keeps it; delete it and make another",
                fip.wanted, shown.address
            );
            self.context.warn(key, &fip.meta.uid, "AddressKept", note);
        }
    }
}

/// The patch that makes the address the object's own: finalizer first, or at least at once with the address.
fn claim(fip: &Fip, shown: &Shown) -> Option<Value> {
    let mut metadata = json!({ "uid": &*fip.meta.uid });
    let mut patch = json!({});
    if !fip.has_finalizer() {
        // A merge patch replaces the whole list, so it must be the list that was read.
        let mut finalizers = fip.meta.finalizers.clone();
        finalizers.push(FINALIZER.into());
        metadata["finalizers"] = json!(finalizers);
        metadata["resourceVersion"] = json!(fip.meta.version);
        patch["metadata"] = metadata.clone();
    }
    if fip.wanted.parse() != Ok(shown.address) {
        patch["metadata"] = metadata;
        patch["spec"] = json!({ "ipAddr": shown.address.to_string() });
    }
    (patch != json!({})).then_some(patch)
}

/// Whether an object was made for the Service with this identity, as far as is known. `others` are clusters that
/// are not the object's.
pub fn is_for(fip: &Fip, user: &Identity, others: &BTreeSet<ClusterId>) -> bool {
    let names = |service: &Assignee| {
        *service.service_namespace == *user.namespace && *service.service_name == *user.name
    };
    let cluster = user.cluster.as_ref();
    &*user.kind == KIND_SERVICE
        && user.interface.is_empty()
        && fip.services.iter().any(names)
        && cluster.is_none_or(|cluster| !others.contains(cluster))
}

/// The cluster and key of a Service's identity.
fn service_key(identity: &Identity) -> Option<(&ClusterId, Key)> {
    if identity.system != System::rancher_fip() || &*identity.kind != KIND_SERVICE {
        return None;
    }
    Some((identity.cluster.as_ref()?, names::key(identity)))
}
