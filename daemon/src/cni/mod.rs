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

use tokio_util::sync::CancellationToken;

pub use board::{CniBoard, CniHealth};
pub use fipd_cni::spool::SPOOL;
pub use socket::MODE;

use crate::{ipam::Ipam, sockets::Listening};
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
    pub spool: PathBuf,
    /// The tag of this host's routes (`rtm_protocol`).
    pub protocol: u8,
    pub board: CniBoard,
}

/// Serves plugins of `uid` until `stop`. Without a journal nobody would know what is on the host, and every call is refused.
pub async fn serve(socket: Listening, uid: u32, options: CniOptions, stop: CancellationToken) {
    let board = options.board.clone();
    let service = match start(options).await {
        Ok(service) => Arc::new(service),
        Err(error) => {
            tracing::error!(%error, "CNI plugins of this host are refused; move the journal away, or start the fipd that wrote it");
            return socket::serve(socket, uid, Err(error.to_string()), stop).await;
        }
    };
    board.serves();
    let sweeping = Arc::clone(&service);
    let sweep = async move {
        loop {
            if let Err(refusal) = sweeping.replay().await {
                let error = refusal.why;
                tracing::warn!(
                    error,
                    "deletions of the spool wait, and CNI calls are refused until they are done"
                );
            }
            sweeping.sweep().await;
            tokio::time::sleep(SWEEP).await;
        }
    };
    let restarting = Arc::clone(&service);
    let forget = async move {
        // Containers may be started again under their old ids until then.
        tokio::time::sleep(standalone::RESTART_GRACE).await;
        while !restarting.forget_earlier_boots().await {
            tokio::time::sleep(SWEEP).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = socket::serve(socket, uid, Ok(service), stop) => {}
        () = sweep => {}
        () = forget => {}
    }
}

async fn start(options: CniOptions) -> Result<CniService, HostError> {
    let (path, board) = (options.data_dir.join(JOURNAL), options.board.clone());
    let protocol = options.protocol;
    let opened = tokio::task::spawn_blocking(move || HostState::open(&path, protocol, board));
    let host = opened.await.map_err(|_| HostError::Ended)??;
    let boot = host.boot().into();
    let leases = options.ipam.map(|ipam| ContainerLeases { ipam, boot });
    let (sites, spool) = (options.sites, options.spool);
    Ok(CniService::new(leases, sites, host, spool, options.board))
}
