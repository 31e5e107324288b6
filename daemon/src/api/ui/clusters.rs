//! The clusters.

use axum::extract::State;
use fipd_web_ui::{ClusterRow, ClustersPage, Health, Input, InputKind, Nav, links};

use super::{
    cluster::found_text,
    list::{Listing, Order},
    operations,
    page::{Answered, page},
    views,
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::clusters::{ClusterState, ClusterView, Clusters, HeldBack, SightingsView};
use crate::config::Systems;

/// Clusters of one page.
const PAGE: usize = 50;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::up("health", "ill ones first"),
    Order::down("leases", "most leases first"),
    Order::down("since", "latest change first"),
];

pub async fn show(
    State(clusters): State<Clusters>,
    State(known): State<Systems>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let states = InputKind::any_of([("well", "well"), ("ill", "not well")]);
    let inputs = vec![
        Input::new("filter", "Name or identity contains"),
        Input::new("system", "System"),
        Input::new("health", "State").kind(states),
    ];
    let list = Listing::new(links::CLUSTERS, inputs, ORDERS, &query);
    let all = clusters.views();
    let (part, system) = (list.filter("filter"), list.filter("system"));
    let well = |view: &ClusterView| health(view.state) == Health::Good;
    let wanted = |view: &&ClusterView| {
        let mut systems = view.systems.iter();
        let id = view.id.as_ref();
        (view.name.contains(part) || id.is_some_and(|id| id.0.contains(part)))
            && (system.is_empty() || systems.any(|known| known.as_str() == system))
            && match list.filter("health") {
                "well" => well(view),
                "ill" => !well(view),
                _ => true,
            }
    };
    let found: Vec<_> = all.iter().filter(wanted).collect();
    let (clusters, pager) = match list.order.key {
        "health" => list.page_by(found, PAGE, |view| (well(view), &*view.name)),
        "leases" => list.page_by(found, PAGE, |view| view.leases),
        "since" => list.page_by(found, PAGE, |view| view.since),
        _ => list.page_by(found, PAGE, |view| &*view.name),
    };
    let on = |system: &str| {
        let mut systems = all.iter().flat_map(|view| &view.systems);
        systems.any(|one| one.as_str() == system)
    };
    Ok(page(&ClustersPage {
        shell: visitor.shell(Nav::Clusters),
        filters: list.filters,
        total: all.len(),
        clusters: clusters.into_iter().map(row).collect(),
        lists: operations::links(known, on),
        pager,
    }))
}

/// All clusters, by name.
pub fn rows(clusters: &Clusters) -> Vec<ClusterRow> {
    clusters.views().iter().map(row).collect()
}

/// How it is shown.
pub fn row(view: &ClusterView) -> ClusterRow {
    ClusterRow {
        name: view.name.to_string(),
        id: views::text(view.id.as_ref()),
        health: health(view.state),
        state: view.state.as_str().to_owned(),
        since: Some(views::moment(view.since)),
        last_error: views::text(view.last_error.as_deref()),
        server: views::text(view.server.as_deref()),
        found: found_text(view.found).to_owned(),
        detached: view.detached,
        systems: view.systems.iter().map(ToString::to_string).collect(),
        leases: view.leases as u128,
        held_back: view.held_back.iter().map(held_back).collect(),
        sightings: view.sightings.as_ref().map_or_else(String::new, sightings),
        sightings_wait: (view.sightings.as_ref())
            .is_some_and(|shown| !shown.waiting.is_empty() || shown.preview_until.is_some()),
    }
}

fn sightings(shown: &SightingsView) -> String {
    format!(
        "{} held, {} contended, {} only reported",
        shown.held,
        shown.contended,
        shown.waiting.len()
    )
}

/// Owners that are named; of more, how many.
const NAMED: usize = 20;

fn held_back(held: &HeldBack) -> String {
    let names = held.owners.keys().take(NAMED).map(ToString::to_string);
    let names: Vec<String> = names.collect();
    let more = match held.owners.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} leases of {} (at most {} go by themselves): {}{more}",
        held.leases,
        held.system,
        held.limit,
        names.join(", ")
    )
}

fn health(state: ClusterState) -> Health {
    match state {
        ClusterState::Ready | ClusterState::Joined => Health::Good,
        ClusterState::Connecting | ClusterState::Stopped => Health::Busy,
        ClusterState::Degraded | ClusterState::Refused | ClusterState::IdentityConflict => {
            Health::Bad
        }
    }
}
