//! One at a time of those who work on the same object, whichever controllers they are.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::store::Key;

/// A lock for each key. Those that nobody holds or waits for are not kept.
#[derive(Default)]
pub struct KeyLocks(Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>>);

/// The lock of a key, until it is dropped.
pub struct KeyLock<'a> {
    locks: &'a KeyLocks,
    key: Key,
    held: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    /// Waits for the others.
    pub async fn lock(&self, key: &Key) -> KeyLock<'_> {
        let mutex = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        // Made first, so that who gives up waiting leaves nothing behind.
        let mut lock = KeyLock {
            locks: self,
            key: key.clone(),
            held: None,
        };
        lock.held = Some(mutex.lock_owned().await);
        lock
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut locks = self.locks.0.lock();
        // Whoever holds it or waits for it has it as well.
        let unused = |mutex: &Arc<_>| Arc::strong_count(mutex) == 1;
        if locks.get(&self.key).is_some_and(unused) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn one_holds_a_key_and_nothing_is_left_of_those_who_wait_or_are_done() {
        let locks = KeyLocks::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let held = locks.lock(&a).await;
        let other = timeout(SOON, locks.lock(&b)).await;
        assert!(other.is_ok(), "another key");
        drop(other);
        assert!(timeout(SOON, locks.lock(&a)).await.is_err());
        assert_eq!(locks.0.lock().len(), 1, "it is still held");
        drop(held);
        assert_eq!(locks.0.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_next_and_who_gives_up_leaves_nothing() {
        let locks = KeyLocks::default();
        let a = Key::new("ns", "a");
        let held = locks.lock(&a).await;
        let mut waits = Box::pin(locks.lock(&a));
        assert!(timeout(SOON, &mut waits).await.is_err());
        drop(held);
        assert_eq!(locks.0.lock().len(), 1, "somebody waits for it");
        drop(waits);
        assert_eq!(locks.0.lock().len(), 0);
        drop(timeout(SOON, locks.lock(&a)).await.expect("the lock"));
        assert_eq!(locks.0.lock().len(), 0);
    }
}
