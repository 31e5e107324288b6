//! What the daemon costs as a process: start to ready after kill -9, and resident memory.

use std::time::{Duration, Instant};

use anyhow::Result;
use fipd::store::StoreOptions;

use super::{Figure, fill, program};
use crate::testbed::{Fipd, FipdOptions};

const READY_WITHIN: Duration = Duration::from_secs(60);

/// Start and memory of an empty daemon, with 100,000 and with 1,000,000 leases, and where half of them are prefixes.
pub async fn run() -> Result<Vec<Figure>> {
    program::forget().await?;
    let idle = Fipd::start(FipdOptions::default()).await?;
    idle.wait_ready(READY_WITHIN).await?;
    let idle = megabytes(&idle)?;
    let mut figures = vec![Figure::at_most("memory-idle", "MB", idle, "-", 40.0)];
    for (leases, prefixes, name, start_limit, memory_limit) in [
        (100_000, 0, "100k", 1.0, 110.0),
        (50_000, 50_000, "100k-half-prefixes", 1.0, 110.0),
        (1_000_000, 0, "1M", 4.0, 700.0),
        (500_000, 500_000, "1M-half-prefixes", 4.0, 700.0),
    ] {
        let (start, memory) = with_leases(leases, prefixes).await?;
        let start = start.as_secs_f64();
        figures.push(Figure::at_most(
            &format!("start-{name}-after-kill"),
            "s",
            start,
            "-",
            start_limit,
        ));
        figures.push(Figure::at_most(
            &format!("memory-{name}"),
            "MB",
            memory,
            "-",
            memory_limit,
        ));
    }
    Ok(figures)
}

fn megabytes(fipd: &Fipd) -> Result<f64> {
    Ok(fipd.resident_kib()? as f64 / 1024.0)
}

/// The second start, after a write and a kill -9, to ready; and the memory then.
async fn with_leases(leases: u32, prefixes: u32) -> Result<(Duration, f64)> {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
    let store = fipd.data_dir().join("fipd.redb");
    std::fs::create_dir_all(fipd.data_dir())?;
    tokio::task::spawn_blocking(move || {
        let pools = fill::Pools::one("10.0.0.0/8")?;
        fill::fill(&store, &pools, leases, StoreOptions::default().audit_limit)?;
        fill::add(&store, &fill::PREFIXES, prefixes)
    })
    .await??;
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    let owner = [
        "lease",
        "allocate",
        "--pool",
        "bench",
        "--owner",
        "fipd/vm/bench/last",
    ];
    fipd.cli(owner).await?.success()?;
    fipd.kill9()?;
    let start = Instant::now();
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    Ok((start.elapsed(), megabytes(&fipd)?))
}
