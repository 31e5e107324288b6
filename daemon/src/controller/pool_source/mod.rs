//! The machine for objects that define a pool: a system says what its objects mean, and this does the rest.
//!
//! ```text
//!  object --facts--> network --+
//!         --spec-------------->+--> finalizer --> request to the ledger --> state --status--> object
//! ```
//!
//! An object that breaks a rule changes nothing: its last accepted spec stays in force, and `Ready=False/Refused` names the
//! rule (`Invalid` where none was ever accepted). A deleted object takes its pool along; while addresses are in use the pool
//! is closed, and goes with its last lease. A finalizer keeps the object until then, for `release-wait` at most.

#[cfg(test)]
pub mod conformance_tests;
mod define;
mod links;
pub mod pool_status;
mod state;
mod withdraw;

use std::{fmt::Debug, sync::Arc, time::Duration};

use fipd_core::{Lease, Ledger, Pool, PoolSpec, Request};
use k8s_openapi::jiff;
use serde::Serialize;
use serde_json::Value;

use super::{
    Reconciled,
    attachments::{Attachments, HarvesterNetwork},
    conditions::ConditionUpdate,
    confirm_absence::AbsenceCheck,
    context::Context,
    meta::{Meta, View},
    queue::Next,
    reconcile::Controller,
    site::Site,
    store::{Key, Malformed},
    waiters::LedgerEvent,
};
use crate::{
    config::{PoolLink, ReleaseWait},
    validation::mirror::MirrorOf,
};

pub use define::may_follow;
pub use links::{link_of, pool_facts};
pub use state::{
    OUT_OF_RANGE, PoolReport, PoolState, READY, WAITING_FOR_ADOPTION, entries, leases_of, not_ready,
};
pub use withdraw::close_all;

/// Reason: another pool of the network is in the way.
pub const OBSTRUCTED: &str = "Obstructed";
/// How often it is looked whether it still is.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What objects of one kind say of pools. Pure.
pub trait PoolSource: Send + Sync + 'static {
    type View: View;
    type Status: Serialize + PartialEq + Debug + Send + Sync;

    /// The label `controller` of `fipd_reconcile_*`.
    const METRIC: &'static str;
    /// Keeps a deleted object until its pool is gone. `None`: the object goes at once.
    const FINALIZER: Option<&'static str>;
    /// What becomes of an edit that leaves addresses in use outside the pool.
    const LEAVING: Leaving;
    /// Whether addresses that two networks may both mean make the pool not ready.
    const AMBIGUOUS_IS_UNREADY: bool;
    /// The most leases that the status lists.
    const LISTED: usize = 0;
    /// Whether the status tells leases with a text from others, so that those past the list are counted as well.
    const COUNTS_TEXTS: bool = false;
    /// Before `[namespace/]name` in the address book, where another kind of the system has such names as well. It has an
    /// underscore, as no name of an object does.
    const TAG: &'static str = "";

    /// What decides the network of the pool.
    fn facts<'a>(&'a self, object: &'a Self::View) -> SourceFacts<'a>;

    /// The pool that the object describes, or the field and the rule that it breaks. The machine chooses the network.
    fn spec(&self, mirror: &MirrorOf<'_>, object: &Self::View) -> Result<PoolSpec, String>;

    /// The status that the object has.
    fn written(&self, object: &Self::View) -> Self::Status;

    /// The status that it should have.
    fn status(
        &self,
        object: &Self::View,
        report: &PoolReport,
        now: jiff::Timestamp,
    ) -> Self::Status;

    /// Whether the object defines a pool at all.
    fn eligible(&self, _: &Ledger, _: &MirrorOf<'_>, _: &Self::View) -> Eligible {
        Eligible::Yes
    }

    /// Whether objects of the namespace are looked at; the pools of others go.
    fn covers(&self, _namespace: &str) -> bool {
        true
    }

    /// What else in the network keeps the object from defining this pool, or from changing its `mirror` to it.
    fn obstacle(
        &self,
        _: &Ledger,
        _mirror: Option<&Pool>,
        _wanted: &PoolSpec,
        _: &Self::View,
    ) -> Option<String> {
        None
    }

    /// The link that the pool is for, where the object says it itself.
    fn own_link(&self, _: &Self::View) -> Option<PoolLink> {
        None
    }

    /// The pool is now as the object describes it.
    fn accepted(&self, _: &Self::View) {}

    /// What objects show of a pool that is yet to be made, or changed, to `wanted` although the cluster is adopted: that is theirs
    /// before the pool gives anything of it.
    fn shown_already(
        &self,
        _: &Site,
        _: (&Key, &Self::View),
        _existing: Option<&Pool>,
        _wanted: &PoolSpec,
    ) -> Vec<Request> {
        Vec::new()
    }

    /// What is to be written of labels and specification of an object whose pool is as it describes it, as a merge patch.
    fn correction(&self, _: &Self::View) -> Option<Value> {
        None
    }

    /// What reads the networks of Harvester clusters, where objects name such.
    fn attachments(&self) -> Option<&Arc<Attachments>> {
        None
    }

    /// Whether a pool whose object names no gateway has that of its network.
    fn asks_for_gateway(&self) -> bool {
        false
    }

    /// Why no object of the kind may define a pool now.
    fn off(&self) -> Option<&'static str> {
        None
    }

    /// How long the finalizer keeps a deleted object whose addresses are in use; `None`: until none is.
    fn release_wait(&self) -> Option<ReleaseWait> {
        Some(ReleaseWait::default())
    }

    /// The network of the pool, where neither the object nor a rule names one.
    fn own_network(&self, _: &Site, _: &Key) -> Option<String> {
        None
    }

    /// How the status lists a lease.
    fn entry(&self, _: &Lease) -> String {
        String::new()
    }

    /// Reason and text of what is wrong with the object and keeps no pool from being defined; shown by `Ready` as well.
    fn remark(&self, _: &Self::View) -> Option<(&'static str, String)> {
        None
    }

    /// Reasons and texts of Events about what the pool's addresses mean to others.
    fn warnings(&self, _: &PoolState) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// What becomes of an edit that leaves addresses in use outside the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It is not applied.
    Refused,
    /// It is applied, and the leases are marked `out-of-range`.
    Marked,
}

/// Whether an object defines a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligible {
    Yes,
    /// fipd wrote it, to show a pool of its own.
    Own,
    /// It may not.
    No(ConditionUpdate),
}

/// What an object says about the network of its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts<'a> {
    pub interface: Option<&'a str>,
    /// The network that it names itself.
    pub network: Option<&'a str>,
    /// The network of a Harvester cluster that the pool is for.
    pub harvester: Option<HarvesterNetwork<'a>>,
}

/// The controller of the objects of one kind.
pub struct PoolController<S: PoolSource> {
    context: Context<S::View>,
    source: S,
    /// Pools without an object, of a kind that the cluster does not serve.
    unserved: AbsenceCheck<Key>,
}

impl<S: PoolSource> Controller for PoolController<S> {
    type View = S::View;

    const METRIC: &'static str = S::METRIC;
    const WORKERS: usize = 4;

    fn context(&self) -> &Context<S::View> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let queue = |pool: &Pool| {
            let key = self.key_of(pool).into_iter();
            key.for_each(|key| self.context.queue_status(key));
        };
        match event {
            // Each pool follows.
            LedgerEvent::Everything => self.context.queue_every_status(),
            LedgerEvent::Changes(changes) => {
                let touched = changes.iter().flat_map(|change| &change.pools);
                let pools = touched.filter_map(|id| ledger.pool(*id));
                pools.for_each(|pool| queue(pool));
                if changes.iter().any(|change| change.other) {
                    self.context.queue_every_status();
                }
            }
        }
    }

    async fn reconcile(&self, key: &Key, object: Option<Arc<S::View>>) -> Reconciled {
        let Some(object) = object else {
            return self.gone(key).await;
        };
        self.unserved.forget(key);
        let object = &*object;
        let verdict = match self.eligible(key, object) {
            Eligible::Own => return Ok(Next::Done),
            _ if self.source.off().is_some() => {
                return self.disown(key, &object.meta(), Some(object)).await;
            }
            Eligible::No(says) => Err(says),
            // It is queued again once that is read.
            Eligible::Yes if self.awaits_link(key, object) => return Ok(Next::Done),
            Eligible::Yes => self.define(key, object, false).await?,
        };
        let is_obstructed = matches!(&verdict, Err(says) if says.reason == OBSTRUCTED);
        let next = self.show(key, object, verdict).await?;
        // Nobody tells when what is in the way goes.
        match is_obstructed && next == Next::Done {
            true => Ok(Next::After(LOOK_AGAIN)),
            false => Ok(next),
        }
    }

    async fn release(&self, key: &Key, meta: &Meta, object: Option<Arc<S::View>>) -> Reconciled {
        let own = |object: &S::View| self.eligible(key, object) == Eligible::Own;
        if object.as_deref().is_some_and(own) {
            return Ok(Next::Done);
        }
        match self.source.off() {
            Some(_) => self.disown(key, meta, None).await,
            None => self.finalize(key, meta, object).await,
        }
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Reconciled {
        if self.source.off().is_some() {
            return self.disown(key, &object.meta, None).await;
        }
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl<S: PoolSource> PoolController<S> {
    pub fn new(context: Context<S::View>, source: S) -> Arc<Self> {
        Arc::new(Self {
            context,
            source,
            unserved: AbsenceCheck::default(),
        })
    }

    /// The object that the pool mirrors, if it is one of these.
    pub fn key_of(&self, pool: &Pool) -> Option<Key> {
        let object = self.context.site.object_of(pool)?;
        let object = object.strip_prefix(S::TAG)?;
        let key = match object.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => Key::new("", object),
        };
        let tagged = object.contains('_');
        (!tagged && self.context.kind.namespaced != key.namespace.is_empty()).then_some(key)
    }

    /// What the address book calls the object.
    pub fn object_of(key: &Key) -> String {
        format!("{}{key}", S::TAG)
    }

    fn existing(&self, key: &Key) -> Option<Arc<Pool>> {
        let (site, object) = (&self.context.site, Self::object_of(key));
        let find = |ledger: &Ledger| site.mirror_in(ledger, &object).cloned();
        site.ipam.read(find)
    }

    fn eligible(&self, key: &Key, object: &S::View) -> Eligible {
        let (meta, name) = (object.meta(), Self::object_of(key));
        let mirror = self.mirror_of(&name, &meta);
        let eligible = |ledger: &Ledger| self.source.eligible(ledger, &mirror, object);
        self.context.read(eligible)
    }

    fn mirror_of<'a>(&'a self, object: &'a str, meta: &'a Meta) -> MirrorOf<'a> {
        let site = &self.context.site;
        MirrorOf {
            cluster: &site.id,
            cluster_name: &site.name,
            object,
            uid: &meta.uid,
        }
    }
}
