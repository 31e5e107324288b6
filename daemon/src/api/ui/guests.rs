//! The clusters that Rancher manages.

use axum::extract::State;
use fipd_core::{LeaseKey, PoolId};
use fipd_web_ui::{
    DetailRow, DetailText, GuestRow, GuestsPage, Health, Input, InputKind, Nav, ProjectRow,
    ReleaseRow, links,
};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    views,
};
use crate::guests::{
    DetailValue, GuestBoard, GuestDetail, GuestPhase, GuestView, ReleaseView,
    releases::{ReleaseState, Releases},
};
use crate::{
    api::ui::session_extract::{Query, Visitor},
    helm::Helm,
};

/// Guests of one page.
const PAGE: usize = 50;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::up("health", "ill ones first"),
    Order::down("since", "latest change first"),
];

pub async fn show(
    State(guests): State<GuestBoard>,
    State(helm): State<Option<Helm>>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let phases = InputKind::any_word(GuestPhase::ALL.map(|phase| phase.as_str()));
    let inputs = vec![
        Input::new("filter", "Name, id or project contains"),
        Input::new("phase", "Phase").kind(phases),
    ];
    let list = Listing::new(links::GUESTS, inputs, ORDERS, &query);
    let all = guests.all();
    let (part, phase) = (list.filter("filter"), list.filter("phase"));
    let called = |project: &str| {
        let name = guests.project_name(project);
        name.is_some_and(|name| name.contains(part))
    };
    let wanted = |view: &&GuestView| {
        let mut projects = view.projects();
        (phase.is_empty() || view.says.phase.as_str() == phase)
            && (view.name().contains(part)
                || view.id.contains(part)
                || projects.any(|project| project.contains(part) || called(project)))
    };
    let found: Vec<_> = all.iter().filter(wanted).collect();
    let (shown, pager) = match list.order.key {
        "health" => list.page_by(found, PAGE, |view| {
            (health(view.says.phase) == Health::Good, view.name())
        }),
        "since" => list.page_by(found, PAGE, |view| view.since),
        _ => list.page_by(found, PAGE, |view| (view.name(), &*view.id, view.system)),
    };
    let releases = Releases::of(helm.as_ref());
    let row = |view: &GuestView| row(&guests, &releases, view);
    Ok(page(&GuestsPage {
        shell: visitor.shell(Nav::Clusters),
        filters: list.filters,
        total: all.len(),
        guests: shown.into_iter().map(row).collect(),
        pager,
    }))
}

fn row(board: &GuestBoard, charts: &Releases, view: &GuestView) -> GuestRow {
    let details = view.details.iter();
    let releases = view.releases.iter();
    GuestRow {
        name: view.name().to_owned(),
        id: view.id.clone(),
        rancher: view.rancher.to_string(),
        system: view.system.mark().unwrap_or_default().to_owned(),
        health: health(view.says.phase),
        phase: view.says.phase.as_str().to_owned(),
        message: view.says.message.clone(),
        since: views::moment(view.since),
        last_error: view.last_error.clone().unwrap_or_default(),
        details: details.map(|one| detail(board, one)).collect(),
        releases: releases
            .map(|one| release(one, charts.state_of(view, one)))
            .collect(),
    }
}

fn detail(board: &GuestBoard, detail: &GuestDetail) -> DetailRow {
    let project = |(project, pool): (&String, &String)| ProjectRow {
        id: project.clone(),
        name: board.project_name(project).unwrap_or_default(),
        pool: pool.clone(),
    };
    DetailRow {
        label: detail.label.to_owned(),
        says: match &detail.value {
            DetailValue::Text(text) => DetailText::Plain(text.clone()),
            DetailValue::Leases(leases) => DetailText::Links(leases.iter().map(lease).collect()),
            DetailValue::Pools(pools) => DetailText::Links(pools.iter().map(pool).collect()),
            DetailValue::Projects(all) => DetailText::Projects(all.iter().map(project).collect()),
        },
    }
}

/// The page of a pool and its name. One that is not there is looked for among the pools.
fn pool((name, id): &(String, Option<PoolId>)) -> (String, String) {
    let link = id.map_or_else(|| links::POOLS.to_owned(), |id| links::pool(id.0));
    (link, name.clone())
}

/// The page of a lease, and its address.
fn lease(lease: &LeaseKey) -> (String, String) {
    let link = links::lease(lease.network.0, lease.address);
    (link, lease.address.to_string())
}

fn release(release: &ReleaseView, state: ReleaseState) -> ReleaseRow {
    ReleaseRow {
        health: match state.state {
            "deployed" => Health::Good,
            _ if state.error.is_some() => Health::Bad,
            _ => Health::Busy,
        },
        state: state.state.to_owned(),
        error: state.error_text().unwrap_or_default(),
        since: state.since.map(views::moment),
        name: release.name.clone(),
        namespace: release.namespace.clone(),
        chart: release.chart.clone(),
        version: state.version,
    }
}

fn health(phase: GuestPhase) -> Health {
    match phase {
        GuestPhase::Ready | GuestPhase::Left => Health::Good,
        GuestPhase::Waiting | GuestPhase::Leaving => Health::Busy,
        GuestPhase::Failed => Health::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        guests::releases::tests::{failed, guest},
        helm::Activity,
    };

    #[test]
    fn a_row_tells_how_each_release_stands() {
        let row = row(&GuestBoard::default(), &failed(Activity::Idle), &guest());
        let release = &row.releases[0];
        assert_eq!((&*release.state, release.health), ("failed", Health::Bad));
        assert_eq!(release.error, "HelmChartFailed: too often");
        assert_eq!(release.since, Some(fipd_web_ui::Moment(5)));
    }
}
