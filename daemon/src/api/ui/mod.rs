//! The web UI: server-rendered pages over the ledger.
//!
//! Owns sessions, forms and the headers of pages; the look is [`fipd_web_ui`]'s. Everything works without scripts.
//! A handler reads the ledger in steps of at most 1,000 rows, whatever the size of a pool, and changes it only
//! by asking [`crate::ipam`], like every other edge.
//!
//! What is wrong with a form stands beside its field with what was typed kept; a form that did something answers
//! with a redirect, so that reloading a page never does it twice.

mod about;
mod allocate;
mod audit;
mod backup;
mod change;
mod cluster;
mod clusters;
mod cookies;
mod dashboard;
pub(crate) mod fields;
mod flow;
mod forms;
mod guests;
mod hosts;
mod import;
mod lease;
mod lease_order;
mod leases;
mod limiter;
mod list;
mod live;
mod login;
mod oidc;
mod operations;
mod own_password;
mod page;
mod pool;
mod pool_blocks;
mod pool_chart;
mod pool_edit;
mod pool_form;
mod pool_move;
mod pool_preview;
mod pools;
mod rules;
mod search;
mod session_extract;
mod session_pages;
pub(in crate::api) mod sessions;
mod settings;
mod tenants;
mod tokens;
mod users;
mod views;
mod warnings;

use axum::{
    extract::{FromRequestParts as _, Request},
    response::{IntoResponse as _, Response},
};
use fipd_core::Role;
use fipd_web_ui::{Shell, assets, links};
use http::StatusCode;

pub use flow::KnownFlow;
pub use page::{PERMISSIONS, STRICT_TRANSPORT};
pub use sessions::Sessions;

use super::{
    Api,
    access::{Access, Routes},
};
use crate::config::Systems;
use page::{Failure, file, go_to};
use session_extract::{PathParam, Visitor};

/// Adds the pages to the table of routes.
pub fn routes(routes: Routes, known: Systems) -> Routes {
    let (look, change) = (Access::Page(Role::Viewer), Access::Page(Role::Operator));
    let manage = Access::Page(Role::Admin);
    administration(operations::routes(routes, known), manage)
        .get(links::PASSWORD, look, own_password::show)
        .post(links::PASSWORD, look, own_password::change)
        .get("/", look, home)
        .get("/ui", look, home)
        .get(links::HOME, look, dashboard::show)
        .form(links::LOGIN, Access::Open, login::show, login::sign_in)
        .get(links::LOGIN_OIDC, Access::Open, oidc::leave)
        .get(crate::oidc::CALLBACK, Access::Open, oidc::come_back)
        .post(links::LOGOUT, look, login::sign_out)
        .get(links::SESSIONS, look, session_pages::own)
        .post(links::SESSIONS, look, session_pages::end_own)
        .get(links::POOLS, look, pools::list)
        .form(links::POOL_NEW, manage, pool_edit::new, pool_edit::create)
        .below("/ui/pools/{id}", |routes| {
            routes
                .get("", look, pool::show)
                .form("/edit", manage, pool_edit::edit, pool_edit::update)
                .form("/delete", manage, pool_edit::ask_delete, pool_edit::delete)
                .form("/move", manage, pool_move::ask, pool_move::step)
                .post("/separate", manage, pool_move::separate)
                .form("/allocate", change, allocate::ask, allocate::allocate)
        })
        .below("/ui/networks/{network}/addresses/{address}", |routes| {
            routes
                .get("", look, lease::show)
                .form("/release", change, change::ask_release, change::release)
                .form("/transfer", change, change::ask_transfer, change::transfer)
        })
        .get(links::TENANTS, change, tenants::list)
        .post(links::TENANTS, manage, tenants::submit)
        .get(links::LEASES, look, leases::list)
        .get("/ui/leases/{network}/{address}", look, lease::by_name)
        .get(links::RESERVE, change, allocate::ask_reserve)
        .post(links::RESERVE, change, allocate::reserve)
        .get(links::CLUSTERS, look, clusters::show)
        .get("/ui/clusters/{name}", look, cluster::show)
        .get(links::GUESTS, look, guests::show)
        .get(links::RULES, look, rules::show)
        .get(links::HOSTS, look, hosts::show)
        .get(links::ABOUT, look, about::show)
        .get(links::AUDIT, look, audit::list)
        .get(links::AUDIT_CSV, look, audit::download)
        .get(links::SEARCH, look, search::find)
        .get("/ui/events", look, live::events)
        .get("/ui/static/{name}", Access::Open, static_file)
        .get("/ui/{*rest}", look, no_page)
}

/// The rooms of admins.
fn administration(routes: Routes, manage: Access) -> Routes {
    routes
        .get(links::USERS, manage, users::list)
        .form(links::USER_NEW, manage, users::new, users::create)
        .below("/ui/users/{name}", |routes| {
            let (list, end) = (session_pages::of_user, session_pages::end_of_user);
            routes
                .form("/edit", manage, users::edit, users::update)
                .form("/sessions", manage, list, end)
                .form("/delete", manage, users::ask_delete, users::delete)
        })
        .get(links::TOKENS, manage, tokens::list)
        .form(links::TOKEN_NEW, manage, tokens::new, tokens::create)
        .get("/ui/tokens/{id}/revoke", manage, tokens::ask_revoke)
        .post("/ui/tokens/{id}/revoke", manage, tokens::revoke)
        .form(links::IMPORT, manage, import::show, import::step)
        .form(links::CLUSTER_NEW, manage, cluster::new, cluster::add)
        .below("/ui/clusters/{name}", |routes| {
            routes
                .form("/remove", manage, cluster::ask_remove, cluster::remove)
                .form("/detach", manage, cluster::ask_detach, cluster::detach)
                .post("/attach", manage, cluster::attach_again)
                .post("/confirm-sightings", manage, cluster::confirm_sightings)
        })
        .form(links::BACKUP, manage, backup::show, backup::make)
        .post(links::BACKUP_DRILL, manage, backup::drill)
        .form(links::BACKUP_HOLD, manage, backup::to_hold, backup::lift)
        .get(links::SETTINGS, manage, settings::show)
        .form(links::RULES_FLUSH, manage, rules::ask_flush, rules::flush)
        .post(links::RULES_RESUME, manage, rules::resume)
}

/// Sends a visitor without a session to the login page.
pub fn to_login(request: Request) -> Response {
    session_extract::to_login(&request.into_parts().0)
}

/// A page for visitors whose role does not suffice.
pub async fn forbidden(api: &Api, request: Request, needed: Role) -> Response {
    let (mut parts, _) = request.into_parts();
    match Visitor::from_request_parts(&mut parts, api).await {
        Ok(visitor) => visitor.forbidden(needed).into_response(),
        // The session has ended meanwhile.
        Err(to_login) => to_login,
    }
}

/// Whether people look at what is there, rather than programs.
pub fn is_page(path: &str) -> bool {
    let below = path.strip_prefix("/ui");
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && path != "/ui/events"
}

/// The page for what failed before or beside its handler.
pub fn failed(status: StatusCode) -> Response {
    let (what, next) = match status {
        StatusCode::METHOD_NOT_ALLOWED => (
            "Nothing is done in that way at this address.",
            "Go back and send the form again.",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (
            "What was sent is larger than this page takes; nothing was changed.",
            "Send less, or use the command line on the host.",
        ),
        StatusCode::GATEWAY_TIMEOUT => (
            "fipd did not get done with this page in a minute.",
            "Look whether what you asked for was done, and try again.",
        ),
        StatusCode::NOT_FOUND => (
            "There is no page at this address.",
            "It is mistyped, or what was there is gone.",
        ),
        _ if status.is_server_error() => (
            "This page failed: that is a mistake of fipd, and its log has the details.",
            "Everything else goes on. Look whether what you asked for was done before you try again.",
        ),
        _ => (
            "This could not be done as it was asked; nothing was changed.",
            "Go back, reload the page and try again.",
        ),
    };
    Failure::new(Shell::default(), status, what, next).into_response()
}

async fn home() -> Response {
    go_to(links::HOME)
}

async fn static_file(PathParam(name): PathParam<String>) -> Response {
    match assets::find(&name) {
        Some(asset) => file(asset.content_type, asset.body),
        None => {
            let what = "There is no such file.";
            let next = "Reload the page that asked for it.";
            Failure::new(Shell::default(), StatusCode::NOT_FOUND, what, next).into_response()
        }
    }
}

async fn no_page(visitor: Visitor) -> Failure {
    visitor.not_found("There is no page at this address.")
}

#[cfg(test)]
pub(super) mod tests;
