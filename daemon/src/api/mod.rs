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
mod hooks;
mod layers;
pub mod listen;
pub mod log_level;
mod nameless;
pub mod page;
mod parts;
pub mod problem;
pub mod rest;
pub mod rights;
mod routes;
#[cfg(any(test, feature = "fuzz"))]
pub mod sample;
pub mod ui;
pub mod wire;

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, extract::Request, middleware};

pub use layers::{LEAVE_DEADLINE, common_headers, strict_transport};
pub use routes::pages;

use crate::config::{Serve, Systems};
use access::Routes;
use access::auth::{self, Guard, SocketPolicy};
use layers::{layered, measured};
pub use parts::{AgentApi, Api, ApiParts};
use problem::Problem;
pub use rest::attach::Detacher;
use routes::{beside, of_host, open_routes, routes};

/// The router of the socket and of `[api] listen`.
pub fn router(api: Api, socket: SocketPolicy) -> Router {
    let router = guarded(routes(api.known), Some(&api), socket);
    let router = measured(router.merge(beside().finish().0), &api, ui::is_page);
    router.with_state(api)
}

/// The router of the socket of a host that decides nothing.
pub fn agent_router(api: AgentApi, known: Systems, socket: SocketPolicy) -> Router {
    let router = guarded(of_host(Routes::default(), known), None, socket);
    let router = layered(router, no_page);
    router
        .layer(middleware::map_response(common_headers))
        .with_state(api)
}

/// Without `api` nobody signs in.
fn guarded<S: Clone + Send + Sync + 'static>(
    routes: Routes<S>,
    api: Option<&Api>,
    socket: SocketPolicy,
) -> Router<S> {
    let (router, table) = routes.finish();
    let guard = Guard {
        api: api.cloned(),
        table: Arc::new(table),
        socket,
    };
    router
        .fallback(nothing_here)
        .layer(middleware::from_fn_with_state(guard, auth::authenticate))
}

/// The router of a `[[listener]]`: what it serves, without login, and nothing else.
pub fn open_router(api: Api, serve: &BTreeSet<Serve>) -> Router {
    let (router, _) = serve
        .iter()
        .copied()
        .fold(Routes::default(), open_routes)
        .finish();
    let router = measured(router.fallback(nothing_here), &api, no_page);
    router.with_state(api)
}

/// What is served without pages.
fn no_page(_path: &str) -> bool {
    false
}

async fn nothing_here(request: Request) -> Problem {
    Problem::not_found("such path:", request.uri().path())
}
