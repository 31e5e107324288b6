//! Once an hour, nothing while idle, and nothing twice after a kill.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fipd_core::{Forecast, PoolId, Timestamp, testing};

use super::*;
use crate::{ipam::Writer, store::HistoryAsk};

const POOL: PoolId = PoolId(1);

fn start(clock: &Arc<AtomicU64>, dir: &std::path::Path) -> (Ipam, Writer) {
    let wall = Arc::clone(clock);
    let told = Arc::new(move || Timestamp(wall.load(Ordering::Relaxed)));
    Ipam::start(dir, told).unwrap()
}

fn set(clock: &AtomicU64, hour: u32) {
    clock.store(Hour(hour).begin().0, Ordering::Relaxed);
}

async fn allocate(ipam: &Ipam, number: u32) {
    let ask = testing::allocate(
        testing::holder(format!("fipd/vm/lab/web-{number}"), ""),
        [testing::want(POOL, None)],
    );
    ipam.submit(Request::Allocate(ask)).await.unwrap();
}

fn hours(ipam: &Ipam) -> Vec<(u32, u64, u64)> {
    let ask = HistoryAsk {
        pool: POOL,
        from: Hour(0),
        to: Hour(u32::MAX),
        daily: false,
        limit: 100,
    };
    let (rows, _) = ipam.reader().history(ask).unwrap();
    let figures = rows.iter().map(|row| (row.hour.0, row.used, row.given));
    figures.collect()
}

#[tokio::test]
async fn an_hour_is_noted_once_and_an_idle_one_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    set(&clock, 1_000);
    let (ipam, writer) = start(&clock, dir.path());
    let spec = testing::pool_spec("p", &["10.0.0.0/24"]);
    let create = testing::create_pool(spec);
    ipam.submit(create).await.unwrap();
    assert_eq!(roll_up(&ipam).await, Ok(1), "how it began");
    let commits = ipam.reader().stats().commits;
    for hour in 1_001..1_030 {
        set(&clock, hour);
        assert_eq!(roll_up(&ipam).await, Ok(0));
    }
    assert_eq!(
        ipam.reader().stats().commits,
        commits,
        "a write for nothing"
    );
    allocate(&ipam, 1).await;
    set(&clock, 1_031);
    assert_eq!(roll_up(&ipam).await, Ok(1));
    assert_eq!(roll_up(&ipam).await, Ok(0));
    allocate(&ipam, 2).await;
    // No shutdown: what was decided is in the file, what was counted is gone.
    ipam.shutdown().await;
    writer.join();
    set(&clock, 900);
    let (ipam, writer) = start(&clock, dir.path());
    assert_eq!(roll_up(&ipam).await, Ok(0), "the clock was set back");
    set(&clock, 1_032);
    assert_eq!(roll_up(&ipam).await, Ok(1));
    assert_eq!(hours(&ipam), [(999, 0, 0), (1_030, 1, 1), (1_031, 2, 0)]);
    let forecast = ipam.read(|ledger| ledger.forecast(POOL, ipam.now()));
    assert!(
        matches!(forecast, Forecast::FullIn { hours: 1.. }),
        "{forecast:?}"
    );
    ipam.shutdown().await;
    writer.join();
}

#[test]
fn the_timer_goes_off_once_an_hour() {
    let begin = Hour(7).begin();
    assert_eq!(until_next(begin), HOUR + SLACK);
    assert_eq!(
        until_next(Timestamp(begin.0 + 3_599_999)),
        Duration::from_millis(1) + SLACK
    );
    assert!(until_next(Timestamp(u64::MAX)) <= HOUR + SLACK);
}

#[tokio::test(start_paused = true)]
async fn hours_come_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    set(&clock, 50);
    let (ipam, writer) = start(&clock, dir.path());
    let spec = testing::pool_spec("p", &["10.0.0.0/24"]);
    let create = testing::create_pool(spec);
    ipam.submit(create).await.unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(ipam.clone(), stop.clone()));
    for number in 0..3 {
        while hours(&ipam).len() <= number as usize {
            // The answer comes from a thread that this clock does not move.
            std::thread::yield_now();
            tokio::time::advance(HOUR).await;
        }
        allocate(&ipam, number).await;
        set(&clock, 51 + number);
    }
    stop.cancel();
    task.await.unwrap();
    let noted: Vec<_> = hours(&ipam).iter().map(|row| row.0).collect();
    assert!(noted.starts_with(&[49, 50, 51]), "{noted:?}");
    ipam.shutdown().await;
    writer.join();
}
