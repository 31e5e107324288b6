//! Memory of a fipd that answers the plugin of a node whose pods are on a flat network.
//!
//! The plugin is called as Multus does, for the pods of a real API server, beside a fipd that gives them addresses. Their
//! containers are network namespaces.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::figure::Figure;
use super::program;
use crate::flat_network::{FlatObjects, PodCluster, SUBNET, SUBNETS, start_agent};
use crate::namespace::enter_mounts_in_child;
use crate::process::Process;
use crate::testbed::{
    CniCall, CniHost, ControlPlaneOptions, Fipd, MASTER, fipd_binary, wait_until,
};

pub(super) const NAMESPACE: &str = "bench";
const PODS: usize = 200;
/// In MB.
const MEMORY: f64 = 40.0;
const DEADLINE: Duration = Duration::from_secs(300);
/// After the last call, until memory is at rest.
const SETTLED: Duration = Duration::from_secs(15);

pub async fn memory(plugin: &Path) -> Result<Figure> {
    let host = CniHost::start(Some(plugin)).await?;
    let cluster = PodCluster::with("bench-node", ControlPlaneOptions::default()).await?;
    let (_decider, objects) = decide(&cluster, "10.72.0.0/16").await?;
    let agent = start(&cluster, &host).await?;
    for number in 0..PODS {
        attach(&host, &objects, &format!("p{number:04}")).await?;
    }
    count(&host).await?;
    tokio::time::sleep(SETTLED).await;
    let resident = agent.resident_kib()? as f64 / 1_024.0;
    let name = "cni-node-memory-200-pods";
    Ok(Figure::at_most(name, "MB", resident, "-", MEMORY))
}

/// A fipd that gives addresses of a network to pods on the host's master.
pub(super) async fn decide(cluster: &PodCluster, cidr: &str) -> Result<(Fipd, FlatObjects)> {
    cluster.make_namespace(NAMESPACE).await?;
    let objects = cluster.objects().await?;
    let mut fipd = cluster.prepare_admin().await?;
    fipd.restart().await?;
    fipd.wait_ready(DEADLINE).await?;
    let rest = json!({ "master": MASTER, "vlan": 0 });
    objects.subnet("flat", cidr, rest).await?;
    let path = format!("{SUBNETS}/flat");
    objects.wait_phase(SUBNET, &path, "Active").await?;
    Ok((fipd, objects))
}

/// The fipd of the node, once it has the cluster.
async fn start(cluster: &PodCluster, host: &CniHost) -> Result<Process> {
    let folder = host.directory();
    // A copy: pages of the file that the deciding fipd has read would count as well.
    let program = folder.join("fipd");
    tokio::fs::copy(fipd_binary().await?, &program).await?;
    program::forget_file(&program)?;
    let mut command = Command::new(program);
    enter_mounts_in_child(&mut command, host.mounts_of())?;
    let kubeconfig = cluster.0.kubeconfig_yaml();
    let agent = start_agent(command, "n1", kubeconfig, folder, folder)?;
    let status = CniCall::new("STATUS", &conf(host));
    wait_until("the agent serves plugins", DEADLINE, || async {
        agent.still_running().map_err(|error| error.to_string())?;
        let called = host.call(&status).await;
        let served = called.and_then(|called| called.result());
        served.map_err(|error| format!("{error:#}"))
    })
    .await?;
    Ok(agent)
}

/// That the agent knows of all pods.
async fn count(host: &CniHost) -> Result<()> {
    let fipd = fipd_binary().await?;
    let socket = host.directory().join("fipd.sock");
    let asked = format!("{fipd:?} flat-network node --socket {socket:?} -o json");
    let shown: Value = serde_json::from_str(&host.run(&asked).await?)?;
    let attachments = &shown["node"][0]["attachments"];
    ensure!(*attachments == json!(PODS), "{shown}");
    Ok(())
}

fn conf(host: &CniHost) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "rancher-flat-network", "type": "fipd-cni",
        "socket": host.directory().join("cni.sock"),
    })
}

/// A pod with its container and its interface.
async fn attach(host: &CniHost, objects: &FlatObjects, name: &str) -> Result<()> {
    let path = format!("{NAMESPACE}/{name}");
    let uid = objects.pod(&path, "flat", "auto", json!({})).await?;
    objects.wait_address(&path).await?;
    host.make_container(name).await?;
    let call = CniCall::new("ADD", &conf(host))
        .of(name, &host.netns(name), "eth1")
        .of_pod(NAMESPACE, name, &uid);
    let called = host.call(&call).await?;
    called.result().with_context(|| name.to_owned()).map(drop)
}
