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
    let all = api.nodes.nodes();
    let (part, state) = (list.filter("filter"), list.filter("state"));
    let wanted = |(cluster, view): &&(Text, NodeView)| {
        let named = view.name.contains(part) || cluster.contains(part);
        named && (state.is_empty() || state_word(view) == state)
    };
    let found: Vec<_> = all.iter().filter(wanted).collect();
    let (hosts, pager) = match list.order.key {
        "cluster" => list.page_by(found, |one| (&*one.0, &*one.1.name), PAGE, &query),
        "state" => list.page_by(
            found,
            |one| (one.1.unready.is_none(), &*one.1.name),
            PAGE,
            &query,
        ),
        _ => list.page_by(found, |one| (&*one.1.name, &*one.0), PAGE, &query),
    };
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
        total: all.len(),
        hosts: hosts.into_iter().map(row).collect(),
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

fn state_word(view: &NodeView) -> &'static str {
    match view.unready {
        None => "ready",
        Some(_) => "not ready",
    }
}

fn row((cluster, view): &(Text, NodeView)) -> HostRow {
    let ready = view.unready.is_none();
    HostRow {
        name: view.name.to_string(),
        cluster: cluster.to_string(),
        roles: view.roles.join(", "),
        health: if ready { Health::Good } else { Health::Bad },
        state: state_word(view).to_owned(),
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
