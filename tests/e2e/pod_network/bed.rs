//! The cluster, its nodes, and what runs on them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fipd_tests::flat_network::{FlatObjects, IP, PodCluster, SUBNET, SUBNETS, start_agent_on};
use fipd_tests::process::Process;
use fipd_tests::testbed::{
    BRIDGE, CniHost, ControlPlaneOptions, Fipd, Node, NodeNetwork, NodeOptions, PAUSE,
    SERVICE_ADDRESS, SharedClusters as _, wait_until,
};
use fipd_tests::toolchain::Component;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "web";
pub const DEADLINE: Duration = Duration::from_secs(90);
/// Another host on the segment.
pub const HOST_V4: &str = "10.99.0.254";
pub const HOST_V6: &str = "fd99::fffe";
/// The user that agents are.
const AGENT: &str = "agent";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const ATTACHMENTS: &str = include_str!("../../crds/network_attachments.yaml");
/// On a node.
const RECORD: &str = "/var/log/exchanges";
/// What an agent may do, and nothing else.
const AGENT_ROLE: &str = "fipd-flat-network-node";
const ROLES: &str = include_str!("../../../packaging/rbac/flat-network.yaml");
pub const NODES: [&str; 2] = ["n1", "n2"];

/// All of it.
pub struct Bed {
    // Dropped in this order: all need the API server to the end.
    pub agents: Vec<Process>,
    pub fipd: Fipd,
    pub nodes: Vec<Node>,
    pub objects: FlatObjects,
    pub cluster: PodCluster,
}

/// Has all that it needs of this machine's network afterwards.
pub async fn prepare() -> Result<()> {
    CniHost::prepare().await?;
    tokio::task::spawn_blocking(|| Component::Multus.path()).await??;
    Ok(())
}

impl Bed {
    pub async fn start() -> Result<Self> {
        let options = ControlPlaneOptions {
            nodes: true,
            users: vec![AGENT.to_owned()],
            ..ControlPlaneOptions::default()
        };
        let cluster = PodCluster::with("pods", options).await?;
        cluster.0.install_crds(ATTACHMENTS).await?;
        cluster.make_namespace(NAMESPACE).await?;
        let objects = cluster.objects().await?;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": AGENT_ROLE },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AGENT_ROLE,
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": AGENT,
            }],
        });
        cluster
            .0
            .apply(&format!("{ROLES}\n---\n{binding}\n"))
            .await?;
        let mut fipd = cluster.prepare_fipd("").await?;
        fipd.restart().await?;
        fipd.wait_ready(DEADLINE).await?;
        let mut bed = Self {
            agents: Vec::new(),
            fipd,
            nodes: Vec::new(),
            objects,
            cluster,
        };
        for (number, name) in (1..).zip(NODES) {
            let options = NodeOptions {
                number,
                fipd_image: None,
                network: Some(network(&bed.cluster, number)?),
            };
            bed.nodes
                .push(Node::start_with(&bed.cluster.0, name, &options).await?);
            let agent = bed.start_agent(usize::from(number) - 1).await?;
            bed.agents.push(agent);
        }
        for address in [format!("{HOST_V4}/24"), format!("{HOST_V6}/64 nodad")] {
            let arguments = format!("address add {address} dev {BRIDGE}");
            let status = std::process::Command::new("ip")
                .args(arguments.split(' '))
                .status()?;
            ensure!(status.success(), "ip {arguments}: {status}");
        }
        let partner = json!({ "vlan": 0, "master": "eth0", "gateway": HOST_V6 });
        bed.objects.subnet("flat6", "fd99::/64", partner).await?;
        let rest = json!({
            "vlan": 0, "master": "eth0", "gateway": HOST_V4, "partner": "flat6",
        });
        bed.objects.subnet("flat", "10.99.0.0/24", rest).await?;
        for name in ["flat6", "flat"] {
            let path = format!("{SUBNETS}/{name}");
            bed.objects.wait_phase(SUBNET, &path, "Active").await?;
        }
        Ok(bed)
    }

    /// Starts fipd on a node, and waits until it listens for plugins.
    pub async fn start_agent(&self, number: usize) -> Result<Process> {
        let kubeconfig = self.cluster.0.kubeconfig_of(AGENT);
        start_agent_on(&self.nodes[number], NODES[number], &kubeconfig).await
    }

    /// Makes a pod on a node; `flat`: with an interface of the flat network, in both families.
    pub async fn pod(&self, name: &str, node: usize, flat: bool) -> Result<String> {
        let annotations = match flat {
            true => json!({
                NETWORKS: "[{\"name\":\"rancher-flat-network\",\"interface\":\"eth1\"}]",
                "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": "flat",
                "fipd.io/dual-stack": "true",
            }),
            false => json!({}),
        };
        self.pod_with(name, node, annotations).await
    }

    /// Makes a pod with an interface on a subnet.
    pub async fn pod_on(&self, name: &str, node: usize, subnet: &str) -> Result<String> {
        let annotations = json!({
            NETWORKS: "[{\"name\":\"rancher-flat-network\",\"interface\":\"eth1\"}]",
            "flatnetwork.pandaria.io/ip": "auto", "flatnetwork.pandaria.io/subnet": subnet,
        });
        self.pod_with(name, node, annotations).await
    }

    async fn pod_with(&self, name: &str, node: usize, annotations: Value) -> Result<String> {
        let path = format!("{NAMESPACE}/{name}");
        let object = json!({
            "metadata": { "annotations": annotations },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": NODES[node] },
                "automountServiceAccountToken": false,
                // With 0 the object is gone before the kubelet has ended what runs.
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "c", "image": PAUSE, "imagePullPolicy": "Never" }],
            },
        });
        let what = format!("pod {path} is made");
        wait_until(&what, DEADLINE, || async {
            let made = self.objects.make("Pod", &path, object.clone()).await;
            made.map_err(|error| format!("{error:#}"))
        })
        .await
    }

    /// Waits until a pod runs; the pod.
    pub async fn running(&self, name: &str) -> Result<Value> {
        let path = format!("{NAMESPACE}/{name}");
        let runs = self.objects.wait_phase("Pod", &path, "Running").await;
        runs.with_context(|| self.last_words())
    }

    /// Waits until a pod's address is that of an interface that is there; the object.
    pub async fn active(&self, name: &str) -> Result<Value> {
        let path = format!("{NAMESPACE}/{name}");
        self.objects.wait_phase(IP, &path, "Active").await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        let path = format!("{NAMESPACE}/{name}");
        self.objects.delete("Pod", &path).await?;
        self.objects.wait_gone("Pod", &path).await?;
        self.objects.wait_gone(IP, &path).await
    }

    /// What the stand-in for Multus exchanged with plugins about a pod, first to last.
    pub async fn exchanges(&self, node: usize, pod: &str) -> Result<Vec<Value>> {
        let text = self.nodes[node].run(&format!("cat {RECORD}")).await?;
        let wanted = format!("K8S_POD_NAME={pod};");
        let mut found = Vec::new();
        for line in text.lines() {
            let one: Value = serde_json::from_str(line)?;
            let args = one["environment"]["CNI_ARGS"].as_str().unwrap_or_default();
            if args.contains(&wanted) {
                found.push(one);
            }
        }
        Ok(found)
    }

    /// The last one of a verb with fipd's plugin.
    pub async fn exchange(&self, node: usize, pod: &str, verb: &str) -> Result<Value> {
        let all = self.exchanges(node, pod).await?;
        let of = |one: &&Value| {
            one["plugin"] == "rancher-flat-network-cni" && one["environment"]["CNI_COMMAND"] == verb
        };
        let last = all.iter().rev().find(of).cloned();
        last.with_context(|| format!("no {verb} of {pod}: {all:?}"))
    }

    /// Runs a command in the network namespace of a pod.
    pub async fn run_in(&self, node: usize, pod: &str, command: &str) -> Result<String> {
        let all = self.exchanges(node, pod).await?;
        let last = all
            .last()
            .with_context(|| format!("no exchange of {pod}"))?;
        let netns = last["environment"]["CNI_NETNS"]
            .as_str()
            .unwrap_or_default();
        let command = format!("nsenter --net={netns} {command}");
        self.nodes[node].run(&command).await
    }

    /// The interface of a pod, as `ip -json address` has it.
    pub async fn interface(&self, node: usize, pod: &str, name: &str) -> Result<Value> {
        let text = self
            .run_in(node, pod, &format!("ip -json address show dev {name}"))
            .await?;
        let all: Value = serde_json::from_str(&text)?;
        Ok(all[0].clone())
    }

    pub async fn ping(&self, node: usize, pod: &str, address: &str) -> Result<()> {
        let what = format!("{address} answers {pod}");
        let command = format!("ping -c 1 -W 1 {address}");
        let answered = wait_until(&what, DEADLINE, || self.run_in(node, pod, &command)).await;
        answered.map(drop)
    }

    pub fn last_words(&self) -> String {
        let agents = self.agents.iter().map(Process::log_tail);
        let nodes = self.nodes.iter().map(Node::log_tail);
        let all: Vec<_> = agents.chain(nodes).collect();
        format!("fipd:\n{}\n{}", self.fipd.log_tail(), all.join("\n"))
    }
}

/// Multus with a bridge as the cluster's network.
fn network(cluster: &PodCluster, number: u8) -> Result<NodeNetwork> {
    let plugin = std::env::var_os("FIPD_BIN").map(std::path::PathBuf::from);
    let plugin =
        plugin.unwrap_or_else(|| fipd_tests::runner::target_directory().join("debug/fipd"));
    let plugin = plugin.canonicalize()?.with_file_name("fipd-cni");
    let plugins = [
        ("multus", Component::Multus.path()?),
        ("bridge", Component::CniBridge.path()?),
        ("host-local", Component::CniHostLocal.path()?),
        ("loopback", Component::CniLoopback.path()?),
        ("rancher-flat-network-cni", plugin),
    ];
    let token = cluster.0.kubeconfig_yaml().lines();
    let token = token
        .filter_map(|line| line.trim().strip_prefix("token:"))
        .next()
        .context("a token")?;
    let cluster_network = json!({
        "cniVersion": "1.0.0", "name": "cluster", "type": "bridge", "bridge": "cni0", "isGateway": true,
        "ipam": {
            "type": "host-local", "ranges": [[{ "subnet": format!("10.42.{number}.0/24") }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        },
    });
    Ok(NodeNetwork {
        plugins: plugins.map(|(name, path)| (name.to_owned(), path)).into(),
        configuration: json!({
            "cniVersion": "1.0.0", "name": "multus-cni-network",
            "plugins": [{
                "type": "multus", "server": format!("https://{SERVICE_ADDRESS}:443"),
                "token": token.trim().trim_matches('"'), "clusterNetwork": cluster_network,
                "cniDir": "/var/lib/cni/multus", "record": RECORD,
            }],
        }),
    })
}
