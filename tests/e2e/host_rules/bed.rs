//! A network namespace for each test, and an engine in it.

use std::collections::BTreeSet;
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fipd::host::{self, Options};
use fipd::rules::{EngineState, Reached, RuleBoard, View};
use fipd_core::host::{HostSettings, Mode, RuleSet};
use fipd_tests::toolchain::debian;
use fipd_tests::wait::wait_until;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SOON: Duration = Duration::from_secs(10);

/// Runs a test in a network namespace of its own, which ends with its threads.
pub fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    debian::ensure(&["iproute2", "nftables"]).unwrap();
    let thread = std::thread::spawn(move || {
        let namespace = || std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let before = namespace();
        // SAFETY: gives this thread, and those it starts, another namespace; no memory is touched.
        let done = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        assert_ne!(namespace(), before, "the test must not touch this host");
        ip("link set lo up");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `ip` with these arguments; fails the test if it fails.
pub fn ip(arguments: &str) -> String {
    try_ip(arguments).unwrap_or_else(|error| panic!("ip {arguments}: {error}"))
}

pub fn try_ip(arguments: &str) -> Result<String, String> {
    run("ip", arguments)
}

pub fn nft(arguments: &str) -> Result<String, String> {
    run("nft", arguments)
}

fn run(program: &str, arguments: &str) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .unwrap();
    match output.status.success() {
        // Names of devices may be any bytes.
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// All rules of both families, as `ip` shows them.
pub fn rules() -> Vec<String> {
    let all = ip("-4 -N rule show") + &ip("-6 -N rule show");
    let lines = all
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect()
}

/// Those with this tag.
pub fn tagged(protocol: u8) -> Vec<String> {
    let tag = format!("proto {protocol}");
    rules()
        .into_iter()
        .filter(|rule| rule.ends_with(&tag))
        .collect()
}

pub fn own() -> Vec<String> {
    tagged(200)
}

/// The sources that the packet filter knows, with the chains they are sent to, sorted.
pub fn indexed() -> Vec<String> {
    let mut all = Vec::new();
    for map in ["v4", "v6"] {
        let Ok(listed) = nft(&format!("-j list map inet fipd {map}")) else {
            continue;
        };
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        for object in listed["nftables"].as_array().unwrap() {
            for element in object["map"]["elem"].as_array().into_iter().flatten() {
                let chain = element[1]["jump"]["target"].as_str().unwrap();
                all.push(format!("{} {chain}", element[0].as_str().unwrap()));
            }
        }
    }
    all.sort();
    all
}

pub fn set(sources: &[&str], table: u32) -> RuleSet {
    RuleSet {
        name: "lb".into(),
        sources: sources
            .iter()
            .map(|source| source.parse().unwrap())
            .collect(),
        table,
        priority: None,
        fail_closed: false,
        mode: Mode::Auto,
    }
}

/// A set of so many.
pub fn many(count: u16, table: u32, mode: Mode) -> RuleSet {
    let sources = (0..count).map(|number| {
        let [high, low] = number.to_be_bytes();
        std::net::IpAddr::from([10, 96, high, low])
    });
    RuleSet {
        sources: sources.collect(),
        mode,
        ..set(&[], table)
    }
}

/// What an engine keeps over a restart.
pub struct Host {
    folder: TempDir,
    pub options: Options,
}

impl Host {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            settings: HostSettings::default(),
            node: Some("node-1".into()),
            cleanup_on_stop: false,
            nft: None,
            journal: folder.path().join("host.redb"),
            resync: Duration::from_secs(60),
            expected: BTreeSet::new(),
            found_later: Vec::new(),
        };
        Self { folder, options }
    }

    pub fn expecting(who: &[&str]) -> Self {
        let mut host = Self::new();
        host.options.expected = who.iter().map(|who| (*who).into()).collect();
        host
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub fn start(&self) -> Engine {
        let board = RuleBoard::default();
        let stop = CancellationToken::new();
        let run = host::run(self.options.clone(), board.clone(), stop.clone());
        Engine {
            board,
            stop,
            task: tokio::spawn(run),
        }
    }

    /// One who wants these, and the kernel has them.
    pub async fn with(&self, sets: Vec<RuleSet>) -> Engine {
        self.with_as("lb", sets).await
    }

    pub async fn with_as(&self, who: &str, sets: Vec<RuleSet>) -> Engine {
        let engine = self.start();
        engine.has(who, sets).await;
        engine
    }
}

pub struct Engine {
    pub board: RuleBoard,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Engine {
    /// Wants them and waits until the kernel has them.
    pub async fn has(&self, who: &str, sets: Vec<RuleSet>) {
        let revision = self.board.want(&who.into(), sets);
        let mut progress = self.board.progress();
        let there = |reached: &Arc<Reached>| reached.revision >= revision && reached.is_whole();
        let applied = progress.wait_for(there);
        let applied = tokio::time::timeout(SOON, applied).await;
        assert!(applied.is_ok(), "not applied: {:?}", self.board.view());
    }

    /// How the kernel is once this counts.
    pub async fn reached(&self, revision: u64) -> Arc<Reached> {
        let mut progress = self.board.progress();
        let reached = progress.wait_for(|reached| reached.revision >= revision);
        let reached = tokio::time::timeout(SOON, reached).await;
        Arc::clone(&reached.unwrap().unwrap())
    }

    pub async fn until(&self, what: &str, is: impl Fn(&View) -> bool) {
        let mut views = self.board.views();
        let seen = tokio::time::timeout(SOON, views.wait_for(|view| is(view))).await;
        assert!(seen.is_ok(), "{what}: {:?}", self.board.view());
    }

    pub async fn is_active(&self) {
        self.until("active", |view| view.state == EngineState::Active)
            .await;
    }

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task)
            .await
            .unwrap()
            .unwrap();
    }

    /// Ends it wherever it is, as a kill would.
    pub async fn kill(self) {
        self.task.abort();
        let ended = self.task.await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
}

/// Waits until these are what `look` tells.
pub async fn become_<T: PartialEq + std::fmt::Debug>(
    what: &str,
    within: Duration,
    look: impl Fn() -> T,
    expected: T,
) {
    let probe = || {
        let seen = look();
        let same = seen == expected;
        async move {
            if same {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        }
    };
    wait_until(what, within, probe).await.unwrap();
}
