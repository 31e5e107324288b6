//! Durable allocation against raw redb.
//!
//! The leases lie in 256 pools, so that neighbouring decisions write to places far apart, as those of many projects do.
//!
//! The floor writes rows of the same sizes under the same keys into the same tables of a file that grew as ours
//! did, with the same switches, in turns with ours, so that a busy machine disturbs both alike. A copy would not do: it has
//! no holes, and a file system syncs writes to blocks that are there much faster than those it has to allocate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fipd::ipam::{Clock, Ipam, IpamError};
use fipd::store::{Store, StoreOptions};
use fipd_core::{Allocate, Answer, Holder, Request, Timestamp, Want};

use super::fill::Pools;
use super::floor::{self, Floor};
use super::{Figure, fill, percentile};

const TURNS: usize = 8;
const ONE_BY_ONE: usize = 100;
const CALLERS: usize = 256;
/// Decisions of the bulk measurement in each turn.
const BULK: usize = 20 * CALLERS;

/// One decision at a time, and 256 callers at once, in stores with 1,000, 100,000 and 1,000,000 leases; and the callers where
/// half of 100,000 leases are prefixes.
pub async fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (leases, name) in [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1M")] {
        figures.extend(beside(leases, name).await?);
    }
    figures.push(among_prefixes().await?);
    Ok(figures)
}

/// In turns with a store that has addresses in their place.
async fn among_prefixes() -> Result<Figure> {
    const HALF: u32 = 50_000;
    let directory = tempfile::tempdir()?;
    let pools = &Pools::many()?;
    let mut sides = Vec::new();
    for (name, added) in [("addresses", fill::ADDRESSES), ("prefixes", fill::PREFIXES)] {
        let path = directory.path().join(name);
        fill::fill(&path, pools, HALF, u64::from(HALF))?;
        fill::add(&path, &added, HALF)?;
        let (store, loaded) = Store::open(&path, StoreOptions::default())?;
        sides.push((Ipam::with_store(store, loaded, clock())?, Vec::new()));
    }
    let mut next = u64::from(HALF);
    for _ in 0..TURNS {
        let first = next;
        for ((ipam, _), turns) in &mut sides {
            next = first;
            turns.push(at_once(ipam, pools, &mut next).await?);
        }
    }
    let mut rates = Vec::new();
    for ((ipam, writer), turns) in sides {
        ipam.shutdown().await;
        writer.join();
        let p50 = percentile(&turns, 0.5).context("no sample")?;
        rates.push(BULK as f64 / p50.as_secs_f64());
    }
    let [addresses, prefixes] = rates[..] else {
        bail!("two sides have {} rates", rates.len());
    };
    let name = "durable-allocation-256 among prefixes";
    Ok(Figure::rate_ratio(name, "1/s", prefixes, addresses, 0.95))
}

async fn beside(leases: u32, name: &str) -> Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let ours = directory.path().join("fipd.redb");
    let raw = directory.path().join("raw.redb");
    let pools = &Pools::many()?;
    fill::fill(&ours, pools, leases, u64::from(leases))?;
    fill::fill(&raw, pools, leases, u64::from(leases))?;
    let mut floor = Floor::open(&raw, pools.clone(), u64::from(leases))?;
    let (store, loaded) = Store::open(&ours, StoreOptions::default())?;
    let (ipam, writer) = Ipam::with_store(store, loaded, clock())?;
    let mut next = u64::from(leases);
    let (mut single, mut single_floor) = (Vec::new(), Vec::new());
    let (mut bulk, mut bulk_floor) = (Vec::new(), Vec::new());
    let mut bulk_commits = 0;
    for _ in 0..TURNS {
        for _ in 0..ONE_BY_ONE {
            single_floor.push(floor.commit(1)?);
        }
        for _ in 0..ONE_BY_ONE {
            let request = request(pools, next)?;
            let began = Instant::now();
            ask(&ipam, request).await?;
            single.push(began.elapsed());
            next += 1;
        }
        let mut turn = Duration::ZERO;
        for _ in 0..BULK / CALLERS {
            turn += floor.commit(CALLERS)?;
        }
        bulk_floor.push(turn);
        let before = ipam.reader().stats().commits;
        bulk.push(at_once(&ipam, pools, &mut next).await?);
        bulk_commits += ipam.reader().stats().commits - before;
    }
    ipam.shutdown().await;
    writer.join();
    let p50 = |samples: &[Duration]| percentile(samples, 0.5).context("no sample");
    let floor_rate = BULK as f64 / p50(&bulk_floor)?.as_secs_f64();
    let our_rate = BULK as f64 / p50(&bulk)?.as_secs_f64();
    let yardstick = floor::yardstick(&directory.path().join("yardstick.redb"))?;
    let mean = (TURNS * BULK) as f64 / bulk_commits as f64;
    Ok(vec![
        Figure::cost_ratio(
            &format!("durable-allocation {name}"),
            "us",
            micros(p50(&single)?),
            micros(p50(&single_floor)?),
            1.3,
        ),
        Figure::rate_ratio(
            &format!("durable-allocation-256 {name}"),
            "1/s",
            our_rate,
            floor_rate,
            0.7,
        ),
        Figure::at_least(
            &format!("durable-allocation-256-rate {name}"),
            "1/s",
            our_rate,
            &format!("raw {yardstick:.0} keys/s, {mean:.0} a commit"),
            20_000.0 * (yardstick / 76_000.0).min(1.0),
        ),
    ])
}

fn clock() -> Clock {
    let began = Instant::now();
    Arc::new(move || Timestamp(1_700_000_000_000 + began.elapsed().as_millis() as u64))
}

/// All callers ask again as soon as they have their answer.
async fn at_once(ipam: &Ipam, pools: &Pools, next: &mut u64) -> Result<Duration> {
    let first = *next;
    *next += BULK as u64;
    let mut callers = Vec::with_capacity(CALLERS);
    for caller in 0..CALLERS {
        let numbers = (0..BULK / CALLERS).map(|round| first + (round * CALLERS + caller) as u64);
        let requests = numbers.map(|number| request(pools, number));
        callers.push(requests.collect::<Result<Vec<_>>>()?);
    }
    let began = Instant::now();
    let callers = callers.into_iter().map(|requests| {
        let ipam = ipam.clone();
        tokio::spawn(async move {
            for request in requests {
                ask(&ipam, request).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(began.elapsed())
}

/// What the caller called `number` asks. Made before the clock runs, as the floor's rows are.
fn request(pools: &Pools, number: u64) -> Result<Request> {
    let (pool, _) = pools.place(number)?;
    let identity = format!("rancher-fip/{}/Service/bench/asked-{number}", fill::CLUSTER).parse()?;
    Ok(Request::Allocate(Allocate {
        holder: Holder {
            identity,
            instance: fill::UID.into(),
        },
        tenant: None,
        wants: vec![Want {
            pool: pool.into(),
            address: None,
            count: 1,
        }],
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "controller:rancher-fip/bench".into(),
    }))
}

async fn ask(ipam: &Ipam, request: Request) -> Result<()> {
    match ipam.submit(request).await {
        Ok(Answer::Granted { .. }) => Ok(()),
        Ok(other) => bail!("not granted: {other:?}"),
        Err(IpamError::Stopping) => bail!("stopped"),
        Err(error) => Err(error.into()),
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
