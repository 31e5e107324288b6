//! This host and the Nodes of clusters that have rules of fipd.

use askama::Template;

use crate::{Column, Form, Health, Moment, Pager, Shell};

/// The host that serves the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCard {
    pub name: String,
    pub health: Health,
    /// How its rules are kept: `active`, `off`.
    pub state: String,
    /// What that means.
    pub means: String,
    /// Name and value of what is known of it.
    pub facts: Vec<(&'static str, String)>,
    /// When its kernel was last looked at; `None`: not yet.
    pub at: Option<Moment>,
    /// What would break its rules, or make them of no use.
    pub notes: Vec<String>,
}

/// A Node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRow {
    pub name: String,
    pub cluster: String,
    /// What it is for, such as `control-plane`; may be empty.
    pub roles: String,
    pub health: Health,
    pub state: String,
    /// Since when it is not ready.
    pub since: Option<Moment>,
    /// Whether it is this host.
    pub here: bool,
}

/// The hosts.
#[derive(Clone, Debug, Template)]
#[template(path = "hosts.html")]
pub struct HostsPage {
    pub shell: Shell,
    pub this: HostCard,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// How many Nodes there are, whatever the filters say.
    pub total: usize,
    pub hosts: Vec<HostRow>,
    pub pager: Pager,
    /// Name, cluster and how far it is of each Agent.
    pub agents: Vec<(String, String, String)>,
    /// Agents that are not shown.
    pub more_agents: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn page(total: usize) -> HostsPage {
        HostsPage {
            shell: sample::shell(false),
            this: HostCard {
                name: "har<vester".into(),
                health: Health::Bad,
                state: "degraded".into(),
                means: "CAP_NET_ADMIN is missing".into(),
                facts: vec![("Kernel", "6.1.0".into())],
                at: Some(sample::NOW),
                notes: vec!["table 100 has <no> route".into()],
            },
            filters: Form::default(),
            columns: vec![Column::plain("Node")],
            total,
            hosts: vec![
                HostRow {
                    name: "node-1".into(),
                    cluster: "edge-1".into(),
                    health: Health::Good,
                    state: "ready".into(),
                    roles: "control-plane".into(),
                    since: Some(sample::NOW),
                    here: true,
                };
                total
            ],
            pager: Pager::default(),
            agents: vec![("ops/agent".into(), "edge-1".into(), "2 of 3 ready".into())],
            more_agents: 7,
        }
    }

    #[test]
    fn this_host_and_nodes_are_shown_with_what_is_wrong() {
        let html = page(1).render().unwrap();
        for text in [
            "har&#60;vester",
            "class=\"tag bad\">degraded",
            "table 100 has &#60;no&#62; route",
            "6.1.0",
            "edge-1",
            "control-plane",
            "2 of 3 ready",
            "this host</span>",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_nodes_it_is_said_where_they_come_from() {
        let html = page(0).render().unwrap();
        assert!(html.contains("systems = [\"ip-rule\"]"), "{html}");
        assert!(
            html.contains("2 of 3 ready"),
            "Agents are shown all the same"
        );
        assert!(html.contains("and 7 more"), "{html}");
    }
}
