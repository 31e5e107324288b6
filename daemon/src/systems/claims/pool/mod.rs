//! fipd's own pools as Pool objects of the clusters that ask for them, so that others can refer to them by UID.
//!
//! The object has the pool's name and is fipd's alone: what others write into it is put back, and one that is deleted is
//! made again. It goes with its pool, once those have let go of it who put a finalizer on it. An object of the name
//! that fipd did not write is left alone.

pub mod kind;
pub mod observe;
pub mod plan;
pub mod source;
pub mod status;
pub mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fipd_core::{ClusterId, Ledger, Origin, Pool, PoolId, Text, Timestamp};
use fipd_crds::{
    fipd_io::{self, PoolSpec, PoolStatus},
    labels::{FIELD_MANAGER, MANAGED_BY},
    names::is_object_name,
};
use k8s_openapi::{api::core::v1::ObjectReference, jiff};
use kube::Resource;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::API;
use crate::controller::{
    Trouble,
    client::{Patch, Remote, Target},
    events::Events,
    merge::change,
    queue::{Next, Queue},
    site::Site,
    store::{Key, Objects, Seen},
    waiters::News,
};
use observe::Object;
use plan::{Plan, Wanted};

/// A pool's status is written at most once in this time; the latest wins.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

const KIND: &str = fipd_io::POOL;

/// The controller of the Pool objects of a cluster.
pub struct Pools {
    site: Arc<Site>,
    remote: Remote,
    events: Arc<Events>,
    pub objects: Arc<Objects<Object>>,
    pub queue: Arc<Queue<Key>>,
    /// Names of own pools as last seen in the ledger; what is not there any more was deleted.
    names: Mutex<BTreeMap<PoolId, Text>>,
    /// Names of own pools that went while fipd runs.
    went: Mutex<BTreeSet<Text>>,
    written: Mutex<BTreeMap<Key, Instant>>,
    /// Offered pools that can have no object for their name, as far as that was said.
    nameless: Mutex<BTreeSet<Text>>,
}

impl Pools {
    pub fn new(site: Arc<Site>, remote: Remote, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            site,
            remote,
            events,
            objects: Objects::new(),
            queue: Queue::new(),
            names: Mutex::default(),
            went: Mutex::default(),
            written: Mutex::default(),
            nameless: Mutex::default(),
        })
    }

    /// Queues the objects of the pools that a change of the ledger concerns.
    pub fn heard(&self, ledger: &Ledger, news: &News<'_>) {
        let mut names = self.names.lock();
        let mut queue = |name: &Text| self.queue_soon(&Key::new("", name));
        match news {
            News::Everything => {
                let now = ledger.pools().filter(|pool| is_own(pool));
                let now: BTreeMap<PoolId, Text> = now
                    .map(|pool| (pool.id, Text::clone(&pool.spec.name)))
                    .collect();
                let before = std::mem::replace(&mut *names, now);
                let went = before.into_values();
                let went = went.filter(|name| !names.values().any(|now| now == name));
                self.went.lock().extend(went);
                names.values().for_each(&mut queue);
                self.queue_all();
            }
            News::Changes(changes) => {
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

    fn queue_soon(&self, key: &Key) {
        let pause = self.pause(key);
        if pause.is_zero() {
            self.queue.add(key.clone());
        } else {
            self.queue.add_after(key.clone(), pause);
        }
    }

    /// Queues all objects whose status shows a pool.
    pub fn queue_all(&self) {
        self.objects
            .keys()
            .iter()
            .for_each(|key| self.queue_soon(key));
    }

    /// Brings the object of one name up to date.
    pub async fn reconcile(self: Arc<Self>, key: Key) -> Next {
        match self.try_reconcile(&key).await {
            Ok(next) => next,
            Err(trouble) => trouble.next(KIND, &key),
        }
    }

    async fn try_reconcile(&self, key: &Key) -> Result<Next, Trouble> {
        let object = match self.objects.seen(key) {
            Some(Seen::Good(object)) => Some(object),
            // Whose it is cannot be told.
            Some(Seen::Malformed(_)) => return Ok(Next::Done),
            None => None,
        };
        let (wanted, since) = self.site.ipam.read(|ledger| {
            (
                self.wanted(ledger, &key.name),
                known_since(ledger, &self.site.id),
            )
        });
        match (plan::plan(object.as_deref(), &wanted, since), object) {
            (Plan::Create(spec), _) => self.create(key, &spec).await,
            (Plan::Keep(spec), Some(object)) => self.keep(key, &object, &spec).await,
            (Plan::Delete, Some(object)) => {
                self.remote.delete(&target(key), &object.uid).await?;
                Ok(Next::Done)
            }
            (Plan::Orphan, Some(object)) => {
                let status =
                    status::without_pool(&object, &status::orphan(), jiff::Timestamp::now());
                self.write_status(key, &object, &status).await
            }
            (Plan::NameTaken, Some(object)) => {
                let note = "fipd has a pool of this name for this cluster, which this object hides; rename or delete it";
                let reference = reference(key, &object.uid);
                self.events.warning(&reference, "NameTaken", note);
                Ok(Next::Done)
            }
            (Plan::Leave, _) | (_, None) => Ok(Next::Done),
        }
    }

    fn wanted(&self, ledger: &Ledger, name: &Text) -> Wanted {
        let pool = ledger.find_pool(name).ok();
        let pool = pool.filter(|pool| is_own(pool) && pool.spec.name == *name);
        let Some(pool) = pool else {
            return if self.went.lock().contains(name) {
                Wanted::Withdrawn
            } else {
                Wanted::Unknown
            };
        };
        let network = ledger.network(pool.spec.network);
        match network.filter(|_| self.site.session.settings.claims.offers(pool)) {
            Some(network) if is_object_name(name) => {
                Wanted::Offered(Arc::clone(pool), Text::clone(&network.name))
            }
            Some(_) => {
                self.say_nameless(name);
                Wanted::Withdrawn
            }
            None => Wanted::Withdrawn,
        }
    }

    /// Says once that a pool has no object for want of a name. There is no object to write an Event about.
    fn say_nameless(&self, pool: &Text) {
        if self.nameless.lock().insert(Text::clone(pool)) {
            tracing::warn!(cluster = %self.site.name, %pool, "no Pool object can have the name of this pool: it is not mirrored; its claims may name it all the same");
        }
    }

    async fn create(&self, key: &Key, spec: &PoolSpec) -> Result<Next, Trouble> {
        let object = json!({
            "apiVersion": fipd_io::Pool::api_version(&()), "kind": KIND, "spec": spec,
            "metadata": { "name": &*key.name, "labels": { MANAGED_BY: FIELD_MANAGER } },
        });
        self.remote.create(&target(key), &object).await?;
        Ok(Next::Done)
    }

    async fn keep(&self, key: &Key, object: &Object, spec: &PoolSpec) -> Result<Next, Trouble> {
        let patch = change(&object.spec, spec).map_err(internal)?;
        if let Some(patch) = patch {
            let body = json!({ "metadata": { "uid": &*object.uid }, "spec": patch });
            self.remote.patch(&target(key), Patch::Merge, &body).await?;
        }
        let pause = self.pause(key);
        if !pause.is_zero() {
            return Ok(Next::After(pause));
        }
        let find = |ledger: &Ledger| ledger.find_pool(&key.name).ok().cloned();
        let status = self.site.ipam.read(find).and_then(|pool| {
            let facts = observe::facts(&self.site.session, &pool)?;
            let now = jiff::Timestamp::now();
            Some(status::shown(object, &pool.spec.name, &facts, None, now))
        });
        match status {
            Some(status) => self.write_status(key, object, &status).await,
            None => Ok(Next::Done),
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        object: &Object,
        status: &PoolStatus,
    ) -> Result<Next, Trouble> {
        if let Some(patch) = change(&object.status, status).map_err(internal)? {
            self.written.lock().insert(key.clone(), Instant::now());
            let body = json!({ "metadata": { "uid": &*object.uid }, "status": patch });
            self.remote
                .patch_status(&target(key), Patch::Merge, &body)
                .await?;
        }
        Ok(Next::Done)
    }

    /// How long the status of a pool must rest.
    fn pause(&self, key: &Key) -> Duration {
        let written = self.written.lock().get(key).copied();
        written.map_or(Duration::ZERO, |at| {
            STATUS_PAUSE.saturating_sub(at.elapsed())
        })
    }
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

fn internal(error: serde_json::Error) -> Trouble {
    Trouble::internal(error.to_string())
}

fn reference(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(fipd_io::Pool::api_version(&()).into_owned()),
        kind: Some(KIND.into()),
        name: Some(key.name.to_string()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

fn target(key: &Key) -> Target {
    Target {
        api: API,
        plural: "pools",
        namespace: String::new(),
        name: key.name.to_string(),
    }
}
