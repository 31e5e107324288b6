//! What an idle cluster costs in memory: the daemon with one cluster of 500 Services, and with three of them. One Service
//! in ten is a load balancer and has its address, and its FloatingIP in Rancher.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::{Figure, program};
use crate::scenario::{Scenario, config_of, create, service, wait_assigned};
use crate::testbed::SiteOptions;

const POOL: &str = "a--bench";
const SERVICES: usize = 500;
const BALANCED: usize = 50;
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
    program::forget().await?;
    let mut first = 0.0;
    let mut last = 0.0;
    for (at, name) in NAMES.iter().enumerate() {
        let served = NAMES.get(..=at).context("a prefix")?;
        let config = config_of(&scenario.site, served, "");
        scenario.fipd.write_config(&config)?;
        scenario.fipd.restart().await?;
        scenario.fipd.wait_ready(DEADLINE).await?;
        let api: Api<Service> = Api::default_namespaced(scenario.client(name).await?);
        let services = (0..SERVICES).map(|n| match n {
            0..BALANCED => service(&format!("idle-{n}"), POOL),
            _ => internal(&format!("idle-{n}")),
        });
        create(&api, services.collect::<Result<_>>()?).await?;
        wait_assigned(&api, BALANCED, DEADLINE).await?;
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

/// A Service that asks for no address of ours.
fn internal(name: &str) -> Result<Service> {
    let ports = [serde_json::json!({ "port": 80, "protocol": "TCP" })];
    Ok(serde_json::from_value(serde_json::json!({
        "metadata": { "name": name },
        "spec": { "type": "ClusterIP", "ports": ports },
    }))?)
}
