//! This host, and the Nodes of clusters with the Agents that bring rules to them.

use axum::extract::State;
use fipd_core::Text;
use fipd_web_ui::{
    AgentRow, Column, Health, HostCard, HostRow, HostsPage, Input, InputKind, Nav, Pager, count,
    links,
};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    rules, views,
};
use crate::{
    api::ui::session_extract::{Query, Visitor},
    nodes::{AgentView, NodeBoard, NodeView},
    rules::{EngineState, RuleBoard, View, engine_state},
};

/// Nodes, or Agents, of one page.
const PAGE: usize = 50;
/// What the query says as `of` where it asks for Agents.
const AGENTS: &str = "agents";
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::up_first("cluster", "by cluster", "by cluster, from the end"),
    Order::up_first("state", "ill ones first", "ready ones first"),
];

/// This host, and the Nodes of clusters or their Agents.
pub async fn show(
    State(rules): State<RuleBoard>,
    State(nodes): State<NodeBoard>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let of_agents = query.get("of") == AGENTS;
    let states = InputKind::any_word(["ready", "not ready"]);
    let of = InputKind::of([("", "Nodes"), (AGENTS, "Agents")]);
    let inputs = vec![
        Input::new("filter", "Name or cluster contains"),
        Input::new("state", "State").kind(states),
        Input::new("of", "List").kind(of),
    ];
    let list = Listing::new(links::HOSTS, inputs, ORDERS.as_flattened(), &query);
    let (nodes, agents) = (nodes.nodes(), nodes.agents());
    let (mut shown, mut shown_agents) = (Vec::new(), Vec::new());
    let pager = if of_agents {
        let (found, pager) = listed(&list, &agents, of_agent);
        shown_agents = found.into_iter().map(agent_row).collect();
        pager
    } else {
        let (found, pager) = listed(&list, &nodes, of_node);
        shown = found.into_iter().map(row).collect();
        pager
    };
    let (name, rest) = match of_agents {
        true => ("Agent", vec![Column::plain("Pods that are ready")]),
        false => (
            "Node",
            ["For", "Not ready since"].map(Column::plain).to_vec(),
        ),
    };
    let mut columns = vec![
        list.column("name", name),
        list.column("cluster", "Cluster"),
        list.column("state", "State"),
    ];
    columns.extend(rest);
    Ok(page(&HostsPage {
        shell: visitor.shell(Nav::Hosts),
        this: this(&rules.view()),
        columns,
        filters: list.filters,
        total: nodes.len(),
        total_agents: agents.len(),
        of_agents,
        hosts: shown,
        agents: shown_agents,
        pager,
    }))
}

/// The page that the query asks for of those that the filters let pass. `look` tells name and whether it is ready.
fn listed<'a, T>(
    list: &Listing<'_>,
    all: &'a [(Text, T)],
    look: fn(&T) -> (&str, bool),
) -> (Vec<&'a (Text, T)>, Pager) {
    let (part, state) = (list.filter("filter"), list.filter("state"));
    let wanted = |(cluster, one): &&(Text, T)| {
        let (name, ready) = look(one);
        let named = name.contains(part) || cluster.contains(part);
        named && (state.is_empty() || state_word(ready) == state)
    };
    let found: Vec<_> = all.iter().filter(wanted).collect();
    match list.order.key {
        "cluster" => list.page_by(found, PAGE, |one| (&*one.0, look(&one.1))),
        "state" => list.page_by(found, PAGE, |one| {
            let (name, ready) = look(&one.1);
            (ready, name)
        }),
        _ => list.page_by(found, PAGE, |one| (look(&one.1).0, &*one.0)),
    }
}

fn of_node(node: &NodeView) -> (&str, bool) {
    (&*node.name, node.unready.is_none())
}

fn of_agent(agent: &AgentView) -> (&str, bool) {
    (agent.name.as_str(), agent.ready >= agent.wanted)
}

fn state_word(ready: bool) -> &'static str {
    if ready { "ready" } else { "not ready" }
}

fn health(ready: bool) -> Health {
    if ready { Health::Good } else { Health::Bad }
}

fn this(view: &View) -> HostCard {
    let (state, reason) = engine_state(&view.state);
    let fine = "The kernel's rules are kept as they are to be.";
    let off = "fipd leaves the policy-routing rules of this host alone: there is no [host] in its configuration.";
    let means = match view.state == EngineState::Off {
        true => off.to_owned(),
        false => reason.unwrap_or_else(|| fine.to_owned()),
    };
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().to_owned()
    };
    let drift = view.drift;
    let repaired = drift.removed.saturating_add(drift.added);
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
        let vrfs = match view.vrfs.as_deref() {
            None => "not looked at yet".to_owned(),
            Some(vrfs) if vrfs.is_empty() => "none".to_owned(),
            Some(vrfs) => vrfs
                .keys()
                .map(|name| &**name)
                .collect::<Vec<_>>()
                .join(", "),
        };
        facts.extend([
            ("Rules to be", count(view.desired.rules.len())),
            ("Rules in the kernel", count(view.kernel.len())),
            ("Tag (protocol)", view.protocol.to_string()),
            ("VRFs", vrfs),
            (
                "Repaired since the start",
                count(u128::from(repaired.saturating_add(drift.index))),
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

fn row((cluster, view): &(Text, NodeView)) -> HostRow {
    let (name, ready) = of_node(view);
    HostRow {
        name: name.to_owned(),
        cluster: cluster.to_string(),
        roles: view.roles.join(", "),
        health: health(ready),
        state: state_word(ready).to_owned(),
        since: view.unready.map(views::moment),
        here: view.here,
    }
}

fn agent_row((cluster, view): &(Text, AgentView)) -> AgentRow {
    let (name, ready) = of_agent(view);
    AgentRow {
        name: name.to_owned(),
        cluster: cluster.to_string(),
        health: health(ready),
        state: state_word(ready).to_owned(),
        pods: format!("{} of {}", view.ready, view.wanted),
    }
}
