//! What an idle cluster costs in memory: the daemon with one cluster of 500 Services that have their addresses, and with
//! three of them.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::Figure;
use crate::scenario::{Scenario, config_of, create_services, wait_assigned};
use crate::testbed::SiteOptions;

const POOL: &str = "a--bench";
const SERVICES: usize = 500;
const NAMES: [&str; 3] = ["a", "b", "c"];
const DEADLINE: Duration = Duration::from_secs(120);
/// After a start, for lists, adoption and status to be done.
const SETTLED: Duration = Duration::from_secs(10);

/// Memory of each cluster beyond the first, after a start with nothing to do.
pub async fn run() -> Result<Vec<Figure>> {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&NAMES)).await?;
    scenario
        .add_pool(POOL, "10.60.0.0/16", "10.60.0.1", "10.60.15.254")
        .await?;
    let mut first = 0.0;
    let mut last = 0.0;
    for (at, name) in NAMES.iter().enumerate() {
        let served = NAMES.get(..=at).context("a prefix")?;
        let config = config_of(&scenario.site, served, "");
        scenario.fipd.write_config(&config)?;
        scenario.fipd.restart().await?;
        scenario.fipd.wait_ready(DEADLINE).await?;
        let api: Api<Service> = Api::default_namespaced(scenario.client(name).await?);
        let names: Vec<String> = (0..SERVICES).map(|n| format!("idle-{n}")).collect();
        create_services(&api, &names, POOL).await?;
        wait_assigned(&api, SERVICES, DEADLINE).await?;
        scenario.fipd.restart().await?;
        scenario.fipd.wait_ready(DEADLINE).await?;
        tokio::time::sleep(SETTLED).await;
        last = scenario.fipd.resident_kib()? as f64 / 1024.0;
        if at == 0 {
            first = last;
        }
    }
    let each = (last - first) / (NAMES.len() - 1) as f64;
    let with_one = format!("{first:.0} MB with one");
    Ok(vec![Figure::at_most(
        "memory-per-idle-cluster",
        "MB",
        each,
        &with_one,
        2.0,
    )])
}
