//! What is known of the objects of one kind in one cluster: a watch, a complete first list, and a store that
//! keeps only what a controller needs. An object that cannot be understood is kept as such and stalls nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fipd_core::Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, runtime::watcher};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use super::key::Key;
use crate::{
    clusters::{
        self,
        answers::Unbounded,
        lenient::Lenient,
        memory::{Charge, Memory, OverBudget, weight},
        watch::Watch,
    },
    controller::{
        kind::Kind,
        meta::{Meta, View, trim, version_number},
    },
};

/// An object as it is known.
#[derive(Debug, PartialEq, Eq)]
pub enum Observed<T> {
    Parsed(Arc<T>),
    /// It does not fit its own schema.
    Malformed(Arc<Malformed>),
}

/// What can be said of an object that does not fit its schema.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub meta: Meta,
    pub annotations: BTreeMap<String, String>,
    pub error: String,
}

/// The store of one kind. Cheap to share.
pub struct Objects<T> {
    map: RwLock<BTreeMap<Key, Observed<T>>>,
    /// What the objects weigh, charged to the memory of the cluster they are followed on.
    charge: Mutex<Charge>,
    complete: watch::Sender<bool>,
    /// The latest version that the last list and the watch since then have shown of any of them.
    shown: AtomicU64,
    /// How many complete lists were seen.
    lists: AtomicU64,
    /// The kind, in the API version in which the cluster serves it.
    followed_as: RwLock<Option<Kind>>,
}

/// Reason of the Event of an object that does not fit its schema.
pub const MALFORMED: &str = "Malformed";

impl Malformed {
    /// What the Event says.
    pub fn note(&self) -> String {
        format!(
            "the object does not fit its schema ({}); what was in force stays",
            self.error
        )
    }
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Parsed(object) => Self::Parsed(Arc::clone(object)),
            Self::Malformed(object) => Self::Malformed(Arc::clone(object)),
        }
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self {
            map: RwLock::new(BTreeMap::new()),
            charge: Mutex::new(Memory::default().charge()),
            complete: watch::Sender::new(false),
            shown: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            followed_as: RwLock::default(),
        }
    }
}

impl<T: View> Objects<T> {
    /// Keeps the object as an answer to a write shows it, where nothing is known that is later or cannot be compared.
    pub fn keep(&self, key: &Key, after: T) {
        self.update(key, after, |one, other| one.meta().is_after(&other.meta()));
    }

    /// The same of an object that fipd has just made, of which the watch may not know yet. Where the watch has come further, or a
    /// list is complete that was not when fipd began to make it, `lists` of them being so then, it is gone again.
    pub fn keep_made(&self, key: &Key, made: T, lists: u64) {
        let version = version_number(&made.meta().version);
        let mut map = self.map.write();
        if map.contains_key(key) {
            drop(map);
            return self.keep(key, made);
        }
        let is_new = version.is_some_and(|version| version > self.shown.load(Ordering::Relaxed));
        if is_new && self.lists() == lists {
            // Where there is no memory the watch reports that.
            let _ = self.replace(&mut map, key, Some(Observed::Parsed(Arc::new(made))));
        }
    }

    /// Drops the object with this UID, which is deleted, unless another of its name is known by now.
    pub fn drop_deleted(&self, key: &Key, uid: &str) {
        let mut map = self.map.write();
        let same = |seen: &Observed<T>| matches!(seen, Observed::Parsed(object) if *object.meta().uid == *uid);
        if map.get(key).is_some_and(same) {
            // Less is never refused.
            let _ = self.replace(&mut map, key, None);
        }
    }
}

impl<T: PartialEq + Debug> Objects<T> {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The kind, in the API version in which its objects are followed.
    pub fn followed_as(&self) -> Option<Kind> {
        *self.followed_as.read()
    }

    pub fn follow_as(&self, kind: Kind) {
        *self.followed_as.write() = Some(kind);
    }

    pub fn seen(&self, key: &Key) -> Option<Observed<T>> {
        self.map.read().get(key).cloned()
    }

    /// The object, if it is there and well-formed.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        match self.map.read().get(key) {
            Some(Observed::Parsed(object)) => Some(Arc::clone(object)),
            Some(Observed::Malformed(_)) | None => None,
        }
    }

    /// All well-formed objects, by key.
    pub fn all(&self) -> Vec<(Key, Arc<T>)> {
        self.chosen(|seen| match seen {
            Observed::Parsed(object) => Some(Arc::clone(object)),
            Observed::Malformed(_) => None,
        })
    }

    /// The same without their keys.
    pub fn values(&self) -> Vec<Arc<T>> {
        let all = self.all().into_iter();
        all.map(|(_, object)| object).collect()
    }

    /// Those that cannot be understood, by key.
    pub fn malformed(&self) -> Vec<(Key, Arc<Malformed>)> {
        self.chosen(|seen| match seen {
            Observed::Malformed(object) => Some(Arc::clone(object)),
            Observed::Parsed(_) => None,
        })
    }

    fn chosen<R>(&self, choose: impl Fn(&Observed<T>) -> Option<R>) -> Vec<(Key, R)> {
        let map = self.map.read();
        let chosen = map
            .iter()
            .filter_map(|(key, seen)| choose(seen).map(|one| (key.clone(), one)));
        chosen.collect()
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

    /// How many complete lists were seen.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// Waits for the first complete list.
    pub async fn completed(&self) {
        let mut complete = self.complete.subscribe();
        // The sender lives in self: it cannot go away while this waits.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    /// Notes how far the watch has come, before what it shows; the version.
    fn note_shown(&self, meta: &ObjectMeta) -> u64 {
        let version = meta.resource_version.as_deref().and_then(version_number);
        let version = version.unwrap_or_default();
        self.shown.fetch_max(version, Ordering::Relaxed);
        version
    }

    /// Charges what is kept to the memory of a cluster from now on.
    fn charge_to(&self, memory: &Memory) -> Result<(), OverBudget> {
        let map = self.map.read();
        let mut charge = memory.charge();
        charge.set(map.iter().map(|(key, seen)| weight_of(key, seen)).sum())?;
        *self.charge.lock() = charge;
        Ok(())
    }

    /// Who wrote the object need not wait for the watch.
    pub fn set(&self, key: &Key, object: T) {
        // Where there is no memory the watch reports that.
        let _ = self.put(key, Some(Observed::Parsed(Arc::new(object))));
    }

    /// The same of what was there before: where the watch told meanwhile that it is gone, or of a later one, that counts.
    pub fn update(&self, key: &Key, object: T, is_later: impl Fn(&T, &T) -> bool) {
        let mut map = self.map.write();
        match map.get(key) {
            None => {}
            Some(Observed::Parsed(before)) if is_later(before, &object) => {}
            // Where there is no memory the watch reports that.
            Some(_) => drop(self.replace(&mut map, key, Some(Observed::Parsed(Arc::new(object))))),
        }
    }

    /// Shows in `other`, with the key `at`, what `part` takes of the object with this key; whether that is another than before.
    /// What both keep is charged here alone, and nobody else writes there.
    pub fn show_in<U: PartialEq>(
        &self,
        key: &Key,
        (other, at): (&Objects<U>, &Key),
        part: impl Fn(&T) -> Option<Arc<U>>,
    ) -> bool {
        let seen = match self.seen(key) {
            Some(Observed::Parsed(object)) => part(&object).map(Observed::Parsed),
            Some(Observed::Malformed(object)) => Some(Observed::Malformed(object)),
            None => None,
        };
        let mut map = other.map.write();
        if map.get(at) == seen.as_ref() {
            return false;
        }
        match seen {
            Some(seen) => drop(map.insert(at.clone(), seen)),
            None => drop(map.remove(at)),
        }
        true
    }

    #[cfg(test)]
    pub fn remove(&self, key: &Key) {
        let _ = self.put(key, None);
    }

    /// What is known counts as a complete list.
    pub fn complete(&self) {
        self.complete.send_replace(true);
    }

    /// Whether something changed; nothing where there is no memory for it.
    pub(crate) fn put(&self, key: &Key, seen: Option<Observed<T>>) -> Result<bool, OverBudget> {
        let mut map = self.map.write();
        if map.get(key) == seen.as_ref() {
            return Ok(false);
        }
        self.replace(&mut map, key, seen)?;
        Ok(true)
    }

    fn replace(
        &self,
        map: &mut BTreeMap<Key, Observed<T>>,
        key: &Key,
        seen: Option<Observed<T>>,
    ) -> Result<(), OverBudget> {
        let weight = |seen: Option<&Observed<T>>| seen.map_or(0, |seen| weight_of(key, seen));
        let (before, after) = (weight(map.get(key)), weight(seen.as_ref()));
        self.charge.lock().change(before, after)?;
        match seen {
            Some(seen) => drop(map.insert(key.clone(), seen)),
            None => drop(map.remove(key)),
        }
        Ok(())
    }

    /// Removes what a complete list did not contain; the keys removed.
    fn retain(&self, listed: &BTreeSet<Key>) -> Vec<Key> {
        let mut map = self.map.write();
        self.lists.fetch_add(1, Ordering::Relaxed);
        let gone: Vec<Key> = map
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        for key in &gone {
            // Less is never refused.
            let _ = self.replace(&mut map, key, None);
        }
        gone
    }
}

fn weight_of<T: Debug>(key: &Key, seen: &Observed<T>) -> usize {
    2 * weight(key) + weight(seen)
}

/// Follows the objects of a kind that `config` selects until cancelled. `view` makes what is stored of an object (`None`:
/// nothing, as if it were not there); `changed` is told the key of everything that appeared, changed or went. Where there is no
/// memory for them, the store stays as it is, and all is listed again later.
pub async fn follow<K, T>(
    api: Api<Lenient<K>>,
    config: watcher::Config,
    objects: Arc<Objects<T>>,
    view: impl Fn(K) -> Option<T>,
    changed: impl Fn(&Key),
    memory: Memory,
    cancel: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq + Debug,
{
    let kind = K::kind(&()).into_owned();
    let mut follower = Follower {
        objects,
        view,
        changed,
        listed: BTreeSet::new(),
        latest: 0,
        listing: memory.charge(),
        _kind: PhantomData,
    };
    if let Err(error) = follower.objects.charge_to(&memory) {
        tracing::warn!(%kind, %error, "the objects that are known are not charged to their cluster");
    }
    let mut watch = Watch::new(api, config);
    let mut reported = String::new();
    let mut refused: Option<Text> = None;
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => return,
            event = watch.next() => event,
        };
        let is_complete = matches!(event, Ok(watcher::Event::InitDone));
        let error = match event {
            Ok(event) => match follower.take(event) {
                Ok(()) => {
                    reported.clear();
                    if let Some(refused) = refused.take_if(|_| is_complete) {
                        memory.overcame(&refused);
                    }
                    continue;
                }
                Err(error) => {
                    memory.refused(format!("{kind}: {error}"));
                    follower.forget_list();
                    watch.restart();
                    error.to_string()
                }
            },
            Err(error) => {
                refused = Unbounded::of(&error).and_then(|_| memory.trouble());
                clusters::explain(&error)
            }
        };
        // Said once, however often it fails in the same way.
        if reported != error {
            tracing::warn!(%kind, %error, "the watch was interrupted; it is taken up again");
            reported = error;
        }
    }
}

/// Takes the events of a watch into a store.
struct Follower<K, T, S, C> {
    objects: Arc<Objects<T>>,
    view: S,
    changed: C,
    /// The keys of a list that is not complete yet, of which something is kept.
    listed: BTreeSet<Key>,
    /// The latest version in it.
    latest: u64,
    listing: Charge,
    _kind: PhantomData<fn(K)>,
}

impl<K, T, S, C> Follower<K, T, S, C>
where
    K: Resource<DynamicType = ()>,
    T: PartialEq + Debug,
    S: Fn(K) -> Option<T>,
    C: Fn(&Key),
{
    fn take(&mut self, event: watcher::Event<Lenient<K>>) -> Result<(), OverBudget> {
        if let watcher::Event::InitApply(object)
        | watcher::Event::Apply(object)
        | watcher::Event::Delete(object) = &event
        {
            self.latest = self.latest.max(self.objects.note_shown(object.meta()));
        }
        match event {
            watcher::Event::Init => self.forget_list(),
            watcher::Event::InitApply(object) => {
                let (key, seen) = (Key::of(object.meta()), understand(object, &self.view));
                let is_kept = seen.is_some();
                self.put(&key, seen)?;
                // Most pods of a cluster may be nobody's.
                if is_kept {
                    self.listing.add(weight(&key))?;
                    self.listed.insert(key);
                }
            }
            watcher::Event::InitDone => {
                for key in self.objects.retain(&self.listed) {
                    (self.changed)(&key);
                }
                // An API server that was taken back to a backup counts its versions anew.
                self.objects.shown.store(self.latest, Ordering::Relaxed);
                self.forget_list();
                self.objects.complete.send_replace(true);
            }
            watcher::Event::Apply(object) => {
                let key = Key::of(object.meta());
                self.put(&key, understand(object, &self.view))?;
            }
            watcher::Event::Delete(object) => self.put(&Key::of(object.meta()), None)?,
        }
        Ok(())
    }

    fn put(&self, key: &Key, seen: Option<Observed<T>>) -> Result<(), OverBudget> {
        if self.objects.put(key, seen)? {
            (self.changed)(key);
        }
        Ok(())
    }

    fn forget_list(&mut self) {
        self.listed.clear();
        self.latest = 0;
        // Less is never refused.
        let _ = self.listing.set(0);
    }
}

fn understand<K, T>(object: Lenient<K>, view: impl Fn(K) -> Option<T>) -> Option<Observed<T>> {
    match object.0 {
        Ok(object) => view(object).map(|object| Observed::Parsed(Arc::new(object))),
        Err(mut invalid) => {
            trim(&mut invalid.metadata);
            Some(Observed::Malformed(Arc::new(Malformed {
                meta: Meta::of(&invalid.metadata),
                annotations: invalid.metadata.annotations.unwrap_or_default(),
                error: invalid.error,
            })))
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::controller::meta::ObjectView;

    fn good(value: u8) -> Option<Observed<u8>> {
        Some(Observed::Parsed(Arc::new(value)))
    }

    #[test]
    fn only_changes_are_told_and_a_list_removes_what_it_lacks() {
        let objects = Objects::new();
        let (a, b) = (Key::new("ns", "a"), Key::new("other", "b"));
        assert!(objects.put(&a, good(1)).unwrap());
        assert!(!objects.put(&a, good(1)).unwrap());
        assert!(objects.put(&a, good(2)).unwrap());
        assert!(objects.put(&b, good(3)).unwrap());
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
        assert!(!objects.put(&a, None).unwrap());
        assert!(objects.put(&b, None).unwrap());
    }

    #[test]
    fn an_answer_that_comes_late_brings_back_neither_what_is_gone_nor_what_was_before() {
        let objects = Objects::new();
        let key = Key::new("", "a");
        let later = |one: &u8, other: &u8| one > other;
        objects.update(&key, 1, later);
        assert_eq!(objects.get(&key), None, "gone");
        objects.put(&key, good(2)).unwrap();
        objects.update(&key, 1, later);
        assert_eq!(objects.get(&key), Some(Arc::new(2)));
        objects.update(&key, 3, later);
        assert_eq!(objects.get(&key), Some(Arc::new(3)));
    }

    #[test]
    fn what_fipd_made_is_kept_until_the_watch_knows_better() {
        let key = Key::new("ns", "a");
        let made = |version: &str| ObjectView::<(), ()> {
            meta: Meta {
                uid: "u".into(),
                version: version.into(),
                ..Meta::default()
            },
            ..ObjectView::default()
        };
        for (shown, version, is_kept) in [
            ("9", "10", true),
            ("10", "10", false),
            ("12", "10", false),
            ("9", "x", false),
        ] {
            let objects = Objects::new();
            objects.note_shown(&ObjectMeta {
                resource_version: Some(shown.into()),
                ..ObjectMeta::default()
            });
            objects.keep_made(&key, made(version), objects.lists());
            assert_eq!(objects.get(&key).is_some(), is_kept, "{shown} {version}");
        }
        let objects = Objects::new();
        let before = objects.lists();
        objects.retain(&BTreeSet::new());
        objects.keep_made(&key, made("10"), before);
        assert!(
            objects.get(&key).is_none(),
            "it was listed and is not there"
        );
        let objects = Objects::new();
        for (version, known) in [("10", "10"), ("9", "10"), ("11", "11")] {
            objects.keep_made(&key, made(version), objects.lists());
            assert_eq!(objects.get(&key).unwrap().meta.version, known);
        }
    }

    #[test]
    fn what_fipd_makes_is_kept_also_once_the_api_server_is_taken_back_to_a_backup() {
        let view = |secret: Secret| {
            Some(ObjectView::<(), ()> {
                meta: Meta::of(&secret.metadata),
                ..ObjectView::default()
            })
        };
        let secret = |name: &str, version: &str| {
            let mut secret = Secret::default();
            secret.metadata.name = Some(name.into());
            secret.metadata.resource_version = Some(version.into());
            Lenient(Ok(secret))
        };
        let mut follower = Follower {
            objects: Objects::new(),
            view,
            changed: |_: &Key| {},
            listed: BTreeSet::new(),
            latest: 0,
            listing: Memory::default().charge(),
            _kind: PhantomData::<fn(Secret)>,
        };
        let objects = Arc::clone(&follower.objects);
        let keeps = |name: &str, version: &str| {
            let key = Key::new("", name);
            let made = view(secret(name, version).0.expect("a Secret")).expect("a view");
            objects.keep_made(&key, made, objects.lists());
            objects.get(&key).is_some()
        };
        for (listed, is_kept) in [("900", false), ("7", true)] {
            follower.take(watcher::Event::Init).unwrap();
            let one = watcher::Event::InitApply(secret("listed", listed));
            follower.take(one).unwrap();
            follower.take(watcher::Event::InitDone).unwrap();
            assert_eq!(keeps("made", "8"), is_kept, "{listed}");
        }
        let later = watcher::Event::Apply(secret("listed", "12"));
        follower.take(later).unwrap();
        assert!(!keeps("other", "11"), "the watch has come further");
    }

    #[test]
    fn a_part_is_shown_elsewhere_and_goes_with_the_whole() {
        let (whole, part) = (Objects::new(), Objects::new());
        let (key, at) = (Key::new("ns", "a"), Key::new("ns", "a.x"));
        let show = || {
            whole.show_in(&key, (&part, &at), |one: &u8| {
                (*one > 1).then(|| Arc::new(one / 2))
            })
        };
        for (value, is_news, shown) in [
            (Some(1), false, None),
            (Some(4), true, Some(2)),
            (Some(5), false, Some(2)),
            (None, true, None),
            (None, false, None),
        ] {
            whole.put(&key, value.and_then(good)).unwrap();
            assert_eq!((show(), part.get(&at)), (is_news, shown.map(Arc::new)));
        }
    }

    #[test]
    fn what_is_kept_is_charged_and_given_back() {
        let memory = Memory::default();
        let objects = Objects::new();
        objects.charge_to(&memory).unwrap();
        let key = Key::new("ns", "a");
        let text = |length: usize| Some(Observed::Parsed(Arc::new("x".repeat(length))));
        objects.put(&key, text(6 << 20)).unwrap();
        // Another hog has all that can be borrowed.
        let mut charges = Vec::new();
        while let Some(charge) = more(&memory) {
            charges.push(charge);
        }
        assert_eq!(
            objects.put(&Key::new("ns", "b"), text(2 << 20)),
            Err(OverBudget)
        );
        assert_eq!(objects.keys(), std::slice::from_ref(&key), "as it was");
        assert!(objects.put(&key, None).unwrap());
        objects.put(&Key::new("ns", "b"), text(2 << 20)).unwrap();
    }

    fn more(memory: &Memory) -> Option<Charge> {
        let mut charge = memory.charge();
        charge.set(1 << 20).ok().map(|()| charge)
    }
}
