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
mod host;
mod journal;
pub mod pods;
mod record;
mod refusal;
mod service;
mod socket;
mod standalone;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod uses;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

pub use board::CniBoard;
pub use service::SPOOL;
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

/// Serves plugins of `uid` until `stop`.
///
/// # Errors
/// The journal cannot be read: what is on the host would not be known.
pub async fn serve(
    socket: Listening,
    uid: u32,
    options: CniOptions,
    stop: CancellationToken,
) -> Result<(), HostError> {
    let service = Arc::new(start(options).await?);
    let sweeping = Arc::clone(&service);
    let sweep = async move {
        loop {
            sweeping.sweep().await;
            tokio::time::sleep(SWEEP).await;
        }
    };
    let restarting = Arc::clone(&service);
    let forget = async move {
        // Containers may be started again under their old ids until then.
        let grace = standalone::RESTART_GRACE.saturating_sub(host::since_boot());
        tokio::time::sleep(grace).await;
        restarting.forget_earlier_boots().await;
        std::future::pending::<()>().await;
    };
    service.replay().await;
    tokio::select! {
        () = socket::serve(socket, uid, service, stop) => {}
        () = sweep => {}
        () = forget => {}
    }
    Ok(())
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
