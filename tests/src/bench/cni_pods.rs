//! Pods of a real kubelet, from their creation until they run: with fipd's plugin as the only network, beside the published bridge
//! with host-local on the same node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::cni_node::{NAMESPACE, decide};
use super::figure::{Figure, median, millis};
use super::subject::Subject;
use crate::flat_network::{FlatObjects, PodCluster, start_agent_on};
use crate::process::Process;
use crate::testbed::{ControlPlaneOptions, Fipd, Node, NodeNetwork, NodeOptions, PAUSE};
use crate::toolchain::Component;

const NODE: &str = "n1";
/// The node's interface is on this network.
const FLAT: &str = "10.99.0.0/24";
const BRIDGED: &str = "10.42.1.0/24";
/// Turns of each network, and pods of a turn without its first, which finds the network new.
const TURNS: usize = 3;
const PODS: usize = 6;
/// Until containerd has taken up another network.
const TAKEN_UP: Duration = Duration::from_secs(2);

struct Bed {
    // Dropped in this order: all need the API server to the end.
    _agent: Process,
    _fipd: Fipd,
    node: Node,
    objects: FlatObjects,
    _cluster: PodCluster,
}

/// What containerd attaches pods to.
struct Network {
    configuration: Value,
    /// What addresses of its pods begin with.
    prefix: &'static str,
    annotations: Value,
}

/// To be run in a network namespace, for whose nodes all has been prepared.
pub async fn running(plugin: &Path) -> Result<Figure> {
    let bed = Bed::start(plugin).await?;
    let networks = [flat(), bridge()];
    let mut samples: [Vec<Duration>; 2] = Default::default();
    for turn in 0..TURNS {
        for (network, samples) in networks.iter().zip(&mut samples) {
            bed.node.attach_to(&network.configuration)?;
            tokio::time::sleep(TAKEN_UP).await;
            let taken = bed.pods(network, turn).await?;
            samples.extend(&taken[1..]);
        }
    }
    let [ours, peer] = samples.map(|all| median(&all).map(millis));
    let name = "cni-pod-created-to-running";
    Ok(Figure::cost_ratio(name, "ms", ours?, peer?, 1.1))
}

fn flat() -> Network {
    let plugin = json!({ "type": "fipd-cni" });
    Network {
        configuration: json!({ "cniVersion": "1.0.0", "name": "flat", "plugins": [plugin] }),
        prefix: "10.99.",
        annotations: json!({
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "flat",
        }),
    }
}

fn bridge() -> Network {
    let plugin = json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true,
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": BRIDGED }]] },
    });
    Network {
        configuration: json!({ "cniVersion": "1.0.0", "name": "bridged", "plugins": [plugin] }),
        prefix: "10.42.",
        annotations: json!({}),
    }
}

impl Bed {
    async fn start(plugin: &Path) -> Result<Self> {
        let options = ControlPlaneOptions {
            nodes: true,
            ..ControlPlaneOptions::default()
        };
        let cluster = PodCluster::with("bench-node", options).await?;
        let (fipd, objects) = decide(&cluster, FLAT).await?;
        let options = NodeOptions {
            network: Some(NodeNetwork {
                plugins: plugins(plugin)?,
                configuration: bridge().configuration,
            }),
            ..NodeOptions::default()
        };
        let node = Node::start_with(&cluster.0, NODE, &options).await?;
        let agent = start_agent_on(&node, NODE, cluster.0.kubeconfig_yaml()).await?;
        Ok(Self {
            _agent: agent,
            _fipd: fipd,
            node,
            objects,
            _cluster: cluster,
        })
    }

    /// Pods one after the other: how long each took.
    async fn pods(&self, network: &Network, turn: usize) -> Result<Vec<Duration>> {
        let pods = self.objects.of("Pod", NAMESPACE);
        let subject = Subject {
            api: pods.clone(),
            object: json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "annotations": network.annotations },
                "spec": {
                    "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "c", "image": PAUSE, "imagePullPolicy": "Never" }],
                },
            }),
            shows: pods,
            shown: "/status/containerStatuses/0/state/running/startedAt",
        };
        let mut taken = Vec::new();
        for number in 0..=PODS {
            let name = format!("p{}{turn}-{number}", &network.prefix[..2]);
            taken.push(subject.one(&name).await?);
            let path = format!("{NAMESPACE}/{name}");
            let pod = self.objects.get("Pod", &path).await?.context(name)?;
            let ip = pod["status"]["podIP"].as_str().unwrap_or_default();
            ensure!(ip.starts_with(network.prefix), "{ip}");
            self.objects.delete("Pod", &path).await?;
            self.objects.wait_gone("Pod", &path).await?;
        }
        Ok(taken)
    }
}

fn plugins(own: &Path) -> Result<Vec<(String, PathBuf)>> {
    let all = [
        ("bridge", Component::CniBridge.path()?),
        ("host-local", Component::CniHostLocal.path()?),
        ("loopback", Component::CniLoopback.path()?),
        ("fipd-cni", own.to_path_buf()),
    ];
    Ok(all.map(|(name, path)| (name.to_owned(), path)).into())
}
