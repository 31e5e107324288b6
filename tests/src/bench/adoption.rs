//! An empty address book beside a cluster of 10,000 Services that have their addresses: how long fipd takes from its start until
//! it holds all of them and allocates the first new address. Once as it was before sightings, which list all Services a second time, and once with them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::Figure;
use crate::scenario::{Scenario, config, create_services, wait_assigned};
use crate::testbed::{SiteOptions, wait_until};

const POOL: &str = "a--bench";
const SERVICES: usize = 10_000;
/// Values of the setting `sightings`; the first is the floor.
const MODES: [&str; 2] = ["off", "hold"];
const ROUNDS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(600);

/// The fastest of each mode, measured in turns.
pub async fn run() -> Result<Vec<Figure>> {
    let mut scenario = Scenario::start(&SiteOptions::of(&["a"])).await?;
    scenario
        .add_pool(POOL, "10.60.0.0/16", "10.60.0.1", "10.60.199.254")
        .await?;
    let api: Api<Service> = Api::default_namespaced(scenario.client("a").await?);
    let names: Vec<_> = (0..SERVICES).map(|n| format!("adopted-{n}")).collect();
    create_services(&api, &names, POOL).await?;
    wait_assigned(&api, SERVICES, DEADLINE).await?;
    let mut best = [Duration::MAX; MODES.len()];
    for _ in 0..ROUNDS {
        for (best, mode) in best.iter_mut().zip(MODES) {
            *best = adopt(&mut scenario, mode).await?.min(*best);
        }
    }
    // What the second list costs beside the same build without it. Beside a build that knew no sightings the budget is 1.2.
    let [floor, ours] = best.map(|best| best.as_secs_f64());
    Ok(vec![Figure::cost_ratio(
        "adopt-10k-services",
        "s",
        ours,
        floor,
        1.4,
    )])
}

/// From the start with an empty store until all are held.
async fn adopt(scenario: &mut Scenario, mode: &str) -> Result<Duration> {
    let fipd = &mut scenario.fipd;
    fipd.terminate(DEADLINE).await?;
    std::fs::remove_dir_all(fipd.data_dir()).context("remove the store")?;
    let systems = "systems = [\"rancher-fip\"]\n";
    let setting = format!("{systems}sightings = \"{mode}\"\n");
    fipd.write_config(&config(&scenario.site, "").replace(systems, &setting))?;
    let began = Instant::now();
    fipd.restart().await?;
    wait_until("all are held", DEADLINE, || async {
        let reply = fipd.get("/api/v1/pools").await?;
        let pools: serde_json::Value = serde_json::from_str(&reply.body)?;
        let used = pools.pointer("/pools/0/usage/used");
        let used = used.map(|count| count.to_string()).unwrap_or_default();
        let reply = fipd.get("/api/v1/networks").await?;
        let networks: serde_json::Value = serde_json::from_str(&reply.body)?;
        let waiting = networks.pointer("/networks/0/waiting_for");
        let gives = waiting.and_then(|all| Some(all.as_array()?.is_empty()));
        match used.trim_matches('"').parse() {
            Ok(SERVICES..) if gives == Some(true) => Ok(()),
            _ => anyhow::bail!("{used} are held, waiting for {waiting:?}"),
        }
    })
    .await?;
    Ok(began.elapsed())
}
