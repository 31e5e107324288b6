//! Containers attached and detached by fipd's plugin without Kubernetes, beside the published macvlan with host-local.
//!
//! Both are called in turns in the same namespaces, as a runtime calls them: a process for each verb, from its start to its end.
//! Both have as many leases beforehand, host-local as its files. The floor of `DEL` is the kernel's removal of such an interface,
//! asked for over an open netlink socket.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use super::cni_node::memory;
use super::cni_pods::running;
use super::figure::{Figure, median, millis};
use super::fill::{self, Pools};
use crate::namespace::in_namespace;
use crate::runner::build_plugin;
use crate::testbed::{CniCall, CniHost, Fipd, FipdOptions, MASTER, Node, fipd_binary};

const LEVELS: [u32; 3] = [0, 1_000, 10_000];
const WARM_UP: usize = 5;
const ROUNDS: usize = 100;
/// A removal waits for what the kernel still does after a change just before.
const SETTLE: Duration = Duration::from_millis(30);
const CIDR: &str = "10.0.0.0/8";
/// In MB.
const PLUGIN: f64 = 2.0;

/// Medians at one level, in milliseconds.
struct Level {
    leases: u32,
    add: f64,
    del: f64,
    peer_add: f64,
    peer_del: f64,
    removal: f64,
}

pub async fn run() -> Result<Vec<Figure>> {
    CniHost::prepare().await?;
    Node::prepare().await?;
    fipd_binary().await?;
    let plugin = tokio::task::spawn_blocking(build_plugin).await??;
    let size = fs::metadata(&plugin)
        .with_context(|| plugin.display().to_string())?
        .len() as f64
        / 1e6;
    let mut levels = Vec::new();
    for leases in LEVELS {
        let plugin = plugin.clone();
        let measured = tokio::task::spawn_blocking(move || {
            in_namespace(2, async || level(&plugin, leases).await)
        });
        levels.push(measured.await??);
    }
    let on_nodes = tokio::task::spawn_blocking(move || {
        let memory = in_namespace(2, async || memory(&plugin).await)?;
        let pods = in_namespace(2, async || running(&plugin).await)?;
        anyhow::Ok([memory, pods])
    });
    let on_nodes = on_nodes.await??;
    let mut figures = vec![Figure::at_most("cni-plugin", "MB", size, "-", PLUGIN)];
    for one in &levels {
        figures.extend(one.figures());
    }
    figures.extend(on_nodes);
    if let [first, .., last] = &levels[..] {
        let name = "cni-add-10000-leases-beside-none";
        figures.push(Figure::cost_ratio(name, "ms", last.add, first.add, 1.2));
    }
    Ok(figures)
}

impl Level {
    fn figures(&self) -> [Figure; 3] {
        let name = |what: &str| format!("cni-{what}-{}-leases", self.leases);
        let floor = format!("{} beside the removal", name("del"));
        [
            Figure::cost_ratio(&name("add"), "ms", self.add, self.peer_add, 0.35),
            Figure::cost_ratio(&name("del"), "ms", self.del, self.peer_del, 1.0),
            Figure::cost_ratio(&floor, "ms", self.del, self.removal, 1.1),
        ]
    }
}

/// A host with both.
struct Bench {
    // Dropped in this order: fipd sees the host's mounts.
    _fipd: Fipd,
    host: CniHost,
    own: Value,
    peer: Value,
}

async fn level(plugin: &Path, leases: u32) -> Result<Level> {
    let bench = Bench::start(plugin, leases).await?;
    let mut samples: [Vec<Duration>; 5] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        let taken = bench.round(round).await?;
        for (all, one) in samples.iter_mut().zip(taken) {
            all.push(one);
        }
    }
    let [add, del, peer_add, peer_del, removal] = samples.map(|mut all| {
        let measured = all.split_off(WARM_UP);
        median(&measured).map(millis)
    });
    Ok(Level {
        leases,
        add: add?,
        del: del?,
        peer_add: peer_add?,
        peer_del: peer_del?,
        removal: removal?,
    })
}

impl Bench {
    async fn start(plugin: &Path, leases: u32) -> Result<Self> {
        let host = CniHost::start(Some(plugin)).await?;
        let socket = host.directory().join("cni.sock");
        let options = FipdOptions {
            arguments: vec!["--cni-socket".to_owned(), socket.display().to_string()],
            mounts_of: Some(host.mounts_of()),
            ..FipdOptions::default()
        };
        let pools = Pools::one(CIDR)?;
        let write = move |store: &Path| fill::fill(store, &pools, leases, leases.into());
        let fipd = fill::daemon_on(options, write).await?;
        let data = host.directory().join("host-local");
        fill_host_local(&data.join("peer"), leases)?;
        Ok(Self {
            _fipd: fipd,
            own: json!({
                "cniVersion": "1.0.0", "name": "own", "type": "fipd-cni", "master": MASTER,
                "socket": socket, "ipam": { "type": "fipd", "pools": ["bench"] },
            }),
            peer: json!({
                "cniVersion": "1.0.0", "name": "peer", "type": "macvlan", "master": MASTER,
                "mode": "bridge",
                "ipam": { "type": "host-local", "dataDir": data, "ranges": [[{ "subnet": CIDR }]] },
            }),
            host,
        })
    }

    /// Times of `ADD` and `DEL` of ours and of the peer's, and of the kernel alone.
    async fn round(&self, round: usize) -> Result<[Duration; 5]> {
        let name = format!("c{round}");
        self.host.make_container(&name).await?;
        let mut taken = [Duration::ZERO; 5];
        // The order rotates: the first call of a round meets cold caches and a kernel busy with the new namespace.
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => [taken[0], taken[1]] = self.life(&self.own, &name).await?,
                1 => [taken[2], taken[3]] = self.life(&self.peer, &name).await?,
                _ => taken[4] = self.removal(&name).await?,
            }
        }
        self.host.remove_container(&name).await?;
        Ok(taken)
    }

    /// `ADD` and `DEL`.
    async fn life(&self, conf: &Value, container: &str) -> Result<[Duration; 2]> {
        let add = self.timed("ADD", conf, container).await?;
        tokio::time::sleep(SETTLE).await;
        let del = self.timed("DEL", conf, container).await?;
        Ok([add, del])
    }

    async fn timed(&self, verb: &str, conf: &Value, container: &str) -> Result<Duration> {
        let netns = self.host.netns(container);
        let call = CniCall::new(verb, conf).of(container, &netns, "eth0");
        let (took, called) = self.host.timed(&call).await?;
        called.result()?;
        Ok(took)
    }

    /// The kernel alone: a macvlan as the plugins make them, up and with an address.
    async fn removal(&self, container: &str) -> Result<Duration> {
        let netns = self.host.netns(container);
        let made = format!(
            "ip link add link {MASTER} name flat0 netns {} type macvlan mode bridge",
            netns.display()
        );
        self.host.run(&made).await?;
        let up = "ip address add 10.200.0.1/8 dev flat0 && ip link set flat0 up";
        self.host.run_in(container, up).await?;
        tokio::time::sleep(SETTLE).await;
        let mounts = self.host.mounts_of();
        tokio::task::spawn_blocking(move || {
            // A thread of its own, which ends in that namespace.
            let thread = std::thread::spawn(move || remove(mounts, &netns));
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .await?
    }
}

/// Removes `flat0` in a namespace that another process has mounted.
fn remove(mounts_of: u32, netns: &Path) -> Result<Duration> {
    let seen = format!("/proc/{mounts_of}/root{}", netns.display());
    let file = fs::File::open(&seen).with_context(|| seen.clone())?;
    // SAFETY: gives this thread another namespace; no memory is touched.
    let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    ensure!(entered == 0, "{}", std::io::Error::last_os_error());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let mut links = handle.link().get().match_name("flat0".to_owned()).execute();
        let link = links.try_next().await?.context("flat0")?;
        let start = Instant::now();
        handle.link().del(link.header.index).execute().await?;
        Ok(start.elapsed())
    })
}

/// As many addresses as host-local would have given.
fn fill_host_local(folder: &Path, leases: u32) -> Result<()> {
    fs::create_dir_all(folder)?;
    let first = u32::from(std::net::Ipv4Addr::new(10, 0, 0, 2));
    for number in 0..leases {
        let address = std::net::Ipv4Addr::from(first + number).to_string();
        fs::write(folder.join(&address), format!("held-{number}\r\neth0"))?;
        if number + 1 == leases {
            fs::write(folder.join("last_reserved_ip.0"), address)?;
        }
    }
    Ok(())
}
