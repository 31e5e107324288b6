//! The first page: what is full, what is ill, what waits, and what to do about it.

use askama::Template;

use crate::{ClusterRow, PoolRow, Shell, count};

/// Something that needs an admin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub what: String,
    /// What to do; may be empty.
    pub next: String,
    /// A command that does it; may be empty.
    pub command: String,
    /// Address and text of a page with more.
    pub link: Option<(String, String)>,
}

/// A network that gives nothing new yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNetwork {
    pub name: String,
    /// Cluster name and system it waits for.
    pub waiting_for: Vec<(String, String)>,
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCard {
    pub healthy: bool,
    /// `writing`, `read only: the disk is full`.
    pub state: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
}

/// The first page.
#[derive(Clone, Debug, Template)]
#[template(path = "dashboard.html")]
pub struct Dashboard {
    pub shell: Shell,
    pub warnings: Vec<Warning>,
    pub held: Vec<HeldNetwork>,
    /// The fullest first, the first few.
    pub pools: Vec<PoolRow>,
    pub pools_total: usize,
    pub leases: u128,
    pub contended: u128,
    pub networks: usize,
    pub clusters: Vec<ClusterRow>,
    pub clusters_total: usize,
    pub clusters_well: usize,
    pub store: StoreCard,
}

impl Dashboard {
    pub(crate) fn lease_count(&self) -> String {
        count(self.leases)
    }

    pub(crate) fn contended_count(&self) -> String {
        count(self.contended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn shows_pools_clusters_store_and_what_waits_for_whom() {
        let html = sample::dashboard().render().unwrap();
        for text in [
            "<title>Dashboard – fipd</title>",
            "aria-current=\"page\"",
            "Pool dmz is full",
            "fipd pool update dmz --cidr",
            "network <strong>default</strong>",
            "edge-2",
            "fipd clusters skip-adoption edge-2 --network default",
            "href=\"/ui/pools/1\"",
            "writing",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn an_empty_address_book_names_the_first_step() {
        let mut page = sample::dashboard();
        page.pools.clear();
        page.pools_total = 0;
        page.clusters.clear();
        page.clusters_total = 0;
        let html = page.render().unwrap();
        assert!(html.contains("fipd pool create") && html.contains("[[cluster]]"));
    }
}
