//! The first page: what is full, what is ill, what waits, and what to do about it.

use askama::Template;

use crate::{ClusterRow, Column, Flow, Health, Moment, PoolRow, Shell, count};

/// Something that needs somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warning {
    /// Something does not work; otherwise it will not, unless somebody does something.
    pub urgent: bool,
    pub what: String,
    /// The point in time that `what` ends with.
    pub at: Option<Moment>,
    /// What keeps it from working, as it was told; may be empty.
    pub why: String,
    /// What to do.
    pub next: String,
    /// Commands that do it.
    pub commands: Vec<String>,
    /// Address and text of a page with more; without an address only the text is told.
    pub link: Option<(String, String)>,
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

/// How the rules of this host are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesCard {
    pub health: Health,
    pub state: String,
    /// What had to be repaired since the start, in all.
    pub repaired: u64,
    /// Name and value.
    pub facts: Vec<(&'static str, String)>,
    /// When the kernel was last compared with what is to be.
    pub at: Option<Moment>,
}

/// The first page.
#[derive(Clone, Debug, Template)]
#[template(path = "dashboard.html")]
pub struct Dashboard {
    pub shell: Shell,
    /// What is urgent comes first.
    pub warnings: Vec<Warning>,
    pub columns: Vec<Column>,
    /// In what order the pools are, such as `fullest first`.
    pub order: &'static str,
    /// The first few in the order that was asked for.
    pub pools: Vec<PoolRow>,
    pub pools_total: usize,
    /// Where all of them are.
    pub all_pools: String,
    pub leases: u128,
    /// More than [`Dashboard::COUNTED`] are not counted.
    pub contended: usize,
    pub networks: usize,
    pub clusters: Vec<ClusterRow>,
    pub clusters_total: usize,
    pub clusters_well: usize,
    /// `None`: the history cannot be read at the moment.
    pub flow: Option<Flow>,
    /// `None`: this host is not told to have rules.
    pub rules: Option<RulesCard>,
    pub store: StoreCard,
}

impl Dashboard {
    /// So many contended leases are counted, and one more.
    pub const COUNTED: usize = 1_000;

    pub(crate) fn contended_count(&self) -> String {
        match self.contended {
            many if many > Self::COUNTED => format!("{}+", count(Self::COUNTED as u128)),
            few => count(few as u128),
        }
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
            "fipd pool update dmz --add-cidr",
            "class=\"tag bad\">now",
            "class=\"tag busy\">soon",
            "<strong>The backup failed at <time datetime=\"2026-11-21T05:57:20Z\">2026-11-21 05:57:20 UTC</time>:</strong> no &#60;room&#62;. Make room.",
            "Network default waits",
            "edge-2",
            "fipd clusters skip-adoption edge-2 --network default",
            "href=\"/ui/pools/1\"",
            "writing",
            "12 allocated and 3 released",
            "Last looked at",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn contended_leases_are_counted_as_far_as_it_goes_and_lead_to_their_list() {
        let mut page = sample::dashboard();
        page.contended = Dashboard::COUNTED;
        let tile = |text: &str| format!("href=\"/ui/leases?mark=contended\">{text}</a>");
        assert!(page.render().unwrap().contains(&tile("1,000")));
        page.contended += 1;
        assert!(page.render().unwrap().contains(&tile("1,000+")));
    }

    #[test]
    fn a_warning_without_a_page_is_told_without_a_link() {
        let mut page = sample::dashboard();
        page.warnings[0].link = Some((String::new(), "That is for an admin to do.".into()));
        let html = page.render().unwrap();
        assert!(html.contains(" That is for an admin to do."), "{html}");
        assert!(!html.contains("href=\"\""), "{html}");
    }

    #[test]
    fn an_empty_address_book_names_the_first_step_and_nothing_to_worry_about() {
        let mut page = sample::dashboard();
        page.pools.clear();
        page.pools_total = 0;
        page.clusters.clear();
        page.clusters_total = 0;
        page.warnings.clear();
        page.flow = None;
        page.rules = None;
        let html = page.render().unwrap();
        assert!(html.contains("fipd pool create") && html.contains("[[cluster]]"));
        assert!(html.contains("Nothing needs attention"), "{html}");
        assert!(html.contains("history cannot be read"), "{html}");
    }
}
