//! Whose turn it is, and what was read while others waited.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Lock<T> = Arc<tokio::sync::Mutex<Option<Reading<T>>>>;

/// One at a time, of those with the same key.
#[derive(Clone)]
pub struct Turns<T>(Arc<Mutex<BTreeMap<TurnKey, Lock<T>>>>);

/// A management cluster, and what is of it.
pub type TurnKey = (Text, String);

/// What was read.
pub struct Reading<T> {
    /// When it was asked for.
    pub at: Instant,
    pub what: T,
}

/// The right to go on while others wait.
pub struct Turn<T> {
    passed: OwnedMutexGuard<Option<Reading<T>>>,
    /// When it was asked for.
    since: Instant,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Turns<T> {
    /// Waits until those before are done.
    pub async fn next(&self, key: TurnKey) -> Turn<T> {
        let since = Instant::now();
        let lock = Arc::clone(self.0.lock().entry(key).or_default());
        Turn {
            passed: lock.lock_owned().await,
            since,
        }
    }
}

impl<T> Turn<T> {
    /// What the call before this one passed on. It is as good as reading anew only where this one was there by then.
    pub fn take(&mut self) -> Option<Reading<T>> {
        self.passed
            .take()
            .filter(|reading| reading.at >= self.since)
    }

    /// Leaves to those who wait what was read. Whoever changed it and is not sure of each write must not.
    pub fn pass_on(&mut self, reading: Reading<T>) {
        // Each who waits has the lock in its hands, as this one and the table have.
        let awaited = Arc::strong_count(OwnedMutexGuard::mutex(&self.passed)) > 2;
        *self.passed = awaited.then_some(reading);
    }
}
