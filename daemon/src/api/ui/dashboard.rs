//! The first page.

use std::sync::Arc;

use axum::extract::State;
use fipd_core::Ledger;
use fipd_web_ui::{ClusterRow, Dashboard, Health, Nav, RulesCard, StoreCard, count, links};

use super::{
    clusters as cluster_page, flow,
    list::{Listing, Order},
    page::{Answered, page},
    pools::{columns, figures, in_order},
    rules, views, warnings,
};
use crate::{
    api::{
        Api,
        ui::session_extract::{Query, Visitor},
    },
    ipam::Ipam,
    rules::{EngineState, View, engine_state, rows::Rows},
    store::{Condition, StoreStats},
};

/// Pools and clusters that are shown; the others are on their own pages.
const SHOWN: usize = 10;
/// As on the page of pools, but for the first.
const ORDERS: &[Order] = &[
    Order::up("outlook", "the next to run out first"),
    Order::down("use", "fullest first"),
    Order::up("use", "emptiest first"),
    Order::up("free", "least free first"),
    Order::down("free", "most free first"),
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::up("network", "by network"),
    Order::down("network", "by network, from the end"),
    Order::up("family", "IPv4 first"),
    Order::down("family", "IPv6 first"),
];

pub async fn show(State(api): State<Api>, visitor: Visitor, Query(query): Query) -> Answered {
    let mut list = Listing::new(links::HOME, vec![flow::input()], ORDERS, &query);
    // The dashboard has one page; the list of pools has the rest.
    list.page = 1;
    let flow = flow::chart(&api.ipam, &api.flow, &list).await;
    let now = api.ipam.now();
    let pools = figures(&api.ipam, |_, _| true, Some(now)).await;
    let mut clusters = cluster_page::rows(&api.clusters);
    let warnings = warnings::all(&api, visitor.is_admin(), &pools, &clusters);
    let (pools_total, clusters_total) = (pools.len(), clusters.len());
    let well = |row: &ClusterRow| row.health == Health::Good;
    let clusters_well = clusters.iter().filter(|row| well(row)).count();
    clusters.sort_by_key(well);
    clusters.truncate(SHOWN);
    let (first, _) = in_order(&list, &pools, SHOWN);
    let store = store_card(&api.ipam);
    let rules = rules_card(api.rules.view());
    let shell = visitor.shell(Nav::Dashboard);
    let contended = |ledger: &Ledger| ledger.contentions().take(Dashboard::COUNTED + 1).count();
    let contended = api.ipam.read(contended);
    let board = api.ipam.read(|ledger| Dashboard {
        shell,
        warnings,
        columns: columns(&list),
        order: list.order.label,
        pools: (first.iter())
            .map(|one| views::pool_row(ledger, &one.pool, now))
            .collect(),
        pools_total,
        all_pools: format!("{}?sort=-use", links::POOLS),
        leases: ledger.lease_count() as u128,
        contended,
        networks: ledger.networks().len(),
        clusters,
        clusters_total,
        clusters_well,
        flow,
        rules,
        store,
    });
    Ok(page(&board))
}

/// `None` where this host is not told to have rules.
fn rules_card(view: Arc<View>) -> Option<RulesCard> {
    if view.state == EngineState::Off {
        return None;
    }
    let drift = view.drift;
    let repaired = drift.removed.saturating_add(drift.added);
    let rows = Rows::of(view);
    let view = rows.view();
    let mut facts = rules::counts(&rows);
    facts.extend(rules::drift(&rows));
    Some(RulesCard {
        health: rules::health(&view.state),
        state: engine_state(&view.state).0.to_owned(),
        repaired: repaired.saturating_add(drift.index),
        facts,
        at: (view.at.0 > 0).then(|| views::moment(view.at)),
    })
}

fn store_card(ipam: &Ipam) -> StoreCard {
    let StoreStats {
        condition,
        commits,
        decisions,
        commit_nanos,
        failed_commits,
        audit_first,
        audit_next,
        high_water: _,
    } = ipam.reader().stats();
    let (healthy, state) = match condition {
        Condition::Serving => (true, "serving"),
        Condition::OtherHost => (false, "of another host"),
        Condition::Full { .. } => (false, "disk full"),
        Condition::Reopening { .. } => (false, "reopening"),
        Condition::Stopped { .. } => (false, "stopped"),
    };
    let each = commit_nanos.checked_div(commits).unwrap_or_default() / 1_000;
    let revision = ipam.read(Ledger::revision);
    let rows = audit_next.saturating_sub(audit_first);
    let each = format!("{}, {} µs each", count(commits), count(each));
    let mut facts = vec![
        ("Revision".to_owned(), count(revision)),
        ("Decisions since start".to_owned(), count(decisions)),
        ("Commits since start".to_owned(), each),
        ("Failed commits".to_owned(), count(failed_commits)),
        ("Audit rows".to_owned(), count(rows)),
    ];
    if let Ok((used, free)) = ipam.reader().disk() {
        let disk = format!("{}, {} free", size(used), size(free));
        facts.push(("On disk".to_owned(), disk));
    }
    StoreCard {
        healthy,
        state: state.to_owned(),
        facts,
    }
}

/// `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match mib < 1024.0 {
        true => format!("{mib:.1} MiB"),
        false => format!("{:.1} GiB", mib / 1024.0),
    }
}
