//! Ends in time, whatever the clock does.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fipd_core::{Allocate, Holder, LeaseState, PoolId, PoolSpec, Reserve, Timestamp, testing};

use super::*;
use crate::ipam::Writer;

/// A moment that is long for the loop and for a commit, and short for a test.
const MOMENT: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(10);

struct Site {
    ipam: Ipam,
    writer: Writer,
    clock: Arc<AtomicU64>,
    stop: CancellationToken,
    dir: tempfile::TempDir,
}

fn start(clock: &Arc<AtomicU64>, dir: tempfile::TempDir) -> Site {
    let wall = Arc::clone(clock);
    let told = Arc::new(move || Timestamp(wall.load(Ordering::Relaxed)));
    let (ipam, writer) = Ipam::start(dir.path(), told).unwrap();
    let stop = CancellationToken::new();
    let pace = Pace {
        least: Duration::from_millis(1),
        most: Duration::from_millis(10),
        retry: Duration::from_millis(10),
    };
    tokio::spawn(run(ipam.clone(), pace, stop.clone()));
    Site {
        ipam,
        writer,
        clock: Arc::clone(clock),
        stop,
        dir,
    }
}

fn holder() -> Holder {
    testing::holder("fipd/vm/lab/web", "")
}

fn ask() -> Allocate {
    testing::allocate(holder(), [testing::want(PoolId(1), None)])
}

impl Site {
    /// At 1,000 s, with one pool whose addresses cool for a minute.
    async fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_000_000));
        let site = start(&clock, tempfile::tempdir().unwrap());
        let addresses = vec!["10.0.0.1-10.0.0.9".parse().unwrap()];
        let spec = PoolSpec {
            quarantine: 60,
            ..PoolSpec::own("p", addresses)
        };
        site.done(testing::create_pool(spec)).await;
        site
    }

    async fn done(&self, request: Request) {
        self.ipam.submit(request).await.unwrap();
    }

    fn set_clock(&self, seconds: u64) {
        self.clock.store(seconds * 1_000, Ordering::Relaxed);
    }

    async fn cool(&self) {
        self.done(Request::Allocate(ask())).await;
        self.done(testing::release(holder())).await;
    }

    fn states(&self) -> Vec<LeaseState> {
        let leases = |ledger: &Ledger| ledger.pool_leases(PoolId(1), None, 99);
        let leases = self.ipam.read(leases);
        leases.iter().map(|lease| lease.state).collect()
    }

    async fn until(&self, states: &[LeaseState]) {
        let waits = async {
            while self.states() != states {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waits).await;
        assert!(came.is_ok(), "{:?}", self.states());
    }

    /// Nothing changes by itself.
    async fn stays(&self, states: &[LeaseState]) {
        tokio::time::sleep(MOMENT).await;
        assert_eq!(self.states(), states);
    }

    async fn end(self) -> tempfile::TempDir {
        self.stop.cancel();
        self.ipam.shutdown().await;
        self.writer.join();
        self.dir
    }
}

#[tokio::test]
async fn a_quarantine_and_a_reservation_end_when_their_time_has_come() {
    let site = Site::new().await;
    site.cool().await;
    site.done(Request::Reserve(Reserve {
        ask: ask(),
        until: Some(Timestamp(1_030_000)),
    }))
    .await;
    let (cools, kept) = (LeaseState::Quarantined, LeaseState::Reserved);
    site.stays(&[cools, kept]).await;
    site.set_clock(1_030);
    site.until(&[cools]).await;
    site.set_clock(1_059);
    site.stays(&[cools]).await;
    site.set_clock(1_060);
    site.until(&[]).await;
    site.end().await;
}

#[tokio::test]
async fn a_clock_set_back_delays_an_end_and_hastens_none() {
    let site = Site::new().await;
    site.cool().await;
    site.set_clock(10);
    site.stays(&[LeaseState::Quarantined]).await;
    // What cools while the clock is behind counts from the time the address book has.
    site.set_clock(1_059);
    site.stays(&[LeaseState::Quarantined]).await;
    site.set_clock(1_060);
    site.until(&[]).await;
    site.end().await;
}

#[tokio::test]
async fn a_clock_set_forward_ends_what_is_over_and_the_rest_has_its_whole_time() {
    let site = Site::new().await;
    site.cool().await;
    site.set_clock(90_000);
    site.until(&[]).await;
    site.set_clock(1_001);
    site.cool().await;
    // A minute from 90,000 s, not from the time it was set back to.
    site.set_clock(1_100);
    site.stays(&[LeaseState::Quarantined]).await;
    site.set_clock(90_059);
    site.stays(&[LeaseState::Quarantined]).await;
    site.set_clock(90_060);
    site.until(&[]).await;
    site.end().await;
}

#[tokio::test]
async fn what_ended_while_the_daemon_was_down_ends_at_the_start() {
    let site = Site::new().await;
    site.cool().await;
    let clock = Arc::clone(&site.clock);
    let dir = site.end().await;
    // Started with a clock before its time: nothing ends.
    clock.store(5_000, Ordering::Relaxed);
    let site = start(&clock, dir);
    site.stays(&[LeaseState::Quarantined]).await;
    let dir = site.end().await;
    clock.store(2_000_000, Ordering::Relaxed);
    let site = start(&clock, dir);
    site.until(&[]).await;
    site.end().await;
}
