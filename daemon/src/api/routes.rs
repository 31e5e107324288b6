//! What is served where, and who may call it.

use fipd_core::Role;

use super::{
    access::{Access, Routes},
    admission, fip_v1, health, hooks, ui,
};
use crate::api::rest::{
    admin, adopt, attach, audit, backups, bulk, changes, clusters, export, guests, history, import,
    lease_changes, leases, move_network, openapi, operations, pool_preview, pools, quotas, rules,
    separate, tokens, upkeep, users, webhooks,
};
use crate::{
    adopt::Takeovers,
    clusters::Clusters,
    config::{Serve, Systems},
    ipam::Ipam,
    reload::Reload,
    rules::RuleBoard,
    system::RunningSystems,
};
use axum::extract::FromRef;

const VIEWER: Access = Access::Api(Role::Viewer);
const OPERATOR: Access = Access::Api(Role::Operator);
const ADMIN: Access = Access::Api(Role::Admin);
// Also for tokens with a scope.
const MY_VIEWER: Access = Access::Scoped(Role::Viewer);
const MY_OPERATOR: Access = Access::Scoped(Role::Operator);
// And with a scope of pools or networks.
const OUR_VIEWER: Access = Access::Pooled(Role::Viewer);
const OUR_ADMIN: Access = Access::Pooled(Role::Admin);

/// All routes and who may call them.
pub(super) fn routes(known: Systems) -> Routes {
    let own = Routes::default()
        .get("/healthz", Access::Open, health::healthz)
        .get("/readyz", Access::Open, health::readyz)
        .get("/metrics", VIEWER, health::metrics)
        .get("/api/v1/openapi.json", MY_VIEWER, openapi::document);
    let own = operations::routes(of_host(running(book(own)), known), known);
    let own = guests::routes(own, known);
    ui::routes(own, known)
}

/// The pages that are looked at: pattern of the route and who may. Files and streams are none.
pub fn pages(known: Systems) -> Vec<(String, Access)> {
    let (_, table) = routes(known).finish();
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
        .below("/api/v1/networks/{name}/separate/{other}", |routes| {
            routes
                .put("", ADMIN, separate::separate)
                .delete("", ADMIN, separate::withdraw)
        })
        .get("/api/v1/pools", MY_VIEWER, pools::list)
        .post("/api/v1/pools", ADMIN, pools::create)
        .get("/api/v1/pools/{name}", MY_VIEWER, pools::show)
        .get("/api/v1/pools/{name}/history", MY_VIEWER, history::history)
        .patch("/api/v1/pools/{name}", ADMIN, pools::update)
        .delete("/api/v1/pools/{name}", ADMIN, pools::delete)
        .post("/api/v1/pools/{name}/preview", ADMIN, pool_preview::preview)
        .below("/api/v1/pools/{name}/move-network", |routes| {
            routes
                .get("", ADMIN, move_network::preview)
                .post("", ADMIN, move_network::move_network)
        })
        .get("/api/v1/leases", MY_VIEWER, leases::list)
        .post("/api/v1/leases", MY_OPERATOR, leases::allocate)
        .post("/api/v1/leases/release", MY_OPERATOR, leases::release)
        .post("/api/v1/leases/reserve", MY_OPERATOR, leases::reserve)
        .below("/api/v1/leases/{network}/{address}", |routes| {
            routes
                .get("", MY_VIEWER, leases::show)
                .delete("", MY_OPERATOR, leases::release_address)
                .post("/transfer", MY_OPERATOR, lease_changes::transfer)
                .post("/probed", MY_OPERATOR, lease_changes::probed)
                .patch("/labels", MY_OPERATOR, lease_changes::label)
        })
        .get("/api/v1/quotas", MY_OPERATOR, quotas::list)
        .get("/api/v1/quotas/{pool}/{tenant}", MY_OPERATOR, quotas::show)
        .put("/api/v1/quotas/{pool}/{tenant}", OUR_ADMIN, quotas::put)
        .delete("/api/v1/quotas/{pool}/{tenant}", OUR_ADMIN, quotas::delete)
        .get("/api/v1/restore-hold", VIEWER, backups::show_hold)
        .post("/api/v1/restore-hold/lift", ADMIN, backups::lift_hold)
        .get("/api/v1/clock", VIEWER, upkeep::show_clock)
        .post("/api/v1/clock/accept", ADMIN, upkeep::accept_clock)
        .post("/api/v1/fip-v1/rotate-key", ADMIN, upkeep::rotate_key)
        .post("/api/v1/bulk", MY_OPERATOR, bulk::bulk)
        .get("/api/v1/changes", OUR_VIEWER, changes::changes)
}

/// What keeps it running.
fn running(routes: Routes) -> Routes {
    routes
        .get("/api/v1/guests", VIEWER, guests::list)
        .get("/api/v1/clusters", VIEWER, clusters::list)
        .below("/api/v1/clusters/{name}", |routes| {
            routes
                .get("", VIEWER, clusters::show)
                .put("", ADMIN, attach::add)
                .delete("", ADMIN, attach::remove)
                .get("/detach", ADMIN, attach::preview)
                .post("/detach", ADMIN, attach::detach)
                .post("/attach", ADMIN, attach::attach)
                .post("/forget", ADMIN, clusters::forget)
                .post("/join", ADMIN, clusters::join)
                .post("/new-identity", ADMIN, clusters::new_identity)
                .post("/skip-adoption", ADMIN, clusters::skip_adoption)
                .post("/confirm-release", ADMIN, clusters::confirm_release)
                .post("/confirm-sightings", ADMIN, clusters::confirm_sightings)
                .post("/crds", ADMIN, clusters::install_crds)
        })
        .get("/api/v1/audit", OUR_VIEWER, audit::audit)
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
pub(super) fn of_host<S>(routes: Routes<S>, known: Systems) -> Routes<S>
where
    S: Clone + Send + Sync + 'static,
    Ipam: FromRef<S>,
    Clusters: FromRef<S>,
    Takeovers: FromRef<S>,
    RuleBoard: FromRef<S>,
    Reload: FromRef<S>,
    RunningSystems: FromRef<S>,
{
    operations::of_host(routes, known)
        .below("/api/v1/clusters/{name}/adopt/{system}", |routes| {
            routes
                .get("", ADMIN, adopt::preview)
                .post("", ADMIN, adopt::adopt)
        })
        .get("/api/v1/reload", VIEWER, upkeep::reload_standing)
        .post("/api/v1/reload", ADMIN, upkeep::reload)
        .get("/api/v1/rules", VIEWER, rules::show)
        .get("/api/v1/rules/foreign", VIEWER, rules::foreign)
        .get("/api/v1/rules/plan", VIEWER, rules::plan)
        .post("/api/v1/rules/flush", ADMIN, rules::flush)
        .post("/api/v1/rules/resume", ADMIN, rules::resume)
        .post("/api/v1/rules/prune-foreign", ADMIN, rules::prune_foreign)
}

/// What [`super::router`] serves beside the guard: its tokens are its own.
pub(super) fn beside() -> Routes {
    hooks::routes(admission::routes(fip_v1::routes(Routes::default())))
}

/// What a `[[listener]]` serves for a word of `serve`.
pub(super) fn open_routes(routes: Routes, part: Serve) -> Routes {
    match part {
        Serve::Metrics => routes.get("/metrics", Access::Open, health::metrics),
        Serve::SystemMetrics(system) => {
            let series = move |metrics| health::system_metrics(metrics, system);
            routes.get("/metrics", Access::Open, series)
        }
        Serve::Health => routes
            .get("/health", Access::Open, health::healthz)
            .get("/ready", Access::Open, health::ready)
            .get("/healthz", Access::Open, health::healthz)
            .get("/readyz", Access::Open, health::readyz),
        Serve::FipV1 => fip_v1::routes(routes),
        Serve::Ipam => fip_v1::ipam(routes),
        Serve::Admission => admission::routes(routes),
        Serve::Hooks => hooks::routes(routes),
        Serve::Ping => routes.get("/hostname", Access::Open, health::hostname).get(
            "/ping",
            Access::Open,
            health::ping,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn open_without_login_is_a_short_list() {
        let (_, table) = routes(*SYSTEMS).finish();
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
                    matches!(
                        access,
                        Access::Api(role) | Access::Scoped(role) | Access::Pooled(role)
                            if role > Role::Viewer
                    ),
                    "{method} {pattern}"
                );
            }
        }
    }

    #[test]
    fn a_site_is_looked_at_and_taken_over_by_admins_alone() {
        let (_, table) = routes(*SYSTEMS).finish();
        let pattern = "/api/v1/clusters/{name}/adopt/{system}";
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
        let (_, table) = routes(*SYSTEMS).finish();
        let served: BTreeSet<_> = table
            .iter()
            .filter(|(_, _, access)| !matches!(access, Access::Page(_)))
            .filter(|(_, pattern, _)| !pattern.starts_with("/ui"))
            .map(|(method, pattern, _)| (method.to_owned(), pattern.to_owned()))
            .collect();
        assert_eq!(openapi::documented(*SYSTEMS, |_| true), served);
    }
}
