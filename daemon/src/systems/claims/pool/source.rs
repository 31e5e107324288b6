//! Pool and NamespacedPool objects of a cluster's own admins and users, each the source of a pool of the ledger.
//!
//! An object that cannot be taken as written changes nothing: what was in force stays, and its condition names the field
//! or the leases in the way. Its finalizer keeps it until nobody holds an address of it, or for `release-wait` at most: then the
//! object goes, and the closed pool stays until its last lease ends.
//!
//! Where `pool-objects` was switched off, objects are let go and what they made is closed; its leases stay. Switched on
//! again, it follows its object as before.

mod leave;

use std::sync::Arc;

use fipd_core::{Ledger, Pool, PoolEdit, PoolSpec, Refusal, Request};
use k8s_openapi::jiff;

use super::{
    POOLS_AT_ONCE,
    kind::{object_name, of_name},
    observe::{self, Object},
    status::{self, not_ready},
    validate::{self, Source},
};
use crate::{
    config::{PoolFacts, SystemSettings},
    controller::{
        ReconcileError,
        conditions::ConditionUpdate,
        context::Context,
        meta::Meta,
        queue::Next,
        reconcile::Controller,
        store::{Key, Malformed},
        waiters::LedgerEvent,
    },
    ipam::IpamError,
    systems::claims::{
        names::{POOL, POOL_FINALIZER},
        settings::ClaimsSettings,
    },
};

pub use leave::close_all;
use serde::de::IgnoredAny;

/// The controller of the objects of one kind.
pub struct Sources {
    context: Context<Object>,
}

impl Controller for Sources {
    type View = Object;

    const METRIC: &'static str = "pool";
    const WORKERS: usize = POOLS_AT_ONCE;

    fn context(&self) -> &Context<Object> {
        &self.context
    }

    fn affected(&self, ledger: &Ledger, event: &LedgerEvent<'_>) {
        match event {
            LedgerEvent::Everything => {
                let keys = self.context.objects.keys().into_iter();
                keys.for_each(|key| self.context.queue_status(key));
            }
            LedgerEvent::Changes(changes) => {
                let touched = changes.iter().flat_map(|change| &change.pools);
                let pools = touched.filter_map(|id| ledger.pool(*id));
                let keys = pools.filter_map(|pool| self.key_of(pool));
                keys.for_each(|key| self.context.queue_status(key));
                if changes.iter().any(|change| change.other) {
                    self.context.queue_every_status();
                }
            }
        }
    }

    async fn reconcile(
        &self,
        key: &Key,
        object: Option<Arc<Object>>,
    ) -> Result<Next, ReconcileError> {
        let Some(object) = object else {
            self.withdraw(key).await?;
            return Ok(Next::Done);
        };
        if self.is_own(&object) {
            return Ok(Next::Done);
        }
        if self.is_off() {
            return self.disown(key, &object.meta, Some(&object)).await;
        }
        let says = match self.mirror(key, &object).await {
            Ok(says) => says,
            Err(Refused::ConditionUpdate(says)) => Some(says),
            Err(Refused::Reconcile(trouble)) => return Err(trouble),
        };
        self.show(key, &object, says).await
    }

    async fn release(
        &self,
        key: &Key,
        meta: &Meta,
        object: Option<Arc<Object>>,
    ) -> Result<Next, ReconcileError> {
        if object.as_deref().is_some_and(|object| self.is_own(object)) {
            return Ok(Next::Done);
        }
        match self.is_off() {
            true => self.disown(key, meta, None).await,
            false => self.finalize(key, meta, object.as_deref()).await,
        }
    }

    async fn malformed(&self, key: &Key, object: &Malformed) -> Result<Next, ReconcileError> {
        if self.is_off() {
            return self.disown(key, &object.meta, None).await;
        }
        self.context.warn_malformed(key, object);
        Ok(Next::Done)
    }
}

impl Sources {
    pub fn new(context: Context<Object>) -> Arc<Self> {
        Arc::new(Self { context })
    }

    /// The object that a pool follows, if it is one of these.
    pub fn key_of(&self, pool: &Pool) -> Option<Key> {
        let object = self.context.site.object_of(pool)?;
        let (kind, key) = of_name(&object);
        (kind == self.context.kind).then_some(key)
    }

    /// The objects of the cluster are not to make pools.
    fn is_off(&self) -> bool {
        !self
            .context
            .site
            .session
            .settings
            .of::<ClaimsSettings>()
            .pool_objects
    }

    /// Whether fipd wrote the object for a pool of its own.
    fn is_own(&self, object: &Object) -> bool {
        object.ours && self.context.kind == POOL
    }

    /// Makes the pool what the object says. Answers what is to be said beside.
    async fn mirror(&self, key: &Key, object: &Object) -> Result<Option<ConditionUpdate>, Refused> {
        let hidden = |ledger: &Ledger| {
            let own = ledger.find_pool(&key.name).ok();
            own.is_some_and(|pool| {
                pool.spec.name == key.name
                    && self
                        .context
                        .site
                        .session
                        .settings
                        .of::<ClaimsSettings>()
                        .offers(pool)
            })
        };
        if self.context.kind == POOL
            && self.existing(key).is_none()
            && self.context.site.ipam.read(hidden)
        {
            let message =
                "fipd has a pool of this name for this cluster; give this one another name";
            return Err(Refused::ConditionUpdate(not_ready("NameTaken", message)));
        }
        let facts = PoolFacts {
            cluster: &self.context.site.session.names,
            system: &self.context.site.system,
            namespace: Some(&*key.namespace).filter(|namespace| !namespace.is_empty()),
            interface: None,
            vlan: None,
            pool: &key.name,
            annotation: Some(&*object.spec.network).filter(|network| !network.is_empty()),
        };
        let existing = self.existing(key);
        let network = self
            .context
            .site
            .session
            .network_of_mirror(&facts, existing.as_deref())
            .await;
        let (network, choice) = network
            .map_err(|error| Refused::Reconcile(ReconcileError::internal(error.to_string())))?;
        let source = Source {
            cluster: &self.context.site.id,
            cluster_name: &self.context.site.name,
            object: &object_name(key),
            uid: &object.meta.uid,
        };
        let wanted = validate::spec(&source, &object.spec, network)
            .map_err(|wrong| Refused::ConditionUpdate(not_ready("Invalid", wrong)))?;
        let wanted = PoolSpec {
            network_by_default: choice.is_default_for(existing.as_deref()),
            ..wanted
        };
        // The finalizer comes before the pool.
        let add = self
            .context
            .add_finalizer::<IgnoredAny>(key, &object.meta, POOL_FINALIZER);
        add.await.map_err(Refused::Reconcile)?;
        if let Some(request) = self.change(key, wanted) {
            match self.context.site.ipam.submit(request).await {
                Ok(_) => {}
                Err(IpamError::Refused(refusal)) if !matches!(refusal, Refusal::Stale { .. }) => {
                    return Err(Refused::ConditionUpdate(not_ready(
                        "Invalid",
                        refusal.to_string(),
                    )));
                }
                Err(error) => return Err(Refused::Reconcile(error.into())),
            }
        }
        let doubt = self.existing(key).and_then(|pool| {
            let doubt = |ledger: &Ledger| ledger.ambiguity(pool.id);
            self.context.site.ipam.read(doubt)
        });
        if let Some(message) = doubt {
            return Err(Refused::ConditionUpdate(not_ready(
                "NetworkAmbiguous",
                message,
            )));
        }
        let remark = choice.ignored_annotation;
        Ok(remark.map(|message| ConditionUpdate {
            kind: status::READY,
            status: true,
            reason: "Mirrored",
            message,
        }))
    }

    /// The request that makes the pool so; never one that leaves a lease outside.
    fn change(&self, key: &Key, wanted: PoolSpec) -> Option<Request> {
        let actor = self.context.site.actor();
        match self.existing(key) {
            None => Some(Request::CreatePool {
                spec: wanted,
                actor,
            }),
            Some(pool) if pool.spec == wanted => None,
            Some(pool) => Some(Request::UpdatePool(PoolEdit {
                pool: pool.id,
                spec: wanted,
                // An admin may have taken it to another network since it was read.
                if_generation: Some(pool.generation),
                force: false,
                reason: "".into(),
                actor,
            })),
        }
    }

    async fn show(
        &self,
        key: &Key,
        object: &Object,
        says: Option<ConditionUpdate>,
    ) -> Result<Next, ReconcileError> {
        if let Some(says) = says.as_ref().filter(|says| !says.status) {
            self.context
                .warn(key, &object.meta.uid, says.reason, says.message.clone());
        }
        if let Some(rest) = self.context.status_rests(key) {
            return Ok(rest);
        }
        let now = jiff::Timestamp::now();
        let shown = self.existing(key).and_then(|pool| {
            let facts = observe::facts(&self.context.site.session, &pool)?;
            let says = says.as_ref().filter(|says| !says.status || facts.gives());
            Some(status::shown(object, &pool.spec.name, &facts, says, now))
        });
        let after = match (shown, &says) {
            (Some(shown), _) => shown,
            (None, Some(says)) => status::without_pool(object, says, now),
            (None, None) => return Ok(Next::Retry),
        };
        let write = (&object.status, &after);
        let write = self.context.write_status(key, &object.meta.uid, write);
        write.await.map(|()| Next::Done)
    }

    fn existing(&self, key: &Key) -> Option<Arc<Pool>> {
        let object = object_name(key);
        self.context
            .site
            .ipam
            .read(|ledger| self.context.site.mirror_in(ledger, &object).cloned())
    }
}

/// Why a pool is not what its object says.
enum Refused {
    /// The object is at fault.
    ConditionUpdate(ConditionUpdate),
    Reconcile(ReconcileError),
}
