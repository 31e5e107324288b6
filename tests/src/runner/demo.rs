//! `cargo demo`: a small site on this machine. A guest cluster goes from its label in Rancher to a Service that works, and
//! a second Service gets its address from fipd without anything installed in the cluster.

mod guest;
mod objects;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fipd_crds::labels::LOAD_BALANCER_CLASS;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, PostParams};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::say::{progress, say};
use crate::testbed::{ANNOUNCER_CRDS, Charts, Fipd, FipdOptions, Site, SiteOptions, wait_until};
use guest::Guest;

const CLUSTER: &str = "alpha";
const NAMESPACE: &str = "shop";
/// Served by fipd itself.
const SERVICE: &str = "web";
/// Served by what fipd installs in the cluster.
const GUEST_SERVICE: &str = "cart";
/// The name the cluster manager of the originals computes: cluster and network.
const POOL: &str = "alpha--public";
const ADDRESS_WITHIN: Duration = Duration::from_secs(60);

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
    guest: Guest,
}

/// A running site with its daemon.
struct Demo {
    // Dropped in this order: the daemon ends before its clusters do.
    fipd: Fipd,
    site: Site,
    _charts: Charts,
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
    let (options, charts) = (SiteOptions::of(&[CLUSTER]), guest::CHARTS);
    let (site, charts) =
        futures::future::try_join(Site::start(&options), Charts::start(&charts)).await?;
    site.rancher.install_crds(&fip_crds()).await?;
    let alpha = &site.cluster(CLUSTER)?.plane;
    alpha.install_crds(ANNOUNCER_CRDS).await?;
    guest::prepare(&site, &charts).await?;
    progress("starting fipd");
    let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
    fipd.write_file("rancher.kubeconfig", site.rancher_kubeconfig())?;
    fipd.write_config(&objects::config(&fipd.url(), charts.helm().binary()))?;
    fipd.restart().await?;
    fipd.wait_ready(ADDRESS_WITHIN).await?;
    let demo = Demo {
        fipd,
        site,
        _charts: charts,
    };
    let seen = demo
        .give_an_address()
        .await
        .with_context(|| demo.fipd.log_tail())?;
    Ok((demo, seen))
}

impl Demo {
    async fn give_an_address(&self) -> Result<Seen> {
        let cluster = self.site.cluster(CLUSTER)?;
        let client = cluster.plane.client().await?;
        let guest = self.enable(cluster, &client).await?;
        progress(format_args!(
            "creating the Service {NAMESPACE}/{SERVICE}, which fipd serves itself"
        ));
        let start = Instant::now();
        create_service(&client, SERVICE, Some(LOAD_BALANCER_CLASS)).await?;
        let address = wait_for_address(&client, SERVICE).await?;
        let milliseconds = u64::try_from(start.elapsed().as_millis())?;
        let service = format!("{CLUSTER}/{NAMESPACE}/{SERVICE}");
        Ok(Seen {
            pool: POOL.to_string(),
            service,
            address,
            ui: self.fipd.url(),
            milliseconds,
            guest,
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
        seen.guest.tell();
        say(format_args!(
            "service  {}, served by fipd itself",
            seen.service
        ));
        say(format_args!(
            "address  {}, {} after the Service was created",
            seen.address,
            guest::human(seen.milliseconds)
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

async fn create_service(client: &Client, name: &str, class: Option<&str>) -> Result<()> {
    let api: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &objects::service(name, class)?)
        .await
        .with_context(|| format!("create the Service {name}"))?;
    Ok(())
}

async fn wait_for_address(client: &Client, name: &str) -> Result<String> {
    let api: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    wait_until(
        "the Service has an address in status",
        ADDRESS_WITHIN,
        || async {
            let service = api.get(name).await.map_err(|error| error.to_string())?;
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
