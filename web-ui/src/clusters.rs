//! The clusters and how they are.

use askama::Template;

use crate::{Form, Moment, Pager, Shell, count, links};

/// How a cluster or a part of the daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    /// On its way: connecting, adopting.
    Busy,
    Bad,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRow {
    pub name: String,
    /// UID of its `kube-system` namespace; empty while it was never reached.
    pub id: String,
    pub health: Health,
    pub state: String,
    pub since: Option<Moment>,
    pub last_error: String,
    pub server: String,
    pub discovered: bool,
    /// Switched on for it.
    pub systems: Vec<String>,
    pub leases: u128,
    /// Releases that wait for an admin, and for what reason; may be empty.
    pub held_back: String,
}

/// All clusters.
#[derive(Clone, Debug, Template)]
#[template(path = "clusters.html")]
pub struct ClustersPage {
    pub shell: Shell,
    pub filters: Form,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub clusters: Vec<ClusterRow>,
    pub pager: Pager,
}

impl Health {
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Bad => "bad",
        }
    }
}

impl ClusterRow {
    /// The leases that its owners hold.
    pub(crate) fn leases_link(&self) -> String {
        links::leases_of_cluster(&self.name)
    }

    pub(crate) fn lease_count(&self) -> String {
        count(self.leases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn health_error_and_identity_are_shown() {
        let page = ClustersPage {
            shell: sample::shell(false),
            filters: Form::default(),
            total: 3,
            clusters: sample::clusters(),
            pager: Pager::default(),
        };
        let html = page.render().unwrap();
        for text in [
            "class=\"tag bad\"",
            "connection refused &#60;10.0.0.9&#62;",
            "2f1c0f3e-0000-4000-8000-000000000001",
            "rancher-fip",
            "1,204",
            "fipd clusters confirm-release edge-2",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_clusters_the_next_step_is_named() {
        let page = ClustersPage {
            shell: sample::shell(false),
            filters: Form::default(),
            total: 0,
            clusters: vec![],
            pager: Pager::default(),
        };
        assert!(page.render().unwrap().contains("[[cluster]]"));
    }
}
