//! Pool and NamespacedPool objects of a cluster's own admins and users, each the source of a pool of the ledger.
//!
//! An object that cannot be taken as written changes nothing: what was in force stays, and its condition names the field
//! or the leases in the way. Its finalizer keeps it until nobody holds an address of it, or for `release-wait` at most: then the
//! object goes, and the closed pool stays until its last lease ends.
//!
//! Where `pool-objects` was switched off, objects are let go and what they made is closed; its leases stay. Switched on
//! again, it follows its object as before.

mod leave;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fipd_core::{Ledger, Origin, Pool, PoolEdit, PoolSpec, Refusal, Request};
use k8s_openapi::{api::core::v1::ObjectReference, jiff};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::{
    STATUS_PAUSE,
    kind::{Kind, object_name},
    observe::{self, Object},
    status::{self, not_ready},
    validate::{self, Source},
};
use crate::{
    config::PoolFacts,
    controller::{
        Trouble,
        client::{Patch, Remote, Target},
        events::Events,
        merge::{Says, change},
        queue::{Next, Queue},
        site::Site,
        store::{Key, Objects, Seen},
        waiters::News,
    },
    ipam::IpamError,
    systems::claims::{API, names::POOL_FINALIZER},
};

use leave::Ending;
pub use leave::close_all;

/// The controller of the objects of one kind.
pub struct Sources {
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    kind: Kind,
    objects: Arc<Objects<Object>>,
    pub queue: Arc<Queue<Key>>,
    written: Mutex<BTreeMap<Key, Instant>>,
}

impl Sources {
    pub fn new(
        site: Arc<Site>,
        remote: Remote,
        events: Arc<Events>,
        kind: Kind,
        objects: Arc<Objects<Object>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            site,
            remote,
            events,
            kind,
            objects,
            queue: Queue::new(),
            written: Mutex::default(),
        })
    }

    /// Queues the objects whose pool a change of the ledger concerns.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        match news {
            News::Everything => {
                let keys = ledger.pools().filter_map(|pool| self.key_of(pool));
                let keys = keys.chain(self.objects.keys());
                keys.for_each(|key| self.queue_soon(key));
            }
            News::Changes(changes) => {
                let touched = changes.iter().flat_map(|change| &change.pools);
                let pools = touched.filter_map(|id| ledger.pool(*id));
                let keys = pools.filter_map(|pool| self.key_of(pool));
                keys.for_each(|key| self.queue_soon(key));
                if changes.iter().any(|change| change.other) {
                    self.queue_all();
                }
            }
        }
    }

    /// Queues all objects.
    pub fn queue_all(&self) {
        let keys = self.objects.keys().into_iter();
        keys.for_each(|key| self.queue_soon(key));
    }

    /// The object that a pool follows, if it is one of these.
    pub fn key_of(&self, pool: &Pool) -> Option<Key> {
        let Origin::Mirror {
            system,
            cluster,
            object,
            ..
        } = &pool.spec.origin
        else {
            return None;
        };
        let ours = *system == self.site.system && *cluster == self.site.id;
        let (kind, key) = Kind::of(object);
        (ours && kind == self.kind).then_some(key)
    }

    fn queue_soon(&self, key: Key) {
        let pause = self.pause(&key);
        if pause.is_zero() {
            self.queue.add(key);
        } else {
            self.queue.add_after(key, pause);
        }
    }

    /// Brings the pool and the status of one object up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(self.kind.name(), &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        let seen = self.objects.seen(key);
        if !self.site.session.settings.claims.pool_objects {
            return self.disown(key, seen).await;
        }
        match seen {
            None => {
                self.written.lock().remove(key);
                self.withdraw(key).await?;
                Ok(Next::Done)
            }
            Some(Seen::Malformed(object)) if object.deleted.is_some() => {
                self.finalize(key, &Ending::malformed(&object)).await
            }
            Some(Seen::Malformed(object)) => {
                let note = format!(
                    "the object does not fit its schema ({}); its last good state stays",
                    object.error
                );
                let reference = self.reference(key, &object.uid);
                self.events.warning(&reference, "Malformed", note);
                Ok(Next::Done)
            }
            Some(Seen::Good(object)) if object.ours && self.kind == Kind::Pool => Ok(Next::Done),
            Some(Seen::Good(object)) if object.terminating => {
                self.finalize(key, &Ending::of(&object)).await
            }
            Some(Seen::Good(object)) => {
                let says = match self.mirror(key, &object).await {
                    Ok(says) => says,
                    Err(Refused::Says(says)) => Some(says),
                    Err(Refused::Trouble(trouble)) => return Err(trouble),
                };
                self.show(key, &object, says).await
            }
        }
    }

    /// Makes the pool what the object says. Answers what is to be said beside.
    async fn mirror(&self, key: &Key, object: &Object) -> Result<Option<Says>, Refused> {
        let hidden = |ledger: &Ledger| {
            let own = ledger.find_pool(&key.name).ok();
            own.is_some_and(|pool| {
                pool.spec.name == key.name && self.site.session.settings.claims.offers(pool)
            })
        };
        if self.kind == Kind::Pool && self.existing(key).is_none() && self.site.ipam.read(hidden) {
            let message =
                "fipd has a pool of this name for this cluster; give this one another name";
            return Err(Refused::Says(not_ready("NameTaken", message)));
        }
        let facts = PoolFacts {
            cluster: &self.site.session.names,
            system: &self.site.system,
            namespace: Some(&*key.namespace).filter(|namespace| !namespace.is_empty()),
            interface: None,
            vlan: None,
            pool: &key.name,
            annotation: Some(&*object.spec.network).filter(|network| !network.is_empty()),
        };
        let existing = self.existing(key);
        let network = self
            .site
            .session
            .network_of_mirror(&facts, existing.as_deref())
            .await;
        let (network, choice) =
            network.map_err(|error| Refused::Trouble(Trouble::internal(error.to_string())))?;
        let source = Source {
            cluster: &self.site.id,
            cluster_name: &self.site.name,
            object: &object_name(key),
            uid: &object.uid,
        };
        let wanted = validate::spec(&source, &object.spec, network)
            .map_err(|wrong| Refused::Says(not_ready("Invalid", wrong)))?;
        let wanted = PoolSpec {
            network_by_default: choice.is_default_for(existing.as_deref()),
            ..wanted
        };
        self.protect(key, object).await?;
        if let Some(request) = self.change(key, wanted) {
            match self.site.ipam.submit(request).await {
                Ok(_) => {}
                Err(IpamError::Refused(refusal)) if !matches!(refusal, Refusal::Stale { .. }) => {
                    return Err(Refused::Says(not_ready("Invalid", refusal.to_string())));
                }
                Err(error) => return Err(Refused::Trouble(error.into())),
            }
        }
        let doubt = self.existing(key).and_then(|pool| {
            let doubt = |ledger: &Ledger| ledger.ambiguity(pool.id);
            self.site.ipam.read(doubt)
        });
        if let Some(message) = doubt {
            return Err(Refused::Says(not_ready("NetworkAmbiguous", message)));
        }
        let remark = choice.ignored_annotation;
        Ok(remark.map(|message| Says {
            kind: status::READY,
            status: true,
            reason: "Mirrored",
            message,
        }))
    }

    /// The request that makes the pool so; never one that leaves a lease outside.
    fn change(&self, key: &Key, wanted: PoolSpec) -> Option<Request> {
        let actor = self.site.actor();
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

    /// The finalizer comes before the pool.
    async fn protect(&self, key: &Key, object: &Object) -> Result<(), Refused> {
        if object.finalizers.iter().any(|one| one == POOL_FINALIZER) {
            return Ok(());
        }
        // A merge patch replaces the whole list, so it must be the list that was read.
        let mut finalizers = object.finalizers.clone();
        finalizers.push(POOL_FINALIZER.into());
        let patch = json!({ "metadata": {
            "uid": &*object.uid, "resourceVersion": object.version, "finalizers": finalizers,
        } });
        let done = self
            .remote
            .patch(&self.target(key), Patch::Merge, &patch)
            .await;
        done.map_err(|error| Refused::Trouble(error.into()))
    }

    async fn show(&self, key: &Key, object: &Object, says: Option<Says>) -> Result<Next, Trouble> {
        if let Some(says) = says.as_ref().filter(|says| !says.status) {
            let reference = self.reference(key, &object.uid);
            self.events
                .warning(&reference, says.reason, says.message.clone());
        }
        let pause = self.pause(key);
        if !pause.is_zero() {
            return Ok(Next::After(pause));
        }
        let now = jiff::Timestamp::now();
        let shown = self.existing(key).and_then(|pool| {
            let facts = observe::facts(&self.site.session, &pool)?;
            let says = says.as_ref().filter(|says| !says.status || facts.gives());
            Some(status::shown(object, &pool.spec.name, &facts, says, now))
        });
        let after = match (shown, &says) {
            (Some(shown), _) => shown,
            (None, Some(says)) => status::without_pool(object, says, now),
            (None, None) => return Ok(Next::Retry),
        };
        let patch =
            change(&object.status, &after).map_err(|error| Trouble::internal(error.to_string()))?;
        if let Some(patch) = patch {
            self.written.lock().insert(key.clone(), Instant::now());
            let body = json!({ "metadata": { "uid": &*object.uid }, "status": patch });
            self.remote
                .patch_status(&self.target(key), Patch::Merge, &body)
                .await?;
        }
        Ok(Next::Done)
    }

    fn existing(&self, key: &Key) -> Option<Arc<Pool>> {
        let object = object_name(key);
        self.site
            .ipam
            .read(|ledger| self.site.mirror_in(ledger, &object).cloned())
    }

    /// How long the status of a pool must rest.
    fn pause(&self, key: &Key) -> Duration {
        let written = self.written.lock().get(key).copied();
        written.map_or(Duration::ZERO, |at| {
            STATUS_PAUSE.saturating_sub(at.elapsed())
        })
    }

    fn reference(&self, key: &Key, uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some("fipd.io/v1alpha1".into()),
            kind: Some(self.kind.name().into()),
            namespace: Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: Some(key.name.to_string()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        }
    }

    fn target(&self, key: &Key) -> Target {
        Target {
            api: API,
            plural: self.kind.plural(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }
}

/// Why a pool is not what its object says.
enum Refused {
    /// The object is at fault.
    Says(Says),
    Trouble(Trouble),
}
