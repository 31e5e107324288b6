//! What is missing counts as gone only when a second look, a minute after the first, finds it missing too.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

pub use crate::clusters::absence::RECHECK_AFTER;

/// Since when each is missing.
pub struct AbsenceCheck<K>(Mutex<BTreeMap<K, Instant>>);

impl<K> Default for AbsenceCheck<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> AbsenceCheck<K> {
    /// It is missing: how long it is to be waited until the look that counts; `None`: this is it.
    pub fn missing(&self, key: &K) -> Option<Duration> {
        let now = Instant::now();
        let since = *self.0.lock().entry(key.clone()).or_insert(now);
        Some(RECHECK_AFTER.saturating_sub(now - since)).filter(|left| !left.is_zero())
    }

    /// Looks again by `read`, which is no cache: how long to wait until the look that counts; `None`: this was it.
    pub async fn confirm<T, E>(
        &self,
        key: &K,
        read: impl Future<Output = Result<Option<T>, E>>,
    ) -> Result<Option<Duration>, E> {
        let found = read.await?.is_some();
        if !found && let Some(left) = self.missing(key) {
            return Ok(Some(left));
        }
        self.forget(key);
        // Where the object is there the watch is behind.
        Ok(found.then_some(RECHECK_AFTER))
    }

    /// It is there, or nobody waits for it.
    pub fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_missing_twice_without_a_pause_is_gone() {
        let looks = AbsenceCheck::default();
        assert_eq!(looks.missing(&"a"), Some(RECHECK_AFTER));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(looks.missing(&"a"), Some(Duration::from_secs(1)));
        looks.forget(&"a");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(
            looks.missing(&"a"),
            Some(RECHECK_AFTER),
            "it was there in between"
        );
        tokio::time::advance(RECHECK_AFTER).await;
        assert_eq!(looks.missing(&"a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_read_decides_what_is_missing() {
        let looks = AbsenceCheck::default();
        let look = async |read: Result<Option<()>, &'static str>| {
            looks.confirm(&"a", std::future::ready(read)).await
        };
        assert_eq!(look(Ok(None)).await, Ok(Some(RECHECK_AFTER)));
        tokio::time::advance(RECHECK_AFTER).await;
        assert_eq!(look(Err("no answer")).await, Err("no answer"));
        assert_eq!(look(Ok(Some(()))).await, Ok(Some(RECHECK_AFTER)));
        assert_eq!(
            look(Ok(None)).await,
            Ok(Some(RECHECK_AFTER)),
            "it was there"
        );
        tokio::time::advance(RECHECK_AFTER).await;
        assert_eq!(look(Ok(None)).await, Ok(None));
        assert_eq!(look(Ok(None)).await, Ok(Some(RECHECK_AFTER)), "anew");
    }
}
