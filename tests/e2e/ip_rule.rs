//! The system ip-rule against a real API server with its garbage collector: from IPRules and Services to what nodes want.
//!
//! The decider and the node parts run in this process with no more rights than their roles. In place of the netlink engine,
//! which has its own tests in network namespaces, something follows the rule board and says that the kernel has what is wanted;
//! it can be told to stop saying so.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fipd::clusters::{Clusters, ClustersOptions, Trust};
use fipd::config::Config;
use fipd::controller::endpoint::OwnEndpoint;
use fipd::guests::GuestBoard;
use fipd::host::probe::Prober;
use fipd::ipam::Ipam;
use fipd::nodes::NodeBoard;
use fipd::rules::{Reached, RuleBoard, View};
use fipd::system::{HostMeans, Means, Shared};
use fipd::systems::Runner;
use fipd_core::Timestamp;
use fipd_crds::ip_rule::{IPRule, IPRuleConfig};
use fipd_tests::say::progress;
use fipd_tests::testbed::{
    Baseline, ControlPlane, ControlPlaneOptions, ForAllTests, RESTRICTED_USER, wait_object,
    wait_until,
};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{MappedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);
const ROLES: &str = include_str!("../../packaging/rbac/ip-rule.yaml");
const LEASES_IN: &str = "ip-rule-operator-system";
const NODE_USER: &str = "node";
const SETTINGS: &str = "node-timeout = \"4s\"\n";
const CONFIG: &str = "iprc-10-96-23-17";
const CLEANUP: &str = "cleanup.iprule.agent.brtrm.dev";

#[path = "ip_rule/admission.rs"]
mod admission;
#[path = "ip_rule/agents.rs"]
mod agents;
#[path = "ip_rule/lifecycle.rs"]
mod lifecycle;
#[path = "ip_rule/mapping.rs"]
mod mapping;

static GROUND: ForAllTests<Ground> = ForAllTests::new();

/// An API server with the definitions and rights of the system, and the garbage collector.
struct Ground {
    plane: ControlPlane,
    before: Baseline,
}

/// One fipd with its rule board.
struct Host {
    _dir: tempfile::TempDir,
    board: RuleBoard,
    /// Whether the kernel gets what is wanted.
    works: watch::Sender<bool>,
    cancel: CancellationToken,
    /// Before `cancel`: it takes its rules away at its stop.
    leave: CancellationToken,
}

struct Bench {
    // Dropped in this order: they end before another test has the server.
    /// By the name of its Node; the first one decides.
    hosts: BTreeMap<&'static str, Host>,
    client: Client,
    rules: Api<IPRule>,
    configs: Api<IPRuleConfig>,
    services: Api<Service>,
    nodes: Api<Node>,
    plane: MappedMutexGuard<'static, ControlPlane>,
}

impl Host {
    /// The first, `decides`, has the settings of the system as well.
    async fn start(
        plane: &ControlPlane,
        user: &str,
        node: &'static str,
        decides: Option<&str>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("c.kubeconfig"), plane.kubeconfig_of(user)).unwrap();
        let text = format!(
            "[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = [\"ip-rule\"]\n[cluster.ip-rule]\n{}",
            decides.unwrap_or_default()
        );
        std::fs::write(dir.path().join("fipd.toml"), text).unwrap();
        let config =
            Config::load_with(*fipd::systems::SYSTEMS, &dir.path().join("fipd.toml")).unwrap();
        let clock = || Timestamp(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64);
        let (ipam, _writer) = Ipam::start(&dir.path().join("data"), Arc::new(clock)).unwrap();
        let board = RuleBoard::default();
        let me = format!("fipd_{node}");
        let leave = CancellationToken::new();
        let runner = Runner::new(&Means {
            me: me.as_str().into(),
            endpoint: OwnEndpoint::default(),
            ipam: ipam.clone(),
            metrics_ports: Default::default(),
            guests: GuestBoard::default(),
            helm: None,
            nodes: NodeBoard::default(),
            rules: board.clone(),
            host: Some(HostMeans {
                node: node.into(),
                agent: None,
                leaving: Some(leave.clone()),
            }),
            only_host: decides.is_none(),
            prober: Prober::beside(&dir.path().join("fipd.sock")),
            shared: Shared::default(),
        });
        let options = ClustersOptions {
            config,
            trust: Trust::default(),
            ..ClustersOptions::default()
        };
        let cancel = CancellationToken::new();
        let started = Clusters::start(options, ipam, Arc::new(runner), cancel.clone());
        started.await.unwrap();
        let works = watch::Sender::new(true);
        let tokens = (leave.clone(), cancel.clone());
        tokio::spawn(stand_in(board.clone(), works.subscribe(), tokens));
        Self {
            _dir: dir,
            board,
            works,
            cancel,
            leave,
        }
    }

    /// Stops it as an engine with `cleanup-on-stop` would: its rules go.
    fn leave(self) {
        self.leave.cancel();
    }

    /// The sources that are wanted, with table and priority.
    fn wants(&self) -> BTreeMap<IpAddr, (u32, Option<u32>)> {
        let all = self.board.wanted().wishes;
        let sets = all.values().flat_map(|sets| sets.iter());
        sets.flat_map(|set| {
            set.sources
                .iter()
                .map(|source| (*source, (set.table, set.priority)))
        })
        .collect()
    }

    fn wants_text(&self) -> Vec<String> {
        let wants = self.wants();
        let text =
            |(source, (table, _)): (&IpAddr, &(u32, Option<u32>))| format!("{source} {table}");
        wants.iter().map(text).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Says that the kernel has what is wanted, while it works.
async fn stand_in(
    board: RuleBoard,
    mut works: watch::Receiver<bool>,
    (leave, cancel): (CancellationToken, CancellationToken),
) {
    board.show(View {
        vrfs: Some(Arc::default()),
        ..View::default()
    });
    let mut changes = board.changes();
    loop {
        if *works.borrow_and_update() {
            let revision = *changes.borrow_and_update();
            board.reach(Reached::whole(revision));
        }
        tokio::select! {
            () = cancel.cancelled() => {
                if leave.is_cancelled() {
                    let whole = Reached::whole(*changes.borrow());
                    board.reach(Reached { flushed: true, ..whole });
                }
                return;
            }
            _ = changes.changed() => {}
            _ = works.changed() => {}
        }
    }
}

fn definitions() -> String {
    let texts = fipd_crds::MANIFESTS.iter();
    let own = texts.filter(|(name, _)| name.starts_with("api.operator.brtrm.dev_"));
    own.map(|(_, text)| format!("---\n{text}")).collect()
}

fn node_binding() -> String {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "nodes" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "fipd-ip-rule-node" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": NODE_USER }],
    })
    .to_string()
}

impl Ground {
    async fn start() -> anyhow::Result<Self> {
        let options = ControlPlaneOptions {
            controller_manager: true,
            users: vec![NODE_USER.to_owned()],
            ..ControlPlaneOptions::default()
        };
        let plane = ControlPlane::start("c", options).await?;
        plane.install_crds(&definitions()).await?;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LEASES_IN } });
        let binding = node_binding();
        let objects = format!("{ROLES}\n---\n{namespace}\n---\n{binding}");
        plane.apply(&objects).await?;
        plane.bind_role("fipd-ip-rule", None).await?;
        let lease = plane.bind_role("fipd-ip-rule-lease", Some(LEASES_IN));
        lease.await?;
        plane.bind_role("fipd-ip-rule-node", None).await?;
        let before = plane.baseline().await?;
        Ok(Self { plane, before })
    }
}

impl Bench {
    /// With a fipd on each of these nodes; that of the first decides.
    async fn start(nodes: &[&'static str]) -> Self {
        Self::start_with(nodes, SETTINGS).await
    }

    async fn start_with(nodes: &[&'static str], settings: &str) -> Self {
        let mut ground = GROUND.take(Ground::start).await.unwrap();
        let back = ground.plane.return_to(&ground.before).await;
        if let Err(error) = back {
            progress(format_args!("the servers are started anew: {error:#}"));
            *ground = Ground::start().await.unwrap();
        }
        let plane = MappedMutexGuard::map(ground, |ground| &mut ground.plane);
        let client = plane.client().await.unwrap();
        let mut bench = Self {
            rules: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            services: Api::namespaced(client.clone(), "default"),
            nodes: Api::all(client.clone()),
            hosts: BTreeMap::new(),
            client,
            plane,
        };
        for (index, node) in nodes.iter().enumerate() {
            bench.node(node).await;
            let user = if index == 0 {
                RESTRICTED_USER
            } else {
                NODE_USER
            };
            let decides = (index == 0).then_some(settings);
            let host = Host::start(&bench.plane, user, node, decides).await;
            bench.hosts.insert(node, host);
        }
        bench
    }

    async fn node(&self, name: &str) {
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "lb": "true" } } });
        create(&self.nodes, object).await;
    }

    async fn rule(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "IPRule", "metadata": { "name": name }, "spec": spec,
        });
        create(&self.rules, object).await;
    }

    /// A Service with these addresses of its own, without any of a load balancer.
    async fn service(&self, name: &str, cluster_ips: &[&str]) {
        let families: Vec<&str> = cluster_ips
            .iter()
            .map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" })
            .collect();
        let policy = if families.len() > 1 {
            "RequireDualStack"
        } else {
            "SingleStack"
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "test/none", "clusterIP": cluster_ips[0], "clusterIPs": cluster_ips,
                "ipFamilies": families, "ipFamilyPolicy": policy, "ports": [{ "port": 80 }],
            },
        });
        create(&self.services, object).await;
    }

    /// What a load balancer writes.
    async fn vips(&self, name: &str, vips: &[&str]) {
        let ingress: Vec<Value> = vips.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let patch = Patch::Merge(status);
        self.services
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn config(&self, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        wait(&self.configs, name, what, test).await
    }

    async fn gone(&self, name: &str) {
        absent(&self.configs, name).await;
    }

    /// Until this node wants exactly these, each as `SOURCE TABLE`.
    async fn wants(&self, node: &str, expected: &[&str]) {
        wait_until(&format!("{node} wants {expected:?}"), DEADLINE, || async {
            let wants = self.hosts[node].wants_text();
            if wants == expected {
                Ok(())
            } else {
                Err(format!("{wants:?}"))
            }
        })
        .await
        .unwrap();
    }

    async fn events(&self, of: &str, reason: &str) -> Value {
        let events: Api<Event> = Api::all(self.client.clone());
        wait_until(&format!("an Event {reason} of {of}"), DEADLINE, || async {
            let all = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let mut all = all.into_iter().map(|event| json!(event));
            all.find(|event| event["regarding"]["name"] == of && event["reason"] == reason)
                .ok_or_else(|| "none".to_owned())
        })
        .await
        .unwrap()
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn patch<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn wait<K>(api: &Api<K>, name: &str, what: &str, test: impl Fn(&Value) -> bool) -> Value
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let what = format!("{name}: {what}");
    wait_object(&what, DEADLINE, (api, name), test)
        .await
        .unwrap()
}

async fn absent<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    wait_until(&format!("{name} is gone"), DEADLINE, || async {
        match api.get_opt(name).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(object) => Err(json!(object).to_string()),
        }
    })
    .await
    .unwrap();
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    all.find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}
