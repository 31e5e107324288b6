//! The list of leases.

use askama::Template;

use crate::{Column, Form, LeaseRow, Pager, Shell};

/// Leases of all pools and networks.
#[derive(Clone, Debug, Template)]
#[template(path = "leases.html")]
pub struct LeasesPage {
    pub shell: Shell,
    pub filters: Form,
    pub columns: Vec<Column>,
    pub leases: Vec<LeaseRow>,
    pub pager: Pager,
    /// What the list leaves out; may be empty.
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, State, sample};

    fn page() -> LeasesPage {
        let mut columns = crate::list::of_leases();
        columns[3].link = Some("/ui/leases?sort=-since".into());
        columns[0].order = Some(crate::Direction::Up);
        LeasesPage {
            shell: sample::shell(true),
            filters: Form {
                target: "/ui/leases".into(),
                inputs: vec![Input::new("q", "Contains").value("we<b")],
                ..Form::default()
            },
            columns,
            leases: vec![sample::lease("10.20.0.7", State::Allocated)],
            pager: Pager::default(),
            note: String::new(),
        }
    }

    #[test]
    fn the_order_and_the_filter_are_seen() {
        let html = page().render().unwrap();
        for text in [
            "aria-sort=\"ascending\"",
            "href=\"/ui/leases?sort=-since\"",
            "value=\"we&#60;b\"",
            "10.20.0.7",
            "Show all",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn an_empty_list_says_why() {
        let mut page = page();
        page.leases.clear();
        assert!(page.render().unwrap().contains("No lease is like that"));
        page.pager.first = Some("/ui/leases".into());
        page.pager.next = Some("/ui/leases?after=x".into());
        let text = "None so far: go on to the next page.";
        assert!(page.render().unwrap().contains(text));
        page.pager = Pager::default();
        page.filters.inputs.clear();
        assert!(page.render().unwrap().contains("Nothing is in use yet"));
    }

    #[test]
    fn a_full_page_of_the_longest_owners_stays_small() {
        let mut page = page();
        let row = LeaseRow {
            owner: "o".repeat(1_000),
            ..sample::lease("10.20.0.7", State::Allocated)
        };
        page.leases = vec![row; 100];
        let size = page.render().unwrap().len();
        assert!(size <= 150_000, "{size} bytes");
    }
}
