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

/// An Agent: where pods are that bring rules to Nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub cluster: String,
    pub health: Health,
    pub state: String,
    /// How many of its pods are ready.
    pub pods: String,
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
    /// The same of Agents.
    pub total_agents: usize,
    /// Whether Agents are listed, instead of Nodes.
    pub of_agents: bool,
    pub hosts: Vec<HostRow>,
    pub agents: Vec<AgentRow>,
    pub pager: Pager,
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
            total_agents: 0,
            of_agents: false,
            agents: Vec::new(),
            pager: Pager::default(),
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
            "this host</span>",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_nodes_it_is_said_where_they_come_from() {
        let html = page(0).render().unwrap();
        assert!(html.contains("systems = [\"ip-rule\"]"), "{html}");
        assert!(!html.contains("of=agents"), "{html}");
    }

    #[test]
    fn agents_are_a_list_of_their_own() {
        let mut page = page(0);
        page.total_agents = 1;
        let html = page.render().unwrap();
        assert!(html.contains("href=\"/ui/hosts?of=agents\""), "{html}");
        page.of_agents = true;
        let html = page.render().unwrap();
        assert!(html.contains("No Agent is like that."), "{html}");
        page.agents = vec![AgentRow {
            name: "ops/<agent>".into(),
            cluster: "edge-1".into(),
            health: Health::Bad,
            state: "not ready".into(),
            pods: "2 of 3".into(),
        }];
        let html = page.render().unwrap();
        for text in [
            "<h2>Agents</h2>",
            "ops/&#60;agent&#62;",
            "2 of 3",
            ">not ready<",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("systems = ["), "{html}");
    }
}
