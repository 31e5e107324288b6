//! A real node of a control plane: containerd, runc and a kubelet in namespaces of their own, so that a pod of the host's
//! network has the node's, not this machine's.
//!
//! ```text
//!  this namespace                          | node N: network, processes, mounts
//!  API server at 10.96.0.1:443 -- bridge --|- eth0 192.168.77.N+1, kubelet --> containerd --> pods
//! ```
//!
//! The first process of the node ends with this one, and the kernel ends all others with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::Api;
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, SERVICE_ADDRESS};
use super::directory::TestDirectory;
use super::fipd::fipd_binary;
use super::image::{self, image, run};
use super::kubeconfig::with_server;
use crate::namespace::in_namespace;
use crate::process::Process;
use crate::toolchain::{Component, debian};
use crate::wait::wait_until;

const PACKAGES: &[&str] = &["containerd", "runc", "iproute2", "util-linux"];
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Where the kubelet looks for static pods.
const MANIFESTS: &str = "manifests";
/// An image whose first process waits, and which has busybox.
pub const PAUSE: &str = "fipd.test/pause:1";
/// Here, with all nodes on it: the segment that the nodes' `eth0` are on.
pub const BRIDGE: &str = "nodes";
/// Has the node's daemons leave nothing on this machine where they know only one place, says so with a file, and reaps what
/// is left behind by others.
const FIRST: &str = "mkdir -p /var/lib/kubelet && mkdir -p /var/lib/cni /var/lib/fipd-cni; \
                     for place in /run /var/log /var/lib/kubelet /var/lib/cni /var/lib/fipd-cni; do \
                     mount -t tmpfs node $place || exit 1; done; touch \"$0\"; while :; do sleep 1000 & wait; done";

/// Runs a story in a network namespace of its own, in which nodes can be started.
pub fn on_a_node(story: impl AsyncFnOnce() -> Result<()> + Send) -> Result<()> {
    // What needs this machine's network.
    let prepare = async {
        Node::prepare().await?;
        fipd_binary().await
    };
    tokio::runtime::Runtime::new()?.block_on(prepare)?;
    in_namespace(2, story)
}

/// How a node differs from others.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Which one of the control plane it is, from 1.
    pub number: u8,
    /// What fipd's image is called there; `None`: it has none.
    pub fipd_image: Option<String>,
    /// The network of its pods; `None`: they have the node's.
    pub network: Option<NodeNetwork>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            number: 1,
            fipd_image: None,
            network: None,
        }
    }
}

/// How containerd attaches pods.
#[derive(Debug, Clone)]
pub struct NodeNetwork {
    /// The plugins, by the types that they have there.
    pub plugins: Vec<(String, PathBuf)>,
    /// The list of plugins.
    pub configuration: Value,
}

/// A running node. Dropping it ends all that runs on it.
pub struct Node {
    kubelet: Process,
    containerd: Process,
    first: Process,
    /// The process id of the node's first process, as seen from here.
    pid: u32,
    directory: TestDirectory,
}

impl Node {
    /// Has all that a node needs of this machine's network afterwards.
    pub async fn prepare() -> Result<()> {
        let prepare = || {
            debian::ensure(PACKAGES)?;
            debian::ensure(image::PACKAGES)?;
            for component in [Component::Kubelet, Component::KubeScheduler] {
                component.path()?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(prepare).await?
    }

    /// The one node of a control plane for nodes, with the controller manager that takes the taint of new nodes off;
    /// `fipd_image` is what fipd's image is called there. Waits until it is ready.
    pub async fn start(plane: &ControlPlane, name: &str, fipd_image: &str) -> Result<Self> {
        let options = NodeOptions {
            fipd_image: Some(fipd_image.to_owned()),
            ..NodeOptions::default()
        };
        Self::start_with(plane, name, &options).await
    }

    /// One of several nodes. Waits until it is ready.
    pub async fn start_with(
        plane: &ControlPlane,
        name: &str,
        options: &NodeOptions,
    ) -> Result<Self> {
        let directory = TestDirectory::new()?;
        let folder = directory.path();
        write_settings(folder, plane)?;
        write_network(folder, options.network.as_ref())?;
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--net",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        let mounted = folder.join("mounted");
        unshare.args(["sh", "-c", FIRST]).arg(&mounted);
        let first = Process::spawn(
            "the node's first process",
            unshare,
            &folder.join("first.log"),
        )?;
        let pid = child(&first, &mounted).await?;
        connect(pid, options.number)?;
        let log = |name: &str| folder.join(format!("{name}.log"));
        let containerd = inside(
            pid,
            "containerd",
            &["--config", &shown(folder, "containerd.toml")],
        );
        let containerd = Process::spawn("containerd", containerd, &log("containerd"))?;
        import(pid, folder, options.fipd_image.as_deref(), &containerd).await?;
        let kubelet = tokio::task::spawn_blocking(|| Component::Kubelet.path()).await??;
        let mut command = inside(pid, &kubelet.display().to_string(), &[]);
        command
            .arg(format!("--config={}", shown(folder, "kubelet.yaml")))
            .arg(format!("--root-dir={}", shown(folder, "kubelet")))
            .arg(format!("--kubeconfig={}", shown(folder, "kubeconfig")))
            .args([
                &format!("--hostname-override={name}"),
                &format!("--node-ip={}", address(options.number)),
            ]);
        let kubelet = Process::spawn("kubelet", command, &log("kubelet"))?;
        let node = Self {
            kubelet,
            containerd,
            first,
            pid,
            directory,
        };
        node.ready(plane, name).await?;
        Ok(node)
    }

    /// A program on the node, to be started.
    pub fn command(&self, program: &Path) -> Command {
        inside(self.pid, &program.display().to_string(), &[])
    }

    /// A directory of the test's that the node sees too.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a command of a shell on the node and gives back what it says.
    pub async fn run(&self, command: &str) -> Result<String> {
        run(inside(self.pid, "sh", &["-c", command])).await
    }

    /// Has the kubelet run this as a static pod, in the place of the one with this file name.
    pub fn place(&self, file: &str, manifest: &str) -> Result<()> {
        let path = self.directory.path().join(MANIFESTS).join(file);
        // The kubelet reads it as soon as it is there.
        let fresh = self.directory.path().join("manifest.new");
        fs::write(&fresh, manifest)?;
        fs::rename(fresh, path)?;
        Ok(())
    }

    /// Has containerd attach the next pods by another list of plugins, which it takes up a moment later.
    pub fn attach_to(&self, list: &Value) -> Result<()> {
        write_list(self.directory.path(), list)
    }

    /// Gives the node fipd's image once more: another image under another name.
    pub async fn load(&self, tag: &str, epoch: u64) -> Result<()> {
        let file = image(self.directory.path(), tag, epoch).await?;
        self.ctr(&["images", "import", &file.display().to_string()])
            .await
            .map(drop)
    }

    /// Asks the node's containerd about what the kubelet has there.
    pub async fn ctr(&self, arguments: &[&str]) -> Result<String> {
        ctr(self.pid, self.directory.path(), arguments).await
    }

    /// What its daemons said last.
    pub fn log_tail(&self) -> String {
        let all = [&self.kubelet, &self.containerd];
        let tails = all.map(|process| format!("{}:\n{}", process.name(), process.log_tail()));
        tails.join("\n")
    }

    async fn ready(&self, plane: &ControlPlane, name: &str) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(plane.client().await?);
        let what = format!("the node {name} is ready and takes pods");
        let ready = wait_until(&what, READY_WITHIN, || async {
            if let Err(ended) = self.kubelet.still_running() {
                return Ok(Err(ended));
            }
            let node = nodes.get(name).await.map_err(|error| error.to_string())?;
            let (status, spec) = (json!(node.status), json!(node.spec));
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut ready = conditions.filter(|one| one["type"] == "Ready");
            let is = ready.any(|one| one["status"] == "True") && spec["taints"].is_null();
            if is {
                Ok(Ok(()))
            } else {
                Err(format!("{status} {spec}"))
            }
        });
        ready.await.with_context(|| self.log_tail())?
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let containers = containers(self.directory.path());
        // The first process is this machine's child of a child: its end is waited for, so that nothing is mounted any more.
        if let Ok(pid) = i32::try_from(self.pid) {
            let _gone =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
        }
        let until = std::time::Instant::now() + ENDS_WITHIN;
        while matches!(self.first.try_wait(), Ok(None)) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        remove_cgroups(&containers);
    }
}

fn shown(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// A program on the node.
fn inside(pid: u32, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={pid}"))
        .args(["--net", "--pid", "--mount", program])
        .args(arguments);
    command
}

/// The process id of the node's first process, once its namespaces are complete.
async fn child(first: &Process, mounted: &Path) -> Result<u32> {
    let parent = first.pid();
    let look = || async {
        if let Err(ended) = first.still_running() {
            return Ok(Err(ended));
        }
        fs::metadata(mounted).map_err(|error| error.to_string())?;
        let children = format!("/proc/{parent}/task/{parent}/children");
        let text = fs::read_to_string(children).map_err(|error| error.to_string())?;
        text.trim()
            .parse()
            .map(Ok)
            .map_err(|_| "no child".to_owned())
    };
    wait_until("the node's first process runs", READY_WITHIN, look).await?
}

fn address(number: u8) -> String {
    format!("192.168.77.{}", number + 1)
}

/// A cable between the bridge of this namespace, where the API server is at its Service's address, and the node.
fn connect(pid: u32, number: u8) -> Result<()> {
    ip(&format!("address replace {SERVICE_ADDRESS}/32 dev lo"))?;
    if ip(&format!("link show dev {BRIDGE}")).is_err() {
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("address add 192.168.77.1/24 dev {BRIDGE}"))?;
        ip(&format!("link set {BRIDGE} up"))?;
    }
    ip(&format!(
        "link add node{number} type veth peer name eth0 netns {pid}"
    ))?;
    ip(&format!("link set node{number} master {BRIDGE} up"))?;
    let commands = format!(
        "ip link set lo up && ip address add {}/24 dev eth0 && ip link set eth0 up \
         && ip route add 10.96.0.0/16 via 192.168.77.1",
        address(number)
    );
    let done = inside(pid, "sh", &["-c", &commands]).status()?;
    ensure!(done.success(), "the node's network: {done}");
    Ok(())
}

/// Runs `ip` here.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {said}");
    Ok(())
}

fn write_settings(folder: &Path, plane: &ControlPlane) -> Result<()> {
    let place = |name: &str| shown(folder, name);
    let socket = place("containerd.sock");
    // Without restrict_oom_score_adj runc cannot start anything where this machine is a container itself.
    let containerd = format!(
        "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {socket:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\ndisable_apparmor = true\n\
         sandbox_image = {PAUSE:?}\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = {:?}\nconf_dir = {:?}\n",
        place("containerd"),
        place("state"),
        place("cni"),
        place("net.d"),
    );
    fs::write(folder.join("containerd.toml"), containerd)?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{socket}"),
        "cgroupDriver": "cgroupfs", "failCgroupV1": false, "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
        "staticPodPath": place(MANIFESTS), "failSwapOn": false, "makeIPTablesUtilChains": false, "localStorageCapacityIsolation": false, "resolvConf": "",
        // Nobody is evicted because this machine's disk is full.
        "evictionHard": { "memory.available": "1Mi" }, "imageGCHighThresholdPercent": 100,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    });
    fs::write(folder.join("kubelet.yaml"), kubelet.to_string())?;
    fs::create_dir_all(folder.join(MANIFESTS))?;
    let server = format!("https://{SERVICE_ADDRESS}:443");
    fs::write(
        folder.join("kubeconfig"),
        with_server(plane.kubeconfig_yaml(), &server),
    )?;
    Ok(())
}

fn write_network(folder: &Path, network: Option<&NodeNetwork>) -> Result<()> {
    for name in ["cni", "net.d"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let plugins = network.iter().flat_map(|network| &network.plugins);
    for (kind, path) in plugins {
        symlink(path, folder.join("cni").join(kind))?;
    }
    // Pods have the host's network: no plugin is ever called, but without a network the node is not ready.
    let none = json!({ "cniVersion": "1.0.0", "name": "none", "plugins": [{ "type": "none" }] });
    let list = network.map_or(&none, |network| &network.configuration);
    write_list(folder, list)
}

/// containerd reads it as soon as it is there.
fn write_list(folder: &Path, list: &Value) -> Result<()> {
    let fresh = folder.join("net.d/new");
    fs::write(&fresh, list.to_string())?;
    fs::rename(fresh, folder.join("net.d/10-test.conflist"))?;
    Ok(())
}

/// Fipd's image and that of the process that holds a pod's namespaces, into the node's containerd.
async fn import(
    pid: u32,
    folder: &Path,
    fipd_image: Option<&str>,
    containerd: &Process,
) -> Result<()> {
    let mut files = vec![pause(folder).await?];
    if let Some(tag) = fipd_image {
        files.push(image(folder, tag, 0).await?);
    }
    let ask = || ctr(pid, folder, &["version"]);
    let answers = wait_until("containerd answers", READY_WITHIN, ask).await;
    answers.with_context(|| containerd.log_tail())?;
    for file in files {
        ctr(
            pid,
            folder,
            &["images", "import", &file.display().to_string()],
        )
        .await?;
    }
    Ok(())
}

/// Asks containerd about what the kubelet has there.
async fn ctr(pid: u32, folder: &Path, arguments: &[&str]) -> Result<String> {
    let socket = shown(folder, "containerd.sock");
    let mut all = vec!["--address", &socket, "--namespace", "k8s.io"];
    all.extend(arguments);
    run(inside(pid, "ctr", &all)).await
}

async fn pause(folder: &Path) -> Result<PathBuf> {
    let files = folder.join("pause");
    fs::create_dir_all(&files)?;
    fs::copy("/bin/busybox", files.join("busybox"))?;
    let text = "FROM scratch\nCOPY busybox /busybox\nENTRYPOINT [\"/busybox\", \"sleep\", \"2147483647\"]\n";
    let containerfile = folder.join("Containerfile");
    fs::write(&containerfile, text)?;
    image::build(folder, &files, &containerfile, PAUSE).await
}

/// The ids of what runs there.
fn containers(folder: &Path) -> Vec<String> {
    let state = folder.join("state/io.containerd.runtime.v2.task/k8s.io");
    let all = fs::read_dir(state).into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// containerd was killed and could not remove them itself.
fn remove_cgroups(containers: &[String]) {
    let hierarchies = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten();
    let mut parents: Vec<PathBuf> = hierarchies
        .map(|entry| entry.path().join("k8s.io"))
        .collect();
    parents.push("/sys/fs/cgroup/k8s.io".into());
    for parent in parents {
        for container in containers {
            let _was_none = fs::remove_dir(parent.join(container));
        }
    }
}
