//! What every controller has for the objects of its kind.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use fipd_core::{Answer, Holder, Identity, Ledger, PoolId, Request, Text};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, runtime::watcher};
use parking_lot::Mutex;
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::{
    Reconciled,
    client::{Patch, Remote},
    events::Events,
    kind::Kind,
    meta::{Meta, View},
    queue::{Next, Queue},
    site::Site,
    store::{Key, MALFORMED, Malformed, Objects, follow},
    waiters::{Cause, Waiters},
};
use crate::{controller::merge_patch::change, ipam::IpamError};

/// The status of an object is written at most once in this time; the latest wins.
pub const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// The objects of one kind of a cluster, and the means to work on them.
pub struct Context<V> {
    /// In the API version that is preferred.
    pub kind: Kind,
    pub site: Arc<Site>,
    pub remote: Remote,
    pub events: Arc<Events>,
    pub objects: Arc<Objects<V>>,
    pub queue: Arc<Queue<Key>>,
    /// Objects that wait for a change of the address book.
    pub waiters: Waiters,
    /// When the status of each object was written last.
    written: Mutex<BTreeMap<Key, Instant>>,
}

impl<V: PartialEq + Debug> Context<V> {
    pub fn new(
        kind: Kind,
        site: Arc<Site>,
        remote: Remote,
        events: Arc<Events>,
        objects: Arc<Objects<V>>,
    ) -> Self {
        Self {
            kind,
            waiters: Waiters::new(site.system.clone(), site.id.clone(), kind.kind),
            site,
            remote,
            events,
            objects,
            queue: Queue::new(),
            written: Mutex::default(),
        }
    }

    /// The same by the client of the cluster's session.
    pub fn of_site(
        kind: Kind,
        site: &Arc<Site>,
        events: &Arc<Events>,
        objects: &Arc<Objects<V>>,
    ) -> Self {
        let remote = Remote::new(site.session.client.clone());
        let (site, events) = (Arc::clone(site), Arc::clone(events));
        Self::new(kind, site, remote, events, Arc::clone(objects))
    }

    /// The kind, in the API version in which its objects are followed.
    pub fn kind(&self) -> Kind {
        self.objects.followed_as().unwrap_or(self.kind)
    }

    /// Follows the objects, in the first API version that the cluster serves at each connect; waits where it serves none of them,
    /// and knows of an optional kind that there are none meanwhile.
    /// `view` makes what is kept of one; `changed` is told what appeared, changed or went.
    pub fn follow<K>(
        &self,
        tasks: &mut JoinSet<()>,
        view: impl Fn(K) -> Option<V> + Send + Sync + 'static,
        changed: impl Fn(&Key) + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let (site, remote) = (Arc::clone(&self.site), self.remote.clone());
        let (objects, kind) = (Arc::clone(&self.objects), self.kind);
        let follow = async move {
            let mut reconnects = site.session.reconnects();
            let known = Arc::clone(&objects);
            let lacking = move || {
                if kind.optional {
                    known.complete();
                }
            };
            let mut used = kind.wait_served(&remote, &lacking).await;
            loop {
                objects.follow_as(used);
                let api = used.all_as(site.session.client.clone());
                let (config, all) = (watcher::Config::default(), Arc::clone(&objects));
                let (memory, cancel) = (site.memory(), site.cancel());
                let following = follow(api, config, all, &view, &changed, memory, cancel);
                let other = async {
                    while reconnects.changed().await.is_ok() {
                        let now = kind.wait_served(&remote, &lacking).await;
                        if now != used {
                            return now;
                        }
                    }
                    std::future::pending().await
                };
                tokio::select! {
                    () = following => return,
                    now = other => used = now,
                }
            }
        };
        let cancel = self.site.cancel();
        tasks.spawn(async move { cancel.run_until_cancelled(follow).await.unwrap_or(()) });
    }

    /// Queues by an existing queue.
    #[must_use]
    pub fn with_queue(self, queue: Arc<Queue<Key>>) -> Self {
        Self { queue, ..self }
    }

    /// Queues all objects.
    pub fn queue_all(&self) {
        let keys = self.objects.keys().into_iter();
        keys.for_each(|key| self.queue.add(key));
    }

    /// Queues an object whose status may have to change, once it may be written again.
    pub fn queue_status(&self, key: Key) {
        let pause = self.status_pause(&key);
        if pause.is_zero() {
            self.queue.add(key);
        } else {
            self.queue.add_after(key, pause);
        }
    }

    /// The same for all objects.
    pub fn queue_every_status(&self) {
        let keys = self.objects.keys().into_iter();
        keys.for_each(|key| self.queue_status(key));
    }

    /// What to do first where the status must still rest.
    pub fn status_rests(&self, key: &Key) -> Option<Next> {
        let pause = self.status_pause(key);
        (!pause.is_zero()).then_some(Next::After(pause))
    }

    /// Others come first: the status of this object rests as if it had just been written.
    pub fn put_status_off(&self, key: &Key) {
        self.written.lock().insert(key.clone(), Instant::now());
    }

    /// How long the status of an object must rest.
    fn status_pause(&self, key: &Key) -> Duration {
        let written = self.written.lock().get(key).copied();
        written.map_or(Duration::ZERO, |at| {
            STATUS_PAUSE.saturating_sub(at.elapsed())
        })
    }

    /// Every status may be written again at once.
    #[cfg(test)]
    pub(super) fn end_rests(&self) {
        self.written.lock().clear();
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.written.lock().remove(key);
    }

    /// Notes what an object waits for; `None`: for nothing but a change of itself. Where that is no free address it keeps no
    /// place in a queue.
    pub fn waits_for(&self, key: &Key, cause: Option<Cause>) {
        if !cause.as_ref().is_some_and(Cause::keeps_place) {
            self.leave_other_queues(key, &[]);
        }
        self.waiters.wait(key, cause);
    }

    /// The object is about to ask for addresses of these pools, and of no others.
    pub fn leave_other_queues(&self, key: &Key, pools: &[PoolId]) {
        let identity = self.identity(key);
        if self.read(|ledger| ledger.waits_elsewhere(&identity, pools)) {
            self.site.ipam.forget_waiter(&identity);
        }
    }

    /// Looks at the address book.
    pub fn read<R>(&self, look: impl FnOnce(&Ledger) -> R) -> R {
        self.site.ipam.read(look)
    }

    /// Asks the address book for a change.
    pub async fn submit(&self, request: Request) -> Result<Answer, IpamError> {
        self.site.ipam.submit(request).await
    }

    /// Takes into the address book what is in use. What it refuses to take in is no failure: there is nothing to hold.
    pub async fn take_in(&self, request: Request) -> Reconciled<()> {
        match self.submit(request).await {
            Ok(_) | Err(IpamError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Who asks for it, in the audit log.
    pub fn actor(&self) -> Text {
        self.site.actor()
    }

    /// Who the object is in the address book.
    pub fn identity(&self, key: &Key) -> Identity {
        let site = &self.site;
        key.identity(site.system.clone(), &site.id, self.kind.kind)
    }

    /// The same of the object with this UID.
    pub fn holder(&self, key: &Key, uid: &Text) -> Holder {
        Holder {
            identity: self.identity(key),
            instance: Text::clone(uid),
        }
    }

    /// What Events of the object are about.
    pub fn reference(&self, key: &Key, uid: &str) -> ObjectReference {
        self.kind().reference(key, uid)
    }

    pub fn warn(&self, key: &Key, uid: &str, reason: &'static str, note: impl Into<String>) {
        self.events.warning(&self.reference(key, uid), reason, note);
    }

    pub fn note(&self, key: &Key, uid: &str, reason: &'static str, note: impl Into<String>) {
        self.events.normal(&self.reference(key, uid), reason, note);
    }

    /// Says of an object that it does not fit its schema.
    pub fn warn_malformed(&self, key: &Key, object: &Malformed) {
        self.warn(key, &object.meta.uid, MALFORMED, object.note());
    }

    /// Adds the finalizer, where the object has it not; the object as it is then.
    pub async fn add_finalizer<T: DeserializeOwned>(
        &self,
        key: &Key,
        meta: &Meta,
        finalizer: &str,
    ) -> Reconciled<Option<T>> {
        self.mark(key, meta, finalizer, None).await
    }

    /// The same, and writes `spec` at once.
    pub async fn mark<T: DeserializeOwned>(
        &self,
        key: &Key,
        meta: &Meta,
        finalizer: &str,
        spec: Option<Value>,
    ) -> Reconciled<Option<T>> {
        let mut patch = json!({ "metadata": { "uid": &*meta.uid } });
        if !meta.has_finalizer(finalizer) {
            // A merge patch replaces the whole list, so it must be the list that was read.
            let finalizers = meta.finalizers.iter().map(String::as_str);
            patch["metadata"]["finalizers"] = finalizers.chain([finalizer]).collect();
        } else if spec.is_none() {
            return Ok(None);
        }
        // Nor is an edit overwritten that was not read.
        patch["metadata"]["resourceVersion"] = json!(meta.version);
        if let Some(spec) = spec {
            patch["spec"] = spec;
        }
        let target = self.kind().target(key);
        let now = self.remote.patch_seen(&target, Patch::Merge, &patch);
        Ok(Some(now.await?))
    }

    /// Takes the finalizer off the object with this UID.
    pub async fn drop_finalizer(&self, key: &Key, meta: &Meta, finalizer: &str) -> Reconciled<()> {
        let target = self.kind().target(key);
        let (uid, finalizers) = (&meta.uid, &meta.finalizers);
        let drop = self
            .remote
            .drop_finalizer(&target, uid, finalizers, finalizer);
        Ok(drop.await?)
    }

    /// Writes what differs of the status.
    pub async fn write_status<S: Serialize>(
        &self,
        key: &Key,
        uid: &str,
        change: (&S, &S),
    ) -> Reconciled<()> {
        let write = self.write_status_seen::<S, IgnoredAny>(key, uid, change);
        write.await.map(drop)
    }

    /// The same; the object as it is then, where anything differed.
    pub async fn write_status_seen<S: Serialize, T: DeserializeOwned>(
        &self,
        key: &Key,
        uid: &str,
        (before, after): (&S, &S),
    ) -> Reconciled<Option<T>> {
        let Some(patch) = change(before, after)? else {
            return Ok(None);
        };
        let body = json!({ "metadata": { "uid": uid }, "status": patch });
        let target = self.kind().target(key);
        let write = self.remote.patch_status_seen(&target, Patch::Merge, &body);
        let now = write.await?;
        self.written.lock().insert(key.clone(), Instant::now());
        Ok(Some(now))
    }
}

impl<V: View> Context<V> {
    /// Writes what differs of the status, and keeps the object as it is then.
    pub async fn show_status<S: Serialize, T: DeserializeOwned>(
        &self,
        key: &Key,
        uid: &str,
        change: (&S, &S),
        view: fn(T) -> V,
    ) -> Reconciled<()> {
        let written = self.write_status_seen(key, uid, change).await?;
        written
            .into_iter()
            .for_each(|after| self.objects.keep(key, view(after)));
        Ok(())
    }
}
