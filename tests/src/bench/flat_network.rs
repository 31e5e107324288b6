//! Addresses for pods on a flat network, on a real API server with the garbage collector.
//!
//! No peer is available as a module. Nothing runs the pods: a stand-in says in the place of the CNI plugin that a pod uses its
//! address, where a whole life is measured. fipd is an administrator, so API priority and fairness does not queue its requests.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::subject::{Subject, delete_all};
use super::writes::{Counted, Writes};
use super::{Figure, program};
use crate::flat_network::{FlatObjects, IP, PodCluster};
use crate::testbed::{ControlPlaneOptions, Fipd};

const NAMESPACE: &str = "bench";
const GROUP: &str = "flatnetwork.pandaria.io";
/// Pods whose whole lives are counted.
const LIVES: usize = 50;
const BURST: usize = 1_000;
/// Pods, and those of them on a flat network, whose memory is measured.
const PODS: usize = 5_000;
const FLAT_PODS: usize = 200;

const DEADLINE: Duration = Duration::from_secs(300);
/// After a change, until Events and the status of subnets are written and memory is at rest.
const SETTLED: Duration = Duration::from_secs(15);
/// In MB.
const MEMORY: f64 = 40.0;

const COUNTED: Counted = Counted {
    objects: &[("", "pods"), (GROUP, "flatnetworkips")],
    pools: GROUP,
};

struct Bench {
    // Dropped in this order: fipd ends before its API server.
    fipd: Fipd,
    objects: FlatObjects,
    cluster: PodCluster,
}

/// All figures of the system.
pub async fn run() -> Result<Vec<Figure>> {
    let mut bench = Bench::start().await?;
    let mut figures = bench.one_by_one().await?;
    figures.extend(bench.writes().await?);
    figures.extend(bench.burst().await?);
    figures.push(bench.memory().await?);
    Ok(figures)
}

impl Bench {
    async fn start() -> Result<Self> {
        let options = ControlPlaneOptions {
            audit_log: true,
            ..ControlPlaneOptions::default()
        };
        let cluster = PodCluster::with("bench-pods", options).await?;
        cluster.make_namespace(NAMESPACE).await?;
        let objects = cluster.objects().await?;
        let mut fipd = cluster.prepare_admin().await?;
        program::forget().await?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await?;
        let rest = json!({ "vlan": 10 });
        objects.subnet("single", "10.70.0.0/24", rest).await?;
        // As many addresses as the burst has pods.
        let range = json!({ "from": "10.71.0.1", "to": "10.71.3.232" });
        let rest = json!({ "vlan": 11, "ranges": [range] });
        objects.subnet("burst", "10.71.0.0/16", rest).await?;
        tokio::time::sleep(SETTLED).await;
        Ok(Self {
            fipd,
            objects,
            cluster,
        })
    }

    /// Pods that ask for an address of the subnet; without one, those of no flat network.
    fn pods(&self, subnet: Option<&str>) -> Subject {
        let annotations = subnet.map(|subnet| {
            json!({ "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": subnet })
        });
        Subject {
            api: self.objects.of("Pod", NAMESPACE),
            object: json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "annotations": annotations },
                "spec": {
                    "containers": [{ "name": "c", "image": "none" }], "terminationGracePeriodSeconds": 0,
                },
            }),
            shows: self.objects.of(IP, NAMESPACE),
            shown: "/status/addr",
        }
    }

    /// Pods, each deleted before the next is created. The floor writes pods alone.
    async fn one_by_one(&self) -> Result<Vec<Figure>> {
        let (pods, plain) = (self.pods(Some("single")), self.pods(None));
        let remove = async |name: &str| self.delete(name).await;
        let all = pods.one_by_one(&plain, "one", remove).await?;
        Ok(all.figures("flat-network-pod-p50", "-").to_vec())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let path = format!("{NAMESPACE}/{name}");
        self.objects.delete("Pod", &path).await?;
        self.objects.wait_gone(IP, &path).await
    }

    /// What fipd writes for whole lives: a pod gets its address, uses it, has its labels, and goes.
    async fn writes(&self) -> Result<Vec<Figure>> {
        tokio::time::sleep(SETTLED).await;
        let before = Writes::read(&self.cluster.0, &COUNTED)?;
        let start = Instant::now();
        for number in 0..LIVES {
            let name = format!("life-{number}");
            self.pods(Some("single")).one(&name).await?;
            let path = format!("{NAMESPACE}/{name}");
            self.objects.attach(&path).await?;
            let labelled = |pod: &Value| {
                pod["metadata"]["labels"]["flatnetwork.pandaria.io/selectedIP"].is_string()
            };
            self.objects
                .wait("Pod", &path, "has its labels", labelled)
                .await?;
            self.delete(&name).await?;
        }
        let seconds = start.elapsed().as_secs_f64();
        tokio::time::sleep(SETTLED).await;
        let after = Writes::read(&self.cluster.0, &COUNTED)?;
        let lives = LIVES as f64;
        // Three are the bench's own: it creates the pod, attaches it and deletes it.
        let objects = (after.objects - before.objects) / lives - 3.0;
        let events = (after.events - before.events) / lives;
        // The first one comes at once, the last one up to a second after the last pod.
        let subnet = (after.pool_status - before.pool_status - 1.0) / (seconds + 1.0);
        let (all, peer) = (objects + events, format!("{events:.2} Events"));
        let names = [
            "flat-network-writes-of-a-pod",
            "flat-network-writes-of-subnet-status",
        ];
        Ok(vec![
            Figure::at_most(names[0], "writes", all, &peer, 6.0),
            Figure::at_most(names[1], "a second", subnet, "-", 1.0),
        ])
    }

    /// As many pods as their subnet has addresses. The floor is the same pods without annotations.
    async fn burst(&self) -> Result<Vec<Figure>> {
        let (plain, flat) = (self.pods(None), self.pods(Some("burst")));
        let clear = async |_| self.delete_pods().await;
        let bursts = flat.bursts(&plain, BURST, clear).await?;
        Ok(bursts.figures("flat-network-1000-pods").to_vec())
    }

    /// Deletes all pods and waits until their addresses are gone as well.
    async fn delete_pods(&self) -> Result<()> {
        let [pods, addresses] = ["Pod", IP].map(|kind| self.objects.of(kind, NAMESPACE));
        delete_all(&pods, &addresses).await?;
        tokio::time::sleep(SETTLED).await;
        Ok(())
    }

    /// fipd at rest, started beside these pods as after a boot.
    async fn memory(&mut self) -> Result<Figure> {
        self.fipd.terminate(DEADLINE).await?;
        program::forget().await?;
        self.pods(None).create("other", PODS - FLAT_PODS).await?;
        self.pods(Some("burst")).create("flat", FLAT_PODS).await?;
        self.fipd.restart().await?;
        self.fipd.wait_ready(DEADLINE).await?;
        let last = format!("{NAMESPACE}/flat-{:04}", FLAT_PODS - 1);
        self.objects.wait_address(&last).await?;
        tokio::time::sleep(SETTLED).await;
        let resident = self.fipd.resident_kib()? as f64 / 1_024.0;
        let name = "flat-network-memory-200-of-5000-pods";
        Ok(Figure::at_most(name, "MB", resident, "-", MEMORY))
    }
}
