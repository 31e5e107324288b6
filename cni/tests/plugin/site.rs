//! A host, a container and what is on the wire, each a network namespace of its own.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use fipd_cni::{
    link::{Family, MAIN_TABLE, Netlink},
    namespace::Namespace,
};
use nix::unistd::geteuid;
use serde_json::{Value, json};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Gone when it is dropped.
pub struct Site {
    host: String,
    pub pod: String,
    wire: String,
    pub dir: tempfile::TempDir,
}

impl Site {
    /// The host has `up0` to the wire, and `10.42.0.1` to the container's `eth0`.
    pub fn new() -> Self {
        assert!(
            geteuid().is_root(),
            "these tests make network namespaces: run them as root"
        );
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |part: &str| format!("fipd-cni-{}-{number}-{part}", std::process::id());
        let site = Self {
            host: name("host"),
            pod: name("pod"),
            wire: name("wire"),
            dir: tempfile::tempdir().unwrap(),
        };
        for namespace in [&site.host, &site.pod, &site.wire] {
            ip(&format!("netns add {namespace}"));
        }
        let (host, pod, wire) = (&site.host, &site.pod, &site.wire);
        ip(&format!(
            "-n {host} link add up0 type veth peer name wire0 netns {wire}"
        ));
        ip(&format!(
            "-n {host} link add pod0 type veth peer name eth0 netns {pod}"
        ));
        for (namespace, link) in [
            (host, "up0"),
            (wire, "wire0"),
            (host, "pod0"),
            (pod, "eth0"),
        ] {
            ip(&format!("-n {namespace} link set {link} up"));
        }
        ip(&format!("-n {host} address add 10.42.0.1/24 dev pod0"));
        ip(&format!("-n {pod} address add 10.42.0.5/24 dev eth0"));
        ip(&format!("-n {pod} route add default via 10.42.0.1"));
        site
    }

    pub fn in_pod(&self, command: &str) {
        ip(&format!("-n {} {command}", self.pod));
    }

    pub fn in_host(&self, command: &str) {
        ip(&format!("-n {} {command}", self.host));
    }

    pub fn on_wire(&self, command: &str) {
        ip(&format!("-n {} {command}", self.wire));
    }

    pub fn netns(&self) -> PathBuf {
        path(&self.pod)
    }

    pub fn host_netns(&self) -> PathBuf {
        path(&self.host)
    }

    pub fn wire(&self) -> Namespace {
        Namespace::open(&path(&self.wire)).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    /// Works on the container's namespace.
    pub fn pod_netlink<T: Send>(&self, work: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let pod = Namespace::open(&self.netns()).unwrap();
        pod.run(|| work(&mut Netlink::open().unwrap())).unwrap()
    }

    pub fn host_netlink<T: Send>(&self, work: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let host = Namespace::open(&self.host_netns()).unwrap();
        host.run(|| work(&mut Netlink::open().unwrap())).unwrap()
    }

    pub fn has_link(&self, name: &str) -> bool {
        self.pod_netlink(|netlink| netlink.find(name).unwrap().is_some())
    }

    /// Routes of IPv4 in the container, as `dst via gateway dev name`.
    pub fn routes(&self) -> Vec<String> {
        self.routes_of(Family::V4)
    }

    pub fn routes_of(&self, family: Family) -> Vec<String> {
        let mut routes = self.pod_netlink(|netlink| {
            let links = netlink.list().unwrap();
            let routes = netlink.routes(family, MAIN_TABLE).unwrap();
            let text = |route: &fipd_cni::link::Route| {
                let link = links
                    .iter()
                    .find(|link| Some(link.index) == route.interface);
                let via = route.gw.map(|gw| format!(" via {gw}")).unwrap_or_default();
                format!("{}{via} dev {}", route.dst, link.unwrap().name)
            };
            let routes = routes.iter().map(|one| text(&one.route));
            routes.collect::<Vec<_>>()
        });
        routes.sort();
        routes
    }

    pub fn conf(&self, version: &str, more: Value) -> Value {
        let mut conf = json!({
            "cniVersion": version,
            "name": "flat",
            "type": "fipd-cni",
            "socket": self.socket(),
        });
        for (key, value) in more.as_object().unwrap() {
            conf[key] = value.clone();
        }
        conf
    }

    pub fn run(&self, verb: &str, conf: &Value) -> Answer {
        self.run_with(verb, conf, &self.netns(), &[])
    }

    /// Runs the plugin on the host.
    pub fn run_with(
        &self,
        verb: &str,
        conf: &Value,
        netns: &Path,
        variables: &[(&str, &str)],
    ) -> Answer {
        Answer::of(&self.output(verb, conf, netns, variables, Stdio::piped()))
    }

    /// The same where nothing can be written to standard output.
    pub fn run_unheard(&self, verb: &str, conf: &Value) -> Answer {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let full = Stdio::from(full.unwrap());
        Answer::of(&self.output(verb, conf, &self.netns(), &[], full))
    }

    fn output(
        &self,
        verb: &str,
        conf: &Value,
        netns: &Path,
        variables: &[(&str, &str)],
        stdout: Stdio,
    ) -> Output {
        let input = self.dir.path().join("input");
        std::fs::write(&input, conf.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fipd-cni"));
        command
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", "c1")
            .env("CNI_NETNS", netns)
            .env("CNI_IFNAME", "eth1")
            .env("FIPD_CNI_SPOOL", self.spool())
            .envs(variables.iter().copied())
            .stdin(std::fs::File::open(input).unwrap())
            .stdout(stdout);
        let host = Namespace::open(&self.host_netns()).unwrap();
        host.run(|| command.output().unwrap()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for namespace in [&self.pod, &self.host, &self.wire] {
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}

/// What the plugin printed.
#[derive(Debug)]
pub struct Answer {
    pub ok: bool,
    /// `null`: nothing.
    json: Value,
    pub notes: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        Self {
            ok: output.status.success(),
            json: match &*text {
                "" => Value::Null,
                text => serde_json::from_str(text).unwrap(),
            },
            notes: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    pub fn result(self) -> Value {
        assert!(self.ok, "{self:?}");
        self.json
    }

    /// Its code and its text.
    pub fn error(self) -> (u64, String) {
        assert!(!self.ok, "{self:?}");
        let text = |key: &str| self.json[key].as_str().unwrap_or_default().to_owned();
        let code = self.json["code"].as_u64().unwrap();
        (code, format!("{}: {}", text("msg"), text("details")))
    }
}

fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
}
