//! The list of pools.

use askama::Template;

use crate::{Column, Form, Pager, Shell, Usage};

/// One line of a list of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRow {
    pub id: u32,
    pub name: String,
    pub network: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    pub usage: Usage,
    pub closed: bool,
    /// Hours until it is full at its pace; `None` where nobody can say.
    pub full_in: Option<u32>,
    /// The same in words.
    pub forecast: String,
    /// The object that it mirrors and that is changed in its place; empty for a pool of fipd's own.
    pub mirrors: String,
    /// Owners waiting for a free address.
    pub waiting: usize,
}

/// All pools, by name.
#[derive(Clone, Debug, Template)]
#[template(path = "pools.html")]
pub struct PoolsPage {
    pub shell: Shell,
    pub filters: Form,
    pub columns: Vec<Column>,
    /// How many there are, whatever the filters say.
    pub total: usize,
    pub pools: Vec<PoolRow>,
    pub pager: Pager,
}

impl PoolRow {
    /// Said where there is an end to be seen; a full pool says so already.
    pub(crate) fn outlook(&self) -> &str {
        match self.full_in {
            None | Some(0) => "",
            Some(_) => &self.forecast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, sample};

    #[test]
    fn lists_pools_with_their_use() {
        let page = PoolsPage {
            shell: sample::shell(true),
            filters: Form {
                target: "/ui/pools".into(),
                inputs: vec![Input::new("filter", "Name contains").value("d<m")],
                ..Form::default()
            },
            columns: crate::list::of_pools(),
            total: 2,
            pools: vec![
                sample::pool_row(1, "dmz", 254, 200),
                sample::pool_row(2, "v6", 1 << 64, 3),
            ],
            pager: Pager {
                next: Some("/ui/pools?after=2".into()),
                ..Pager::default()
            },
        };
        let html = page.render().unwrap();
        for text in [
            "href=\"/ui/pools/1\"",
            "200 of 254 used",
            "value=\"d&#60;m\"",
            "1.84 × 10¹⁹",
            "/ui/pools?after=2",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn without_pools_the_next_step_is_named() {
        let page = PoolsPage {
            shell: sample::shell(true),
            filters: Form::default(),
            columns: vec![],
            total: 0,
            pools: vec![],
            pager: Pager::default(),
        };
        assert!(page.render().unwrap().contains("fipd pool create"));
    }
}
