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
pub mod accounts;
pub mod admin;
pub mod admission;
pub mod adopt;
mod adopt_rules;
mod attach;
pub mod audit;
pub mod auth;
pub mod backups;
pub mod body;
pub mod bulk;
mod cell;
pub mod changes;
pub mod clusters;
pub mod convert;
pub mod etag;
pub mod export;
pub mod extract;
pub mod fip_v1;
pub mod guests;
pub mod health;
pub mod history;
pub mod import;
mod labels;
pub mod leases;
pub mod listen;
pub mod move_network;
mod nameless;
pub mod openapi;
mod overlaps;
pub mod page;
pub mod pool_preview;
pub mod pools;
pub mod probed;
pub mod problem;
pub mod quotas;
pub mod reload;
pub mod restore_hold;
pub mod rights;
pub mod rotate_key;
pub mod rules;
#[cfg(any(test, feature = "fuzz"))]
pub mod sample;
mod separate;
pub mod tls;
pub mod tokens;
pub mod transfer;
pub mod ui;
pub mod users;
pub mod verify;
mod wants;
pub mod webhooks;
pub mod wire;

use std::{any::Any, collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use fipd_core::{Role, Timestamp};
use http::{HeaderValue, StatusCode, header};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    backups::Backups,
    clusters::Clusters,
    config::Serve,
    controllers::{ip_rule, rancher_fip::adopt::Takeover},
    guests::GuestBoard,
    helm::Helm,
    ipam::Ipam,
    metrics::Metrics,
    nodes::NodeBoard,
    oidc::Oidc,
    reload::Reload,
    rules::RuleBoard,
    settings::effective::Effective,
    webhooks::Webhooks,
};
use access::{Access, Routes};
use accounts::Accounts;
use auth::{Guard, SocketPolicy};
use problem::{Code, MEDIA_TYPE, Problem};

/// How long a handler may take until its answer begins.
const HANDLER_DEADLINE: Duration = Duration::from_secs(60);
/// The same where a cluster is left, one object after the other.
pub const LEAVE_DEADLINE: Duration = Duration::from_secs(30 * 60);

/// What handlers work with.
pub struct Api {
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
    pub takeover: Takeover,
    pub rule_takeover: ip_rule::adopt::Takeover,
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
    /// Cancelled when the daemon stops; long answers (event streams) end then.
    pub stop: CancellationToken,
}

const VIEWER: Access = Access::Api(Role::Viewer);
const OPERATOR: Access = Access::Api(Role::Operator);
const ADMIN: Access = Access::Api(Role::Admin);
// Also for tokens with a scope.
const MY_VIEWER: Access = Access::Scoped(Role::Viewer);
const MY_OPERATOR: Access = Access::Scoped(Role::Operator);
const MY_ADMIN: Access = Access::Scoped(Role::Admin);

/// All routes and who may call them.
fn routes() -> Routes {
    let own = Routes::default()
        .get("/healthz", Access::Open, health::healthz)
        .get("/readyz", Access::Open, health::readyz)
        .get("/metrics", VIEWER, health::metrics)
        .get("/api/v1/openapi.json", MY_VIEWER, openapi::document);
    ui::routes(of_host(running(book(own))))
}

/// The pages that are looked at: pattern of the route and who may. Files and streams are none.
pub fn pages() -> Vec<(String, Access)> {
    let (_, table) = routes().finish();
    let page = |(method, pattern, access): (&str, &str, Access)| {
        let shown = pattern == "/ui" || pattern.starts_with("/ui/");
        let file = pattern.starts_with("/ui/static/") || pattern.ends_with(".csv");
        let stream = pattern == "/ui/events";
        (method == "GET" && shown && !file && !stream).then(|| (pattern.to_owned(), access))
    };
    table.iter().filter_map(page).collect()
}

/// What the address book has and decides.
fn book(routes: Routes) -> Routes {
    routes
        .get("/api/v1/networks", MY_VIEWER, pools::list_networks)
        .post("/api/v1/networks", ADMIN, pools::create_network)
        .get("/api/v1/networks/{name}", MY_VIEWER, pools::show_network)
        .put(
            "/api/v1/networks/{name}/separate/{other}",
            ADMIN,
            separate::separate,
        )
        .delete(
            "/api/v1/networks/{name}/separate/{other}",
            ADMIN,
            separate::withdraw,
        )
        .get("/api/v1/pools", MY_VIEWER, pools::list)
        .post("/api/v1/pools", ADMIN, pools::create)
        .get("/api/v1/pools/{name}", MY_VIEWER, pools::show)
        .get("/api/v1/pools/{name}/history", MY_VIEWER, history::history)
        .patch("/api/v1/pools/{name}", ADMIN, pools::update)
        .delete("/api/v1/pools/{name}", ADMIN, pools::delete)
        .post("/api/v1/pools/{name}/preview", ADMIN, pool_preview::preview)
        .get(
            "/api/v1/pools/{name}/move-network",
            ADMIN,
            move_network::preview,
        )
        .post(
            "/api/v1/pools/{name}/move-network",
            ADMIN,
            move_network::move_network,
        )
        .get("/api/v1/leases", MY_VIEWER, leases::list)
        .post("/api/v1/leases", MY_OPERATOR, leases::allocate)
        .post("/api/v1/leases/release", MY_OPERATOR, leases::release)
        .post("/api/v1/leases/reserve", MY_OPERATOR, leases::reserve)
        .get(
            "/api/v1/leases/{network}/{address}",
            MY_VIEWER,
            leases::show,
        )
        .delete(
            "/api/v1/leases/{network}/{address}",
            MY_OPERATOR,
            leases::release_address,
        )
        .post(
            "/api/v1/leases/{network}/{address}/transfer",
            MY_OPERATOR,
            transfer::transfer,
        )
        .post(
            "/api/v1/leases/{network}/{address}/probed",
            MY_OPERATOR,
            probed::probed,
        )
        .patch(
            "/api/v1/leases/{network}/{address}/labels",
            MY_OPERATOR,
            labels::label,
        )
        .get("/api/v1/quotas", MY_OPERATOR, quotas::list)
        .get("/api/v1/quotas/{pool}/{tenant}", MY_OPERATOR, quotas::show)
        .put("/api/v1/quotas/{pool}/{tenant}", MY_ADMIN, quotas::put)
        .delete("/api/v1/quotas/{pool}/{tenant}", MY_ADMIN, quotas::delete)
        .get("/api/v1/restore-hold", VIEWER, restore_hold::show)
        .post("/api/v1/restore-hold/lift", ADMIN, restore_hold::lift)
        .post("/api/v1/fip-v1/rotate-key", ADMIN, rotate_key::rotate_key)
        .post("/api/v1/bulk", MY_OPERATOR, bulk::bulk)
        .get("/api/v1/changes", MY_VIEWER, changes::changes)
}

/// What keeps it running.
fn running(routes: Routes) -> Routes {
    routes
        .get("/api/v1/guests", VIEWER, guests::list)
        .post(
            "/api/v1/projects/{project}/rotate-secret",
            ADMIN,
            guests::rotate_secret,
        )
        .get("/api/v1/clusters", VIEWER, clusters::list)
        .get("/api/v1/clusters/{name}", VIEWER, clusters::show)
        .put("/api/v1/clusters/{name}", ADMIN, attach::add)
        .delete("/api/v1/clusters/{name}", ADMIN, attach::remove)
        .get("/api/v1/clusters/{name}/detach", ADMIN, attach::preview)
        .post("/api/v1/clusters/{name}/detach", ADMIN, attach::detach)
        .post("/api/v1/clusters/{name}/attach", ADMIN, attach::attach)
        .post("/api/v1/clusters/{name}/forget", ADMIN, clusters::forget)
        .post(
            "/api/v1/clusters/{name}/skip-adoption",
            ADMIN,
            clusters::skip_adoption,
        )
        .post(
            "/api/v1/clusters/{name}/confirm-release",
            ADMIN,
            clusters::confirm_release,
        )
        .post(
            "/api/v1/clusters/{name}/crds",
            ADMIN,
            clusters::install_crds,
        )
        .get(
            "/api/v1/clusters/{name}/adopt/rancher-fip",
            ADMIN,
            adopt::preview,
        )
        .post(
            "/api/v1/clusters/{name}/adopt/rancher-fip",
            ADMIN,
            adopt::adopt,
        )
        .get("/api/v1/audit", MY_VIEWER, audit::audit)
        .get("/api/v1/check", OPERATOR, admin::check)
        .get("/api/v1/backup", ADMIN, admin::backup)
        .get("/api/v1/backups", ADMIN, backups::list)
        .post("/api/v1/backups", ADMIN, backups::make)
        .get("/api/v1/backups/{name}", ADMIN, backups::download)
        .post("/api/v1/backups/{name}/drill", ADMIN, backups::drill)
        .get("/api/v1/webhooks", ADMIN, webhooks::list)
        .post("/api/v1/webhooks/{name}/test", ADMIN, webhooks::test)
        .post("/api/v1/import", ADMIN, import::import)
        .get("/api/v1/export", MY_VIEWER, export::export)
        .get("/api/v1/tokens", ADMIN, tokens::list)
        .post("/api/v1/tokens", ADMIN, tokens::create)
        .get("/api/v1/tokens/{id}", ADMIN, tokens::show)
        .delete("/api/v1/tokens/{id}", ADMIN, tokens::revoke)
        .get("/api/v1/users", ADMIN, users::list)
        .post("/api/v1/users", ADMIN, users::create)
        .get("/api/v1/users/{name}", ADMIN, users::show)
        .patch("/api/v1/users/{name}", ADMIN, users::update)
        .delete("/api/v1/users/{name}", ADMIN, users::delete)
        .delete("/api/v1/users/{name}/sessions", ADMIN, users::sign_out)
}

/// The rules of this host and its configuration, which a host that decides nothing has as well.
fn of_host(routes: Routes) -> Routes {
    routes
        .get(
            "/api/v1/clusters/{name}/adopt/ip-rule",
            ADMIN,
            adopt_rules::preview,
        )
        .post(
            "/api/v1/clusters/{name}/adopt/ip-rule",
            ADMIN,
            adopt_rules::adopt,
        )
        .get("/api/v1/reload", VIEWER, reload::standing)
        .post("/api/v1/reload", ADMIN, reload::reload)
        .get("/api/v1/rules", VIEWER, rules::show)
        .get("/api/v1/rules/foreign", VIEWER, rules::foreign)
        .get("/api/v1/rules/plan", VIEWER, rules::plan)
        .post("/api/v1/rules/flush", ADMIN, rules::flush)
        .post("/api/v1/rules/resume", ADMIN, rules::resume)
        .post("/api/v1/rules/prune-foreign", ADMIN, rules::prune_foreign)
}

/// The router of the socket and of `[api] listen`.
pub fn router(api: Arc<Api>, socket: SocketPolicy) -> Router {
    let router = guarded(routes(), &api, socket);
    layered(router.merge(beside().finish().0), api, ui::is_page)
}

/// What [`router`] serves beside the guard: its tokens are its own.
fn beside() -> Routes {
    admission::routes(fip_v1::routes(Routes::default()))
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
    let (router, _) = serve.iter().fold(Routes::default(), open_routes).finish();
    layered(router.fallback(nothing_here), api, no_page)
}

/// What a `[[listener]]` serves for a word of `serve`.
fn open_routes(routes: Routes, part: &Serve) -> Routes {
    match part {
        Serve::Metrics => routes.get("/metrics", Access::Open, health::metrics),
        Serve::RancherFipMetrics => {
            routes.get("/metrics", Access::Open, health::rancher_fip_metrics)
        }
        Serve::IpRuleMetrics => routes.get("/metrics", Access::Open, health::ip_rule_metrics),
        Serve::Health => routes
            .get("/health", Access::Open, health::healthz)
            .get("/ready", Access::Open, health::ready)
            .get("/healthz", Access::Open, health::healthz)
            .get("/readyz", Access::Open, health::readyz),
        Serve::FipV1 => fip_v1::routes(routes),
        Serve::Ipam => fip_v1::ipam(routes),
        Serve::Admission => admission::routes(routes),
    }
}

/// Has browsers ask for nothing but TLS from now on. For ports with TLS.
pub fn strict_transport(router: Router) -> Router {
    router.layer(middleware::map_response(async |mut response: Response| {
        let value = HeaderValue::from_static(ui::STRICT_TRANSPORT);
        let headers = response.headers_mut();
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
        response
    }))
}

/// What is served without pages.
fn no_page(_path: &str) -> bool {
    false
}

/// What every request goes through, whatever it is for. Errors at a path that `is_page` are told to people.
fn layered(router: Router<Arc<Api>>, api: Arc<Api>, is_page: fn(&str) -> bool) -> Router {
    let told = move |request, next| as_problem(is_page, request, next);
    // From the inside out: the last layer sees the request first.
    router
        .layer(middleware::from_fn(body::limited))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(middleware::from_fn(in_time))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(told))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), measure))
        .layer(middleware::map_response(common_headers))
        .with_state(api)
}

async fn nothing_here(request: Request) -> Problem {
    Problem::not_found("such path:", request.uri().path())
}

async fn in_time(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let leaves = route.is_some_and(|route| route.as_str().ends_with("/{name}/detach"));
    let deadline = match leaves {
        true => LEAVE_DEADLINE,
        false => HANDLER_DEADLINE,
    };
    let answer = tokio::time::timeout(deadline, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
}

/// A bug in one handler is one failed request, not a failed daemon.
fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let what = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(
        panic = what,
        "a request handler panicked; this is a bug in fipd"
    );
    Problem::new(Code::Internal, "a bug in fipd; its log has the details").into_response()
}

/// Answers that were made by the router or a limit, and are errors without a body for people, become problems.
async fn as_problem(is_page: fn(&str) -> bool, request: Request, next: Next) -> Response {
    let page = is_page(request.uri().path());
    let response = next.run(request).await;
    let status = response.status();
    let kind = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let has_body = kind.is_some_and(|kind| {
        kind == MEDIA_TYPE || kind.starts_with("text/html") || kind.starts_with("application/json")
    });
    if page && kind == Some(MEDIA_TYPE) {
        return ui::failed(status);
    }
    // Readiness answers 503 in plain text on purpose.
    let plain_on_purpose = status == StatusCode::SERVICE_UNAVAILABLE;
    if has_body || plain_on_purpose || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    if page {
        return ui::failed(status);
    }
    let code = Code::of_status(status);
    let reason = status.canonical_reason().unwrap_or("the request failed");
    let mut problem = Problem::new(code, reason);
    problem.status = status.as_u16();
    let mut answer = problem.into_response();
    for name in [header::ALLOW, header::RETRY_AFTER] {
        if let Some(value) = response.headers().get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

async fn measure(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let started = std::time::Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    api.metrics
        .request(&method, route, response.status(), started.elapsed());
    response
}

/// What every answer says to browsers, where it says nothing stricter itself: it is data, not a page, and for nobody else.
pub async fn common_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut default = |name, value| {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    };
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(header::X_FRAME_OPTIONS, "DENY");
    default(header::REFERRER_POLICY, "same-origin");
    default(header::CACHE_CONTROL, "no-store");
    default(
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    );
    default(ui::PERMISSIONS.0, ui::PERMISSIONS.1);
    response
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leaving_a_cluster_may_take_longer_than_anything_else() {
        let slow = get(|| async { tokio::time::sleep(HANDLER_DEADLINE * 2).await });
        let router = Router::new()
            .route("/clusters/{name}", slow.clone())
            .route("/clusters/{name}/detach", slow)
            .layer(middleware::from_fn(in_time));
        for (path, expected) in [
            ("/clusters/detach", StatusCode::GATEWAY_TIMEOUT),
            ("/clusters/a/detach", StatusCode::OK),
        ] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), expected, "{path}");
        }
    }

    #[test]
    fn open_without_login_is_a_short_list() {
        let (_, table) = routes().finish();
        for (method, pattern, access) in table.iter() {
            if access == Access::Open {
                let expected = ["/healthz", "/readyz"].contains(&pattern)
                    || pattern == "/ui/login"
                    || pattern.starts_with("/ui/login/oidc")
                    || pattern.starts_with("/ui/static/");
                assert!(expected, "{method} {pattern} is open");
            }
            if method != "GET" && pattern.starts_with("/api/") {
                assert!(
                    matches!(access, Access::Api(role) | Access::Scoped(role) if role > Role::Viewer),
                    "{method} {pattern}"
                );
            }
        }
    }

    #[test]
    fn a_site_is_looked_at_and_taken_over_by_admins_alone() {
        let (_, table) = routes().finish();
        let pattern = "/api/v1/clusters/{name}/adopt/rancher-fip";
        let found: Vec<_> = table
            .iter()
            .filter(|(_, of, _)| *of == pattern)
            .map(|(method, _, access)| (method, access))
            .collect();
        let expected = ["GET", "POST"].map(|method| (method, Access::Api(Role::Admin)));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_openapi_document_names_every_route() {
        let (_, table) = routes().finish();
        let served: BTreeSet<_> = table
            .iter()
            .filter(|(_, _, access)| !matches!(access, Access::Page(_)))
            .filter(|(_, pattern, _)| !pattern.starts_with("/ui"))
            .map(|(method, pattern, _)| (method.to_owned(), pattern.to_owned()))
            .collect();
        assert_eq!(openapi::documented(), served);
    }
}
