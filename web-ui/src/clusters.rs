//! The clusters and how they are.

use askama::Template;

use crate::{Form, Moment, Pager, Shell, count};

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
    /// Releases that wait for an admin, one a system; one word confirms all of them.
    pub held_back: Vec<String>,
    /// What Services of other load balancers use of fipd's pools; empty where nobody has looked.
    pub sightings: String,
    /// Some of these wait for an admin.
    pub sightings_wait: bool,
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
    /// Address and text of the lists that systems serve.
    pub lists: Vec<(String, String)>,
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
    /// Of each system that is on.
    pub served: Vec<Served>,
    /// Parts of what fipd keeps there that are not as they are to be, and why.
    pub troubles: Vec<(String, String)>,
    pub detached: bool,
    pub known: Known,
    pub leases: u128,
}

/// Where a cluster is known from, which says how it is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Configured,
    /// It was added on these pages.
    Uploaded,
    /// Through Rancher.
    Discovered,
    /// Only by its leases: nothing leads there any more.
    Remembered,
}

/// What a system does for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub system: String,
    /// Kinds of objects that it serves and how many there are, as far as that is known here.
    pub objects: Vec<(&'static str, u128)>,
    /// `None` for a system that has no leases.
    pub leases: Option<u128>,
}

impl Served {
    /// `AddressClaims: 14, leases: 12`.
    pub(crate) fn text(&self) -> String {
        let objects = self.objects.iter().copied();
        let leases = self.leases.map(|leases| ("leases", leases));
        let all = objects.chain(leases);
        let all: Vec<_> = all
            .map(|(what, number)| format!("{what}: {}", count(number)))
            .collect();
        match all.is_empty() {
            true => "its objects are not known here".to_owned(),
            false => all.join(", "),
        }
    }
}

impl ClusterPage {
    fn sightings_wait(&self) -> bool {
        self.clusters.iter().any(|row| row.sightings_wait)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn health_error_and_identity_are_shown() {
        let page = ClustersPage {
            shell: sample::shell(false),
            filters: Form::default(),
            lists: vec![("/ui/sixth/brushes".to_owned(), "Brushes".to_owned())],
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
            "<li>12 leases of rancher-fip</li><li>7 leases of claims</li>",
            "If that is right of all of them:",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn a_cluster_can_be_left_and_only_what_was_added_here_be_removed() {
        let configured = page(false, Known::Configured);
        assert!(
            configured.contains("/ui/clusters/edge-1/detach"),
            "{configured}"
        );
        assert!(configured.contains("&#60;refused&#62;"));
        assert!(!configured.contains("/ui/clusters/edge-1/remove"));
        let uploaded = page(true, Known::Uploaded);
        assert!(
            uploaded.contains("/ui/clusters/edge-1/remove"),
            "{uploaded}"
        );
        assert!(uploaded.contains("action=\"/ui/clusters/edge-1/attach\" method=\"post\""));
        assert!(page(false, Known::Discovered).contains("match-labels"));
    }

    #[test]
    fn a_cluster_that_is_only_remembered_is_forgotten_and_not_left() {
        let html = page(false, Known::Remembered);
        assert!(
            !html.contains("/detach") && !html.contains("/remove"),
            "{html}"
        );
        for text in [
            "fipd clusters forget edge-1",
            "frees its 1,204 leases",
            "/ui/clusters/new?name=edge-1",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn objects_and_leases_are_told_apart() {
        let html = page(false, Known::Configured);
        assert!(html.contains("AddressClaims: 14, leases: 7"), "{html}");
        let agent = Served {
            system: "ip-rule".into(),
            objects: vec![],
            leases: None,
        };
        assert_eq!(agent.text(), "its objects are not known here");
    }

    fn page(detached: bool, known: Known) -> String {
        let mut shell = sample::shell(true);
        shell.viewer.as_mut().unwrap().role = "admin".into();
        let served = Served {
            system: "claims".into(),
            objects: vec![("AddressClaims", 14)],
            leases: Some(7),
        };
        let page = ClusterPage {
            shell,
            name: "edge-1".into(),
            clusters: sample::clusters().into_iter().take(1).collect(),
            served: vec![served],
            troubles: vec![("webhook".into(), "<refused>".into())],
            detached,
            known,
            leases: 1_204,
        };
        page.render().unwrap()
    }

    #[test]
    fn without_clusters_the_next_step_is_named() {
        let page = ClustersPage {
            shell: sample::shell(false),
            filters: Form::default(),
            lists: Vec::new(),
            total: 0,
            clusters: vec![],
            pager: Pager::default(),
        };
        assert!(page.render().unwrap().contains("[[cluster]]"));
    }
}
