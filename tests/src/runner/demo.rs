//! `cargo demo`: a small site on this machine, and one Service that gets its floating IP from fipd.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::say::{progress, say};
use crate::testbed::{Fipd, FipdOptions, Site, SiteOptions, wait_until};

const CLUSTER: &str = "alpha";
const NAMESPACE: &str = "shop";
const SERVICE: &str = "web";
/// The name the cluster manager of the originals computes: cluster and network.
const POOL: &str = "alpha--public";
const ADDRESS_WITHIN: Duration = Duration::from_secs(60);

/// Rancher by its kubeconfig, all other clusters found through Rancher.
const CONFIG: &str = r#"
[[cluster]]
name = "rancher"
kubeconfig = "rancher.kubeconfig"
systems = ["rancher-fip"]

[discovery]
cluster = "rancher"
match-labels = { rancher-fip = "enabled" }
systems = ["rancher-fip"]
"#;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Do not wait for Ctrl-C: print one JSON object of what was seen as the last line, and end
    #[arg(long)]
    once: bool,
}

/// What was seen, the last line of `--once`.
#[derive(Debug, Serialize)]
struct Seen {
    pool: String,
    service: String,
    address: String,
    ui: String,
    /// From the Service's creation until its status had the address.
    milliseconds: u64,
}

/// A running site with its daemon.
struct Demo {
    // Dropped in this order: the daemon ends before its clusters do.
    fipd: Fipd,
    site: Site,
}

/// Succeeds only when the Service really has its address in status.
pub async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Ending early drops what was started so far, and with it processes and files.
    let started = tokio::select! {
        started = play() => Some(started?),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some((mut demo, seen)) = started else {
        return Ok(ExitCode::FAILURE);
    };
    demo.tell(&seen)?;
    if arguments.once {
        say(serde_json::to_string(&seen)?);
    } else {
        say("\nEnd with Ctrl-C; everything is removed then.");
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    demo.fipd.terminate(Duration::from_secs(10)).await?;
    Ok(ExitCode::SUCCESS)
}

async fn play() -> Result<(Demo, Seen)> {
    // The binary first: the clusters need not wait for a compiler.
    crate::testbed::fipd_binary().await?;
    progress(
        "starting a Rancher cluster and one downstream cluster (real etcd and kube-apiservers)",
    );
    let site = Site::start(&SiteOptions::of(&[CLUSTER])).await?;
    site.rancher.install_crds(&fip_crds()).await?;
    progress("starting fipd");
    let mut fipd = Fipd::prepare(FipdOptions {
        config: Some(CONFIG.to_string()),
        ..FipdOptions::default()
    })
    .await?;
    fipd.write_file("rancher.kubeconfig", site.rancher_kubeconfig())?;
    fipd.restart().await?;
    let demo = Demo { fipd, site };
    let seen = demo
        .give_an_address()
        .await
        .with_context(|| demo.fipd.log_tail())?;
    Ok((demo, seen))
}

impl Demo {
    async fn give_an_address(&self) -> Result<Seen> {
        let cluster = self.site.cluster(CLUSTER)?;
        progress(format_args!("creating the FloatingIPPool {POOL}"));
        self.site.rancher.apply(&pool().to_string()).await?;
        let quota = quota(&cluster.project);
        self.site.rancher.apply(&quota.to_string()).await?;
        cluster.add_namespace(NAMESPACE).await?;
        progress(format_args!(
            "creating the Service {NAMESPACE}/{SERVICE} in cluster {CLUSTER}"
        ));
        let client = cluster.plane.client().await?;
        let start = Instant::now();
        create_service(&client).await?;
        let address = wait_for_address(&client).await?;
        let milliseconds = u64::try_from(start.elapsed().as_millis())?;
        let service = format!("{CLUSTER}/{NAMESPACE}/{SERVICE}");
        Ok(Seen {
            pool: POOL.to_string(),
            service,
            address,
            ui: self.fipd.url(),
            milliseconds,
        })
    }

    fn tell(&self, seen: &Seen) -> Result<()> {
        let login = std::fs::read_to_string(self.fipd.data_dir().join("initial-admin"))
            .context("initial-admin")?;
        let (name, password) = login
            .trim()
            .split_once('\n')
            .context("initial-admin holds a name and a password")?;
        say(format_args!(
            "pool     {} (192.0.2.10 to 192.0.2.250) in Rancher",
            seen.pool
        ));
        say(format_args!("service  {}", seen.service));
        say(format_args!(
            "address  {}, {} ms after the Service was created",
            seen.address, seen.milliseconds
        ));
        say(format_args!(
            "UI       {} (own CA; sign in as {name} with {password})",
            seen.ui
        ));
        say(format_args!(
            "CLI      fipd --socket {} lease list",
            self.fipd.socket().display()
        ));
        say(format_args!(
            "rancher  kubectl --kubeconfig {} get fippool,fip -A",
            self.site.rancher.kubeconfig_path().display()
        ));
        let downstream = self.site.cluster(CLUSTER)?.plane.kubeconfig_path();
        say(format_args!(
            "{CLUSTER}    kubectl --kubeconfig {} get service -A",
            downstream.display()
        ));
        Ok(())
    }
}

fn fip_crds() -> String {
    fipd_crds::MANIFESTS
        .iter()
        .map(|(_, text)| format!("---\n{text}\n"))
        .collect()
}

/// Addresses of the range kept for documentation, as the default pool of the cluster.
fn pool() -> serde_json::Value {
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
        "metadata": { "name": POOL, "annotations": { "rancher-fip-default-network": "true" } },
        "spec": {
            "ipConfig": {
                "family": "IPv4", "subnet": "192.0.2.0/24",
                "pool": { "start": "192.0.2.10", "end": "192.0.2.250" },
            },
            "targetCluster": CLUSTER, "targetNetwork": "public",
        },
    })
}

/// Who has no quota gets nothing.
fn quota(project: &str) -> serde_json::Value {
    json!({
        "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPProjectQuota",
        "metadata": { "name": project },
        "spec": { "displayName": "demo", "floatingIPQuota": { (POOL): 10 } },
    })
}

async fn create_service(client: &Client) -> Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": SERVICE },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "fipd.io/floating-ip",
            "selector": { "app": SERVICE }, "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    }))?;
    let api: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &service)
        .await
        .context("create the Service")?;
    Ok(())
}

async fn wait_for_address(client: &Client) -> Result<String> {
    let api: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    wait_until(
        "the Service has an address in status",
        ADDRESS_WITHIN,
        || async {
            let service = api.get(SERVICE).await.map_err(|error| error.to_string())?;
            let balancer = service.status.and_then(|status| status.load_balancer);
            let first = balancer
                .and_then(|balancer| balancer.ingress)
                .and_then(|ingress| ingress.into_iter().next());
            first
                .and_then(|ingress| ingress.ip)
                .ok_or_else(|| "no address in status.loadBalancer".to_string())
        },
    )
    .await
}
