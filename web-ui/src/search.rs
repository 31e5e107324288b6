//! What a search found, where it was more than one thing.

use askama::Template;

use crate::{LeaseRow, PoolRow, Shell};

/// Leases and pools.
#[derive(Clone, Debug, Template)]
#[template(path = "search.html")]
pub struct SearchPage {
    pub shell: Shell,
    pub query: String,
    pub leases: Vec<LeaseRow>,
    pub pools: Vec<PoolRow>,
    /// There may be more leases than shown.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{State, sample};

    #[test]
    fn shows_leases_and_pools_or_says_there_are_none() {
        let mut page = SearchPage {
            shell: sample::shell(false),
            query: "we<b".into(),
            leases: vec![sample::lease("10.20.0.7", State::Allocated)],
            pools: vec![sample::pool_row(1, "web", 10, 1)],
            more: true,
        };
        let html = page.render().unwrap();
        for text in [
            "we&#60;b",
            "/ui/networks/0/addresses/10.20.0.7",
            "/ui/pools/1",
            "There may be more",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        page.leases.clear();
        page.pools.clear();
        assert!(page.render().unwrap().contains("Nothing was found"));
    }
}
