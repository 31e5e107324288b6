//! Service of type LoadBalancer to address in its status, in direct mode, on a real API server.
//!
//! What the API server itself takes is measured in the same run: each create, and a patch of a Service that fipd leaves alone. Measured as the peers were, one after the other with all that each leaves gone: latency from just before the create request until a watch event with the address arrives;
//! in bulk, sixteen creators at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fipd_crds::floating_ip::FloatingIP;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::json;

use super::figure::millis;
use super::{Figure, percentile};
use crate::scenario::{Scenario, addresses, create_services, service};
use crate::testbed::{SiteOptions, wait_until};

const POOL: &str = "a--bench";
/// Services measured one by one, after a few that warm up connections and caches.
const ONE_BY_ONE: usize = 50;
const WARM_UP: usize = 5;
const AT_ONCE: usize = 1_000;
/// What fipd may add to the create and one patch, in milliseconds.
const OWN: f64 = 3.0;
/// A Service without load balancer, for patches of its status.
const BYSTANDER: &str = "bystander";
const DEADLINE: Duration = Duration::from_secs(120);

/// p50 of single Services, and a thousand at once against the time that creating them takes.
pub async fn run() -> Result<Vec<Figure>> {
    let scenario = Scenario::start(&SiteOptions::of(&["a"])).await?;
    scenario
        .add_pool(POOL, "10.60.0.0/16", "10.60.0.1", "10.60.3.232")
        .await?;
    let api: Api<Service> = Api::default_namespaced(scenario.client("a").await?);
    let fips: Api<FloatingIP> = Api::all(scenario.site.rancher.client().await?);
    bystander(&api).await?;
    let (mut samples, mut creates, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..WARM_UP + ONE_BY_ONE {
        // In turns, so that a busy machine disturbs all alike.
        patches.push(patch(&api, n).await?);
        let (create, all) = one(&api, &format!("single-{n}")).await?;
        creates.push(create);
        samples.push(all);
        wait_until("its FloatingIP is gone", DEADLINE, || async {
            match fips.list(&ListParams::default()).await {
                Ok(list) if list.items.is_empty() => Ok(()),
                Ok(_) => Err("still there".to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
    }
    let samples = samples.split_off(WARM_UP);
    let of = |all: &[Duration]| percentile(all.get(WARM_UP..).unwrap_or_default(), 0.5);
    let create = millis(of(&creates).context("no sample")?);
    let patched = millis(of(&patches).context("no sample")?);
    let p50 = percentile(&samples, 0.5).context("no sample")?;
    let p99 = percentile(&samples, 0.99).context("no sample")?;
    let bulk = at_once(&api).await?;
    Ok(vec![
        Figure::at_most(
            "service-p50",
            "ms",
            millis(p50),
            &format!("create {create:.2} + patch {patched:.2}"),
            create + patched + OWN,
        ),
        Figure::at_most(
            "service-p50 beside its peer",
            "ms",
            millis(p50),
            "MetalLB 7.8 ms",
            10.0,
        ),
        Figure::at_most("service-p99", "ms", millis(p99), "MetalLB 12 ms", 20.0),
        Figure::cost_ratio(
            "service-1000-at-once",
            "s",
            bulk.all_assigned.as_secs_f64(),
            bulk.creating.as_secs_f64(),
            1.3,
        ),
        Figure::at_most(
            "service-writes",
            "per Service",
            bulk.writes,
            "MetalLB 3",
            2.0,
        ),
    ])
}

type Events = std::pin::Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Service>>> + Send>>;

/// A watch from the present on.
async fn watch(api: &Api<Service>) -> Result<Events> {
    let now = api.list(&ListParams::default().limit(1)).await?;
    let version = now
        .metadata
        .resource_version
        .context("a list has a resourceVersion")?;
    let parameters = WatchParams::default().timeout(290);
    Ok(api.watch(&parameters, &version).await?.boxed())
}

/// The next Service that was written.
async fn next(events: &mut Events) -> Result<Service> {
    loop {
        let event = tokio::time::timeout(DEADLINE, events.next())
            .await
            .context("no event within the deadline")?
            .context("the watch ended")??;
        match event {
            WatchEvent::Added(service) | WatchEvent::Modified(service) => return Ok(service),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => bail!("watch: {error:?}"),
        }
    }
}

async fn bystander(api: &Api<Service>) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": BYSTANDER },
        "spec": { "ports": [{ "port": 80 }] },
    });
    let service: Service = serde_json::from_value(service)?;
    api.create(&PostParams::default(), &service).await?;
    Ok(())
}

/// How long a patch of a status takes.
async fn patch(api: &Api<Service>, n: usize) -> Result<Duration> {
    let condition = json!({
        "type": "Bench", "status": "True", "reason": format!("Round{n}"), "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let body = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    let start = Instant::now();
    api.patch_status(BYSTANDER, &PatchParams::default(), &body)
        .await?;
    Ok(start.elapsed())
}

/// How long its create took, and all until it had its address.
async fn one(api: &Api<Service>, name: &str) -> Result<(Duration, Duration)> {
    let mut events = watch(api).await?;
    let wanted = service(name, POOL)?;
    let start = Instant::now();
    api.create(&PostParams::default(), &wanted).await?;
    let create = start.elapsed();
    loop {
        let seen = next(&mut events).await?;
        if seen.name_any() == name && !addresses(&seen).is_empty() {
            break;
        }
    }
    let taken = start.elapsed();
    api.delete(name, &DeleteParams::default()).await?;
    wait_until("the Service is gone", DEADLINE, || async {
        match api.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("still there".to_string()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    Ok((create, taken))
}

struct Bulk {
    creating: Duration,
    all_assigned: Duration,
    /// Writes after the create, on average.
    writes: f64,
}

async fn at_once(api: &Api<Service>) -> Result<Bulk> {
    let names: Vec<String> = (0..AT_ONCE).map(|n| format!("bulk-{n:04}")).collect();
    let mut events = watch(api).await?;
    let start = Instant::now();
    let creator = {
        let api = api.clone();
        tokio::spawn(async move {
            create_services(&api, &names, POOL).await?;
            anyhow::Ok(start.elapsed())
        })
    };
    let mut assigned = BTreeMap::new();
    let mut seen = 0_usize;
    while assigned.len() < AT_ONCE {
        let service = next(&mut events).await?;
        if !service.name_any().starts_with("bulk-") {
            continue;
        }
        seen += 1;
        if let Some(address) = addresses(&service).first() {
            assigned.insert(service.name_any(), *address);
        }
    }
    let all_assigned = start.elapsed();
    let mut distinct: Vec<_> = assigned.values().collect();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() != AT_ONCE {
        bail!(
            "{} distinct addresses for {AT_ONCE} Services",
            distinct.len()
        );
    }
    Ok(Bulk {
        creating: creator.await??,
        all_assigned,
        writes: seen.saturating_sub(AT_ONCE) as f64 / AT_ONCE as f64,
    })
}
