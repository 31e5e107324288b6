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
    /// An address of the pool.
    pub example: String,
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
        }
    }

    #[test]
    fn each_block_says_how_many_leases_it_has_and_leads_to_them() {
        let blocks = Blocks {
            length: 64,
            rows: vec![
                row("2001:db8:1::/64", 1_000, true),
                row("2001:db8:2::/64", 3, false),
            ],
            pager: Pager::default(),
            goto: Field::default(),
            target: "/ui/pools/1".into(),
            example: "2001:db8:1::1".into(),
        };
        assert_eq!(
            (blocks.share(&blocks.rows[0]), blocks.share(&blocks.rows[1])),
            (100, 2)
        );
        let page = PoolPage {
            map: None,
            blocks: Some(blocks),
            created: Moment(0),
            ..sample::pool_page(false)
        };
        let html = page.render().unwrap();
        for text in [
            "Blocks of /64",
            "1,000 or more",
            "href=\"/ui/leases?within=2001:db8:2::/64\"",
            "width=\"100\"",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }
}
