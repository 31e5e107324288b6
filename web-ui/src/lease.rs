//! Leases in lists, and the page of one address.

use std::net::IpAddr;

use askama::Template;
use fipd_core::{LeaseState, prefix_text};

use crate::{AuditRow, Column, Form, Moment, Pager, Shell, links};

/// One line of a list of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub network: u32,
    pub address: IpAddr,
    /// Bits of the prefix that begins there; `None` for an address.
    pub length: Option<u8>,
    pub state: LeaseState,
    pub contended: bool,
    pub out_of_range: bool,
    /// The first holder; empty while the address cools.
    pub owner: String,
    /// Holders beside the first.
    pub others: usize,
    pub since: Moment,
    pub until: Option<Moment>,
}

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

/// A holder or contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub owner: String,
    /// The list that has its object.
    pub listed: Option<String>,
    /// UID or container id; may be empty.
    pub instance: String,
    pub cluster: String,
    /// The guest cluster that it is for: where it is shown, and its name.
    pub guest: Option<(String, String)>,
    /// `TCP 443`; empty in an exclusive lease.
    pub ports: Vec<String>,
    /// What it uses of a prefix that another holds; empty where that is all of it.
    pub uses: Vec<String>,
    pub since: Option<Moment>,
}

/// Why an address without a lease is shown, and whether it may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeAddress {
    /// `free in pool dmz`, `excluded from pool dmz`, `in no pool`.
    pub status: String,
    /// What would be given: the address, or the prefix around it.
    pub what: String,
    /// Address of the form that gives it.
    pub allocate: Option<String>,
    /// Address of the form that keeps it for later.
    pub reserve: Option<String>,
    /// Where an admin says which network it is of; `None` where nobody has to.
    pub settle: Option<String>,
    /// The lease that keeps the prefix around it from being free: its page, and what it covers.
    pub held: Option<(String, String)>,
}

/// Everything about one address of one network.
#[derive(Clone, Debug, Template)]
#[template(path = "lease.html")]
pub struct AddressPage {
    pub shell: Shell,
    pub network_name: String,
    pub address: IpAddr,
    /// Number and name.
    pub pool: Option<(u32, String)>,
    pub prefix_len: Option<u8>,
    pub gateway: Option<IpAddr>,
    pub tenant: String,
    /// Keys and values.
    pub labels: Vec<(String, String)>,
    pub lease: Option<LeaseRow>,
    /// Where there is no lease.
    pub free: Option<FreeAddress>,
    pub holders: Vec<Party>,
    pub contenders: Vec<Party>,
    /// Pools of the network that list it: link, name, and why they do not give it (empty where they do).
    pub listed: Vec<(String, String, &'static str)>,
    /// Newest first, one page of it.
    pub history: Vec<AuditRow>,
    pub pager: Pager,
}

impl AddressPage {
    pub(crate) fn what(&self) -> String {
        let row = self.lease.as_ref();
        row.map_or_else(|| self.address.to_string(), LeaseRow::what)
    }
}

impl LeaseRow {
    /// An address, or the prefix that begins with it.
    pub(crate) fn what(&self) -> String {
        prefix_text(self.address, self.length)
    }

    pub(crate) fn link(&self) -> String {
        links::lease(self.network, self.address)
    }

    /// What its state means.
    pub(crate) fn meaning(&self) -> &'static str {
        match self.state {
            LeaseState::Allocated => "In use by its holder.",
            LeaseState::Reserved => "Kept for its holder, not in use yet.",
            LeaseState::Probing => {
                "Whether somebody on the wire uses it is being checked; its holder does not use it yet."
            }
            LeaseState::Quarantined => {
                "Quarantined after a release; allocated to nobody until then."
            }
            LeaseState::Orphaned => {
                "Its cluster left or its system was switched off. It stays with its holder until `fipd clusters forget`."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, sample};

    #[test]
    fn shows_holders_contenders_and_history() {
        let html = sample::lease_page(true).render().unwrap();
        for text in [
            "<title>10.20.0.7 – fipd</title>",
            "rancher-fip/c-1/Service/shop/web&#60;1&#62;",
            "contended",
            "Contenders",
            "kube-fip/c-2/FloatingIP/old/web",
            "handed-over",
            "/ui/networks/0/addresses/10.20.0.7/release",
            "/ui/networks/0/addresses/10.20.0.7/transfer",
            "10.20.0.1",
            "<code>app=we&#60;b</code>",
            "/ui/pools/1",
        ] {
            assert!(html.contains(text), "no {text} in {html}");
        }
    }

    #[test]
    fn a_viewer_is_offered_no_release() {
        let html = sample::lease_page(false).render().unwrap();
        assert!(!html.contains("/release") && !html.contains("/transfer"));
    }

    #[test]
    fn a_free_address_says_so_and_offers_the_form() {
        let mut page = sample::lease_page(true);
        page.lease = None;
        page.free = Some(FreeAddress {
            status: "free in pool dmz".into(),
            what: "10.20.0.0/28".into(),
            allocate: Some("/ui/pools/1/allocate?address=10.20.0.7".into()),
            reserve: Some("/ui/reserve?pool=dmz&address=10.20.0.7".into()),
            settle: Some("/ui/pools/1#doubts".into()),
            held: Some((
                "/ui/networks/0/addresses/10.20.0.9".into(),
                "10.20.0.9".into(),
            )),
        });
        let html = page.render().unwrap();
        assert!(html.contains("free in pool dmz") && html.contains("allocate?address=10.20.0.7"));
        assert!(html.contains("/ui/reserve?pool=dmz"), "{html}");
        assert!(html.contains("href=\"/ui/pools/1#doubts\""), "{html}");
        assert!(html.contains(">Allocate 10.20.0.0/28</a>"), "{html}");
        assert!(html.contains("addresses/10.20.0.9\">See 10.20.0.9</a>"));
        assert!(!html.contains("/release"));
    }

    fn list() -> LeasesPage {
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
            leases: vec![sample::lease("10.20.0.7", LeaseState::Allocated)],
            pager: Pager::default(),
            note: String::new(),
        }
    }

    #[test]
    fn the_order_and_the_filter_are_seen() {
        let html = list().render().unwrap();
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
        let mut page = list();
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
        let mut page = list();
        let row = LeaseRow {
            owner: "o".repeat(1_000),
            ..sample::lease("10.20.0.7", LeaseState::Allocated)
        };
        page.leases = vec![row; 100];
        let size = page.render().unwrap().len();
        assert!(size <= 150_000, "{size} bytes");
    }
}
