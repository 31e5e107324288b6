//! Addresses for Cluster API on a real API server: claims on pools of the in-cluster provider, and endpoints of Clusters.
//!
//! Neither peer is available as a module. Their figures come from an earlier run on such a machine, with the in-cluster provider
//! v1.1.0-rc.2 + 7 and capi-vip-allocator v0.7.1. This bench measures in the same way: latency from just before the create
//! request until a watch event with the field arrives, and sixteen creators in bulk. fipd is an administrator, as the peers
//! were, so API priority and fairness does not queue its requests.

mod hook;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use self::hook::Asker;
use super::figure::millis;
use super::series::{ONE_BY_ONE, OneByOne, WARM_UP};
use super::subject::{CREATORS, Subject, delete_all};
use super::writes::{Counted, Writes};
use super::{Figure, percentile, program};
use crate::cluster_api::IpamObjects;
use crate::scenario::write_kubeconfig;
use crate::testbed::cluster_api::{ApiVersion, Class, Versions, install_definitions};
use crate::testbed::{ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, wait_until};

const CLUSTER: &str = "management";
const NAMESPACE: &str = "bench";
const CLASS: &str = "bench";
const GROUP: &str = "ipam.cluster.x-k8s.io";
const CLAIM: &str = "IPAddressClaim";
const ADDRESS: &str = "IPAddress";
const POOL: &str = "InClusterIPPool";
/// A kind of pool that fipd leaves to another provider.
const FOREIGN_POOL: &str = "ForeignIPPool";

const BURST: usize = 1_000;
const CLUSTERS_AT_ONCE: usize = 50;
/// Addresses in use that have an IPAddress. The others are only in the ledger.
const WITH_OBJECT: u32 = 10_000;
const IN_USE: u32 = 60_000;

const DEADLINE: Duration = Duration::from_secs(300);
/// After a change, until Events and pool status are written and memory is at rest.
const SETTLED: Duration = Duration::from_secs(15);

/// In MB: a standalone daemon, and a watched cluster.
const MEMORY_IDLE: f64 = 40.0 + 2.0;
/// In MB: a tenth of what 100,000 leases may cost, and 2 for every 500 watched objects.
const MEMORY_10K: f64 = MEMORY_IDLE + 7.0 + 40.0;

const COUNTED: Counted = Counted {
    objects: &[(GROUP, "ipaddressclaims"), (GROUP, "ipaddresses")],
    pools: GROUP,
};

struct Bench {
    // Dropped in this order: fipd ends before its API server.
    fipd: Fipd,
    objects: IpamObjects,
    plane: ControlPlane,
}

/// All figures of the system.
pub async fn run() -> Result<Vec<Figure>> {
    let mut bench = Bench::start().await?;
    let idle = bench.resident().await?;
    let mut figures = vec![memory("idle", idle, "in-cluster 51 MB", MEMORY_IDLE)];
    figures.extend(bench.empty_pool().await?);
    figures.extend(bench.burst().await?);
    figures.push(bench.hook().await?);
    figures.extend(bench.endpoints().await?);
    figures.extend(bench.pool_in_use().await?);
    Ok(figures)
}

fn memory(when: &str, resident: f64, peer: &str, limit: f64) -> Figure {
    let name = format!("cluster-api-memory-{when}");
    Figure::at_most(&name, "MB", resident, peer, limit)
}

/// A reference to a pool of Cluster API's group.
fn pool_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": kind, "name": name })
}

impl Bench {
    async fn start() -> Result<Self> {
        let options = ControlPlaneOptions {
            audit_log: true,
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start(CLUSTER, options).await?;
        install_definitions(&plane, Versions::OnlyV1Beta2).await?;
        plane.install_fipd_crds().await?;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        plane.apply(&namespace.to_string()).await?;
        let objects = IpamObjects {
            client: plane.client().await?,
            version: "v1beta2",
        };
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        write_kubeconfig(&fipd, CLUSTER, plane.kubeconfig_yaml())?;
        fipd.write_config(&format!(
            "[[cluster]]\nname = \"{CLUSTER}\"\nkubeconfig = \"{CLUSTER}.kubeconfig\"\nsystems = [\"cluster-api\"]\n"
        ))?;
        program::forget().await?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await?;
        Ok(Self {
            fipd,
            objects,
            plane,
        })
    }

    /// Memory at rest, in MB.
    async fn resident(&self) -> Result<f64> {
        tokio::time::sleep(SETTLED).await;
        Ok(self.fipd.resident_kib()? as f64 / 1_024.0)
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        self.objects.of(kind, Some(NAMESPACE))
    }

    /// Claims on a pool.
    fn claims_on(&self, kind: &str, pool: &str) -> Subject {
        Subject {
            api: self.api(CLAIM),
            object: json!({
                "apiVersion": format!("{GROUP}/v1beta2"), "kind": CLAIM,
                "spec": { "poolRef": pool_ref(kind, pool) },
            }),
            shows: self.api(CLAIM),
            shown: "/status/addressRef/name",
        }
    }

    async fn make_pool(&self, name: &str, addresses: &str) -> Result<()> {
        let path = format!("{NAMESPACE}/{name}");
        let spec = json!({ "addresses": [addresses], "prefix": 16 });
        self.objects.pool(&path, spec).await?;
        self.wait_used(name, 0).await
    }

    /// Waits until the status of the pool counts so many addresses in use.
    async fn wait_used(&self, pool: &str, wanted: u32) -> Result<()> {
        let path = format!("{NAMESPACE}/{pool}");
        let what = format!("{wanted} addresses of {path} are in use");
        wait_until(&what, DEADLINE, || async {
            let pool = self.objects.get(POOL, &path).await?;
            let counts = pool.unwrap_or_default()["status"]["ipAddresses"].clone();
            ensure!(counts["used"].as_u64() == Some(wanted.into()), "{counts}");
            Ok(())
        })
        .await
    }

    /// Claims on a pool, each deleted before the next is created.
    async fn claims(&self, pool: &str) -> Result<OneByOne> {
        let claims = self.claims_on(POOL, pool);
        let foreign = self.claims_on(FOREIGN_POOL, pool);
        let remove = async |name: &str| {
            let path = format!("{NAMESPACE}/{name}");
            self.objects.delete(CLAIM, &path).await?;
            self.objects.wait_gone(CLAIM, &path).await
        };
        claims.one_by_one(&foreign, pool, remove).await
    }

    /// Claims on a pool without any address in use, and what fipd writes for them.
    async fn empty_pool(&self) -> Result<Vec<Figure>> {
        self.make_pool("empty", "10.60.0.0/16").await?;
        tokio::time::sleep(SETTLED).await;
        let before = Writes::read(&self.plane, &COUNTED)?;
        let start = Instant::now();
        let times = self.claims("empty").await?;
        let seconds = start.elapsed().as_secs_f64();
        tokio::time::sleep(SETTLED).await;
        let after = Writes::read(&self.plane, &COUNTED)?;
        let lives = (WARM_UP + ONE_BY_ONE) as f64;
        // The bench makes five of them: it creates the claim and deletes it, and three are of the floor.
        let objects = (after.objects - before.objects) / lives - 5.0;
        let events = (after.events - before.events) / lives;
        // The first one comes at once, the last one up to a second after the last claim.
        let pool_status = (after.pool_status - before.pool_status - 1.0) / (seconds + 1.0);
        let peer = format!("in-cluster 8.1; {events:.2} Events");
        let mut figures = times
            .figures("cluster-api-claim-p50-empty", "in-cluster 11.6 ms")
            .to_vec();
        figures.extend([
            Figure::at_most(
                "cluster-api-writes-of-a-claim",
                "writes",
                objects + events,
                &peer,
                6.0,
            ),
            Figure::at_most(
                "cluster-api-writes-of-pool-status",
                "a second",
                pool_status,
                "in-cluster 2 a claim",
                1.0,
            ),
        ]);
        Ok(figures)
    }

    /// As many claims as their pool has addresses. The floor is the same claims on a pool of another provider, which fipd reads
    /// and leaves alone.
    async fn burst(&self) -> Result<Vec<Figure>> {
        let last = u32::from(Ipv4Addr::new(10, 61, 0, 0)) + u32::try_from(BURST)?;
        let range = format!("10.61.0.1-{}", Ipv4Addr::from(last));
        self.make_pool("burst", &range).await?;
        let foreign = self.claims_on(FOREIGN_POOL, "burst");
        let claims = self.claims_on(POOL, "burst");
        let clear = async |count| {
            self.check_distinct(count).await?;
            self.delete_claims().await
        };
        let bursts = claims.bursts(&foreign, BURST, clear).await?;
        let name = "cluster-api-1000-claims";
        let mut figures = bursts.figures(name).to_vec();
        let (beside, peer) = (format!("{name} beside the peer"), "in-cluster 15.3 s");
        figures.push(Figure::at_most(&beside, "s", bursts.all(), peer, 15.3));
        Ok(figures)
    }

    /// Answers of the hook during another burst.
    async fn hook(&self) -> Result<Figure> {
        let asker = Asker::start(&self.fipd).await?;
        let claims = self.claims_on(POOL, "burst");
        let bulk = claims.at_once("hooked", BURST).await;
        let answers = asker.stop().await?;
        bulk?;
        self.delete_claims().await?;
        let p99 = percentile(&answers, 0.99).context("no answer")?;
        let count = format!("none; {} answers", answers.len());
        Ok(Figure::at_most(
            "cluster-api-hook-p99",
            "ms",
            millis(p99),
            &count,
            50.0,
        ))
    }

    async fn check_distinct(&self, count: usize) -> Result<()> {
        let addresses = self.api(ADDRESS).list(&ListParams::default()).await?;
        let text = |object: &DynamicObject| object.data["spec"]["address"].to_string();
        let distinct = addresses.iter().map(text).collect::<BTreeSet<_>>().len();
        let all = addresses.items.len();
        ensure!(
            (distinct, all) == (count, count),
            "{distinct} addresses in {all} IPAddresses for {count} claims"
        );
        Ok(())
    }

    /// Deletes all claims and waits until their addresses are gone as well.
    async fn delete_claims(&self) -> Result<()> {
        delete_all(&self.api(CLAIM), &self.api(ADDRESS)).await?;
        tokio::time::sleep(SETTLED).await;
        Ok(())
    }

    /// Clusters of a ClusterClass, with a pool for each of their two addresses.
    async fn endpoints(&self) -> Result<Vec<Figure>> {
        for (role, range) in [
            ("control-plane", "10.62.0.0/16"),
            ("ingress", "10.63.0.0/16"),
        ] {
            let pool = json!({
                "metadata": { "labels": {
                    "vip.capi.gorizond.io/cluster-class": CLASS, "vip.capi.gorizond.io/role": role,
                } },
                "spec": { "addresses": [range], "prefix": 16 },
            });
            let kind = "GlobalInClusterIPPool";
            self.objects.make(kind, role, pool).await?;
        }
        let class = Class::without_endpoint(CLASS).objects().pop();
        let mut class = class.context("a class is the last of its objects")?;
        class["metadata"]["namespace"] = json!(NAMESPACE);
        self.plane.apply(&class.to_string()).await?;
        tokio::time::sleep(SETTLED).await;
        let clusters = Subject {
            api: self.api("Cluster"),
            object: ApiVersion::V1Beta2.cluster("", CLASS),
            shows: self.api("Cluster"),
            shown: "/spec/controlPlaneEndpoint/host",
        };
        // Each alone: what fipd writes after an endpoint is done before the next Cluster comes.
        let said = async |name: &str| {
            let path = format!("{NAMESPACE}/{name}");
            self.wait_ready(&path).await
        };
        let p50 = millis(clusters.p50("single", said).await?);
        let bulk = clusters.at_once("bulk", CLUSTERS_AT_ONCE).await?;
        let all = bulk.all.as_secs_f64();
        let names = ["cluster-api-endpoint-p50", "cluster-api-50-endpoints"];
        Ok(vec![
            Figure::at_most(names[0], "ms", p50, "allocator 10,030 ms", 30.0),
            Figure::at_most(names[1], "s", all, "allocator 18.5 s", 1.0),
        ])
    }

    /// Waits until a Cluster says that it has both addresses.
    async fn wait_ready(&self, path: &str) -> Result<()> {
        let what = format!("Cluster {path} has both addresses and says so");
        wait_until(&what, DEADLINE, || async {
            let cluster = self.objects.get("Cluster", path).await?.unwrap_or_default();
            let conditions = cluster["status"]["conditions"].as_array();
            let says = |kind| {
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|one| one["type"] == kind && one["status"] == "True")
            };
            let ready = ["fipd.io/EndpointReady", "fipd.io/IngressReady"].map(says);
            ensure!(ready == [true; 2], "{}", cluster["status"]);
            Ok(())
        })
        .await
    }

    /// Claims on a pool whose first addresses are in use: those of IPAddresses without a claim, which fipd adopts when it
    /// starts, and then more that only the ledger has.
    async fn pool_in_use(&mut self) -> Result<Vec<Figure>> {
        self.make_pool("large", "10.64.0.0/16").await?;
        self.fipd.terminate(DEADLINE).await?;
        let all = (1..=WITH_OBJECT).map(|number| self.make_address(number));
        let all = stream::iter(all).buffer_unordered(CREATORS);
        all.try_collect::<()>().await?;
        self.fipd.restart().await?;
        self.fipd.wait_ready(DEADLINE).await?;
        self.wait_used("large", WITH_OBJECT).await?;
        let resident = self.resident().await?;
        let at_10k = self.claims("large").await?;
        self.import(WITH_OBJECT + 1..=IN_USE).await?;
        self.wait_used("large", IN_USE).await?;
        tokio::time::sleep(SETTLED).await;
        let at_60k = self.claims("large").await?;
        let mut figures = at_10k
            .figures("cluster-api-claim-p50-10k-in-use", "in-cluster 36.8 ms")
            .to_vec();
        figures.extend(at_60k.figures("cluster-api-claim-p50-60k-in-use", "its decision 17.6 ms"));
        let peer = "in-cluster 90-154 MB";
        figures.push(memory("10k-addresses", resident, peer, MEMORY_10K));
        Ok(figures)
    }

    async fn make_address(&self, number: u32) -> Result<()> {
        let name = format!("made-{number}");
        let spec = json!({
            "claimRef": { "name": name }, "poolRef": pool_ref(POOL, "large"),
            "address": in_large(number), "prefix": 16,
        });
        let path = format!("{NAMESPACE}/{name}");
        let address = json!({ "spec": spec });
        self.objects.make(ADDRESS, &path, address).await
    }

    /// Writes addresses of the pool `large` to the ledger alone.
    async fn import(&self, numbers: RangeInclusive<u32>) -> Result<()> {
        let pool = format!("cluster-api/{CLUSTER}/{NAMESPACE}/large");
        let mut text = "address,owner,pool\n".to_owned();
        for number in numbers {
            let address = in_large(number);
            writeln!(text, "{address},fipd/Host/rack/host-{number},{pool}")?;
        }
        let file = self.fipd.directory().join("leases.csv");
        std::fs::write(&file, text)?;
        let path = file.to_string_lossy();
        self.fipd.cli(["import", &path]).await?.success()?;
        Ok(())
    }
}

fn in_large(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) + number)
}
