//! What CNI plugins of this host ask: addresses, and what containers share of the host.
//!
//! ```text
//!  plugin --Ask--> socket --> service --> standalone: pools of the address book
//!                                |   `--> pods: FlatNetworkIPs of the cluster
//!                                `--> host: VLANs, promiscuous masters, routes <--> journal
//! ```
//!
//! The plugin enters namespaces, never the daemon.

mod attach;
mod board;
mod boots;
mod deletion;
mod host;
mod host_route;
mod journal;
mod netns;
mod pod_name;
pub mod pods;
mod question;
mod record;
mod refusal;
mod service;
mod socket;
mod standalone;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod turns;
mod uses;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use attach::kind;
pub use board::{CniBoard, CniHealth};
pub use fipd_cni::spool::SPOOL;
pub use socket::MODE;

use crate::{ipam::Ipam, sockets::Listening, store::HostId};
use host::{HostError, HostState};
use pods::PodSites;
use service::CniService;
use standalone::ContainerLeases;

/// What this host remembers of attachments, in the data directory.
const JOURNAL: &str = "cni.redb";
/// Between two looks at what is left of containers that are gone.
const SWEEP: Duration = Duration::from_secs(60);

/// What the daemon has for plugins.
pub struct CniOptions {
    /// `None`: this host decides nothing.
    pub ipam: Option<Ipam>,
    pub sites: PodSites,
    pub data_dir: PathBuf,
    /// `None`: it is not known which host this is.
    pub host: Option<HostId>,
    pub spool: PathBuf,
    /// The tag of this host's routes (`rtm_protocol`).
    pub protocol: u8,
    /// Whether pods of Kubernetes may have addresses of pools.
    pub pods_use_pools: bool,
    pub board: CniBoard,
}

/// Serves plugins of `uid` until `stop`. Without a journal nobody would know what is on the host, and every call is refused until
/// it can be opened.
pub async fn serve(socket: Listening, uid: u32, options: CniOptions, stop: CancellationToken) {
    // Also while every call is refused: otherwise nobody would see that.
    options.board.serves();
    let first = start(&options).await;
    let (served, service) = watch::channel(first);
    let work = async {
        let service = started(&options, &served).await;
        tokio::join!(sweep(&service), forget_earlier_boots(&service));
    };
    tokio::select! {
        () = socket::serve(socket, uid, service, options.board.clone(), socket::LIMITS, stop) => {}
        () = work => {}
    }
}

/// What is served to plugins; else why they are refused.
type Served = Result<Arc<CniService>, String>;

/// The service, once the journal can be opened.
async fn started(options: &CniOptions, served: &watch::Sender<Served>) -> Arc<CniService> {
    let mut told = None;
    loop {
        let error = match &*served.borrow() {
            Ok(service) => return Arc::clone(service),
            Err(error) => error.clone(),
        };
        if told.as_ref() != Some(&error) {
            tracing::error!(
                error,
                "CNI plugins of this host are refused, and fipd tries again every minute; move the journal away, or start the fipd that wrote it"
            );
            told = Some(error);
        }
        tokio::time::sleep(SWEEP).await;
        let next = start(options).await;
        served.send_modify(|service| *service = next);
    }
}

/// Takes away what containers that are gone have left, time and again.
async fn sweep(service: &CniService) {
    loop {
        service.readopt_running().await;
        if let Err(refusal) = service.replay().await {
            let error = refusal.why;
            tracing::warn!(
                error,
                "deletions of the spool wait, and CNI calls are refused until they are done"
            );
        }
        service.sweep().await;
        tokio::time::sleep(SWEEP).await;
    }
}

async fn forget_earlier_boots(service: &CniService) {
    // Containers may be started again under their old ids until then.
    tokio::time::sleep(standalone::RESTART_GRACE).await;
    while !service.forget_earlier_boots().await {
        tokio::time::sleep(SWEEP).await;
    }
}

async fn start(options: &CniOptions) -> Served {
    let (path, board) = (options.data_dir.join(JOURNAL), options.board.clone());
    let (host, protocol) = (options.host, options.protocol);
    let epoch = options.ipam.as_ref().and_then(epoch);
    let opened =
        tokio::task::spawn_blocking(move || HostState::open(&path, host, protocol, epoch, board));
    let opened = opened.await.unwrap_or(Err(HostError::Ended));
    let host = opened.map_err(|error| error.to_string())?;
    let boot = host.boot().into();
    let ipam = options.ipam.clone();
    let for_pods = options.pods_use_pools;
    let leases = ipam.map(|ipam| ContainerLeases {
        ipam,
        boot,
        for_pods,
    });
    let (sites, spool) = (options.sites.clone(), options.spool.clone());
    let service = CniService::new(leases, sites, host, spool, options.board.clone());
    // Before a plugin asks, and before what the spool has is taken away again.
    service.readopt_running().await;
    Ok(Arc::new(service))
}

/// Number of the address book's epoch; `None`: it was never restored.
fn epoch(ipam: &Ipam) -> Option<u64> {
    ipam.read(|ledger| ledger.epoch().map(|epoch| epoch.number))
}
