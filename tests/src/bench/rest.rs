//! Service to address through the REST API of the stock LB controller: a token and a request, each over a TLS connection of its
//! own, answered by fipd with a real API server as Rancher.
//!
//! Twenty clusters with a project each are objects of that one API server; they have no API servers of their own, which this
//! path never asks. The floor is what no such program can avoid on the same API server: making the FloatingIP and writing
//! its status, by a client with open connections, before fipd runs. fipd has five calls to make, where that has two: it reads
//! the project's Secret and FloatingIPs, and writes the address into the object as well. Of a hundred one by one, p99 is all but
//! the slowest.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fipd_crds::floating_ip::{FloatingIP, FloatingIPProjectQuota, STATE_ALLOCATED};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Figure, percentile};
use crate::scenario::{Scenario, config_of};
use crate::stock::{self, FipClient};
use crate::testbed::{SiteOptions, wait_until};

const CLUSTERS: usize = 20;
/// Of each project in the pool that all ask at once for an address of, and its size for all of them.
const EACH: usize = 25;
const MANY: usize = CLUSTERS * EACH;
/// Measured one by one, after a few that warm up connections and caches.
const ONE_BY_ONE: usize = 100;
const WARM_UP: usize = 5;
const WORKERS: usize = 32;
const OF_EACH_WORKER: usize = 8;
const DEADLINE: Duration = Duration::from_secs(120);
const LIMITS: &str = "[fip-v1]\nrate-limit-per-second = 10000\nrate-limit-burst = 10000\n\
    peer-rate-limit-per-second = 10000\npeer-rate-limit-burst = 10000\n";

/// p50 and p99 one by one and 32 at once, against the floor, and 500 Services at once on 20 clusters.
pub async fn run() -> Result<Vec<Figure>> {
    let mut scenario = Scenario::prepare(&SiteOptions::of(&[])).await?;
    let objects = objects().into_iter();
    let texts: String = objects.map(|object| format!("---\n{object}\n")).collect();
    scenario.site.rancher.apply(&texts).await?;
    let client = scenario.site.rancher.client().await?;
    let floor = Floor::measure(Api::namespaced(client, "c-m-0")).await?;
    let config = format!("{LIMITS}{}", config_of(&scenario.site, &[], ""));
    scenario.fipd.write_config(&config)?;
    scenario.fipd.restart().await?;
    scenario.fipd.wait_ready(DEADLINE).await?;
    let clients = clients(&scenario)?;
    let single = services("single", "single", WARM_UP + ONE_BY_ONE);
    let single = timed(&clients, single, 1).await?.part(WARM_UP)?;
    let at_once = services("at-once", "single", WORKERS * OF_EACH_WORKER);
    let at_once = timed(&clients, at_once, WORKERS).await?;
    let many = timed(&clients, services("many", "many", MANY), MANY).await?;
    exact(&scenario, &clients, &many).await?;
    Ok(figures(&floor, &single, &at_once, &many))
}

fn figures(floor: &Floor, single: &Run, at_once: &Run, many: &Run) -> Vec<Figure> {
    let ratio = |name: &str, ours: &Run, floor: &Run, part: f64, budget: f64| {
        let (ours, floor) = (ours.millis(part), floor.millis(part));
        Figure::cost_ratio(name, "ms", ours, floor, budget)
    };
    let of_all = |name: &str, part: f64, limit: f64| {
        Figure::at_most(name, "ms", many.millis(part), "client waits 10 s", limit)
    };
    vec![
        ratio("rest-p50", single, &floor.single, 0.5, 4.0),
        ratio("rest-p99", single, &floor.single, 0.99, 8.0),
        ratio("rest-32-at-once-p50", at_once, &floor.at_once, 0.5, 6.0),
        ratio("rest-32-at-once-p99", at_once, &floor.at_once, 0.99, 6.0),
        Figure::cost_ratio(
            "rest-500-on-20-clusters",
            "s",
            many.all.as_secs_f64(),
            floor.many.all.as_secs_f64(),
            4.0,
        ),
        of_all("rest-500-on-20-clusters-p50", 0.5, 4_000.0),
        of_all("rest-500-on-20-clusters-p99", 0.99, 8_000.0),
    ]
}

fn objects() -> Vec<Value> {
    let quota = json!({ "single": 1_000, "many": EACH });
    let mut all = vec![
        stock::pool("single", "10.60.0.0/16", "10.60.0.1", "10.60.15.254"),
        stock::pool("many", "10.61.0.0/16", "10.61.0.1", "10.61.15.254"),
    ];
    for number in 0..CLUSTERS {
        let (cluster, project) = (format!("c-m-{number}"), format!("p-{number}"));
        all.extend(stock::cluster(&cluster));
        all.extend(stock::project(&cluster, &project, &quota));
    }
    all
}

/// The controllers of all clusters.
fn clients(scenario: &Scenario) -> Result<Vec<FipClient>> {
    let url = format!("{}/v1", scenario.fipd.url());
    let ca = std::fs::read(scenario.fipd.data_dir().join("tls/ca.crt"))?;
    let client = |number: usize| {
        let (cluster, project) = (format!("c-m-{number}"), format!("p-{number}"));
        FipClient::new(&url, &ca, &cluster, &project, &stock::secret(&project))
    };
    (0..CLUSTERS).map(client).collect()
}

/// A Service that wants an address.
struct Wanted {
    /// Of its cluster.
    number: usize,
    name: String,
    pool: &'static str,
}

fn services(prefix: &str, pool: &'static str, count: usize) -> Vec<Wanted> {
    let service = |number| Wanted {
        number: number % CLUSTERS,
        name: format!("{prefix}-{number}"),
        pool,
    };
    (0..count).map(service).collect()
}

/// How long each took, and all together.
struct Run {
    samples: Vec<Duration>,
    addresses: BTreeSet<String>,
    all: Duration,
}

impl Run {
    fn millis(&self, part: f64) -> f64 {
        let value = percentile(&self.samples, part).unwrap_or_default();
        value.as_secs_f64() * 1_000.0
    }

    /// Without the first ones.
    fn part(mut self, skipped: usize) -> Result<Self> {
        self.samples = self
            .samples
            .get(skipped..)
            .context("more than that")?
            .to_vec();
        Ok(self)
    }
}

/// Asks for each Service's address, with so many under way at once; the clusters take turns.
async fn timed(clients: &[FipClient], services: Vec<Wanted>, at_once: usize) -> Result<Run> {
    let began = Instant::now();
    let asked = stream::iter(services).map(|wanted| ask(clients, wanted));
    let given: Vec<(Duration, String)> = asked.buffer_unordered(at_once).try_collect().await?;
    let all = began.elapsed();
    let (samples, addresses): (Vec<Duration>, BTreeSet<String>) = given.into_iter().unzip();
    ensure!(
        addresses.len() == samples.len(),
        "{} addresses for {} Services",
        addresses.len(),
        samples.len()
    );
    Ok(Run {
        samples,
        addresses,
        all,
    })
}

fn ask(clients: &[FipClient], wanted: Wanted) -> BoxFuture<'_, Result<(Duration, String)>> {
    Box::pin(async move {
        let client = clients.get(wanted.number).context("a cluster")?;
        let began = Instant::now();
        let address = address_of(client, &wanted.name, wanted.pool).await?;
        Ok((began.elapsed(), address))
    })
}

/// Asks as the controller does: again until it is given one.
async fn address_of(client: &FipClient, service: &str, pool: &str) -> Result<String> {
    wait_until(&format!("{service} has an address"), DEADLINE, || async {
        match client.request(service, pool, "").await? {
            (200, answer) => {
                let address = answer["ipaddr"].as_str().map(str::to_owned);
                address.ok_or_else(|| answer.to_string())
            }
            (code, answer) => Err(format!("{code} {answer}")),
        }
    })
    .await
}

/// Each project has what its quota allows and no more, and what it has is shown.
async fn exact(scenario: &Scenario, clients: &[FipClient], many: &Run) -> Result<()> {
    ensure!(many.addresses.len() == MANY, "addresses given twice");
    for client in clients {
        let said = client.request("too-many", "many", "").await;
        let (code, answer) = said.map_err(anyhow::Error::msg)?;
        if code != 500 || !answer.to_string().contains("quota exceeded") {
            bail!(
                "{} has more than its quota: {code} {answer}",
                client.project
            );
        }
    }
    let quotas: Api<FloatingIPProjectQuota> = Api::all(scenario.site.rancher.client().await?);
    wait_until("the quotas show what is used", DEADLINE, || async {
        let all = quotas.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?.items;
        let used = |quota: &FloatingIPProjectQuota| {
            json!(quota)["status"]["fips"]["many"]["used"].as_u64()
        };
        let wrong = all.iter().find(|quota| used(quota) != Some(EACH as u64));
        match wrong {
            None => Ok(()),
            Some(quota) => Err(json!(quota.status).to_string()),
        }
    })
    .await
}

/// The API server alone.
struct Floor {
    single: Run,
    at_once: Run,
    many: Run,
}

impl Floor {
    async fn measure(api: Api<FloatingIP>) -> Result<Self> {
        let single = made(&api, 0..WARM_UP + ONE_BY_ONE, 1).await?;
        let single = single.part(WARM_UP)?;
        let at_once = made(&api, 1_000..1_000 + WORKERS * OF_EACH_WORKER, WORKERS).await?;
        let many = made(&api, 2_000..2_000 + MANY, WORKERS).await?;
        let (all, delete) = (ListParams::default(), DeleteParams::default());
        api.delete_collection(&delete, &all).await?;
        wait_until("they are gone", DEADLINE, || async {
            match api.list(&all).await {
                Ok(list) if list.items.is_empty() => Ok(()),
                Ok(_) => Err("still there".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
        Ok(Self {
            single,
            at_once,
            many,
        })
    }
}

async fn made(
    api: &Api<FloatingIP>,
    numbers: std::ops::Range<usize>,
    at_once: usize,
) -> Result<Run> {
    let began = Instant::now();
    let made = stream::iter(numbers).map(|number| make(api.clone(), number));
    let samples = made.buffer_unordered(at_once).try_collect().await?;
    Ok(Run {
        samples,
        addresses: BTreeSet::new(),
        all: began.elapsed(),
    })
}

fn make(api: Api<FloatingIP>, number: usize) -> BoxFuture<'static, Result<Duration>> {
    Box::pin(async move {
        let began = Instant::now();
        let name = format!("floor-{number}");
        let object: FloatingIP = serde_json::from_value(json!({
            "metadata": { "name": name }, "spec": { "floatingIPPool": "single" },
        }))?;
        api.create(&PostParams::default(), &object).await?;
        let status = json!({ "status": { "ipAddr": "10.60.0.1", "state": STATE_ALLOCATED } });
        let by = PatchParams::default();
        api.patch_status(&name, &by, &Patch::Merge(&status)).await?;
        Ok(began.elapsed())
    })
}
