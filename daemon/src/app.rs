//! Puts the parts of the daemon together, keeps them running and takes them down in order.

mod agent;
mod certificate;
mod host;
mod listen_file;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use futures::FutureExt as _;
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Admission,
    api::{
        self, Api,
        accounts::{AccountError, Accounts},
        admission::Desk,
        fip_v1::FipV1,
        listen::{self, ListenError, Port, Socket},
        tls, ui,
    },
    backups::{Backups, Schedule},
    clock,
    clusters::{self, Clusters},
    config::{HostRole, Listener},
    controllers::{Runner, lease, rancher_fip::guests::Own},
    expiry,
    guests::GuestBoard,
    helm::Helm,
    ipam::{Ipam, IpamError, Writer},
    metrics::Metrics,
    restore_hold, rollup,
    rules::{RuleBoard, watch_drift},
    settings::Settings,
    store::{OpenError, Options},
};
use certificate::Certificate;
use listen_file::ListenFile;

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
    Account(#[from] AccountError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("signals cannot be received: {0}")]
    Signal(io::Error),
    #[error("a part of the daemon ended by itself: {0}")]
    Ended(String),
}

/// Runs the daemon until it is told to stop.
pub async fn run(settings: Settings) -> Result<(), AppError> {
    // A second provider cannot be there: nothing else installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if settings.config.role == HostRole::Agent {
        return agent::run(settings).await;
    }
    // First of all: who has the store is the daemon.
    let options = Options {
        audit_limit: settings.config.audit.keep.0,
        history: settings.config.history.retention(),
        ..Options::default()
    };
    let (ipam, writer) = Ipam::start_with(&settings.data_dir, options, Arc::new(clock::now))?;
    let stop = CancellationToken::new();
    let result = serve(&settings, &ipam, &stop).await;
    stop.cancel();
    shut_down(ipam, writer).await;
    result
}

/// Everything between opening and closing the store.
async fn serve(settings: &Settings, ipam: &Ipam, stop: &CancellationToken) -> Result<(), AppError> {
    let signals = Signals::new()?;
    let mut tasks = JoinSet::new();
    let guests = GuestBoard::default();
    let rules = RuleBoard::default();
    let helm = Helm::start(
        &settings.config.helm,
        &settings.data_dir,
        stop.child_token(),
    );
    let runner = controllers(settings, &guests, &helm);
    let runner = host::of_node(runner, settings.config.host.as_ref(), &rules, stop);
    let decides = Box::new(runner.requests(ipam.clone()));
    let ranchers = runner.ranchers();
    let takeover = runner.takeover();
    let rule_takeover = runner.rule_takeover(rules.clone());
    let (clusters, registry) = start_clusters(settings, ipam, runner, stop).await?;
    tasks.spawn(async { registry.await.map_err(|error| error.to_string()) });
    let accounts = Accounts::start(ipam.clone(), &settings.data_dir).await?;
    let socket = Socket::bind(&settings.socket)?;
    let tls_settings = settings.tls();
    let port = Port::bind(tls_settings.listen)?;
    let extra = bind_extra(&settings.config.listeners)?;
    let certificate = Certificate::start(settings).await?;
    let url = format!("https://{}", port.address);
    let listen_file = ListenFile::write(&settings.data_dir, &url).inspect_err(
        |error| tracing::warn!(%error, url, "tools do not find the listener by themselves"),
    );
    let schedule = Schedule::new(&settings.config.backup, &settings.data_dir);
    Backups::sweep_lent(&settings.data_dir);
    let backups = Backups::new(ipam.clone(), schedule);
    chores(&mut tasks, ipam, &backups, &rules, stop);
    let engine = host::start(
        &mut tasks,
        &settings.config,
        &settings.data_dir,
        (ipam, &rules),
        stop,
    );
    let api = Arc::new(Api {
        ipam: ipam.clone(),
        metrics: Metrics::new(
            ipam.clone(),
            clusters.clone(),
            backups.clone(),
            guests.clone(),
            ranchers.clone(),
            Some(&helm),
            rules.clone(),
        ),
        guests,
        helm: Some(helm),
        backups,
        admission: Desk::new(Admission::new(Box::new(ranchers), ipam.clone())),
        fip_v1: FipV1::new(decides, ipam.clone(), settings.config.fip_v1),
        takeover,
        rule_takeover,
        rules,
        sessions: ui::Sessions::new(ipam.clone()),
        clusters,
        accounts,
        streams: Arc::new(Semaphore::new(api::changes::STREAMS)),
        tokens_used: api::tokens::LastUsed::default(),
        data_dir: settings.data_dir.clone(),
        checking: Arc::new(Semaphore::new(1)),
        stop: stop.clone(),
    });
    serve_open(&mut tasks, extra, &api, &certificate.served(), stop);
    serve_users(&mut tasks, (socket, port), api, certificate.served(), stop);
    tasks.spawn(Arc::clone(&certificate).keep(stop.clone()));
    tell_ready(settings, &url);
    let result = supervise(signals, &mut tasks, &certificate, ipam).await;
    tell(&[NotifyState::Stopping]);
    tracing::info!("fipd is stopping");
    stop.cancel();
    end(tasks, &engine, move || drop(listen_file)).await;
    result
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

/// What the socket and the TLS port serve to those who sign in or are who they are.
fn serve_users(
    tasks: &mut Tasks,
    (socket, port): (Socket, Port),
    api: Arc<Api>,
    certificate: RustlsConfig,
    stop: &CancellationToken,
) {
    let router = api::router(api, socket.policy);
    let on_socket = stop.clone();
    let shared = router.clone();
    tasks.spawn(async {
        socket
            .serve(shared, on_socket)
            .await
            .map_err(|error| error.to_string())
    });
    let serving = port.serve(Some(certificate), router, listen::MOST, stop.clone());
    tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
}

/// What further ports serve without login.
fn serve_open(
    tasks: &mut Tasks,
    ports: Vec<(Port, Listener)>,
    api: &Arc<Api>,
    certificate: &RustlsConfig,
    stop: &CancellationToken,
) {
    for (port, listener) in ports {
        let router = api::open_router(Arc::clone(api), &listener.serve);
        let tls = listener.tls.then(|| certificate.clone());
        tracing::info!(address = %port.address, tls = listener.tls, serve = ?listener.serve, "listens here as well, without login");
        let serving = port.serve(tls, router, listen::MOST_OPEN, stop.clone());
        tasks.spawn(async { serving.await.map_err(|error| error.to_string()) });
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
    let copying = backups.clone().run(stop.clone());
    let ending = expiry::run(ipam.clone(), expiry::Pace::default(), stop.clone());
    let noting = rollup::run(ipam.clone(), stop.clone());
    let holding = restore_hold::run(ipam.clone(), restore_hold::PACE, stop.clone());
    let telling = watch_drift::run(ipam.clone(), rules.clone(), watch_drift::PACE, stop.clone());
    tasks.spawn(telling.map(Ok));
    tasks.spawn(copying.map(Ok));
    tasks.spawn(ending.map(Ok));
    tasks.spawn(noting.map(Ok));
    tasks.spawn(holding.map(Ok));
    tasks.spawn(watchdog(ipam.clone(), stop.clone()));
}

fn tell_ready(settings: &Settings, url: &str) {
    tracing::info!(
        url,
        socket = %settings.socket.display(),
        data_dir = %settings.data_dir.display(),
        ca = %tls::ca_file(&settings.data_dir).display(),
        config = settings.config_file.as_ref().map(|file| file.path().display().to_string()),
        "fipd is ready"
    );
    tell(&[
        NotifyState::Ready,
        NotifyState::Status(&format!("serving at {url}")),
    ]);
}

fn bind_extra(listeners: &[Listener]) -> Result<Vec<(Port, Listener)>, ListenError> {
    let bind = |listener: &Listener| Ok((Port::bind(listener.address)?, listener.clone()));
    listeners.iter().map(bind).collect()
}

fn controllers(settings: &Settings, guests: &GuestBoard, helm: &Helm) -> Runner {
    let tls = settings.tls();
    let ca = tls::ca_file(&settings.data_dir);
    let own = Own {
        ca_file: tls.files.is_none().then_some(ca),
        names: tls.names(),
        listen: Some(tls.listen),
        url: tls.advertise,
        plain: settings.config.plain_fip_v1(),
    };
    let me = lease::identity(&settings.data_dir);
    Runner::new(me, own, guests.clone(), Some(helm.clone()))
}

async fn start_clusters(
    settings: &Settings,
    ipam: &Ipam,
    runner: Runner,
    stop: &CancellationToken,
) -> Result<(Clusters, tokio::task::JoinHandle<()>), IpamError> {
    let options = clusters::Options {
        config: settings.config.clone(),
        file: settings.config_file.clone(),
        trust: clusters::Trust::default(),
        flags: settings.flags().clone(),
    };
    Clusters::start(options, ipam.clone(), Arc::new(runner), stop.child_token()).await
}

/// The signals a service manager sends.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, AppError> {
        let listen = |kind| signal(kind).map_err(AppError::Signal);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }
}

/// Waits for the reason to stop. A part that ends before it was told to is one.
async fn supervise(
    mut signals: Signals,
    tasks: &mut Tasks,
    certificate: &Certificate,
    ipam: &Ipam,
) -> Result<(), AppError> {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            _ = signals.hangup.recv() => certificate.reload().await,
            () = ipam.ended() => {
                let why = "the writer of the address book is gone; the service manager starts fipd again";
                tracing::error!(condition = ?ipam.health(), "{why}");
                return Err(AppError::Ended(why.to_owned()));
            }
            Some(ended) = tasks.join_next() => return Err(AppError::Ended(why(ended))),
        }
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

/// Tells the service manager that the daemon lives, as long as the address book can be read.
async fn watchdog(ipam: Ipam, stop: CancellationToken) -> Result<(), String> {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        stop.cancelled().await;
        return Ok(());
    };
    loop {
        ipam.read(|ledger| ledger.revision());
        tell(&[NotifyState::Watchdog]);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(interval / 3) => {}
        }
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
