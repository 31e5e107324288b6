//! What is known of the objects of one kind in one cluster: a watch, a complete first list, and a store that
//! keeps only what a controller needs. An object that cannot be understood is kept as such and stalls nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use fipd_core::{Text, Timestamp};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clusters::{self, adoption::PAGE, lenient::Lenient};

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Text,
    pub name: Text,
}

/// An object as it is known.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen<T> {
    Good(Arc<T>),
    /// It does not fit its own schema.
    Malformed(Arc<Malformed>),
}

/// What can be said of an object that does not fit its schema.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub uid: String,
    pub error: String,
    /// Since when it is being deleted.
    pub deleted: Option<Timestamp>,
    pub finalizers: Vec<String>,
}

/// The store of one kind. Cheap to share.
pub struct Objects<T> {
    map: RwLock<BTreeMap<Key, Seen<T>>>,
    complete: watch::Sender<bool>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.as_deref().unwrap_or(""),
            meta.name.as_deref().unwrap_or(""),
        )
    }
}

/// The time an object was made.
pub fn created(time: Option<&Time>) -> Timestamp {
    Timestamp(
        time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok())
            .unwrap_or_default(),
    )
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Good(object) => Self::Good(Arc::clone(object)),
            Self::Malformed(object) => Self::Malformed(Arc::clone(object)),
        }
    }
}

impl<T: PartialEq> Objects<T> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            map: RwLock::new(BTreeMap::new()),
            complete: watch::Sender::new(false),
        })
    }

    pub fn seen(&self, key: &Key) -> Option<Seen<T>> {
        self.map.read().get(key).cloned()
    }

    /// The object, if it is there and well-formed.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        match self.map.read().get(key) {
            Some(Seen::Good(object)) => Some(Arc::clone(object)),
            Some(Seen::Malformed(_)) | None => None,
        }
    }

    /// All well-formed objects, by key.
    pub fn all(&self) -> Vec<(Key, Arc<T>)> {
        let map = self.map.read();
        map.iter()
            .filter_map(|(key, seen)| match seen {
                Seen::Good(object) => Some((key.clone(), Arc::clone(object))),
                Seen::Malformed(_) => None,
            })
            .collect()
    }

    /// The keys of all objects of a namespace.
    pub fn keys_in(&self, namespace: &str) -> Vec<Key> {
        let from = Key::new(namespace, "");
        let map = self.map.read();
        map.range(from..)
            .map(|(key, _)| key)
            .take_while(|key| &*key.namespace == namespace)
            .cloned()
            .collect()
    }

    /// Those that cannot be understood, by key.
    pub fn malformed(&self) -> Vec<(Key, Arc<Malformed>)> {
        let map = self.map.read();
        map.iter()
            .filter_map(|(key, seen)| match seen {
                Seen::Malformed(object) => Some((key.clone(), Arc::clone(object))),
                Seen::Good(_) => None,
            })
            .collect()
    }

    pub fn keys(&self) -> Vec<Key> {
        self.map.read().keys().cloned().collect()
    }

    /// How many there are; `None` before the first complete list.
    pub fn count(&self) -> Option<usize> {
        self.is_complete().then(|| self.map.read().len())
    }

    /// Whether a complete list was seen at least once.
    pub fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Waits for the first complete list.
    pub async fn completed(&self) {
        let mut complete = self.complete.subscribe();
        // The sender lives in self: it cannot go away while this waits.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    /// Who wrote the object need not wait for the watch.
    pub fn set(&self, key: &Key, object: T) {
        self.put(key, Some(Seen::Good(Arc::new(object))));
    }

    /// The same of what was there before: where the watch told meanwhile that it is gone, or of a later one, that counts.
    pub fn update(&self, key: &Key, object: T, is_later: impl Fn(&T, &T) -> bool) {
        let mut map = self.map.write();
        match map.get(key) {
            None => {}
            Some(Seen::Good(before)) if is_later(before, &object) => {}
            Some(_) => drop(map.insert(key.clone(), Seen::Good(Arc::new(object)))),
        }
    }

    #[cfg(test)]
    pub fn complete(&self) {
        self.complete.send_replace(true);
    }

    /// Whether something changed.
    fn put(&self, key: &Key, seen: Option<Seen<T>>) -> bool {
        let mut map = self.map.write();
        match seen {
            Some(seen) => {
                if map.get(key) == Some(&seen) {
                    return false;
                }
                map.insert(key.clone(), seen);
                true
            }
            None => map.remove(key).is_some(),
        }
    }

    /// Removes what a complete list did not contain; the keys removed.
    fn retain(&self, listed: &BTreeSet<Key>) -> Vec<Key> {
        let mut map = self.map.write();
        let gone: Vec<Key> = map
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        for key in &gone {
            map.remove(key);
        }
        gone
    }
}

/// Follows a kind until cancelled. `slim` makes what is stored of an object (`None`: nothing, as if it were
/// not there); `changed` is told the key of everything that appeared, changed or went.
pub async fn follow<K, T>(
    api: Api<Lenient<K>>,
    objects: Arc<Objects<T>>,
    slim: impl Fn(K) -> Option<T>,
    changed: impl Fn(&Key),
    cancel: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq,
{
    let config = watcher::Config::default().page_size(PAGE);
    follow_some(api, config, objects, slim, changed, cancel).await;
}

/// The same for those objects that `config` selects.
pub async fn follow_some<K, T>(
    api: Api<Lenient<K>>,
    config: watcher::Config,
    objects: Arc<Objects<T>>,
    slim: impl Fn(K) -> Option<T>,
    changed: impl Fn(&Key),
    cancel: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq,
{
    let kind = K::kind(&()).into_owned();
    let stream = watcher(api, config).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let mut listed = BTreeSet::new();
    let put = |object: Lenient<K>| {
        let key = Key::of(object.meta());
        let seen = understand(object, &slim);
        if objects.put(&key, seen) {
            changed(&key);
        }
        key
    };
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => return,
            event = stream.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Init)) => listed.clear(),
            Some(Ok(watcher::Event::InitApply(object))) => {
                listed.insert(put(object));
            }
            Some(Ok(watcher::Event::InitDone)) => {
                for key in objects.retain(&listed) {
                    changed(&key);
                }
                listed.clear();
                objects.complete.send_replace(true);
            }
            Some(Ok(watcher::Event::Apply(object))) => {
                put(object);
            }
            Some(Ok(watcher::Event::Delete(object))) => {
                let key = Key::of(object.meta());
                if objects.put(&key, None) {
                    changed(&key);
                }
            }
            Some(Err(error)) => {
                let error = clusters::explain(&error);
                tracing::warn!(%kind, %error, "the watch was interrupted; it is taken up again")
            }
            None => return,
        }
    }
}

fn understand<K, T>(object: Lenient<K>, slim: impl Fn(K) -> Option<T>) -> Option<Seen<T>> {
    match object.0 {
        Ok(object) => slim(object).map(|object| Seen::Good(Arc::new(object))),
        Err(invalid) => Some(Seen::Malformed(Arc::new(Malformed {
            uid: invalid.metadata.uid.unwrap_or_default(),
            error: invalid.error,
            deleted: (invalid.metadata.deletion_timestamp.as_ref()).map(|at| created(Some(at))),
            finalizers: invalid.metadata.finalizers.unwrap_or_default(),
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(value: u8) -> Option<Seen<u8>> {
        Some(Seen::Good(Arc::new(value)))
    }

    #[test]
    fn only_changes_are_told_and_a_list_removes_what_it_lacks() {
        let objects = Objects::new();
        let (a, b) = (Key::new("ns", "a"), Key::new("other", "b"));
        assert!(objects.put(&a, good(1)));
        assert!(!objects.put(&a, good(1)));
        assert!(objects.put(&a, good(2)));
        assert!(objects.put(&b, good(3)));
        assert_eq!(objects.keys_in("ns"), std::slice::from_ref(&a));
        assert_eq!(objects.count(), None, "there may be more");
        objects.complete();
        assert_eq!(objects.count(), Some(2));
        assert_eq!(
            objects.retain(&BTreeSet::from([b.clone()])),
            std::slice::from_ref(&a)
        );
        assert_eq!(objects.get(&a), None);
        assert_eq!(objects.get(&b), Some(Arc::new(3)));
        assert!(!objects.put(&a, None));
        assert!(objects.put(&b, None));
    }

    #[test]
    fn an_answer_that_comes_late_brings_back_neither_what_is_gone_nor_what_was_before() {
        let objects = Objects::new();
        let key = Key::new("", "a");
        let later = |one: &u8, other: &u8| one > other;
        objects.update(&key, 1, later);
        assert_eq!(objects.get(&key), None, "gone");
        objects.put(&key, good(2));
        objects.update(&key, 1, later);
        assert_eq!(objects.get(&key), Some(Arc::new(2)));
        objects.update(&key, 3, later);
        assert_eq!(objects.get(&key), Some(Arc::new(3)));
    }
}
