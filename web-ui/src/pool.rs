//! One pool: its figures, the map of its addresses, its leases.

use askama::Template;

use crate::{AddressMap, AllocateForm, Blocks, Chart, LeaseRow, Moment, Pager, PoolRow, Shell};

/// Somebody waiting for a free address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub owner: String,
    pub since: Moment,
}

/// The page of one pool. Lists hold one page of rows, never the whole pool.
#[derive(Clone, Debug, Template)]
#[template(path = "pool.html")]
pub struct PoolPage {
    pub shell: Shell,
    /// As in lists.
    pub pool: PoolRow,
    pub addresses: Vec<String>,
    pub exclusions: Vec<String>,
    /// The pool gives prefixes of so many bits; `None`: addresses.
    pub allocation_length: Option<u8>,
    /// Its quotas count addresses, and not leases.
    pub quota_of_addresses: bool,
    pub gateway: String,
    pub prefix_len: String,
    /// `own pool`, or the object it mirrors.
    pub origin: String,
    /// Where what it mirrors is looked at; `None` for an own pool, which is edited here.
    pub follows: Option<String>,
    pub created: Moment,
    pub generation: u64,
    /// Only who has a quota gets addresses.
    pub quota_required: bool,
    /// How long an address cools; empty where it does not.
    pub quarantine: String,
    /// For how long and how many addresses their last owners are remembered; empty where they are not.
    pub remembered: String,
    pub priority: u16,
    /// For whom it is there without being named, a scope each.
    pub scopes: Vec<String>,
    /// A sentence about when it is full.
    pub forecast: String,
    /// `None` before the first hour is over.
    pub chart: Option<Chart>,
    /// Clusters that must be adopted before anything new is given.
    pub held_by: Vec<String>,
    /// Networks whose pools may mean the same addresses.
    pub doubts: Vec<Doubt>,
    /// What other load balancers may allocate of it: addresses, object and cluster.
    pub shared: Vec<String>,
    /// Oldest first, the first few.
    pub waiting: Vec<Waiter>,
    /// `None` for IPv6, and for pools of prefixes.
    pub map: Option<AddressMap>,
    /// In the place of the map.
    pub blocks: Option<Blocks>,
    pub leases: Vec<LeaseRow>,
    pub pager: Pager,
    /// `None` for those who may not write.
    pub form: Option<AllocateForm>,
}

/// A network that nobody chose, as little as that of the pool, with a pool that has some of the same addresses.
#[derive(Clone, Debug)]
pub struct Doubt {
    pub network: String,
    pub pool: String,
}

/// One of what a pool with this allocation length gives.
pub(crate) fn given(allocation_length: Option<u8>) -> String {
    match allocation_length {
        Some(length) => format!("a prefix of /{length}"),
        None => "an address".to_owned(),
    }
}

impl PoolPage {
    /// One of what the pool gives.
    pub(crate) fn given(&self) -> String {
        given(self.allocation_length)
    }

    /// Several of what the pool gives.
    pub(crate) fn units(&self) -> &'static str {
        match self.allocation_length {
            Some(_) => "prefixes",
            None => "addresses",
        }
    }

    /// Whether the pool is changed by hand by who looks at it.
    pub(crate) fn editable(&self) -> bool {
        self.follows.is_none() && self.shell.is_admin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn shows_bar_map_leases_and_form() {
        let html = sample::pool_page(true).render().unwrap();
        for text in [
            "<title>Pool dmz – fipd</title>",
            "class=\"bar fine\"",
            "10.20.0.0/24",
            "<ol class=\"map\"",
            "aria-label=\"10.20.0.7 allocated: rancher-fip/c-1/Service/shop/web&#60;1&#62;\"",
            "rancher-fip/c-1/Service/shop/web&#60;1&#62;",
            "action=\"/ui/pools/1/allocate\"",
            "waiting for an address",
            "class=\"chart\"",
            "it is full in about 3 days.",
            "cluster=east,namespace=shop",
            "1000 addresses for 7 d",
            "<dt>Who has no quota</dt><dd>gets nothing</dd>",
            "href=\"/ui/leases?pool=dmz&#38;sort=-since\">Since",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn a_viewer_sees_no_forms_that_change_something() {
        let html = sample::pool_page(false).render().unwrap();
        assert!(
            !html.contains("/allocate\"") && !html.contains("/release"),
            "{html}"
        );
    }

    #[test]
    fn ipv6_has_a_list_and_no_map() {
        let mut page = sample::pool_page(true);
        page.map = None;
        let html = page.render().unwrap();
        assert!(!html.contains("class=\"map\"") && html.contains("<table"));
    }

    #[test]
    fn a_pool_of_prefixes_speaks_of_prefixes() {
        let mut page = sample::pool_page(true);
        page.allocation_length = Some(28);
        page.leases.clear();
        let html = page.render().unwrap();
        for text in [
            "12 prefixes are not given",
            "This pool has no leases. Leases of other pools take some of its prefixes.",
            "Allocate a prefix of /28 above",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
        page.pool.usage.0.used = 0;
        let html = page.render().unwrap();
        assert!(html.contains("Nothing of this pool is in use."), "{html}");
    }

    #[test]
    fn a_full_page_of_the_longest_owners_stays_small() {
        let mut page = sample::pool_page(true);
        let map = page.map.as_mut().unwrap();
        for cell in &mut map.cells {
            cell.kind = crate::CellKind::Allocated;
            cell.owner = "o".repeat(1_000);
        }
        let row = LeaseRow {
            owner: "o".repeat(1_000),
            ..sample::lease("10.20.0.7", fipd_core::LeaseState::Allocated)
        };
        // As many as fipd shows on one page.
        page.leases = vec![row; 50];
        let size = page.render().unwrap().len();
        assert!(size <= 150_000, "{size} bytes");
    }
}
