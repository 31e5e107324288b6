//! VLANs and ipvlan, which the running kernel may not have: fipd and its CNI plugin in a virtual machine whose kernel has them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::time::Duration;

use fipd_tests::testbed::Vm;
use serde_json::{Value, json};

/// Instructions of the machine are translated, and other tests run beside.
const DEADLINE: Duration = Duration::from_secs(120);
const MODULES: [&str; 8] = [
    "llc", "stp", "garp", "mrp", "8021q", "dummy", "macvlan", "ipvlan",
];
const SOCKET: &str = "/run/fipd/fipd.sock";
const FIPD: &str = "fipd serve --data-dir /var/lib/fipd --socket /run/fipd/fipd.sock --cni-socket /run/fipd/cni.sock \
                    --listen 127.0.0.1:8443 >/dev/console 2>&1 & echo $! >/run/fipd.pid";
/// 15 bytes: with a VLAN it is longer than the kernel takes.
const LONG: &str = "a-long-master-0";

/// Networks of ipvlan: their modes and flags.
const KINDS: [(&str, &str, &str); 4] = [
    ("switched", "l2", "vepa"),
    ("routed", "l3", "private"),
    ("filtered", "l3s", "bridge"),
    ("filtered-vepa", "l3s", "vepa"),
];

struct Machine(Vm);

/// A network on VLAN `vlan` of `master`.
fn network(name: &str, more: &Value) -> String {
    let mut conf = json!({ "cniVersion": "1.1.0", "name": name, "type": "fipd-cni", "master": "dummy0",
        "ipam": { "type": "fipd", "pools": ["lan"] } });
    for (key, value) in more.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf.to_string()
}

/// A call of the plugin, as a command of a shell.
fn call(verb: &str, network: &str, container: &str) -> String {
    format!(
        "CNI_COMMAND={verb} CNI_CONTAINERID={container} CNI_NETNS=/run/netns/{container} CNI_IFNAME=eth1 \
         CNI_PATH=/bin fipd-cni </etc/cni/{network}"
    )
}

impl Machine {
    async fn boot() -> Self {
        let mut networks = vec![
            ("vlan", json!({ "vlan": 10 })),
            ("foreign", json!({ "vlan": 20 })),
            ("taken", json!({ "vlan": 40 })),
            ("long", json!({ "master": LONG, "vlan": 30 })),
            ("ipvlan", json!({ "flatMode": "ipvlan" })),
        ];
        networks.extend(KINDS.map(|(name, mode, flag)| {
            let more = json!({ "flatMode": "ipvlan", "mode": mode, "ipvlanFlag": flag });
            (name, more)
        }));
        let files = networks
            .iter()
            .map(|(name, more)| (format!("/etc/cni/{name}"), network(name, more)))
            .collect::<Vec<_>>();
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (&**path, &**text))
            .collect();
        let mut machine = Self(Vm::boot(&MODULES, &files).await.unwrap());
        for (master, kind) in [("dummy0", "dummy"), (LONG, "dummy")] {
            machine
                .run(&format!(
                    "ip link show {master} >/dev/null 2>&1 || ip link add {master} type {kind}"
                ))
                .await;
            machine.run(&format!("ip link set {master} up")).await;
        }
        machine.run(FIPD).await;
        machine
            .until(
                "fipd answers",
                &format!("fipd --socket {SOCKET} pool list >/dev/null 2>&1 && echo yes || true"),
                |said| said.contains("yes"),
            )
            .await;
        machine
            .run(&format!(
                "fipd --socket {SOCKET} pool create lan --cidr 10.0.0.0/24"
            ))
            .await;
        machine
    }

    async fn run(&mut self, command: &str) -> String {
        self.0.run(command).await.unwrap()
    }

    /// Until the machine says what `test` wants.
    async fn until(&mut self, what: &str, command: &str, test: impl Fn(&str) -> bool) {
        let start = std::time::Instant::now();
        loop {
            let seen = self.run(command).await;
            if test(&seen) {
                return;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{what}: not so within {DEADLINE:?}; last seen: {seen}\nthe console's end:\n{}",
                self.0.console()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Has a new container join the network; its address, without the length.
    async fn add(&mut self, network: &str, container: &str) -> String {
        self.run(&format!("ip netns add {container}")).await;
        let said = self.run(&call("ADD", network, container)).await;
        let result: Value = serde_json::from_str(&said).unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        address.trim_end_matches("/24").to_owned()
    }

    async fn delete(&mut self, network: &str, container: &str) {
        self.run(&call("DEL", network, container)).await;
    }

    /// Names of the host's VLANs.
    async fn vlans(&mut self) -> Vec<String> {
        let shown = self.run("ip -o link show type vlan").await;
        let name = |line: &str| line.split([' ', '@']).nth(1).unwrap().to_owned();
        shown
            .lines()
            .filter(|line| !line.is_empty())
            .map(name)
            .collect()
    }

    async fn ping(&mut self, from: &str, to: &str) {
        self.run(&format!("ip netns exec {from} ping -c 1 -w 20 {to}"))
            .await;
    }

    /// As the kernel has the container's interface, with what is special of its kind.
    async fn interface(&mut self, container: &str) -> String {
        self.run(&format!("ip netns exec {container} ip -d link show eth1"))
            .await
    }
}

/// One test, since the machine takes most of the time.
#[tokio::test(flavor = "multi_thread")]
async fn g1_18_vlans_go_with_their_last_user_and_ipvlan_is_as_it_is_asked_for() {
    let mut machine = Machine::boot().await;

    // Two containers share a VLAN, which goes with the second.
    machine.add("vlan", "a").await;
    let second = machine.add("vlan", "b").await;
    assert_eq!(machine.vlans().await, ["dummy0.10"]);
    machine.ping("a", &second).await;
    machine.delete("vlan", "a").await;
    assert_eq!(machine.vlans().await, ["dummy0.10"]);
    machine.delete("vlan", "b").await;
    assert_eq!(machine.vlans().await, [""; 0]);

    // What somebody else made is used, whatever it is called, and stays.
    for name in ["dummy0.20", "other"] {
        let make = format!("ip link add link dummy0 name {name} type vlan id 20");
        machine.run(&make).await;
        machine.add("foreign", name).await;
        assert_eq!(machine.vlans().await, [name]);
        machine.delete("foreign", name).await;
        assert_eq!(machine.vlans().await, [name]);
        machine.run(&format!("ip link delete {name}")).await;
    }
    // Another interface of the name is not taken for the VLAN.
    machine.run("ip netns add c").await;
    for (parent, id) in [("dummy0", 41), (LONG, 40)] {
        let make = format!("ip link add link {parent} name dummy0.40 type vlan id {id}");
        machine.run(&make).await;
        let refused = format!("{} 2>/dev/null || true", call("ADD", "taken", "c"));
        let said: Value = serde_json::from_str(&machine.run(&refused).await).unwrap();
        let why = "has an interface dummy0.40 which is not VLAN 40 on dummy0; rename it";
        assert!(said["details"].as_str().unwrap().contains(why), "{said}");
        assert_eq!(said["code"], 11);
        machine.run("! ip netns exec c ip link show eth1").await;
        let leased = format!("! fipd --socket {SOCKET} lease list | grep taken/c");
        machine.run(&leased).await;
        assert_eq!(machine.vlans().await, ["dummy0.40"]);
        machine.run("ip link delete dummy0.40").await;
    }

    // A name that would be too long for the kernel is a short one.
    machine.add("long", "d").await;
    let vlans = machine.vlans().await;
    let short = vlans.iter().find(|name| name.starts_with("fipd-")).unwrap();
    let shown = machine.run(&format!("ip -d link show {short}")).await;
    assert!(
        shown.contains("id 30") && shown.contains("alias fipd-cni"),
        "{shown}"
    );
    machine.delete("long", "d").await;
    assert_eq!(machine.vlans().await, [""; 0]);

    // ipvlan, on layer 2 and routed.
    machine.add("ipvlan", "e").await;
    let other = machine.add("ipvlan", "f").await;
    assert!(
        machine
            .interface("e")
            .await
            .contains("ipvlan  mode l2 bridge")
    );
    machine.ping("e", &other).await;
    for container in ["e", "f"] {
        machine.delete("ipvlan", container).await;
    }
    // In each mode and with each flag, as the kernel says. All of a master have one.
    for (name, mode, flag) in KINDS {
        machine.add(name, name).await;
        let shown = machine.interface(name).await;
        let wanted = format!("ipvlan  mode {mode} {flag}");
        assert!(shown.contains(&wanted), "{wanted}: {shown}");
        // Another would change it.
        machine.run("ip netns add rival").await;
        let refused = format!("{} 2>/dev/null || true", call("ADD", "ipvlan", "rival"));
        let said: Value = serde_json::from_str(&machine.run(&refused).await).unwrap();
        let why = format!("mode {mode} and flag {flag}");
        assert!(said["details"].as_str().unwrap().contains(&why), "{said}");
        machine.run("ip netns delete rival").await;
        let shown = machine.interface(name).await;
        assert!(shown.contains(&wanted), "{wanted}: {shown}");
        machine.delete(name, name).await;
    }

    // The daemon dies, and the containers meanwhile, too.
    let make = "ip link add link dummy0 name other type vlan id 20";
    machine.run(make).await;
    machine.add("foreign", "g").await;
    machine.add("vlan", "h").await;
    machine.run("kill -9 $(cat /run/fipd.pid)").await;
    machine.run("ip netns delete g && ip netns delete h").await;
    machine.run(FIPD).await;
    let gone = "ip -o link show type vlan";
    machine
        .until("the VLAN of the dead container is gone", gone, |shown| {
            !shown.contains("dummy0.10")
        })
        .await;
    assert_eq!(machine.vlans().await, ["other"]);
}
