//! This host, and the Nodes of clusters.

use std::sync::Arc;

use axum::extract::State;
use fipd_core::Text;
use fipd_web_ui::{Form, Health, HostCard, HostRow, HostsPage, Input, Nav, count, links};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    rules, views,
    visit::{Query, Visitor},
};
use crate::{
    api::{Api, rules::state_of},
    nodes::NodeView,
    rules::{EngineState, View},
};

/// Nodes of one page.
const PAGE: usize = 50;
/// Agents that are shown.
const AGENTS: usize = 50;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::up("cluster", "by cluster"),
    Order::down("cluster", "by cluster, from the end"),
    Order::up("state", "ill ones first"),
    Order::down("state", "ready ones first"),
];

pub async fn show(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let states = ["ready", "not ready"].map(|word| (word.to_owned(), word.to_owned()));
    let inputs = vec![
        Input::new("filter", "Name or cluster contains"),
        Input::new("state", "State").kind(Form::any_of(states)),
    ];
    let list = Listing::new(links::HOSTS, inputs, ORDERS, &query);
    let mut hosts: Vec<_> = api.nodes.nodes().into_iter().map(row).collect();
    let total = hosts.len();
    let (part, state) = (list.filter("filter"), list.filter("state"));
    hosts.retain(|row| {
        let named = row.name.contains(part) || row.cluster.contains(part);
        named && (state.is_empty() || row.state == state)
    });
    match list.order.key {
        "cluster" => list.sort(&mut hosts, |row| (row.cluster.clone(), row.name.clone())),
        "state" => list.sort(&mut hosts, |row| {
            (row.health == Health::Good, row.name.clone())
        }),
        _ => list.sort(&mut hosts, |row| (row.name.clone(), row.cluster.clone())),
    }
    let pager = list.page(&mut hosts, PAGE, &query);
    Ok(page(&HostsPage {
        shell: visitor.shell(Nav::Hosts),
        this: this(&api.rules.view()),
        columns: vec![
            list.column("name", "Node"),
            list.column("cluster", "Cluster"),
            list.column("state", "State"),
            fipd_web_ui::Column::plain("For"),
            fipd_web_ui::Column::plain("Not ready since"),
        ],
        filters: list.filters,
        total,
        hosts,
        pager,
        more_agents: api.nodes.agents().len().saturating_sub(AGENTS),
        agents: agents(&api),
    }))
}

fn this(view: &View) -> HostCard {
    let (state, reason) = state_of(&view.state);
    let fine = "The kernel's rules are kept as they are to be.";
    let off = "fipd leaves the policy-routing rules of this host alone: there is no [host] in its configuration.";
    let means = match view.state {
        EngineState::Off => off.to_owned(),
        EngineState::Starting(_)
        | EngineState::Active
        | EngineState::Paused
        | EngineState::Degraded(_) => reason.unwrap_or_else(|| fine.to_owned()),
    };
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    let drift = view.drift;
    let mended = drift.removed.saturating_add(drift.added);
    let node = view.node.as_deref().unwrap_or("none");
    let mut facts = vec![
        (
            "Role",
            "standalone: the store on this host is the truth".to_owned(),
        ),
        ("Kernel", read("/proc/sys/kernel/osrelease")),
        ("Architecture", std::env::consts::ARCH.to_owned()),
        ("Node of a cluster", node.to_owned()),
    ];
    if view.state != EngineState::Off {
        let vrfs = view.vrfs.as_ref().map_or_else(
            || "not looked at yet".to_owned(),
            |vrfs| match vrfs.len() {
                0 => "none".to_owned(),
                _ => vrfs
                    .keys()
                    .map(Text::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            },
        );
        facts.extend([
            ("Rules to be", count(view.desired.rules.len() as u128)),
            ("Rules in the kernel", count(view.kernel.len() as u128)),
            ("Tag (protocol)", view.protocol.to_string()),
            ("VRFs", vrfs),
            (
                "Mended since the start",
                count(u128::from(mended.saturating_add(drift.index))),
            ),
        ]);
    }
    HostCard {
        name: read("/proc/sys/kernel/hostname"),
        health: rules::health(&view.state),
        state: state.to_owned(),
        means,
        facts,
        at: (view.at.0 > 0).then(|| views::moment(view.at)),
        notes: view.warnings.iter().map(|note| note.text.clone()).collect(),
    }
}

fn row((cluster, view): (Text, NodeView)) -> HostRow {
    let ready = view.unready.is_none();
    HostRow {
        name: view.name.to_string(),
        cluster: cluster.to_string(),
        roles: view.roles.join(", "),
        health: if ready { Health::Good } else { Health::Bad },
        state: if ready { "ready" } else { "not ready" }.to_owned(),
        since: view.unready.map(views::moment),
        here: view.here,
    }
}

fn agents(api: &Api) -> Vec<(String, String, String)> {
    let agents = api.nodes.agents().into_iter().take(AGENTS);
    let far = |ready: i64, wanted: i64| format!("{ready} of {wanted} pods are ready");
    agents
        .map(|(cluster, one)| (one.name, cluster.to_string(), far(one.ready, one.wanted)))
        .collect()
}
