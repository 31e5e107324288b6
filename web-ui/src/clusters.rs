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
    /// Where it is known from: `in the configuration`.
    pub found: String,
    /// fipd has left it.
    pub detached: bool,
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

/// One cluster, and what admins can do with it.
#[derive(Clone, Debug, Template)]
#[template(path = "cluster.html")]
pub struct ClusterPage {
    pub shell: Shell,
    pub name: String,
    /// The one.
    pub clusters: Vec<ClusterRow>,
    /// How many leases each system that is on has for its objects.
    pub served: Vec<(String, u128)>,
    /// Parts of what fipd keeps there that are not as they are to be, and why.
    pub troubles: Vec<(String, String)>,
    pub detached: bool,
    /// It was added on these pages, and can be removed on them.
    pub uploaded: bool,
    /// Where it is known from.
    pub found: String,
}

impl ClusterPage {
    pub(crate) fn attach(&self) -> String {
        links::cluster_attach(&self.name)
    }

    pub(crate) fn detach(&self) -> String {
        links::cluster_detach(&self.name)
    }

    pub(crate) fn remove(&self) -> String {
        links::cluster_remove(&self.name)
    }
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
    /// Its page.
    pub(crate) fn link(&self) -> String {
        links::cluster(&self.name)
    }

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
    fn a_cluster_can_be_left_and_only_what_was_added_here_be_removed() {
        let page = |detached, uploaded| {
            let mut shell = sample::shell(true);
            shell.viewer.as_mut().unwrap().role = "admin".into();
            let page = ClusterPage {
                shell,
                name: "edge-1".into(),
                clusters: sample::clusters().into_iter().take(1).collect(),
                served: vec![("claims".into(), 7)],
                troubles: vec![("webhook".into(), "<refused>".into())],
                detached,
                uploaded,
                found: "in the configuration".into(),
            };
            page.render().unwrap()
        };
        let configured = page(false, false);
        assert!(
            configured.contains("/ui/clusters/edge-1/detach"),
            "{configured}"
        );
        assert!(configured.contains("&#60;refused&#62;"));
        assert!(!configured.contains("/ui/clusters/edge-1/remove"));
        let uploaded = page(true, true);
        assert!(
            uploaded.contains("/ui/clusters/edge-1/remove"),
            "{uploaded}"
        );
        assert!(uploaded.contains("action=\"/ui/clusters/edge-1/attach\" method=\"post\""));
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
