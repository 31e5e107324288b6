//! Puts the parts of the daemon together, keeps them running and takes them down in order.

mod agent;
mod certificate;
mod config_reloader;
mod host;
mod listen_file;
mod listeners;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fipd_core::Refused;
use futures::FutureExt as _;
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        Api, ApiParts, Detacher,
        access::accounts::{AccountError, Accounts},
        admission::Desk,
        fip_v1::FipV1,
        listen::{ListenError, tls},
        rest::audit,
        ui,
    },
    backups::{Backups, Schedule},
    clock::{self, KernelClock},
    clusters::{self, Clusters, ClustersError},
    config::HostRole,
    controller::{endpoint::OwnEndpoint, leader_election},
    expiry,
    guests::GuestBoard,
    helm::Helm,
    host::probe::Prober,
    ipam::{Ipam, IpamError, Writer},
    journal,
    metrics::Metrics,
    nodes::NodeBoard,
    oidc::Oidc,
    reload, restore_hold, rollup,
    rules::{RuleBoard, watch_drift},
    settings::{Settings, effective::Effective},
    sockets::{Passed, SocketError},
    store::OpenError,
    system::{Means, Shared},
    systems,
    systems::Runner,
    webhooks::Webhooks,
};
use config_reloader::{ConfigReloader, Parts};
use listeners::Listeners;

/// How long servers and clusters have to come to an end. The store gets 5 s afterwards; all of it stays below 10 s.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// How much longer the removal of this host's rules may take, where it is asked for.
const RULES_PATIENCE: Duration = Duration::from_secs(5);
/// The writer has ended by then, or its disk hangs.
const JOIN_PATIENCE: Duration = Duration::from_millis(250);
/// Holds the URL of the TLS listener, for tools.
const LISTEN_FILE: &str = "listen";

/// The parts of the daemon; one that ends by itself takes it down.
type Tasks = JoinSet<Result<(), String>>;

/// Why the daemon did not start or went down.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Ipam(#[from] IpamError),
    #[error(transparent)]
    Clusters(#[from] ClustersError),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The provider cannot be used as it is configured.
    #[error("{0}")]
    Config(String),
    #[error("signals cannot be received: {0}")]
    Signal(io::Error),
    #[error("a part of the daemon ended by itself: {0}")]
    Ended(String),
}

/// Runs the daemon until it is told to stop.
pub async fn run(settings: Settings, passed: Passed) -> Result<(), AppError> {
    // A second provider cannot be there: nothing else installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if settings.config.role == HostRole::Agent {
        return agent::run(settings, passed).await;
    }
    // First of all: who has the store is the daemon.
    let options = settings.store_options();
    if options.host.is_none() {
        tracing::warn!(
            "this host has no /etc/machine-id that lasts: whether the store belongs to it is not checked"
        );
    }
    let (ipam, writer) = Ipam::start_on(
        &settings.data_dir,
        options,
        Arc::new(KernelClock::new(settings.config.clock.trust)),
    )?;
    let settings = of_this_host(settings, &ipam);
    let stop = CancellationToken::new();
    let result = serve(&settings, passed, &ipam, &stop).await;
    stop.cancel();
    shut_down(ipam, writer).await;
    result
}

/// On another host than the store's, clusters and rules are left to that one.
fn of_this_host(settings: Settings, ipam: &Ipam) -> Settings {
    if !ipam.is_of_another_host() {
        return settings;
    }
    tracing::error!(
        "{}. What the address book holds can be read; clusters, rules of this host, webhooks and backups are left alone",
        Refused::OtherHost
    );
    settings.reading_only()
}

/// Everything between opening and closing the store.
async fn serve(
    settings: &Settings,
    passed: Passed,
    ipam: &Ipam,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let (config, data_dir) = (&settings.config, &settings.data_dir);
    let (signals, hangup) = Signals::new()?;
    let (reload, desk) = reload::pair();
    let mut tasks = JoinSet::new();
    let means = means(settings, ipam, stop);
    let (guests, rules) = (means.guests.clone(), means.rules.clone());
    let runner = Runner::new(&means);
    let (clusters, registry) = start_clusters(settings, ipam, runner.clone(), stop).await?;
    tasks.spawn(async { registry.await.map_err(|error| error.to_string()) });
    let accounts = Accounts::start(ipam.clone(), data_dir).await?;
    let plugins = host::plugins(settings, Some(ipam), &means.shared);
    let listeners = Listeners::open(&mut tasks, settings, (passed, plugins), stop).await?;
    Backups::sweep_lent(data_dir);
    let backups = Backups::new(ipam.clone(), Schedule::new(&config.backup, data_dir));
    tasks.spawn(watchdog(ipam.clone(), stop.clone()));
    if !settings.overrides.reading_only {
        chores(&mut tasks, ipam, &backups, &rules, stop);
    }
    let oidc = start_oidc(settings)?;
    let webhooks = Webhooks::new(&config.hooks, data_dir, audit::json);
    tasks.spawn(webhooks.clone().run(ipam.clone(), stop.clone()).map(Ok));
    let (engine, host_rules) = host::start(&mut tasks, config, data_dir, (ipam, &rules), stop);
    let parts = Parts {
        certificate: Arc::clone(&listeners.certificate),
        backups: backups.clone(),
        ipam: ipam.clone(),
        host_rules,
    };
    let liveness = listeners.liveness();
    tasks.spawn(liveness.clone().watch_blocking(stop.clone()).map(Ok));
    let status = serving_at(&listeners.url);
    let keeper = ConfigReloader::new(settings, clusters.clone(), Some(parts), status);
    tasks.spawn(keeper.run(hangup, desk, stop.clone()).map(Ok));
    let from = (clusters.clone(), backups.clone(), webhooks.clone());
    let metrics = metrics(&means, &runner, from);
    let decides = runner.floating_ips();
    let api = Api::from(ApiParts {
        detacher: Detacher::new(clusters.clone(), guests.clone(), systems::ALL, means.me),
        ipam: ipam.clone(),
        metrics,
        guests,
        helm: means.helm,
        backups,
        reload,
        admission: Arc::new(Desk::new(runner.admission())),
        fip_v1: Arc::new(FipV1::new(decides, ipam.clone(), config.fip_v1)),
        takeovers: runner.takeovers(),
        running: runner.running(),
        known: config.known,
        rules,
        webhooks,
        oidc,
        flow: Arc::default(),
        nodes: means.nodes,
        settings: Arc::new(Effective::new(settings, clock::now())),
        certificate: listeners.certificate.ends(),
        sessions: Arc::new(ui::Sessions::new(ipam.clone())),
        clusters,
        accounts,
        streams: Default::default(),
        tokens_used: Arc::default(),
        data_dir: data_dir.clone(),
        checking: Arc::new(Semaphore::new(1)),
        liveness,
        stop: stop.clone(),
    });
    let listen_file = listeners.serve(&mut tasks, settings, api, stop);
    let result = supervise(signals, &mut tasks, ipam).await;
    tell(&[NotifyState::Stopping]);
    tracing::info!("fipd is stopping");
    stop.cancel();
    end(tasks, &engine, move || drop(listen_file)).await;
    result
}

/// What systems work with.
fn means(settings: &Settings, ipam: &Ipam, stop: &CancellationToken) -> Means {
    let (config, data_dir) = (&settings.config, &settings.data_dir);
    Means {
        me: leader_election::identity(data_dir),
        endpoint: endpoint(settings),
        ipam: ipam.clone(),
        metrics_ports: config.metrics_ports(),
        guests: GuestBoard::default(),
        helm: Some(Helm::start(&config.helm, data_dir, stop.child_token())),
        nodes: NodeBoard::default(),
        rules: RuleBoard::default(),
        host: host::means(config.host.as_ref(), stop),
        prober: Prober::beside(&settings.socket),
        only_host: false,
        shared: Shared::default(),
    }
}

fn metrics(
    means: &Means,
    runner: &Runner,
    (clusters, backups, webhooks): (Clusters, Backups, Webhooks),
) -> Metrics {
    Metrics::new(
        means.ipam.clone(),
        clusters,
        (backups, webhooks),
        means.guests.clone(),
        &runner.originals(),
        means.helm.as_ref(),
        means.rules.clone(),
    )
}

fn start_oidc(settings: &Settings) -> Result<Oidc, AppError> {
    let advertise = settings.tls().advertise;
    let oidc = Oidc::new(settings.config.oidc.as_ref(), advertise.as_deref());
    let oidc = oidc.map_err(AppError::Config)?;
    if let Some(provider) = oidc.provider().cloned() {
        // So that the login says it if the provider cannot be reached.
        tokio::spawn(async move { provider.look().await });
    }
    Ok(oidc)
}

/// Ends what was started, and takes the listen file away.
async fn end(tasks: Tasks, engine: &CancellationToken, remove: impl FnOnce() + Send + 'static) {
    // Not here: a disk that hangs must not keep the daemon.
    let removed = tokio::task::spawn_blocking(remove);
    drain(tasks, engine).await;
    if tokio::time::timeout(JOIN_PATIENCE, removed).await.is_err() {
        tracing::warn!("the disk does not answer; the listen file may be left behind");
    }
}

/// What goes on beside the serving.
fn chores(
    tasks: &mut Tasks,
    ipam: &Ipam,
    backups: &Backups,
    rules: &RuleBoard,
    stop: &CancellationToken,
) {
    let stop = || stop.clone();
    let ending = expiry::run(ipam.clone(), expiry::Pace::default(), stop());
    let holding = restore_hold::run(ipam.clone(), restore_hold::PACE, stop());
    let telling = watch_drift::run(ipam.clone(), rules.clone(), watch_drift::PACE, stop());
    tasks.spawn(telling.map(Ok));
    tasks.spawn(backups.clone().run(stop()).map(Ok));
    tasks.spawn(ending.map(Ok));
    tasks.spawn(rollup::run(ipam.clone(), stop()).map(Ok));
    tasks.spawn(journal::run(ipam.clone(), stop()).map(Ok));
    tasks.spawn(holding.map(Ok));
}

fn tell_ready(settings: &Settings, socket: &Path, url: &str) {
    tracing::info!(
        url,
        socket = %socket.display(),
        data_dir = %settings.data_dir.display(),
        ca = %tls::ca_file(&settings.data_dir).display(),
        config = settings.config_file.as_ref().map(|file| file.path().display().to_string()),
        "fipd is ready"
    );
    tell(&[NotifyState::Ready, NotifyState::Status(&serving_at(url))]);
}

fn serving_at(url: &str) -> String {
    format!("serving at {url}")
}

/// How others reach this daemon.
fn endpoint(settings: &Settings) -> OwnEndpoint {
    let tls = settings.tls();
    let ca = tls::ca_file(&settings.data_dir);
    OwnEndpoint {
        ca_file: tls.files.is_none().then_some(ca),
        cert_file: tls.files.as_ref().map(|(cert, _)| cert.clone()),
        names: tls.names(),
        listen: Some(tls.listen),
        url: tls.advertise,
        plain: settings.config.plain_fip_v1(),
    }
}

async fn start_clusters(
    settings: &Settings,
    ipam: &Ipam,
    runner: Runner,
    stop: &CancellationToken,
) -> Result<(Clusters, tokio::task::JoinHandle<()>), ClustersError> {
    let keeps = settings.config.role == HostRole::Standalone && !settings.overrides.reading_only;
    let options = clusters::ClustersOptions {
        config: settings.config.clone(),
        trust: clusters::Trust {
            home: settings.data_dir.join("programs"),
            ..clusters::Trust::default()
        },
        data_dir: keeps.then(|| settings.data_dir.clone()),
    };
    Clusters::start(options, ipam.clone(), Arc::new(runner), stop.child_token()).await
}

/// The signals a service manager sends.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// And the one that has the configuration read again.
    fn new() -> Result<(Self, Signal), AppError> {
        let listen = |kind| signal(kind).map_err(AppError::Signal);
        let signals = Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        };
        Ok((signals, listen(SignalKind::hangup())?))
    }
}

/// Waits for the reason to stop. A part that ends before it was told to is one.
async fn supervise(mut signals: Signals, tasks: &mut Tasks, ipam: &Ipam) -> Result<(), AppError> {
    tokio::select! {
        _ = signals.terminate.recv() => Ok(()),
        _ = signals.interrupt.recv() => Ok(()),
        () = ipam.ended() => {
            let why = "the writer of the address book is gone; the service manager starts fipd again";
            tracing::error!(condition = ?ipam.health(), "{why}");
            Err(AppError::Ended(why.to_owned()))
        }
        Some(ended) = tasks.join_next() => Err(AppError::Ended(why(ended))),
    }
}

/// Why a part has ended.
fn why(ended: Result<Result<(), String>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "without a reason".to_owned(),
        Ok(Err(error)) => error,
        Err(error) => error.to_string(),
    }
}

/// Tells the service manager that the daemon lives, as long as the address book can be read and its writer gets on.
async fn watchdog(ipam: Ipam, stop: CancellationToken) -> Result<(), String> {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        stop.cancelled().await;
        return Ok(());
    };
    // It lives so far; whether the writer gets on can be told after a while only.
    tell(&[NotifyState::Watchdog]);
    let mut last = ipam.pulse();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(interval / 3) => {}
        }
        ipam.read(|ledger| ledger.revision());
        let pulse = ipam.pulse();
        if pulse.beats_after(&last) {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(
                waiting = pulse.waiting,
                "the writer of the address book stands still; the service manager is not told that fipd lives"
            );
        }
        last = pulse;
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// `engine` is cancelled once the rules of this host are as they are to be after the stop.
async fn drain(mut tasks: Tasks, engine: &CancellationToken) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
        tracing::warn!(
            "some requests were cut off after {} s",
            STOP_PATIENCE.as_secs()
        );
        // It says itself what it leaves behind.
        let _ = tokio::time::timeout(RULES_PATIENCE, engine.cancelled()).await;
        tasks.abort_all();
    }
}

async fn shut_down(ipam: Ipam, writer: Writer) {
    // Bounded by itself; a hanging disk is given up there.
    ipam.shutdown().await;
    let joined = tokio::task::spawn_blocking(move || writer.join());
    if tokio::time::timeout(JOIN_PATIENCE, joined).await.is_err() {
        tracing::error!("the writer of the address book did not end in time");
    }
}

#[cfg(test)]
mod tests;
