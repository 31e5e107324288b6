//! CNI without Kubernetes: a host with a master interface, the segment behind it, containers, plugins called as a runtime calls
//! them, and fipd with its socket for plugins.
//!
//! ```text
//!  a container             | the host: this namespace    | the segment
//!  eth0 (macvlan on eth0)  | eth0, the master ---- veth -|- wire0 10.88.0.254, fd88::fffe
//!                          | fipd serve, plugins         |
//! ```
//!
//! Namespaces are mounted in a mount namespace of the bed, which also has an empty `/var/lib/cni` and `/var/lib/fipd-cni`. The
//! process that holds it ends with this one, and the kernel then removes all namespaces and interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::directory::TestDirectory;
use super::fipd::{Fipd, FipdOptions, fipd_binary};
use crate::namespace::{enter_mounts, enter_mounts_in_child, in_namespace};
use crate::process::{Process, spawn_bound};
use crate::toolchain::{Component, debian};
use crate::wait::wait_until;

/// The interface of the host that containers share.
pub const MASTER: &str = "eth0";
/// Addresses of another host on the segment.
pub const SEGMENT_V4: &str = "10.88.0.254";
pub const SEGMENT_V6: &str = "fd88::fffe";

const SEGMENT: &str = "segment";
const PACKAGES: &[&str] = &["iproute2", "iputils-ping", "util-linux"];
const SOON: Duration = Duration::from_secs(20);
/// The types of fipd's plugin.
const OWN_TYPES: [&str; 2] = ["fipd-cni", "rancher-flat-network-cni"];
const PUBLISHED: [Component; 5] = [
    Component::CniMacvlan,
    Component::CniBridge,
    Component::CniLoopback,
    Component::CniHostLocal,
    Component::CniStatic,
];
const BESIDE: [Component; 4] = [
    Component::CniTool,
    Component::Etcd,
    Component::KubeApiserver,
    Component::KubeControllerManager,
];
/// A file of the bed that says which boot it is.
const BOOT: &str = "boot_id";
/// Where namespaces are, as runtimes have them.
const NAMESPACES: &str = "/run/netns";
/// The first argument takes the place of the kernel's name of this boot. Says with a file that the mounts are complete, and
/// holds them.
const HOLD: &str = "boot=/proc/sys/kernel/random/boot_id; cat $boot > \"$1\" && mount --bind \"$1\" $boot || exit 1; \
                    for place in /run/netns /var/lib/cni /var/lib/fipd-cni; do mkdir -p $place && mount -t tmpfs bed $place \
                    || exit 1; done; touch \"$0\"; exec sleep 2147483647";

/// Runs a story on a host of its own with a fipd of its own.
pub fn on_a_host(story: impl AsyncFnOnce(&mut CniBed) -> Result<()> + Send) -> Result<()> {
    // What needs this machine's network.
    let prepare = async {
        CniHost::prepare().await?;
        fipd_binary().await
    };
    tokio::runtime::Runtime::new()?.block_on(prepare)?;
    in_namespace(2, async || {
        let mut bed = CniBed::start().await?;
        let told = story(&mut bed).await;
        told.with_context(|| format!("fipd's last words:\n{}", bed.fipd.log_tail()))
    })
}

/// The host, without fipd. It is to be made in a network namespace of its own.
pub struct CniHost {
    // Dropped in this order: the mounts end before the directory is removed.
    mounts: Process,
    directory: TestDirectory,
}

impl CniHost {
    /// Has all that a host, and a cluster that it is a node of, need of this machine's network afterwards.
    pub async fn prepare() -> Result<()> {
        let prepare = || {
            debian::ensure(PACKAGES)?;
            for component in PUBLISHED.into_iter().chain(BESIDE) {
                component.path()?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(prepare).await?
    }

    /// With the master up and the segment behind it. `plugin` is fipd's.
    pub async fn start(plugin: Option<&Path>) -> Result<Self> {
        let directory = TestDirectory::new()?;
        let folder = directory.path();
        for name in ["bin", "net.d"] {
            fs::create_dir(folder.join(name))?;
        }
        for component in PUBLISHED {
            let path = component.path()?;
            symlink(&path, folder.join("bin").join(file_name(&path)?))?;
        }
        for kind in OWN_TYPES {
            if let Some(plugin) = plugin {
                symlink(plugin, folder.join("bin").join(kind))?;
            }
        }
        let ready = folder.join("mounted");
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "sh", "-c", HOLD])
            .args([&ready, &folder.join(BOOT)]);
        let log = folder.join("mounts.log");
        let mounts = Process::spawn("the bed's mounts", unshare, &log)?;
        wait_until("the bed's mounts are there", SOON, || async {
            mounts.still_running().map_err(|error| error.to_string())?;
            fs::metadata(&ready).map_err(|error| error.to_string())
        })
        .await?;
        let host = Self { mounts, directory };
        let segment = host.make_container(SEGMENT).await?;
        let segment = segment.display();
        host.run(&format!(
            "ip link add {MASTER} type veth peer name wire0 netns {segment} && ip link set {MASTER} up"
        ))
        .await?;
        let addresses = format!(
            "ip link set wire0 up && ip address add {SEGMENT_V4}/24 dev wire0 \
             && ip address add {SEGMENT_V6}/64 dev wire0 nodad"
        );
        host.run_in(SEGMENT, &addresses).await?;
        Ok(host)
    }

    /// The folder of all plugins, for `CNI_PATH`.
    pub fn plugins(&self) -> PathBuf {
        self.directory.path().join("bin")
    }

    /// The process whose mounts all others see.
    pub fn mounts_of(&self) -> u32 {
        self.mounts.pid()
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the namespace of a container is or would be.
    pub fn netns(&self, container: &str) -> PathBuf {
        Path::new(NAMESPACES).join(container)
    }

    /// The host calls its boot otherwise from now on.
    pub fn name_next_boot(&self) -> Result<()> {
        let name = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        Ok(fs::write(self.directory.path().join(BOOT), name)?)
    }

    /// A new network namespace with loopback up; its path.
    pub async fn make_container(&self, name: &str) -> Result<PathBuf> {
        let path = self.netns(name);
        let shown = path.display();
        self.run(&format!(
            "touch {shown} && unshare --net={shown} ip link set lo up"
        ))
        .await?;
        Ok(path)
    }

    /// Removes a namespace and with it all that is in it, as the death of a container or a reboot does.
    pub async fn remove_container(&self, name: &str) -> Result<()> {
        let path = self.netns(name);
        let shown = path.display();
        let removed = self.run(&format!("umount {shown} && rm {shown}")).await;
        removed.map(drop)
    }

    /// What a command of a shell says on the host.
    pub async fn run(&self, command: &str) -> Result<String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        let output = self.exchange(shell, "").await?;
        let [out, err] = texts(&output);
        ensure!(
            output.status.success(),
            "{command}: {}: {out}{err}",
            output.status
        );
        Ok(out)
    }

    /// The same in the namespace of a container.
    pub async fn run_in(&self, container: &str, command: &str) -> Result<String> {
        let path = self.netns(container);
        let quoted = command.replace('\'', "'\\''");
        self.run(&format!(
            "nsenter --net={} sh -c '{quoted}'",
            path.display()
        ))
        .await
    }

    /// The interfaces of a container beside loopback, as `ip -json address` has them.
    pub async fn interfaces(&self, container: &str) -> Result<Vec<Value>> {
        let text = self.run_in(container, "ip -json -details address").await?;
        let all: Vec<Value> = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(all
            .into_iter()
            .filter(|one| one["ifname"] != "lo")
            .collect())
    }

    /// Waits until an address answers.
    pub async fn ping(&self, container: &str, address: &str) -> Result<()> {
        let command = format!("ping -c 1 -W 1 {address}");
        let what = format!("{address} answers {container}");
        wait_until(&what, SOON, || self.run_in(container, &command))
            .await
            .map(drop)
    }

    /// Calls a plugin as a runtime does.
    pub async fn call(&self, call: &CniCall) -> Result<Called> {
        let output = self.exchange(self.command(call), &call.stdin).await?;
        Ok(Called::of(&output))
    }

    /// The same, and how long its process took from start to end: without a fork of this large process, as runtimes start theirs.
    pub async fn timed(&self, call: &CniCall) -> Result<(Duration, Called)> {
        let (mut command, pid, stdin) = (self.command(call), self.mounts_of(), call.stdin.clone());
        // A thread of its own, which ends with those mounts.
        let timed = move || {
            enter_mounts(pid)?;
            let before = Instant::now();
            let mut child = piped(&mut command).spawn()?;
            write_stdin(&mut child, &stdin)?;
            let output = child.wait_with_output()?;
            anyhow::Ok((before.elapsed(), Called::of(&output)))
        };
        let ended = tokio::task::spawn_blocking(move || std::thread::spawn(timed).join());
        let joined = ended.await?;
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Calls a plugin and kills it after a while, where it has not ended by then.
    pub async fn call_and_kill(&self, call: &CniCall, after: Duration) -> Result<()> {
        let (command, pid, stdin) = (self.command(call), self.mounts_of(), call.stdin.clone());
        let ended = tokio::task::spawn_blocking(move || {
            let mut child = start(command, pid, &stdin)?;
            std::thread::sleep(after);
            child.kill()?;
            child.wait_with_output()?;
            anyhow::Ok(())
        });
        ended.await?
    }

    /// The process of a call.
    fn command(&self, call: &CniCall) -> Command {
        let mut command = Command::new(self.plugins().join(&call.plugin));
        command
            .env_clear()
            .env("CNI_PATH", self.plugins())
            .envs(&call.environment);
        for name in &call.without {
            command.env_remove(name);
        }
        command
    }

    /// Calls `cnitool` for a network of the folder that [`CniHost::write_network`] writes to.
    pub async fn tool(
        &self,
        verb: &str,
        network: &str,
        container: &str,
        more: &[(&str, &str)],
    ) -> Result<Called> {
        let mut command = Command::new(Component::CniTool.path()?);
        command
            .args([verb, network])
            .arg(self.netns(container))
            .env("NETCONFPATH", self.directory.path().join("net.d"))
            .env("CNI_PATH", self.plugins())
            .envs(more.iter().copied());
        Ok(Called::of(&self.exchange(command, "").await?))
    }

    /// Writes a list of plugins for `cnitool`.
    pub fn write_network(&self, version: &str, name: &str, plugins: &[Value]) -> Result<()> {
        let plugins = plugins.iter().map(|plugin| {
            let mut plugin = plugin.clone();
            if let Some(fields) = plugin.as_object_mut() {
                fields.remove("cniVersion");
                fields.remove("name");
            }
            plugin
        });
        let list = json!({
            "cniVersion": version, "name": name, "plugins": plugins.collect::<Vec<_>>(),
        });
        let path = self.directory.path().join("net.d").join(name);
        fs::write(path.with_extension("conflist"), list.to_string())?;
        Ok(())
    }

    /// Runs a process of the host to its end, with this as its standard input.
    pub async fn exchange(&self, command: Command, stdin: &str) -> Result<Output> {
        let shown = format!("{command:?}");
        let (pid, stdin) = (self.mounts_of(), stdin.to_owned());
        let ended = tokio::task::spawn_blocking(move || exchange(command, pid, &stdin));
        ended.await?.with_context(|| shown)
    }
}

fn exchange(command: Command, mounts_of: u32, stdin: &str) -> Result<Output> {
    Ok(start(command, mounts_of, stdin)?.wait_with_output()?)
}

/// Starts a process of the host that has read or ignored this.
fn start(mut command: Command, mounts_of: u32, stdin: &str) -> Result<Child> {
    piped(&mut command);
    enter_mounts_in_child(&mut command, mounts_of)?;
    let mut child = spawn_bound(command)?;
    write_stdin(&mut child, stdin)?;
    Ok(child)
}

fn piped(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
}

fn write_stdin(child: &mut Child, stdin: &str) -> Result<()> {
    let mut pipe = child.stdin.take().context("standard input")?;
    match pipe.write_all(stdin.as_bytes()) {
        // It ended without reading.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(())
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn file_name(path: &Path) -> Result<&std::ffi::OsStr> {
    path.file_name()
        .with_context(|| format!("{} has no name", path.display()))
}

/// One call of a plugin: its environment and its standard input.
#[derive(Debug, Clone)]
pub struct CniCall {
    plugin: String,
    environment: BTreeMap<String, String>,
    without: Vec<String>,
    stdin: String,
}

impl CniCall {
    /// With nothing but the verb, the plugin of the configuration, and that on standard input.
    pub fn new(verb: &str, conf: &Value) -> Self {
        Self {
            plugin: conf["type"].as_str().unwrap_or("fipd-cni").to_owned(),
            environment: BTreeMap::from([("CNI_COMMAND".to_owned(), verb.to_owned())]),
            without: Vec::new(),
            stdin: conf.to_string(),
        }
    }

    /// About a container.
    #[must_use]
    pub fn of(self, container: &str, netns: &Path, ifname: &str) -> Self {
        self.with("CNI_CONTAINERID", container)
            .with("CNI_NETNS", &netns.display().to_string())
            .with("CNI_IFNAME", ifname)
    }

    /// About a pod, as Multus says it.
    #[must_use]
    pub fn of_pod(self, namespace: &str, name: &str, uid: &str) -> Self {
        let args = format!(
            "IgnoreUnknown=true;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"
        );
        self.with("CNI_ARGS", &args)
    }

    /// With a variable more, or another value.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self.without.push(name.to_owned());
        self
    }

    /// With anything on standard input.
    #[must_use]
    pub fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }
}

/// What a plugin answered.
#[derive(Debug, Clone)]
pub struct Called {
    /// `None`: a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Called {
    fn of(output: &Output) -> Self {
        let [stdout, stderr] = texts(output);
        Self {
            code: output.status.code(),
            stdout,
            stderr,
        }
    }

    /// What it printed, `null` for nothing; an error where it failed.
    pub fn result(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{self:?}");
        if self.stdout.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.stdout).with_context(|| format!("{self:?}"))
    }

    /// The addresses of its result, without lengths.
    pub fn addresses(&self) -> Result<Vec<String>> {
        let result = self.result()?;
        let ips = result["ips"].as_array().into_iter().flatten();
        let address = |ip: &Value| {
            let text = ip["address"].as_str()?;
            Some(text.split('/').next()?.to_owned())
        };
        Ok(ips.filter_map(address).collect())
    }

    /// The error object of the specification, and its code; an error where there is none.
    pub fn error(&self) -> Result<(u64, String)> {
        ensure!(self.code != Some(0), "it did not fail: {self:?}");
        let error: Value =
            serde_json::from_str(&self.stdout).with_context(|| format!("{self:?}"))?;
        let code = error["code"].as_u64();
        let code = code.with_context(|| format!("no code: {self:?}"))?;
        Ok((code, format!("{}; {}", error["msg"], error["details"])))
    }

    /// That it failed with this code; what it said.
    pub fn failed_with(&self, code: u64) -> Result<String> {
        let (found, text) = self.error()?;
        ensure!(found == code, "code {found}, not {code}: {self:?}");
        Ok(text)
    }
}

/// A host and its fipd, which has the pools `lan4` (10.88.0.0/24) and `lan6` (fd88::/64).
pub struct CniBed {
    // Dropped in this order: fipd sees the host's mounts.
    pub fipd: Fipd,
    pub host: CniHost,
}

impl CniBed {
    pub async fn start() -> Result<Self> {
        let mut bed = Self::prepare().await?;
        bed.fipd.restart().await?;
        for pool in [
            format!("lan4 --cidr 10.88.0.0/24 --gateway {SEGMENT_V4}"),
            format!("lan6 --cidr fd88::/64 --gateway {SEGMENT_V6}"),
        ] {
            bed.make_pool(&pool).await?;
        }
        Ok(bed)
    }

    /// The same before the first start of fipd.
    pub async fn prepare() -> Result<Self> {
        let binary = fipd_binary().await?;
        let plugin = binary.with_file_name("fipd-cni");
        if !plugin.exists() {
            bail!("{} is not there: build fipd-cni too", plugin.display());
        }
        let host = CniHost::start(Some(&plugin)).await?;
        let options = FipdOptions {
            mounts_of: Some(host.mounts_of()),
            ..FipdOptions::default()
        };
        let mut fipd = Fipd::prepare(options).await?;
        let socket = fipd.directory().join("cni.sock");
        fipd.add_argument("--cni-socket");
        fipd.add_argument(&socket.display().to_string());
        Ok(Self { fipd, host })
    }

    /// Makes a pool by the words of `fipd pool create`.
    pub async fn make_pool(&self, words: &str) -> Result<()> {
        let words = ["pool", "create"].into_iter().chain(words.split(' '));
        self.fipd.cli(words).await?.success().map(drop)
    }

    /// Where the daemon listens for plugins.
    pub fn socket(&self) -> PathBuf {
        self.fipd.directory().join("cni.sock")
    }

    /// The configuration of a network on these pools.
    pub fn conf(&self, pools: &[&str]) -> Value {
        let route = |pool: &&str| match pool.contains('6') {
            true => json!({ "dst": "::/0" }),
            false => json!({ "dst": "0.0.0.0/0" }),
        };
        json!({
            "cniVersion": "1.1.0", "name": "lan", "type": "fipd-cni", "master": MASTER,
            "socket": self.socket(),
            "ipam": {
                "type": "fipd", "pools": pools,
                "routes": pools.iter().map(route).collect::<Vec<_>>(),
            },
        })
    }

    /// A call about `eth0` of a container.
    pub fn call_of(&self, verb: &str, container: &str, conf: &Value) -> CniCall {
        CniCall::new(verb, conf).of(container, &self.host.netns(container), "eth0")
    }

    /// Calls the plugin about `eth0` of a container.
    pub async fn call(&self, verb: &str, container: &str, conf: &Value) -> Result<Called> {
        self.host.call(&self.call_of(verb, container, conf)).await
    }

    /// A container, and the result of its `ADD`.
    pub async fn add(&self, container: &str, conf: &Value) -> Result<Value> {
        self.host.make_container(container).await?;
        self.call("ADD", container, conf).await?.result()
    }

    /// The owner of each allocated address.
    pub async fn allocated(&self) -> Result<BTreeMap<String, String>> {
        let listed = self.fipd.cli(["lease", "list", "-o", "json"]).await?;
        let listed = listed.json()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let leases = listed["leases"].as_array().into_iter().flatten();
        let allocated = leases.filter(|lease| lease["state"] == "allocated");
        Ok(allocated
            .map(|lease| (text(&lease["address"]), text(&lease["owner"])))
            .collect())
    }
}

/// `conf` with the result that `ADD` gave.
pub fn with_previous(conf: &Value, result: &Value) -> Value {
    let mut conf = conf.clone();
    conf["prevResult"] = result.clone();
    conf
}
