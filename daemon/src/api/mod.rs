//! HTTP: REST for programs and pages for people, over a Unix socket and TLS.
//!
//! ```text
//!  socket peer --\
//!  bearer token --> authenticate --> access table --> handler --> Request --> ipam
//!  UI session ---/                                       \------> ledger (read)
//! ```
//!
//! Owns who may ask what and how it looks on the wire. It decides nothing about addresses: it turns HTTP into
//! `fipd_core::Request`s and answers back into JSON or HTML.

pub mod access;
pub mod admission;
pub mod body;
mod cell;
pub mod convert;
pub mod etag;
pub mod extract;
pub mod fip_v1;
pub mod health;
mod layers;
pub mod listen;
mod nameless;
pub mod page;
pub mod problem;
pub mod rest;
pub mod rights;
mod routes;
#[cfg(any(test, feature = "fuzz"))]
pub mod sample;
pub mod ui;
pub mod wire;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use axum::{Router, extract::Request, middleware};
use fipd_core::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub use layers::{LEAVE_DEADLINE, common_headers, strict_transport};
pub use routes::pages;

use crate::{
    adopt::Takeovers, backups::Backups, clusters::Clusters, config::Serve,
    controller::system::System, guests::GuestBoard, helm::Helm, ipam::Ipam, liveness::Liveness,
    metrics::Metrics, nodes::NodeBoard, oidc::Oidc, reload::Reload, rules::RuleBoard,
    settings::effective::Effective, webhooks::Webhooks,
};
use access::Routes;
use access::{
    accounts::Accounts,
    auth::{self, Guard, SocketPolicy},
};
use layers::layered;
use problem::Problem;
use rest::{changes, tokens};
use routes::{beside, of_host, open_routes, routes};

/// What handlers work with.
pub struct Api {
    /// All systems of this build.
    pub systems: &'static [&'static dyn System],
    pub ipam: Ipam,
    pub clusters: Clusters,
    pub guests: GuestBoard,
    /// `None`: no charts are installed.
    pub helm: Option<Helm>,
    pub accounts: Accounts,
    pub sessions: ui::Sessions,
    pub oidc: Oidc,
    pub metrics: Metrics,
    pub backups: Backups,
    pub reload: Reload,
    pub fip_v1: fip_v1::FipV1,
    pub admission: admission::Desk,
    pub takeovers: Takeovers,
    pub rules: RuleBoard,
    pub webhooks: Webhooks,
    /// Of clusters that have policy-routing rules.
    pub nodes: NodeBoard,
    /// What this daemon was started with.
    pub settings: Arc<Effective>,
    /// What was given and freed in the hours that are over.
    pub flow: ui::KnownFlow,
    /// When the certificate of the TLS listener ends; `None`: it does not say.
    pub certificate: watch::Receiver<Option<Timestamp>>,
    /// The open streams of changes.
    pub streams: changes::Streams,
    pub tokens_used: tokens::LastUsed,
    pub data_dir: PathBuf,
    /// One permit: a check copies the ledger and the store.
    pub checking: Arc<Semaphore>,
    /// The loops that accept connections, and the blocking pool.
    pub liveness: Liveness,
    /// Cancelled when the daemon stops; long answers (event streams) end then.
    pub stop: CancellationToken,
}

/// The router of the socket and of `[api] listen`.
pub fn router(api: Arc<Api>, socket: SocketPolicy) -> Router {
    let router = guarded(routes(), &api, socket);
    layered(router.merge(beside().finish().0), api, ui::is_page)
}

/// The router of the socket of a host that decides nothing.
pub fn agent_router(api: Arc<Api>, socket: SocketPolicy) -> Router {
    let router = guarded(of_host(Routes::default()), &api, socket);
    layered(router, api, no_page)
}

fn guarded(routes: Routes, api: &Arc<Api>, socket: SocketPolicy) -> Router<Arc<Api>> {
    let (router, table) = routes.finish();
    let guard = Guard {
        api: Arc::clone(api),
        table: Arc::new(table),
        socket,
    };
    router
        .fallback(nothing_here)
        .layer(middleware::from_fn_with_state(guard, auth::authenticate))
}

/// The router of a `[[listener]]`: what it serves, without login, and nothing else.
pub fn open_router(api: Arc<Api>, serve: &BTreeSet<Serve>) -> Router {
    let (router, _) = serve
        .iter()
        .copied()
        .fold(Routes::default(), open_routes)
        .finish();
    layered(router.fallback(nothing_here), api, no_page)
}

/// What is served without pages.
fn no_page(_path: &str) -> bool {
    false
}

async fn nothing_here(request: Request) -> Problem {
    Problem::not_found("such path:", request.uri().path())
}
