//! Guest clusters of kube-fip, on real API servers: FloatingIPs, a new guest, and a look at a hundred guests of which ten do not
//! answer.
//!
//! The original cannot be built here; what the API server itself takes stands for it. The hundred guests share one real API
//! server; the ten are behind a port that takes connections and says nothing.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::figure::{median, millis};
use super::series::WARM_UP;
use super::subject::{Subject, delete_all};
use super::{Figure, program};
use crate::kube_fip::KubeFipObjects;
use crate::scenario::write_kubeconfig;
use crate::testbed::{Fipd, FipdOptions, HarvesterGuest, Site, SiteOptions, with_server};

const RANGE: &str = "bench";
/// The namespace of FloatingIPs that no guest has.
const FIPS: &str = "c-m-bench";
const NAMESPACE: &str = "kube-fip";
const CONFIG: &str = "kube-fip-config";
const DEADLINE: Duration = Duration::from_secs(120);

const AT_ONCE: usize = 500;
const NEW_GUESTS: usize = 10;
const ANSWERING: usize = 90;
const SILENT: usize = 10;
const LOOKS: usize = 5;
/// After a change, until everything about it is done.
const SETTLED: Duration = Duration::from_secs(15);
/// Until connections that nobody uses are closed, after a minute at most, and the allocator has returned what they held: guests
/// are looked at every eight minutes.
const IDLE: Duration = Duration::from_secs(100);

struct Bench {
    fipd: Fipd,
    site: Site,
    objects: KubeFipObjects,
    /// Number of the settings, each of which differs from the ones before.
    settings: u32,
}

/// All figures of the system.
pub async fn run() -> Result<Vec<Figure>> {
    let mut bench = Bench::start().await?;
    let mut figures = bench.floating_ips().await?;
    figures.push(bench.new_guests().await?);
    figures.extend(bench.looks().await?);
    Ok(figures)
}

impl Bench {
    async fn start() -> Result<Self> {
        let site = Site::start(&SiteOptions::of(&["harvester", "guest"])).await?;
        site.rancher.install_fipd_crds().await?;
        let labels = json!({ "provider.cattle.io": "harvester", "rancher-fip": null });
        site.label_cluster("harvester", labels).await?;
        let client = site.rancher.client().await?;
        let objects = KubeFipObjects { client };
        let fipd = Fipd::prepare(FipdOptions::default()).await?;
        let mut bench = Self {
            fipd,
            site,
            objects,
            settings: 0,
        };
        for name in [NAMESPACE, FIPS] {
            bench.add_namespace(name).await?;
        }
        bench.next_settings().await?;
        let spec = json!({ "iprange": "10.92.0.0/20" });
        bench.objects.make_range(RANGE, spec).await?;
        write_kubeconfig(&bench.fipd, "rancher", bench.site.rancher_kubeconfig())?;
        bench.fipd.write_config(
            "[[cluster]]\nname = \"rancher\"\nkubeconfig = \"rancher.kubeconfig\"\nsystems = [\"kube-fip\"]\n",
        )?;
        program::forget().await?;
        bench.fipd.restart().await?;
        bench.fipd.wait_ready(DEADLINE).await?;
        Ok(bench)
    }

    async fn add_namespace(&self, name: &str) -> Result<()> {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.site.rancher.apply(&namespace.to_string()).await
    }

    /// Changes the settings, upon which all guests are looked at.
    async fn next_settings(&mut self) -> Result<()> {
        self.settings += 1;
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": CONFIG },
            "data": { "operateGuestClusterInterval": (3_600 + self.settings).to_string() },
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.objects.client.clone(), NAMESPACE);
        let manager = PatchParams::apply("bench").force();
        maps.patch(CONFIG, &manager, &Patch::Apply(&map)).await?;
        Ok(())
    }

    /// FloatingIPs, and where their addresses show: in their specification, where the original writes them.
    fn fips(&self) -> Subject {
        Subject {
            api: self.objects.fips(FIPS),
            object: self.objects.fip(RANGE, ""),
            shows: self.objects.all_fips(),
            shown: "/spec/ipaddress",
        }
    }

    async fn floating_ips(&self) -> Result<Vec<Figure>> {
        let fips = self.fips();
        let remove = async |name: &str| {
            let path = format!("{FIPS}/{name}");
            self.objects.delete(&path).await?;
            self.objects.wait_gone(&path).await
        };
        let p50 = fips.p50("single", remove).await?;
        let bulk = fips.at_once("bulk", AT_ONCE).await?;
        delete_all(&fips.api, &fips.api).await?;
        Ok(vec![
            Figure::at_most("kube-fip-address-p50", "ms", millis(p50), "-", 10.0),
            Figure::cost_ratio(
                "kube-fip-500-addresses-at-once",
                "s",
                bulk.all.as_secs_f64(),
                bulk.creating.as_secs_f64(),
                1.3,
            ),
        ])
    }

    /// What Rancher has of a guest before its namespace.
    async fn make_guest(&self, name: &str, kubeconfig: &str) -> Result<String> {
        let id = format!("c-m-{name}");
        let machines = HarvesterGuest {
            id: Some(id.clone()),
            ..HarvesterGuest::new(name, "c-m-harvester", "default/vlan-1")
        };
        self.site.make_on_harvester(&machines).await?;
        let cluster = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": { "name": id }, "spec": { "displayName": name },
        });
        self.site.rancher.apply(&cluster.to_string()).await?;
        let client = &self.objects.client;
        self.site
            .publish_kubeconfig(client, name, kubeconfig)
            .await?;
        Ok(id)
    }

    /// The address does not depend on the guest: the kubeconfig of this one cannot be used.
    async fn new_guests(&self) -> Result<Figure> {
        let mut samples = Vec::new();
        for number in 0..WARM_UP + NEW_GUESTS {
            let id = self.make_guest(&format!("new-{number}"), "-").await?;
            // What was made has to be known before.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let fips = self.fips();
            let mut events = fips.watch().await?;
            let start = Instant::now();
            self.add_namespace(&id).await?;
            fips.next_served(&mut events).await?;
            samples.push(start.elapsed());
        }
        let p50 = median(&samples.split_off(WARM_UP))?;
        self.remove_guests().await?;
        Ok(Figure::at_most(
            "kube-fip-new-guest",
            "ms",
            millis(p50),
            "the original 15 s",
            100.0,
        ))
    }

    async fn remove_guests(&self) -> Result<()> {
        let clusters: Api<fipd_crds::management::Cluster> = Api::all(self.objects.client.clone());
        for cluster in clusters.list(&ListParams::default()).await? {
            let name = cluster.name_any();
            if name.starts_with("c-m-new-") {
                clusters.delete(&name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// A look at ninety guests, then at a hundred of which ten are silent, and what a hundred cost in memory.
    async fn looks(&mut self) -> Result<Vec<Figure>> {
        // They share a cluster, and none of them writes its ConfigMap.
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubevip", "namespace": "kube-system" },
        });
        let guest = self.site.cluster("guest")?;
        guest.plane.apply(&map.to_string()).await?;
        let kubeconfig = guest.kubeconfig().to_owned();
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = silent.local_addr()?.port();
        let dead = with_server(&kubeconfig, &format!("https://127.0.0.1:{port}"));
        tokio::time::sleep(SETTLED).await;
        let before = self.fipd.resident_kib()? as f64;
        for number in 0..ANSWERING {
            self.make_looked_at(&format!("near-{number}"), &kubeconfig)
                .await?;
        }
        self.wait_looked_at(1).await?;
        tokio::time::sleep(SETTLED).await;
        let alone = self.look_at_all().await?;
        for number in 0..SILENT {
            self.make_looked_at(&format!("silent-{number}"), &dead)
                .await?;
        }
        tokio::time::sleep(SETTLED).await;
        let beside = self.look_at_all().await?;
        tokio::time::sleep(IDLE).await;
        let with_all = self.fipd.resident_kib()? as f64;
        Ok(vec![
            Figure::cost_ratio(
                "kube-fip-look-beside-silent-guests",
                "ms",
                millis(beside),
                millis(alone),
                2.0,
            ),
            Figure::at_most(
                "kube-fip-memory-of-100-guests",
                "MB",
                (with_all - before) / 1_024.0,
                &format!("{:.0} MB with none", before / 1_024.0),
                2.0,
            ),
        ])
    }

    async fn make_looked_at(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let id = self.make_guest(name, kubeconfig).await?;
        let annotations = json!({ "clustername": name, "fiprange": RANGE });
        self.add_namespace(&id).await?;
        let path = format!("{id}/{name}-kubevip");
        let fip = json!({ "metadata": { "annotations": annotations }, "spec": {} });
        // fipd may have been faster; then it is not to write the ConfigMap.
        if self.objects.create(&path, fip).await.is_err() {
            let no = json!({ "metadata": { "annotations": { "updateConfigMap": "false" } } });
            self.objects.merge(&path, no).await?;
        }
        Ok(())
    }

    /// The median time of a look at all of them, until the ninety are done.
    async fn look_at_all(&mut self) -> Result<Duration> {
        let mut samples = Vec::new();
        for _ in 0..LOOKS {
            let done = self.fewest_looks().await?;
            let start = Instant::now();
            self.next_settings().await?;
            self.wait_looked_at(done + 1).await?;
            samples.push(start.elapsed());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        median(&samples)
    }

    async fn wait_looked_at(&self, looks: u64) -> Result<()> {
        let what = format!("each of {ANSWERING} guests was looked at {looks} times");
        let start = Instant::now();
        loop {
            let fewest = self.fewest_looks().await?;
            if fewest >= looks {
                return Ok(());
            }
            if start.elapsed() > DEADLINE {
                bail!("{what}: one was {fewest} times");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How often the ninety were looked at that answered, the least of them.
    async fn fewest_looks(&self) -> Result<u64> {
        let text = self.fipd.get("/metrics").await?.body;
        let counted = text.lines().filter(|line| {
            line.starts_with("kubefipoperator_guestcluster_events{")
                && line.contains("guestclustername=\"near-")
                && line.contains("event=\"api_connection\",status=\"success\"")
        });
        let counts: Vec<u64> = counted
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .map(|count| count as u64)
            .collect();
        match counts.len() {
            ANSWERING => counts.into_iter().min().context("no count"),
            _ => Ok(0),
        }
    }
}
