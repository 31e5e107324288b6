//! The DaemonSet of an Agent on a real node: kubelet, containerd and fipd's own image, with the rights that fipd gives it. The
//! deciding fipd is outside of the cluster. All of it is in a network namespace of the test's own, the node in another.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fipd_crds::ip_rule::{Agent, IPRule, IPRuleConfig};
use fipd_tests::rule_objects;
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, Fipd, FipdOptions, Node, RESTRICTED_USER, on_a_node,
    wait_until,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, ListParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The container has a tenth of a processor.
const DEADLINE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);
const ROLES: &str = include_str!("../../packaging/rbac/ip-rule.yaml");
const LEASES_IN: &str = "ip-rule-operator-system";
const IMAGE: &str = "fipd.test/fipd:1";
const RULES: &str = "ip -N rule show; ip -6 -N rule show";
const FLAT: &str = "10000: from 10.96.23.17 lookup 100 proto 200";

struct Bench {
    // Dropped in this order: the node needs its API server to the end.
    fipd: Fipd,
    node: Node,
    agents: Api<Agent>,
    sets: Api<DaemonSet>,
    pods: Api<Pod>,
    rules: Api<IPRule>,
    configs: Api<IPRuleConfig>,
    services: Api<Service>,
    _plane: ControlPlane,
}

fn definitions() -> String {
    let texts = fipd_crds::MANIFESTS.iter();
    let own = texts.filter(|(name, _)| name.starts_with("api.operator.brtrm.dev_"));
    own.map(|(_, text)| format!("---\n{text}")).collect()
}

/// With what an admin applies for fipd, and nothing else.
async fn cluster() -> Result<ControlPlane> {
    let options = ControlPlaneOptions {
        controller_manager: true,
        nodes: true,
        ..ControlPlaneOptions::default()
    };
    let plane = ControlPlane::start("c", options).await?;
    plane.install_crds(&definitions()).await?;
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let both = format!("{}\n---\n{}", namespace(LEASES_IN), namespace("rules"));
    plane.apply(&format!("{ROLES}\n---\n{both}")).await?;
    for (role, namespace) in [
        ("fipd-ip-rule", None),
        ("fipd-ip-rule-lease", Some(LEASES_IN)),
        ("fipd-ip-rule-agents", None),
        ("fipd-ip-rule-node", None),
    ] {
        plane.bind_role(role, namespace).await?;
    }
    Ok(plane)
}

impl Bench {
    async fn start() -> Result<Self> {
        let plane = cluster().await?;
        let config =
            "[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\nsystems = [\"ip-rule\"]\n";
        let mut fipd = Fipd::prepare(FipdOptions {
            config: Some(config.to_owned()),
            ..FipdOptions::default()
        })
        .await?;
        fipd.write_file("c.kubeconfig", &plane.kubeconfig_of(RESTRICTED_USER))?;
        fipd.restart().await?;
        let node = Node::start(&plane, "n1", IMAGE).await?;
        let client = plane.client().await?;
        Ok(Self {
            fipd,
            node,
            agents: Api::namespaced(client.clone(), "rules"),
            sets: Api::namespaced(client.clone(), "rules"),
            pods: Api::namespaced(client.clone(), "rules"),
            rules: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            services: Api::namespaced(client, "default"),
            _plane: plane,
        })
    }

    /// Until `look` says what `test` wants; else with the last words of all who could be at fault.
    async fn until<T, F>(
        &self,
        what: &str,
        within: Duration,
        look: impl Fn() -> F,
        test: impl Fn(&T) -> bool,
    ) -> T
    where
        T: std::fmt::Debug,
        F: Future<Output = Result<T>>,
    {
        let probe = || async {
            match look().await {
                Ok(seen) if test(&seen) => Ok(seen),
                Ok(seen) => Err(format!("{seen:?}")),
                Err(error) => Err(format!("{error:#}")),
            }
        };
        match wait_until(what, within, probe).await {
            Ok(seen) => seen,
            Err(error) => {
                let pod = self
                    .node
                    .run("cat /var/log/pods/*/*/*.log | tail -n 40")
                    .await;
                let said = [
                    pod.unwrap_or_default(),
                    self.fipd.log_tail(),
                    self.node.log_tail(),
                ];
                panic!(
                    "{error:#}\nthe pod:\n{}\nfipd:\n{}\nthe node:\n{}",
                    said[0], said[1], said[2]
                )
            }
        }
    }

    async fn object<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value
    where
        K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let look = || async { Ok(json!(api.get(name).await?)) };
        self.until(&format!("{name}: {what}"), DEADLINE, look, test)
            .await
    }

    /// All rules on the node.
    async fn rules(&self) -> Result<Vec<String>> {
        let all = self.node.run(RULES).await?;
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(all.lines().map(words).collect())
    }

    /// Until the node has exactly these of fipd's, apart from those for marked packets.
    async fn own(&self, what: &str, within: Duration, expected: &[&str]) {
        let look = || async {
            let mut all = self.rules().await?;
            all.retain(|rule| rule.contains("proto 200") && !rule.contains("fwmark"));
            Ok(all)
        };
        self.until(what, within, look, |all: &Vec<String>| all == expected)
            .await;
    }

    /// Until the packet filter of the node knows this source, or has no table of fipd's.
    async fn indexed(&self, what: &str, source: Option<&str>) {
        let look = || self.node.run("nft list table inet fipd 2>&1 || true");
        let test = |table: &String| match source {
            Some(source) => table.contains(source),
            None => table.contains("No such file"),
        };
        self.until(what, DEADLINE, look, test).await;
    }

    async fn rule(&self, name: &str, spec: Value) {
        rule_objects::rule(&self.rules, name, spec).await.unwrap();
    }

    async fn service(&self, name: &str, cluster_ip: &str, vip: &str) {
        let made = rule_objects::service(&self.services, name, cluster_ip, vip);
        made.await.unwrap();
    }
}

/// The rules where the deciding fipd is.
fn outside() -> String {
    let output = Command::new("ip").args(["rule", "show"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn defect_10_an_agent_runs_fipd_on_its_nodes_and_takes_the_rules_along_when_it_goes() {
    on_a_node(story).unwrap();
}

/// From IPRules and Services to the kernel of the node, by what the pod has: its rights, and the `nft` of its image.
async fn the_node_has_rules(bench: &Bench) {
    bench.service("web", "10.96.23.17", "203.0.113.45").await;
    let flat = json!({ "cidr": "203.0.113.0/24", "table": 100, "mode": "flat" });
    bench.rule("flat", flat).await;
    bench.own("the rule is there", DEADLINE, &[FLAT]).await;
    bench.service("api", "10.96.23.18", "198.51.100.7").await;
    let indexed = json!({ "cidr": "198.51.100.0/24", "table": 200, "mode": "indexed" });
    bench.rule("indexed", indexed).await;
    bench
        .indexed(
            "the other source is in the packet filter",
            Some("10.96.23.18"),
        )
        .await;
    for config in ["iprc-10-96-23-17", "iprc-10-96-23-18"] {
        let all = |config: &Value| {
            let status = &config["status"];
            status["conditions"][0]["reason"] == "AllNodes" && status["nodes"] == json!(["n1"])
        };
        bench
            .object(&bench.configs, config, "the node says so", all)
            .await;
    }
}

/// Its rules stay, and the next one of the same pod keeps them.
async fn the_pod_is_killed(bench: &Bench) -> Result<()> {
    let mut before = bench.rules().await?;
    let seen = bench.fipd.directory().join("rules.seen");
    let (seen, pid) = (seen.display(), seen.with_extension("pid"));
    let pid = pid.display();
    bench
        .node
        .run(&format!("ip monitor rule >{seen} 2>&1 & echo $! >{pid}"))
        .await?;
    bench.node.run("kill -9 $(pidof fipd)").await?;
    let look = || async {
        let pods = bench.pods.list(&ListParams::default()).await?;
        Ok(json!(pods.items.first().map(|pod| &pod.status)))
    };
    let again = |status: &Value| {
        let container = &status["containerStatuses"][0];
        container["restartCount"] == 1 && container["ready"] == true
    };
    bench
        .until("it is started anew", DEADLINE, look, again)
        .await;
    // It works: what is missing comes back.
    bench.node.run(&format!("kill $(cat {pid})")).await?;
    assert_eq!(
        bench.node.run(&format!("cat {seen}")).await?,
        "",
        "no rule came or went"
    );
    bench
        .node
        .run("ip rule del from 10.96.23.17 priority 10000")
        .await?;
    bench.own("it mends again", DEADLINE, &[FLAT]).await;
    let mut after = bench.rules().await?;
    // Of one priority the one that came last is last.
    before.sort();
    after.sort();
    assert_eq!(after, before);
    Ok(())
}

async fn story() -> Result<()> {
    let mut bench = Bench::start().await?;
    bench
        .node
        .run("ip rule add from 192.0.2.77 lookup 77 priority 900")
        .await?;
    let foreign = bench.rules().await?;
    let before = outside();

    let spec = json!({ "image": IMAGE });
    let agent = json!({ "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": "Agent", "metadata": { "name": "default" }, "spec": spec });
    rule_objects::create(&bench.agents, agent).await?;
    let ready = |agent: &Value| {
        let status = &agent["status"];
        status["conditions"][0]["reason"] == "AllReady" && status["numberReady"] == 1
    };
    bench
        .object(&bench.agents, "default", "its pod is ready", ready)
        .await;
    let set = bench
        .object(&bench.sets, "iprule-agent", "is there", |_| true)
        .await;
    let selected = &set["spec"]["template"]["spec"];
    assert_eq!(
        selected["serviceAccountName"], "iprule-agent",
        "its own rights"
    );

    the_node_has_rules(&bench).await;
    assert_eq!(outside(), before, "the node has a namespace of its own");

    // Without the one that decides.
    bench.fipd.kill9()?;
    bench
        .node
        .run("ip rule del from 10.96.23.17 priority 10000")
        .await?;
    bench
        .own("what is deleted by hand comes back", SOON, &[FLAT])
        .await;
    the_pod_is_killed(&bench).await?;
    bench.fipd.restart().await?;

    bench
        .agents
        .delete("default", &DeleteParams::default())
        .await?;
    let look = || async { Ok(bench.pods.list(&ListParams::default()).await?.items.len()) };
    bench
        .until("the pod goes", DEADLINE, look, |count| *count == 0)
        .await;
    bench.own("its rules went with it", SOON, &[]).await;
    bench
        .indexed("and its table of the packet filter", None)
        .await;
    assert_eq!(bench.rules().await?, foreign);
    Ok(())
}
