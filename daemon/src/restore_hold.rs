//! Counts the time that fipd runs against a hold after a restore, of all networks or of some.
//!
//! The time of a running process, not of the wall clock: a clock that is set must not end the hold. What is counted is
//! made durable every minute, so an end of the daemon only makes the hold longer.

use std::{future::Future, time::Duration};

use fipd_core::{Ledger, Request};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ipam::{Ipam, IpamError};

/// How often what has passed is made durable.
pub const PACE: Duration = Duration::from_secs(60);

/// Works until it is told to stop. The hold of a network may begin at any time.
pub fn run(ipam: Ipam, pace: Duration, stop: CancellationToken) -> impl Future<Output = ()> + Send {
    if let Some(hold) = ipam.read(Ledger::restore_hold) {
        tracing::warn!(
            until = %hold.until,
            "the store was restored from a backup or is older than a cluster knows: free addresses are given to nobody new until about then"
        );
    }
    async move {
        if stop.run_until_cancelled(count(&ipam, pace)).await.is_some() {
            stop.cancelled().await;
        }
    }
}

async fn count(ipam: &Ipam, pace: Duration) {
    let mut counted = Instant::now();
    let mut held = ipam.read(Ledger::restore_hold).is_some();
    loop {
        tokio::time::sleep(pace).await;
        let now = Instant::now();
        // One that began meanwhile counts from here on.
        let before = std::mem::replace(&mut held, ipam.read(Ledger::restore_hold).is_some());
        if !(before && held) {
            counted = now;
            continue;
        }
        let elapsed = now.duration_since(counted).as_millis();
        let request = Request::PassHold {
            elapsed: u64::try_from(elapsed).unwrap_or(u64::MAX),
            actor: "fipd".into(),
        };
        match ipam.submit(request).await {
            Ok(_) => counted = now,
            Err(IpamError::Stopping) => return,
            Err(error) => tracing::error!(%error, "the hold after the restore goes on for longer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fipd_core::Timestamp;

    use super::*;
    use crate::{
        clock,
        ipam::DATABASE,
        store::{Restore, Store, StoreOptions},
    };

    /// A store that was restored a moment ago.
    fn restored(dir: &std::path::Path) {
        let file = dir.join(DATABASE);
        let (store, _) = Store::open(&file, StoreOptions::default()).unwrap();
        store.reader().backup(&dir.join("backup")).unwrap();
        drop(store);
        let restore = Restore {
            backup: &dir.join("backup"),
            store: &file,
            no_hold: None,
            actor: "test".into(),
            now: clock::now(),
            host: None,
        };
        restore.run().unwrap();
    }

    #[tokio::test]
    async fn the_time_of_the_process_counts_and_not_that_of_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        restored(dir.path());
        let year = 365 * 86_400_000;
        let ahead = Arc::new(move || Timestamp(clock::now().0 + year));
        let (ipam, _writer) = Ipam::start(dir.path(), ahead).unwrap();
        let left = || ipam.read(Ledger::restore_hold).map(|hold| hold.left);
        let whole = left().unwrap();
        let stop = CancellationToken::new();
        let pace = Duration::from_millis(20);
        let keeper = tokio::spawn(run(ipam.clone(), pace, stop.clone()));
        let began = Instant::now();
        let mut revisions = ipam.revisions();
        for _ in 0..5 {
            revisions.changed().await.unwrap();
        }
        let counted = u128::from(whole - left().unwrap());
        assert!(
            (100..=began.elapsed().as_millis() + 20).contains(&counted),
            "{counted}"
        );
        let lift = Request::LiftHold {
            reason: "it is known".into(),
            actor: "test".into(),
        };
        ipam.submit(lift).await.unwrap();
        assert_eq!(left(), None);
        assert!(!keeper.is_finished(), "the end of a hold ends no daemon");
        stop.cancel();
        keeper.await.unwrap();
        ipam.shutdown().await;
        let (again, _writer) = Ipam::start(dir.path(), Arc::new(clock::now)).unwrap();
        assert_eq!(again.read(Ledger::restore_hold), None);
    }
}
