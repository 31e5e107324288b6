//! One cluster for all of it: its start takes longer than each story.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use fipd_tests::flat_network::{IP, SUBNET, SUBNETS};
use fipd_tests::testbed::{fipd_binary, on_a_node, wait_until};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::bed::{Bed, DEADLINE, HOST_V4, HOST_V6, NAMESPACE, NODES, prepare};

#[test]
fn pods_on_two_nodes_have_their_flat_addresses_and_reach_each_other() {
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(prepare())
        .unwrap();
    let told = on_a_node(async || {
        let mut bed = Bed::start().await?;
        let told = stories(&mut bed).await;
        told.with_context(|| bed.last_words())
    });
    if let Err(error) = told {
        panic!("{error:#}");
    }
}

async fn stories(bed: &mut Bed) -> Result<()> {
    a_pod_without_a_flat_network_runs(bed).await?;
    pods_reach_each_other(bed).await?;
    multus_is_answered(bed).await?;
    the_node_shows_how_its_plugin_fares(bed).await?;
    g1_4_the_next_pod_of_a_name_has_its_own_object(bed).await?;
    pods_are_deleted_while_the_agent_is_down(bed).await?;
    pods_come_while_the_agent_is_killed(bed).await?;
    g1_19_the_node_reaches_a_pod_by_a_route_that_goes_with_it(bed).await?;
    g1_27_nothing_is_left_on_the_nodes(bed).await
}

async fn a_pod_without_a_flat_network_runs(bed: &Bed) -> Result<()> {
    bed.pod("plain", 0, false).await?;
    let pod = bed.running("plain").await?;
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    ensure!(address.starts_with("10.42.1."), "{address}");
    let path = format!("{NAMESPACE}/plain");
    bed.objects.delete("Pod", &path).await?;
    bed.objects.wait_gone("Pod", &path).await
}

async fn the_node_shows_how_its_plugin_fares(bed: &Bed) -> Result<()> {
    let fipd = fipd_binary().await?;
    let asked = "--socket /run/fipd/fipd.sock flat-network node -o json";
    let shown = format!("{} {asked}", fipd.display());
    let shown: Value = serde_json::from_str(&bed.nodes[0].run(&shown).await?)?;
    let row = &shown["node"][0];
    ensure!(row["name"] == NODES[0], "{shown}");
    ensure!(row["version"] == env!("CARGO_PKG_VERSION"), "{shown}");
    ensure!(row["attachments"].as_u64() >= Some(1), "{shown}");
    Ok(())
}

/// Addresses of `eth1` that are not link-local.
async fn configured(bed: &Bed, node: usize, pod: &str) -> Result<BTreeSet<String>> {
    let interface = bed.interface(node, pod, "eth1").await?;
    let infos = interface["addr_info"].as_array().into_iter().flatten();
    let global = infos.filter(|info| info["scope"] == "global");
    Ok(global
        .filter_map(|info| info["local"].as_str())
        .map(str::to_owned)
        .collect())
}

/// The addresses of a pod's objects.
async fn shown(bed: &Bed, pod: &str) -> Result<BTreeSet<String>> {
    let mut shown = BTreeSet::new();
    for name in bed.objects.names(IP, NAMESPACE).await? {
        if name != pod && !name.starts_with(&format!("{pod}.")) {
            continue;
        }
        let path = format!("{NAMESPACE}/{name}");
        if let Some(ip) = bed.objects.get(IP, &path).await? {
            shown.extend(ip["status"]["addr"].as_str().map(str::to_owned));
        }
    }
    Ok(shown)
}

/// That a running pod has what its objects say.
async fn is_attached(bed: &Bed, node: usize, pod: &str) -> Result<BTreeSet<String>> {
    bed.running(pod).await?;
    let ip = bed.active(pod).await?;
    let addresses = configured(bed, node, pod).await?;
    let expected = shown(bed, pod).await?;
    ensure!(
        addresses == expected,
        "{pod} has {addresses:?}, objects say {expected:?}"
    );
    let interface = bed.interface(node, pod, "eth1").await?;
    ensure!(
        ip["status"]["mac"] == interface["address"],
        "{ip} {interface}"
    );
    Ok(addresses)
}

async fn pods_reach_each_other(bed: &Bed) -> Result<()> {
    for (pod, node) in [("a", 0), ("b", 1), ("c", 1)] {
        bed.pod(pod, node, true).await?;
    }
    let mut addresses = Vec::new();
    for (pod, node) in [("a", 0), ("b", 1), ("c", 1)] {
        addresses.push(is_attached(bed, node, pod).await?);
    }
    ensure!(addresses[0].len() == 2, "{addresses:?}");
    for address in addresses[1].iter().map(String::as_str) {
        bed.ping(0, "a", address).await?;
        bed.ping(1, "c", address).await?;
    }
    for address in [HOST_V4, HOST_V6] {
        bed.ping(0, "a", address).await?;
        bed.ping(1, "b", address).await?;
    }
    Ok(())
}

/// What Multus sends, and what it makes of the answer.
async fn multus_is_answered(bed: &Bed) -> Result<()> {
    let uid = bed.objects.get("Pod", &format!("{NAMESPACE}/a")).await?;
    let pod = uid.context("the pod")?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let exchange = bed.exchange(0, "a", "ADD").await?;
    ensure!(exchange["error"] == "", "{exchange}");
    let environment = &exchange["environment"];
    ensure!(environment["CNI_IFNAME"] == "eth1", "{exchange}");
    let args = environment["CNI_ARGS"].as_str().unwrap_or_default();
    // Most keys come twice.
    ensure!(
        args.starts_with("IgnoreUnknown=true;K8S_POD_NAMESPACE="),
        "{args}"
    );
    let uids = args.matches(&format!("K8S_POD_UID={uid}")).count();
    ensure!(uids == 2, "{args}");
    let stdin: Value = serde_json::from_str(exchange["stdin"].as_str().unwrap_or_default())?;
    ensure!(stdin["name"] == "rancher-flat-network", "{stdin}");
    ensure!(stdin["ipam"]["type"] == "static-ipam", "{stdin}");
    let result: Value = serde_json::from_str(exchange["stdout"].as_str().unwrap_or_default())?;
    ensure!(result["cniVersion"] == stdin["cniVersion"], "{result}");
    let status = &pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    let status: Value = serde_json::from_str(status.as_str().unwrap_or_default())?;
    ensure!(status[0]["default"] == true, "{status}");
    ensure!(
        status[1]["name"] == format!("{NAMESPACE}/rancher-flat-network"),
        "{status}"
    );
    let ips = status[1]["ips"].as_array().into_iter().flatten();
    let ips: BTreeSet<_> = ips
        .filter_map(|ip| ip.as_str())
        .map(str::to_owned)
        .collect();
    ensure!(ips == shown(bed, "a").await?, "{status}");
    Ok(())
}

async fn g1_4_the_next_pod_of_a_name_has_its_own_object(bed: &Bed) -> Result<()> {
    let path = format!("{NAMESPACE}/b");
    // By force, its object is gone while its interface is still there.
    for grace in [1, 0] {
        let params = DeleteParams::default().grace_period(grace);
        let pods = bed.objects.of("Pod", NAMESPACE);
        pods.delete("b", &params).await?;
        bed.objects.wait_gone("Pod", &path).await?;
        let uid = bed.pod("b", 1, true).await?;
        is_attached(bed, 1, "b").await?;
        let ip = bed.active("b").await?;
        ensure!(ip["spec"]["podId"] == uid, "{uid}: {ip}");
        let exchange = bed.exchange(1, "b", "ADD").await?;
        let args = exchange["environment"]["CNI_ARGS"].as_str();
        ensure!(args.is_some_and(|args| args.contains(&uid)), "{exchange}");
    }
    bed.ping(1, "b", HOST_V4).await
}

async fn pods_are_deleted_while_the_agent_is_down(bed: &mut Bed) -> Result<()> {
    bed.agents[0].kill()?;
    bed.delete("a").await?;
    let what = "the plugin has deleted what the pod had";
    let exchange = wait_until(what, DEADLINE, || bed.exchange(0, "a", "DEL")).await?;
    ensure!(exchange["error"] == "", "{exchange}");
    bed.agents[0] = bed.start_agent(0).await?;
    bed.pod("a", 0, true).await?;
    is_attached(bed, 0, "a").await?;
    bed.ping(0, "a", HOST_V6).await
}

async fn pods_come_while_the_agent_is_killed(bed: &mut Bed) -> Result<()> {
    let names = ["k0", "k1", "k2", "k3"];
    for name in names {
        bed.pod(name, 1, true).await?;
        bed.agents[1].kill()?;
        bed.agents[1] = bed.start_agent(1).await?;
    }
    let mut all = BTreeSet::new();
    for name in names {
        for address in is_attached(bed, 1, name).await? {
            ensure!(all.insert(address.clone()), "{address} is given twice");
        }
        bed.ping(1, name, HOST_V4).await?;
    }
    for name in names {
        bed.delete(name).await?;
    }
    Ok(())
}

/// `addPodIPToHost`: the route of a pod that is gone is in the way of nobody, and the pod's goes with it.
async fn g1_19_the_node_reaches_a_pod_by_a_route_that_goes_with_it(bed: &Bed) -> Result<()> {
    let rest = json!({ "vlan": 0, "master": "eth0", "routeSettings": { "addPodIPToHost": true } });
    bed.objects.subnet("routed", "10.98.0.0/24", rest).await?;
    let path = format!("{SUBNETS}/routed");
    bed.objects.wait_phase(SUBNET, &path, "Active").await?;
    let node = &bed.nodes[0];
    node.run("ip route add 10.98.0.1/32 dev eth0 proto 200")
        .await?;
    bed.pod_on("r", 0, "routed").await?;
    let addresses = is_attached(bed, 0, "r").await?;
    ensure!(addresses.contains("10.98.0.1"), "{addresses:?}");
    let routes = node.run("ip route show 10.98.0.1").await?;
    ensure!(
        routes.contains("dev cni0") && !routes.contains("eth0"),
        "{routes}"
    );
    let own = node.run("ip -4 -oneline address show dev eth0").await?;
    let source = routes.split(" src ").nth(1).context("src")?;
    let source = source.split_whitespace().next().context("src")?;
    ensure!(own.contains(&format!(" {source}/")), "{routes}; {own}");
    node.run("ping -c 1 -W 5 10.98.0.1").await?;
    bed.delete("r").await?;
    wait_until("the route is gone", DEADLINE, || async {
        let routes = node.run("ip route show 10.98.0.1").await?;
        ensure!(routes.is_empty(), "{routes}");
        Ok(())
    })
    .await
}

/// Of the node's own interfaces, and whether its master is promiscuous.
async fn seen_on(bed: &Bed, node: usize) -> Result<(BTreeSet<String>, u64)> {
    let text = bed.nodes[node].run("ip -json -details link").await?;
    let links: Vec<Value> = serde_json::from_str(&text)?;
    let names = links.iter().filter_map(|one| one["ifname"].as_str());
    let names = names.map(str::to_owned).collect();
    let master = links.iter().find(|one| one["ifname"] == "eth0");
    let promiscuity = master.and_then(|one| one["promiscuity"].as_u64());
    Ok((names, promiscuity.context("promiscuity")?))
}

async fn g1_27_nothing_is_left_on_the_nodes(bed: &Bed) -> Result<()> {
    for name in ["a", "b", "c"] {
        bed.delete(name).await?;
    }
    for node in [0, 1] {
        let what = "nothing of pods is left on the node";
        wait_until(what, DEADLINE, || async {
            let (names, promiscuity) = seen_on(bed, node).await?;
            ensure!(promiscuity == 0, "promiscuity {promiscuity}");
            let expected = ["lo", "eth0", "cni0"].map(str::to_owned);
            let left: Vec<_> = names
                .difference(&BTreeSet::from(expected))
                .cloned()
                .collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
