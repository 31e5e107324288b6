//! What a search found, where it was more than one thing.

use askama::Template;

use crate::{LeaseRow, PoolRow, Shell};

/// What was found, kind by kind.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "search.html")]
pub struct SearchPage {
    pub shell: Shell,
    pub query: String,
    /// Where it is an address that several networks know: its page in each, and the name of the network.
    pub networks: Vec<(String, String)>,
    pub leases: Vec<LeaseRow>,
    pub pools: Vec<PoolRow>,
    /// Where there are more pools than shown: the list of all that match.
    pub all_pools: Option<String>,
    /// There may be more leases than shown.
    pub more: bool,
    /// The list of all leases that match.
    pub all: String,
    /// Link, name and a word about each.
    pub clusters: Vec<(String, String, String)>,
    /// There are more clusters than shown.
    pub more_clusters: bool,
    /// The same of tenants; empty for those who may not see them.
    pub tenants: Vec<(String, String, String)>,
    /// There may be more tenants than shown.
    pub more_tenants: bool,
}

impl SearchPage {
    pub(crate) fn nothing(&self) -> bool {
        self.leases.is_empty()
            && self.networks.is_empty()
            && self.pools.is_empty()
            && self.clusters.is_empty()
            && self.tenants.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fipd_core::LeaseState;

    use crate::sample;

    #[test]
    fn shows_leases_and_pools_or_says_there_are_none() {
        let mut page = SearchPage {
            shell: sample::shell(false),
            query: "we<b".into(),
            networks: vec![("/ui/networks/3/addresses/10.20.0.7".into(), "di<ad".into())],
            leases: vec![sample::lease("10.20.0.7", LeaseState::Allocated)],
            pools: vec![sample::pool_row(1, "web", 10, 1)],
            all_pools: Some("/ui/pools?filter=web".into()),
            more: true,
            all: "/ui/leases?q=web".into(),
            clusters: vec![(
                "/ui/clusters?filter=w".into(),
                "we<st".into(),
                "ready".into(),
            )],
            more_clusters: true,
            tenants: vec![("/ui/tenants?filter=w".into(), "te<am".into(), "3".into())],
            more_tenants: true,
        };
        let html = page.render().unwrap();
        for text in [
            "we&#60;b",
            "/ui/networks/0/addresses/10.20.0.7",
            "/ui/pools/1",
            "/ui/networks/3/addresses/10.20.0.7\">di&#60;ad</a>",
            "href=\"/ui/leases?q=web\"",
            "we&#60;st",
            "te&#60;am",
            "href=\"/ui/tenants?filter=we&#60;b\"",
            "href=\"/ui/clusters?filter=we&#60;b\"",
            "href=\"/ui/pools?filter=web\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        page.networks.clear();
        page.leases.clear();
        page.pools.clear();
        page.clusters.clear();
        page.tenants.clear();
        assert!(page.render().unwrap().contains("Nothing was found"));
    }
}
