//! A file of leases, from the command line to the answer that says what became of each row.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Figure, percentile};
use crate::testbed::{Fipd, FipdOptions};

const ROWS: u32 = 10_000;
const FILES: u8 = 5;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// 10,000 rows beside those of the files before.
pub async fn run() -> Result<Vec<Figure>> {
    let fipd = Fipd::start(FipdOptions::default()).await?;
    fipd.wait_ready(READY_WITHIN).await?;
    let create = "pool create bench --cidr 10.0.0.0/8";
    fipd.cli(create.split(' ')).await?.success()?;
    let file = fipd.directory().join("leases.csv");
    let mut times = Vec::new();
    for number in 0..FILES {
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
    let p50 = percentile(&times, 0.5).unwrap_or_default();
    let seconds = p50.as_secs_f64();
    Ok(vec![Figure::at_most(
        "import-10k-rows",
        "s",
        seconds,
        "-",
        2.0,
    )])
}
