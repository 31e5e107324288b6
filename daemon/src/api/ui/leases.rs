//! The list of all leases: by address from the ledger's own order, in any other order from a walk in steps.

use std::time::{Duration, Instant};

use fipd_core::{AddressSpec, LeaseFilter, LeaseState, Ledger, Tenant};
use fipd_web_ui::{Direction, Form, Input, InputKind, LeaseRow, LeasesPage, Nav, links};

use super::{
    forms::{optional, parsed},
    lease_order::{By, First, Sorting},
    list::{Listing, Order, PATIENCE},
    page::{Answered, page},
    views,
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::{
    api::{convert, page as cursor, problem::Problem, rest::lease_changes},
    ipam::Ipam,
};

/// Leases of one page.
const PAGE: usize = 50;
const ORDERS: &[Order] = &[
    Order::up("address", "by address"),
    Order::down("since", "newest first"),
    Order::up("since", "oldest first"),
    Order::up("until", "next to end first"),
    Order::down("until", "last to end first"),
    Order::up("owner", "by owner"),
    Order::down("owner", "by owner, from the end"),
    Order::up("state", "by state"),
    Order::down("state", "by state, from the end"),
];

/// Some rows and how it goes on.
#[derive(Default)]
pub struct Found {
    pub rows: Vec<LeaseRow>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// Not all leases were looked at.
    pub cut: bool,
}

pub async fn list(visitor: Visitor, Query(query): Query) -> Answered {
    let marks = [
        (links::CONTENDED, "contended"),
        (links::OUT_OF_RANGE, "out of range"),
    ];
    let inputs = vec![
        Input::new("q", "Contains").note("part of owner or address"),
        Input::new("within", "On addresses").note("10.0.0.0/24"),
        Input::new("pool", "Pool"),
        Input::new("network", "Network"),
        Input::new("state", "State").kind(InputKind::any_word(
            LeaseState::ALL.map(|state| state.as_str()),
        )),
        Input::new("mark", "Mark").kind(InputKind::any_of(marks)),
        Input::new("namespace", "Namespace"),
        Input::new("tenant", "Tenant"),
        Input::new("label", "Label").note("key or key=value"),
        Input::new("cluster", "Cluster"),
    ];
    let mut list = Listing::new(links::LEASES, inputs, ORDERS, &query);
    let after = query.get("after");
    let filter = visitor.read(|ledger| filter(ledger, &mut list.filters));
    let found = match filter {
        None => Found::default(),
        Some(filter) => match by(list.order.key) {
            None => by_address(&visitor.ipam, &filter, after, PAGE).await,
            Some(by) => {
                let order = (by, list.order.direction);
                sorted(&visitor.ipam, &filter, order, after, PATIENCE).await
            }
        },
    };
    let pager = list.onward(after, found.next);
    let note = match (found.cut, list.order.key) {
        (false, _) => "",
        (true, "address") => "There may be more: the next page looks further.",
        (true, _) => {
            "There are too many leases to put all of them in order. Filter to see the others."
        }
    };
    Ok(page(&LeasesPage {
        shell: visitor.shell(Nav::Leases),
        columns: vec![
            list.column("address", "Address"),
            list.column("state", "State"),
            list.column("owner", "Owner"),
            list.column("since", "Since"),
        ],
        filters: list.filters,
        leases: found.rows,
        pager,
        note: note.to_owned(),
    }))
}

/// What was asked for; `None` with the mistakes noted beside the filters.
fn filter(ledger: &Ledger, form: &mut Form) -> Option<LeaseFilter> {
    let pool = parsed(form, "pool", |name| {
        ledger.find_pool(name).map(|pool| pool.id)
    });
    let network = parsed(form, "network", |name| {
        convert::network(ledger, name)
            .map(|found| found.id)
            .map_err(detail)
    });
    let state = parsed(form, "state", |word| {
        convert::parse("state", word).map_err(detail)
    });
    let labels = lease_changes::wanted_labels(form.value("label").split_whitespace());
    let labels = labels.map_err(|problem| form.wrong("label", detail(problem)));
    let within = parsed(form, "within", str::parse::<AddressSpec>);
    let text = |name| optional(form.value(name));
    Some(LeaseFilter {
        tenant: text("tenant").map(|name| Tenant(name.into())),
        cluster: text("cluster").map(|name| convert::cluster_id(ledger, &name)),
        namespace: text("namespace").map(Into::into),
        contended: form.value("mark") == links::CONTENDED,
        out_of_range: form.value("mark") == links::OUT_OF_RANGE,
        text: text("q").map(Into::into),
        pool: pool?,
        network: network?,
        state: state?,
        labels: labels.ok()?,
        within: within?.map(|spec| spec.span()),
        ..LeaseFilter::default()
    })
}

fn detail(problem: Problem) -> Box<str> {
    problem.detail
}

/// The first rows behind `after` that are come to in time.
pub async fn by_address(ipam: &Ipam, filter: &LeaseFilter, after: &str, most: usize) -> Found {
    let mut after = cursor::read(after).ok();
    let mut rows = Vec::new();
    let started = Instant::now();
    loop {
        after = ipam.read(|ledger| {
            let step = ledger.leases(filter, after, most - rows.len());
            rows.extend(views::lease_rows(ledger, &step.leases));
            step.next
        });
        if after.is_none() || rows.len() >= most || started.elapsed() > PATIENCE {
            break;
        }
        tokio::task::yield_now().await;
    }
    Found {
        cut: after.is_some() && rows.len() < most,
        next: after.as_ref().map(cursor::text),
        rows,
    }
}

/// `None` for the order that the ledger itself has.
fn by(key: &str) -> Option<By> {
    match key {
        "owner" => Some(By::Owner),
        "state" => Some(By::State),
        "since" => Some(By::Since),
        "until" => Some(By::Until),
        _ => None,
    }
}

/// The first rows beyond `after` of all leases that are come to in time.
pub async fn sorted(
    ipam: &Ipam,
    filter: &LeaseFilter,
    (by, direction): (By, Direction),
    after: &str,
    patience: Duration,
) -> Found {
    let sorting = ipam.read(|ledger| Sorting::new(ledger, by, direction));
    let mut first = First::new(&sorting, cursor::read(after).ok(), PAGE);
    let mut at = None;
    let started = Instant::now();
    loop {
        let step = ipam.read(|ledger| ledger.leases(filter, at, Ledger::SCAN));
        first.pass(&step.leases);
        at = step.next;
        if at.is_none() || started.elapsed() > patience {
            break;
        }
        tokio::task::yield_now().await;
    }
    let (leases, more) = first.finish();
    let last = leases.last().map(|last| sorting.rank(last));
    Found {
        next: last.filter(|_| more).map(|last| cursor::text(&last)),
        rows: ipam.read(|ledger| views::lease_rows(ledger, &leases)),
        cut: at.is_some(),
    }
}
