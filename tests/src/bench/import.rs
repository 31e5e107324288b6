//! A file of leases, from the command line to the answer that says what became of each row.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Figure, fill, percentile};
use crate::testbed::{Fipd, FipdOptions};

const ROWS: u32 = 10_000;
const FILES: u8 = 5;
/// Above the addresses of a million leases.
const FIRST: u8 = 100;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// 10,000 rows beside those of the files before, in an empty address book and in one with a million leases.
pub async fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, leases) in [("import-10k-rows", 0), ("import-10k-rows-at-1m", 1_000_000)] {
        let seconds = beside(leases).await?.as_secs_f64();
        figures.push(Figure::at_most(name, "s", seconds, "-", 2.0));
    }
    Ok(figures)
}

async fn beside(leases: u32) -> Result<Duration> {
    let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
    let store = fipd.data_dir().join("fipd.redb");
    std::fs::create_dir_all(fipd.data_dir())?;
    let pools = fill::Pools::one("10.0.0.0/8")?;
    tokio::task::spawn_blocking(move || fill::fill(&store, &pools, leases, 0)).await??;
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    let file = fipd.directory().join("leases.csv");
    let mut times = Vec::new();
    for number in FIRST..FIRST + FILES {
        let mut text = "address,owner,pool,tenant\n".to_owned();
        for row in 0..ROWS {
            let (high, low) = (row / 250, row % 250 + 1);
            let owner = format!("fipd/Host/rack-{number}/host-{row}");
            writeln!(text, "10.{number}.{high}.{low},{owner},bench,p-{high}")?;
        }
        std::fs::write(&file, text)?;
        let path = file.to_string_lossy();
        let began = Instant::now();
        fipd.cli(["import", &path]).await?.success()?;
        times.push(began.elapsed());
    }
    Ok(percentile(&times, 0.5).unwrap_or_default())
}
