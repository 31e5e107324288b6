//! fipd's own pools as Pool objects of the clusters that ask for them, so that others can refer to them by UID.
//!
//! The object has the pool's name and is fipd's alone: what others write into it is put back, and one that is deleted is
//! made again. It goes with its pool, once those have let go of it who put a finalizer on it. An object of the name
//! that fipd did not write is left alone.

#[cfg(test)]
mod conformance_tests;
pub mod observe;
pub mod plan;
pub mod source;
pub mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fipd_core::{ClusterId, Ledger, Origin, Pool, PoolId, Text, Timestamp};
use fipd_crds::{fipd_io::PoolSpec, names::is_object_name};
use k8s_openapi::jiff;
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    config::SystemSettings,
    controller::{
        Reconciled,
        client::Patch,
        conditions::ConditionUpdate,
        context::Context,
        merge_patch::change,
        meta::Meta,
        owned,
        pool_source::{PoolReport, PoolState, not_ready, pool_status},
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        waiters::LedgerEvent,
    },
    systems::claims::{names::POOL, settings::ClaimsSettings},
};
use observe::PoolObject;
use plan::{OwnPool, PoolObjectPlan};

/// Reconciles of one kind at once.
const OBJECTS_AT_ONCE: usize = 4;

/// The controller of the Pool objects of a cluster.
pub struct PoolObjects {
    context: Context<PoolObject>,
    /// Names of own pools as last seen in the ledger; what is not there any more was deleted.
    names: Mutex<BTreeMap<PoolId, Text>>,
    /// Names of own pools that went while fipd runs.
    went: Mutex<BTreeSet<Text>>,
    /// Offered pools that can have no object for their name, as far as that was said.
    nameless: Mutex<BTreeSet<Text>>,
}

impl Controller for PoolObjects {
    type View = PoolObject;

    const METRIC: &'static str = "pool";
    const WORKERS: usize = OBJECTS_AT_ONCE;

    fn context(&self) -> &Context<PoolObject> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        let mut names = self.names.lock();
        let mut queue = |name: &Text| self.context.queue_status(Key::new("", name));
        match event {
            LedgerEvent::Everything => self.context.queue_every_status(),
            LedgerEvent::Changes(changes) => {
                let touched = changes.iter().flat_map(|change| &change.pools);
                for id in touched.collect::<BTreeSet<_>>() {
                    let now = ledger.pool(*id).filter(|pool| is_own(pool));
                    let now = now.map(|pool| Text::clone(&pool.spec.name));
                    let before = match &now {
                        Some(name) => names.insert(*id, Text::clone(name)),
                        None => names.remove(id),
                    };
                    if before != now {
                        self.went.lock().extend(before.clone());
                    }
                    before.iter().chain(&now).for_each(&mut queue);
                }
                if changes.iter().any(|change| change.other) {
                    names.values().for_each(&mut queue);
                }
            }
        }
    }

    async fn reconcile(&self, key: &Key, object: Option<Arc<PoolObject>>) -> Reconciled {
        let site = &self.context.site;
        let (wanted, since) = site.ipam.read(|ledger| {
            (
                self.wanted(ledger, &key.name),
                known_since(ledger, &site.id),
            )
        });
        match (plan::plan(object.as_deref(), &wanted, since), object) {
            (PoolObjectPlan::Create(spec), _) => self.create(key, &spec).await,
            (PoolObjectPlan::Keep(spec), Some(object)) => self.keep(key, &object, &spec).await,
            (PoolObjectPlan::Delete, Some(object)) => {
                let (remote, target) = (&self.context.remote, POOL.target(key));
                remote.delete(&target, &object.meta.uid).await?;
                Ok(Next::Done)
            }
            (PoolObjectPlan::Orphan, Some(object)) => {
                let report = PoolReport {
                    ready: orphan(),
                    state: None,
                };
                self.write_status(key, &object, &report).await
            }
            (PoolObjectPlan::NameTaken, Some(object)) => {
                let note = "fipd has a pool of this name for this cluster, which this object hides; rename or delete it";
                self.context.warn(key, &object.meta.uid, "NameTaken", note);
                Ok(Next::Done)
            }
            (PoolObjectPlan::Leave, _) | (_, None) => Ok(Next::Done),
        }
    }

    /// It goes with its pool alone: one that is deleted by others is made again.
    async fn release(&self, key: &Key, _: &Meta, object: Option<Arc<PoolObject>>) -> Reconciled {
        match object {
            Some(object) => self.reconcile(key, Some(object)).await,
            None => Ok(Next::Done),
        }
    }

    /// Whose it is cannot be told.
    async fn malformed(&self, _: &Key, _: &Malformed) -> Reconciled {
        Ok(Next::Done)
    }
}

impl PoolObjects {
    pub fn new(context: Context<PoolObject>) -> Arc<Self> {
        Arc::new(Self {
            context,
            names: Mutex::default(),
            went: Mutex::default(),
            nameless: Mutex::default(),
        })
    }

    fn wanted(&self, ledger: &Ledger, name: &Text) -> OwnPool {
        let pool = ledger.find_pool(name).ok();
        let pool = pool.filter(|pool| is_own(pool) && pool.spec.name == *name);
        let Some(pool) = pool else {
            return if self.went.lock().contains(name) {
                OwnPool::Withdrawn
            } else {
                OwnPool::Unknown
            };
        };
        let network = ledger.network(pool.spec.network);
        let settings = &self.context.site.session.settings;
        let offered = settings.of::<ClaimsSettings>().offers(pool);
        match network.filter(|_| offered) {
            Some(network) if is_object_name(name) => {
                OwnPool::Offered(Arc::clone(pool), Text::clone(&network.name))
            }
            Some(_) => {
                self.say_nameless(name);
                OwnPool::Withdrawn
            }
            None => OwnPool::Withdrawn,
        }
    }

    /// Says once that a pool has no object for want of a name. There is no object to write an Event about.
    fn say_nameless(&self, pool: &Text) {
        if self.nameless.lock().insert(Text::clone(pool)) {
            tracing::warn!(cluster = %self.context.site.name, %pool, "no Pool object can have the name of this pool: it is not mirrored; its claims may name it all the same");
        }
    }

    async fn create(&self, key: &Key, spec: &PoolSpec) -> Reconciled {
        let (remote, target) = (&self.context.remote, POOL.target(key));
        owned::create(remote, POOL, &target, json!({ "spec": spec })).await?;
        Ok(Next::Done)
    }

    async fn keep(&self, key: &Key, object: &PoolObject, spec: &PoolSpec) -> Reconciled {
        if let Some(patch) = change(&object.spec, spec)? {
            let body = json!({ "metadata": { "uid": &*object.meta.uid }, "spec": patch });
            self.context
                .remote
                .patch(&POOL.target(key), Patch::Merge, &body)
                .await?;
        }
        if let Some(rest) = self.context.status_rests(key) {
            return Ok(rest);
        }
        let site = &self.context.site;
        let find = |ledger: &Ledger| PoolState::read(ledger, ledger.find_pool(&key.name).ok()?);
        let Some(mut state) = site.ipam.read(find) else {
            return Ok(Next::Done);
        };
        state.shared = site.session.clusters.shared_range_note(&state.pool);
        let report = PoolReport {
            ready: state.ready(None),
            state: Some(state),
        };
        self.write_status(key, object, &report).await
    }

    async fn write_status(
        &self,
        key: &Key,
        object: &PoolObject,
        report: &PoolReport,
    ) -> Reconciled {
        let generation = object.meta.generation;
        let now = jiff::Timestamp::now();
        let status = pool_status::desired(&object.status, generation, report, now);
        let change = (&object.status, &status);
        let write = self.context.write_status(key, &object.meta.uid, change);
        write.await.map(|()| Next::Done)
    }
}

/// What is said of one of ours whose pool is not known.
fn orphan() -> ConditionUpdate {
    let message = "fipd has no pool of this name and did not delete one; make or import it again, or delete this object";
    not_ready("Unknown", message)
}

/// Since when this store would know every pool that was there for the cluster.
fn known_since(ledger: &Ledger, cluster: &ClusterId) -> Timestamp {
    let record = ledger.cluster(cluster);
    let first_seen = record.map_or(Timestamp(u64::MAX), |record| record.first_seen);
    let restored = ledger.epoch().map(|epoch| epoch.began);
    restored.map_or(first_seen, |began| first_seen.max(began))
}

fn is_own(pool: &Pool) -> bool {
    matches!(pool.spec.origin, Origin::Own)
}
