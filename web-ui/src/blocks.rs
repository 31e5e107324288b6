//! Where the leases of an IPv6 pool lie: the blocks that have some, with how many.

use crate::{Field, Pager};

/// One block that has leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// `2001:db8:20::/64`.
    pub block: String,
    pub leases: usize,
    /// There are more than were counted.
    pub more: bool,
    /// The list of these leases.
    pub link: String,
    /// The holder of the first one; empty while that is quarantined.
    pub owner: String,
    /// `of pool lab` where not all of them are of the pool itself; else empty.
    pub other: String,
}

/// Some blocks of a pool, in the order of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Length of the blocks' prefixes, such as 64.
    pub length: u8,
    pub rows: Vec<BlockRow>,
    pub pager: Pager,
    /// Of the box that goes to an address.
    pub goto: Field,
    /// Where that box is sent.
    pub target: String,
    /// An address of the pool, or a prefix.
    pub example: String,
    /// The pool gives prefixes: its rows say who has them, and have leases of other pools as well.
    pub prefixes: bool,
}

impl Blocks {
    /// How wide the bar of a row is, of 100, beside the fullest one of the page.
    pub(crate) fn share(&self, row: &BlockRow) -> usize {
        let most = self.rows.iter().map(|row| row.leases).max().unwrap_or(0);
        (row.leases * 100).checked_div(most).unwrap_or(0).max(2)
    }
}

#[cfg(test)]
mod tests {
    use askama::Template as _;

    use super::*;
    use crate::{Moment, PoolPage, sample};

    fn row(block: &str, leases: usize, more: bool) -> BlockRow {
        BlockRow {
            block: block.into(),
            leases,
            more,
            link: format!("/ui/leases?within={block}"),
            owner: String::new(),
            other: String::new(),
        }
    }

    fn blocks(rows: Vec<BlockRow>) -> Blocks {
        Blocks {
            length: 64,
            rows,
            pager: Pager::default(),
            goto: Field::default(),
            target: "/ui/pools/1".into(),
            example: "2001:db8:1::1".into(),
            prefixes: false,
        }
    }

    fn html(blocks: Blocks) -> String {
        let page = PoolPage {
            map: None,
            blocks: Some(blocks),
            created: Moment(0),
            ..sample::pool_page(false)
        };
        page.render().unwrap()
    }

    #[test]
    fn each_block_says_how_many_leases_it_has_and_leads_to_them() {
        let blocks = blocks(vec![
            row("2001:db8:1::/64", 1_000, true),
            row("2001:db8:2::/64", 3, false),
        ]);
        assert_eq!(
            (blocks.share(&blocks.rows[0]), blocks.share(&blocks.rows[1])),
            (100, 2)
        );
        let html = html(blocks);
        for text in [
            "Blocks of /64",
            "1,000 or more",
            "href=\"/ui/leases?within=2001:db8:2::/64\"",
            "width=\"100\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        assert!(!html.contains("nobody <small>"), "{html}");
    }

    #[test]
    fn prefixes_say_whose_they_are_and_of_which_other_pool() {
        let mine = BlockRow {
            owner: "fipd/Router/lab/edge<1>".into(),
            ..row("2001:db8:1::/64", 1, false)
        };
        let theirs = BlockRow {
            other: "of pool la<b".into(),
            ..row("2001:db8:2::/64", 3, false)
        };
        let blocks = Blocks {
            prefixes: true,
            ..blocks(vec![mine, theirs])
        };
        let html = html(blocks);
        for text in [
            "fipd/Router/lab/edge&#60;1&#62;</td>",
            "nobody <small>and others</small> <span class=\"tag\">of pool la&#60;b</span>",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn an_empty_list_says_why() {
        let mut none = blocks(vec![]);
        assert!(html(none.clone()).contains("No block has leases yet."));
        none.pager.first = Some("/ui/pools/1".into());
        assert!(html(none.clone()).contains("No lease lies at that address or behind it."));
        none.pager.next = Some("/ui/pools/1?at=2001:db8::".into());
        assert!(html(none).contains("None so far: go on to the next page."));
    }
}
