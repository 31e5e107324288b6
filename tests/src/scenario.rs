//! A site with fipd beside it: what the end-to-end tests, the demo and the benches start from.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::testbed::{Fipd, FipdOptions, KeptSite, Site, SiteOptions, wait_until};

/// How many requests the creators of [`create_services`] have under way at once, as in the peers' measurements.
const CREATORS: usize = 16;

/// A Rancher site whose clusters are all named in fipd's config file.
pub struct Scenario {
    // Dropped in this order: fipd ends before another test has its clusters.
    pub fipd: Fipd,
    pub site: KeptSite,
}

impl Scenario {
    /// Starts the site, installs fipd's definitions in Rancher, and prepares fipd without starting it.
    pub async fn prepare(options: &SiteOptions) -> Result<Self> {
        let site = KeptSite::start(options).await?;
        let mut fipd = Fipd::prepare(FipdOptions::default()).await?;
        write_kubeconfig(&fipd, "rancher", site.rancher_kubeconfig())?;
        for cluster in &site.downstream {
            write_kubeconfig(&fipd, &cluster.display_name, cluster.kubeconfig())?;
        }
        fipd.write_config(&config(&site, ""))?;
        Ok(Self { fipd, site })
    }

    /// The same with fipd running and ready.
    pub async fn start(options: &SiteOptions) -> Result<Self> {
        let mut scenario = Self::prepare(options).await?;
        scenario.fipd.restart().await?;
        scenario.fipd.wait_ready(Duration::from_secs(60)).await?;
        Ok(scenario)
    }

    /// A client of the downstream cluster called `name`.
    pub async fn client(&self, name: &str) -> Result<Client> {
        self.site.cluster(name)?.plane.client().await
    }

    /// Makes a pool in Rancher that Services name by `rancher.k8s.binbash.org/static-network`.
    pub async fn add_pool(&self, name: &str, subnet: &str, start: &str, end: &str) -> Result<()> {
        let pool = json!({
            "apiVersion": "rancher.k8s.binbash.org/v1beta2", "kind": "FloatingIPPool",
            "metadata": { "name": name },
            "spec": { "ipConfig": {
                "family": if subnet.contains(':') { "IPv6" } else { "IPv4" },
                "subnet": subnet, "pool": { "start": start, "end": end },
            } },
        });
        self.site.rancher.apply(&pool.to_string()).await
    }
}

/// fipd's config for a site, `extra` lines in each downstream's `[cluster.rancher-fip]`.
pub fn config(site: &Site, extra: &str) -> String {
    let names = site
        .downstream
        .iter()
        .map(|cluster| cluster.display_name.as_str());
    config_of(site, &names.collect::<Vec<_>>(), extra)
}

/// [`config`] with only the downstream clusters called `names`.
pub fn config_of(site: &Site, names: &[&str], extra: &str) -> String {
    let mut text = cluster_entry("rancher", "role = \"management\"\nquotas = \"optional\"\n");
    let served = |name: &String| names.contains(&name.as_str());
    for cluster in site
        .downstream
        .iter()
        .filter(|cluster| served(&cluster.display_name))
    {
        let settings = format!(
            "role = \"downstream\"\ncluster-id = \"{}\"\nproject = \"{}\"\n{extra}",
            cluster.id, cluster.project
        );
        text.push_str(&cluster_entry(&cluster.display_name, &settings));
    }
    text
}

fn cluster_entry(name: &str, settings: &str) -> String {
    format!(
        "[[cluster]]\nname = \"{name}\"\nkubeconfig = \"{name}.kubeconfig\"\nsystems = [\"rancher-fip\"]\n\
         [cluster.rancher-fip]\n{settings}\n"
    )
}

/// Writes, or replaces at once, the kubeconfig of the cluster called `name`.
pub fn write_kubeconfig(fipd: &Fipd, name: &str, text: &str) -> Result<()> {
    let path = fipd.directory().join(format!("{name}.kubeconfig"));
    let half = path.with_extension("new");
    fs::write(&half, text)?;
    fs::rename(half, path).context("replace kubeconfig")
}

/// A Service that asks fipd for an address of `pool`.
pub fn service(name: &str, pool: &str) -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": { "rancher.k8s.binbash.org/static-network": pool },
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "fipd.io/floating-ip",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    }))?)
}

/// Creates `service(NAME, pool)` for each name, sixteen at a time.
pub async fn create_services(api: &Api<Service>, names: &[String], pool: &str) -> Result<()> {
    let services = names.iter().map(|name| service(name, pool));
    create(api, services.collect::<Result<_>>()?).await
}

/// Creates Services, sixteen at a time.
pub async fn create(api: &Api<Service>, services: Vec<Service>) -> Result<()> {
    let created = stream::iter(services).map(|service| {
        let api = api.clone();
        async move {
            let made = api.create(&PostParams::default(), &service).await;
            made.map(drop)
                .with_context(|| format!("create Service {}", service.name_any()))
        }
    });
    created.buffer_unordered(CREATORS).try_collect().await
}

/// The addresses in a Service's status.
pub fn addresses(service: &Service) -> Vec<IpAddr> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref());
    let entries = ingress.into_iter().flatten();
    entries
        .filter_map(|entry| entry.ip.as_ref()?.parse().ok())
        .collect()
}

/// Address lists of all Services in the namespace, by name; Services without any are left out.
pub async fn assigned(api: &Api<Service>) -> Result<BTreeMap<String, Vec<IpAddr>>> {
    let list = api.list(&ListParams::default()).await?;
    let all = list
        .items
        .iter()
        .map(|service| (service.name_any(), addresses(service)));
    Ok(all.filter(|(_, addresses)| !addresses.is_empty()).collect())
}

/// Waits until at least `count` Services of the namespace have an address.
pub async fn wait_assigned(
    api: &Api<Service>,
    count: usize,
    deadline: Duration,
) -> Result<BTreeMap<String, Vec<IpAddr>>> {
    wait_until(
        &format!("{count} Services have an address"),
        deadline,
        || async {
            let seen = assigned(api).await.map_err(|error| format!("{error:#}"))?;
            if seen.len() >= count {
                Ok(seen)
            } else {
                Err(format!("{} have one", seen.len()))
            }
        },
    )
    .await
}
