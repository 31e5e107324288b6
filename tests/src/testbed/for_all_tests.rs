//! What takes long to start, for all tests of a process.

use anyhow::Result;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

/// Is started by the first test that takes it; the tests have it one after another, and each cleans up what the one before left.
///
/// Nothing drops a `static`: its processes end with the test process, and the next one sweeps its directories. It holds
/// nothing that belongs to a runtime, as clients do, since each test has a runtime of its own.
pub struct ForAllTests<T>(Mutex<Option<T>>);

impl<T> ForAllTests<T> {
    pub const fn new() -> Self {
        Self(Mutex::const_new(None))
    }

    /// Waits until no other test has it.
    pub async fn take(
        &self,
        start: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<MappedMutexGuard<'_, T>> {
        let mut place = self.0.lock().await;
        if place.is_none() {
            *place = Some(start().await?);
        }
        MutexGuard::try_map(place, Option::as_mut)
            .map_err(|_| anyhow::anyhow!("it was not started"))
    }
}

impl<T> Default for ForAllTests<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_first_starts_it_and_a_failed_start_is_repeated() {
        let shared = ForAllTests::new();
        let failed = shared.take(async || anyhow::bail!("not yet")).await;
        assert!(failed.is_err());
        drop(failed);
        *shared.take(async || Ok(1)).await.unwrap() += 1;
        assert_eq!(*shared.take(async || Ok(7)).await.unwrap(), 2);
    }
}
