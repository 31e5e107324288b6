//! 100,000 pools and 60 clusters that do not answer, each of which may claim from all pools: what fipd costs while nothing
//! happens, and how long an admin waits.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::load::KUBECONFIG;
use super::{Figure, fill, percentile};
use crate::testbed::{Fipd, FipdOptions, UnixConnection};

const POOLS: u32 = 100_000;
const CLUSTERS: u32 = 60;
/// Pauses between probes have grown by then.
const SETTLES: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(60);
/// Percent of a core.
const IDLE_LIMIT: f64 = 2.0;
/// Milliseconds for 99 of 100 commands.
const COMMAND_LIMIT: f64 = 100.0;
/// Of `/proc/PID/stat`.
const TICKS_A_SECOND: f64 = 100.0;

pub async fn run() -> Result<Vec<Figure>> {
    let fipd = fill::daemon_on(FipdOptions::default(), |store| fill::pools(store, POOLS)).await?;
    let mut times = Vec::new();
    let mut connection = UnixConnection::open(&fipd.socket()).await?;
    let cluster = json!({
        "kubeconfig": KUBECONFIG,
        "systems": ["claims"],
        "settings": "[claims]\npools = [\"*\"]\n",
    });
    let network = json!({ "network": "default" });
    for number in 0..CLUSTERS {
        let path = format!("/api/v1/clusters/cluster-{number}");
        times.push(command(&mut connection, Method::PUT, &path, &cluster).await?);
        let skip = format!("{path}/skip-adoption");
        times.push(command(&mut connection, Method::POST, &skip, &network).await?);
    }
    sleep(SETTLES).await;
    let (began, before) = (Instant::now(), ticks(&fipd)?);
    sleep(IDLE).await;
    let share = (ticks(&fipd)? - before) / TICKS_A_SECOND / began.elapsed().as_secs_f64();
    for number in 0..CLUSTERS {
        let path = format!("/api/v1/clusters/cluster-{number}/attach");
        times.push(command(&mut connection, Method::POST, &path, &json!({})).await?);
    }
    let p99 = percentile(&times, 0.99).context("no command")?;
    let p99 = p99.as_secs_f64() * 1e3;
    Ok(vec![
        Figure::at_most(
            "pools-100k-idle",
            "% of a core",
            share * 100.0,
            "-",
            IDLE_LIMIT,
        ),
        Figure::at_most("pools-100k-command-p99", "ms", p99, "-", COMMAND_LIMIT),
    ])
}

async fn command(
    connection: &mut UnixConnection,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Duration> {
    let began = Instant::now();
    let reply = connection.call(method, path, Some(body)).await?;
    if !(200..300).contains(&reply.status) {
        bail!("{path}: {}: {}", reply.status, reply.body);
    }
    Ok(began.elapsed())
}

/// The time of processors that fipd has used.
fn ticks(fipd: &Fipd) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", fipd.pid()?))?;
    // Behind the name, which may have spaces: state is the third field, the times are the 14th and the 15th.
    let (_, rest) = stat.rsplit_once(')').context("a name")?;
    let times = rest.split_whitespace().skip(11).take(2);
    times.map(|text| Ok(text.parse::<f64>()?)).sum()
}
