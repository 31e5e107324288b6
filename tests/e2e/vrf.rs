//! Rules to VRFs, which the running kernel may not have: fipd in a virtual machine whose kernel has them, with an API server
//! outside of it. The machine is a Node of that cluster.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_crds::ip_rule::{IPRule, IPRuleConfig};
use fipd_tests::rule_objects;
use fipd_tests::testbed::{
    ControlPlane, ControlPlaneOptions, HOST, RESTRICTED_USER, Vm, wait_until, with_server,
};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

/// Instructions of the machine are translated, and other tests run beside.
const DEADLINE: Duration = Duration::from_secs(180);
const ROLES: &str = include_str!("../../packaging/rbac/ip-rule.yaml");
const LEASES_IN: &str = "ip-rule-operator-system";
const NODE: &str = "vm";
const CONFIG: &str = "iprc-10-96-23-17";
/// The packet filter is not used here, but looked at.
const MODULES: [&str; 5] = ["dummy", "vrf", "nfnetlink", "libcrc32c", "nf_tables"];
/// The kernel's own, of which it has one for each family as soon as there is a VRF.
const OF_VRFS: &str = "1000: from all lookup [l3mdev-table]";
/// Where every rule that came or went is written down.
const SEEN: &str = "/run/rules.seen";
const FIPD: &str = "fipd serve --config /etc/fipd/fipd.toml --data-dir /var/lib/fipd --socket /run/fipd/fipd.sock \
                    --listen 127.0.0.1:8443 >/dev/console 2>&1 & echo $! >/run/fipd.pid";
const TOML: &str = "[host]\nnode = \"vm\"\n\n[[cluster]]\nname = \"c\"\nkubeconfig = \"c.kubeconfig\"\n\
                    systems = [\"ip-rule\"]\n";

/// A cluster, and the machine that is its Node.
struct Bench {
    vm: Vm,
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

/// The API server, with no more rights for fipd than its roles.
async fn cluster() -> ControlPlane {
    let plane = ControlPlane::start("c", ControlPlaneOptions::default())
        .await
        .unwrap();
    plane.install_crds(&definitions()).await.unwrap();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LEASES_IN } });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
    let objects = format!("{ROLES}\n---\n{namespace}\n---\n{node}");
    plane.apply(&objects).await.unwrap();
    for (role, namespace) in [
        ("fipd-ip-rule", None),
        ("fipd-ip-rule-lease", Some(LEASES_IN)),
        ("fipd-ip-rule-node", None),
    ] {
        plane.bind_role(role, namespace).await.unwrap();
    }
    plane
}

impl Bench {
    async fn start() -> Self {
        let plane = cluster().await;
        // The server's certificate is for its loopback, which has another address in the machine.
        let server = format!(
            "https://{HOST}:{}\n    tls-server-name: localhost",
            plane.port()
        );
        let kubeconfig = with_server(&plane.kubeconfig_of(RESTRICTED_USER), &server);
        let files = [
            ("/etc/fipd/fipd.toml", TOML),
            ("/etc/fipd/c.kubeconfig", &kubeconfig),
        ];
        let vm = Vm::boot(&MODULES, &files).await.unwrap();
        let client = plane.client().await.unwrap();
        let mut bench = Self {
            vm,
            rules: Api::all(client.clone()),
            configs: Api::all(client.clone()),
            services: Api::namespaced(client, "default"),
            _plane: plane,
        };
        bench.run(&format!("ip monitor rule >{SEEN} 2>&1 &")).await;
        bench
    }

    async fn run(&mut self, command: &str) -> String {
        self.vm.run(command).await.unwrap()
    }

    /// Until the machine says what `test` wants.
    async fn until(&mut self, what: &str, command: &str, test: impl Fn(&str) -> bool) -> String {
        let start = std::time::Instant::now();
        loop {
            let seen = self.run(command).await;
            if test(&seen) {
                return seen;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{what}: not so within {DEADLINE:?}; last seen: {seen}\nthe console's end:\n{}",
                self.vm.console()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Until the rules of fipd are these.
    async fn own(&mut self, what: &str, expected: &[&str]) {
        let own = "ip -N rule show; ip -6 -N rule show";
        let test = |all: &str| {
            let own = lines(all)
                .into_iter()
                .filter(|rule| rule.ends_with("proto 200"));
            own.eq(expected.iter().map(ToString::to_string))
        };
        self.until(what, own, test).await;
    }

    /// The rules of others.
    async fn foreign(&mut self) -> Vec<String> {
        let all = self.run("ip -N rule show; ip -6 -N rule show").await;
        let mut all = lines(&all);
        all.retain(|rule| !rule.ends_with("proto 200"));
        all
    }

    /// Until fipd says this of its rules.
    async fn told(&mut self, what: &str, test: impl Fn(&Value) -> bool) {
        let show = "fipd --socket /run/fipd/fipd.sock --output json rules show || true";
        let test = |said: &str| serde_json::from_str(said).is_ok_and(|said| test(&said));
        self.until(what, show, test).await;
    }

    async fn vrf(&mut self, table: u32) {
        self.run(&format!("ip link add red type vrf table {table}"))
            .await;
        self.run("ip link set red up && ip link set dummy0 master red && ip link set dummy0 up")
            .await;
        self.run("ip address replace 192.0.2.1/24 dev dummy0").await;
        self.run(&format!(
            "ip route replace default via 192.0.2.254 dev dummy0 table {table}"
        ))
        .await;
    }

    async fn rule(&self, name: &str, spec: Value) {
        rule_objects::rule(&self.rules, name, spec).await.unwrap();
    }

    async fn service(&self, name: &str, cluster_ip: &str, vip: &str) {
        let made = rule_objects::service(&self.services, name, cluster_ip, vip);
        made.await.unwrap();
    }

    /// Until the condition of the rule's object has this reason.
    async fn applied(&self, reason: &str) -> Value {
        let what = format!("{CONFIG} is {reason}");
        let look = || async {
            let config = self.configs.get(CONFIG).await;
            let config = json!(config.map_err(|error| error.to_string())?);
            let is = config["status"]["conditions"][0]["reason"] == reason;
            if is {
                Ok(config)
            } else {
                Err(config.to_string())
            }
        };
        let seen = wait_until(&what, DEADLINE, look).await;
        seen.map_err(|error| format!("{error:#}\nthe console's end:\n{}", self.vm.console()))
            .unwrap()
    }
}

fn lines(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect()
}

fn warns(said: &Value, code: &str) -> bool {
    let all = said["warnings"].as_array();
    all.into_iter().flatten().any(|one| one["code"] == code)
}

/// One test, since the machine takes most of the time.
#[tokio::test(flavor = "multi_thread")]
async fn conformance_32_rules_follow_the_table_of_their_vrf_and_those_of_the_kernel_stay() {
    let mut bench = Bench::start().await;
    bench
        .run("ip rule add from 192.0.2.77 lookup 77 priority 900")
        .await;
    bench.vrf(1001).await;
    let foreign = bench.foreign().await;
    assert_eq!(
        foreign
            .iter()
            .filter(|rule| rule.starts_with(OF_VRFS))
            .count(),
        2,
        "{foreign:?}"
    );
    bench.run(FIPD).await;

    // In the table of the VRF, which is not said anywhere but in the kernel.
    bench.service("web", "10.96.23.17", "203.0.113.45").await;
    bench
        .rule("red", json!({ "cidr": "203.0.113.0/24", "vrf": "red" }))
        .await;
    let first = "10000: from 10.96.23.17 lookup 1001 proto 200";
    bench.own("the rule is in the VRF's table", &[first]).await;
    bench.applied("AllNodes").await;
    bench
        .told("nothing is to be warned of", |said| {
            said["warnings"] == json!([])
        })
        .await;
    bench.run("ip address add 10.96.23.17/32 dev lo").await;
    let route = bench
        .run("ip route get 198.51.100.9 from 10.96.23.17")
        .await;
    assert!(route.contains("dev dummy0 table 1001"), "{route}");

    // At the kernel's own priority.
    bench.service("api", "10.96.23.18", "198.51.100.7").await;
    let risky = json!({ "cidr": "198.51.100.0/24", "vrf": "red", "priority": 1000 });
    bench.rule("risky", risky).await;
    let both = ["1000: from 10.96.23.18 lookup 1001 proto 200", first];
    bench
        .own("the other one is where it is told to be", &both)
        .await;
    bench
        .told("it is warned of", |said| warns(said, "priority-of-vrf"))
        .await;
    bench
        .rules
        .delete("risky", &DeleteParams::default())
        .await
        .unwrap();
    bench.own("it is gone", &[first]).await;
    bench
        .told("no more", |said| !warns(said, "priority-of-vrf"))
        .await;

    // Without its VRF it stays, and is not what is asked for any more.
    bench.run("ip link del red").await;
    bench.applied("Progressing").await;
    bench
        .told("the VRF is missed", |said| warns(said, "vrf-gone"))
        .await;
    bench.own("the rule stays", &[first]).await;

    // Another table of the same name.
    bench.vrf(1002).await;
    let second = "10000: from 10.96.23.17 lookup 1002 proto 200";
    bench.own("the rule follows", &[second]).await;
    bench.applied("AllNodes").await;
    bench
        .told("nothing is missed", |said| !warns(said, "vrf-gone"))
        .await;
    let route = bench
        .run("ip route get 198.51.100.9 from 10.96.23.17")
        .await;
    assert!(route.contains("dev dummy0 table 1002"), "{route}");
    let seen = lines(&bench.run(&format!("cat {SEEN}")).await);
    let at = |line: &str| seen.iter().position(|seen| seen.starts_with(line));
    let came = at("10000: from 10.96.23.17 lookup 1002");
    let went = at("Deleted 10000: from 10.96.23.17 lookup 1001");
    assert!(came.is_some() && came < went, "new before old: {seen:?}");

    // Whoever starts does not know the VRFs yet, and takes nothing away.
    bench.run("kill -9 $(cat /run/fipd.pid)").await;
    bench.run(FIPD).await;
    bench
        .told("it works again", |said| said["state"] == "active")
        .await;
    bench.own("the rule is as it was", &[second]).await;
    let seen = lines(&bench.run(&format!("cat {SEEN}")).await);
    let lost = |line: &&String| line.starts_with("Deleted 10000: from 10.96.23.17 lookup 1002");
    assert_eq!(seen.iter().find(lost), None);

    bench
        .rules
        .delete("red", &DeleteParams::default())
        .await
        .unwrap();
    bench.own("all of fipd's is gone", &[]).await;
    assert_eq!(bench.foreign().await, foreign);
}
