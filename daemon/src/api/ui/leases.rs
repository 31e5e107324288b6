//! The list of all leases: by address from the ledger's own order, in any other order from a walk in steps.

use std::time::{Duration, Instant};

use axum::extract::State;
use fipd_core::{AddressSpec, LeaseFilter, Ledger, Tenant};
use fipd_web_ui::{Direction, Form, Input, LeaseRow, LeasesPage, Nav, Pager, links};

use super::{
    lease_order::{By, First, Sorting},
    list::{Listing, Order, PATIENCE},
    page::{Answered, page},
    views,
};
use crate::api::ui::session_extract::{Query, Visitor};
use crate::{
    api::{convert, page as cursor, rest::lease_changes},
    ipam::Ipam,
};

/// Leases of one page.
const PAGE: usize = 50;
const STATES: [&str; 5] = [
    "allocated",
    "reserved",
    "quarantined",
    "probing",
    "orphaned",
];
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
    next: Option<String>,
    /// Not all leases were looked at.
    pub cut: bool,
}

pub async fn list(State(ipam): State<Ipam>, visitor: Visitor, Query(query): Query) -> Answered {
    let states = STATES.map(|word| (word.to_owned(), word.to_owned()));
    let inputs = vec![
        Input::new("q", "Contains").note("part of owner or address"),
        Input::new("within", "On addresses").note("10.0.0.0/24"),
        Input::new("pool", "Pool"),
        Input::new("network", "Network"),
        Input::new("state", "State").kind(Form::any_of(states)),
        Input::new("mark", "Mark").kind(Form::any_of(
            [
                (links::CONTENDED, "contended"),
                (links::OUT_OF_RANGE, "out of range"),
            ]
            .map(|(value, label)| (value.to_owned(), label.to_owned())),
        )),
        Input::new("namespace", "Namespace"),
        Input::new("tenant", "Tenant"),
        Input::new("label", "Label").note("key or key=value"),
        Input::new("cluster", "Cluster"),
    ];
    let mut list = Listing::new(links::LEASES, inputs, ORDERS, &query);
    let after = query.get("after");
    let filter = ipam.read(|ledger| filter(ledger, &mut list.filters));
    let found = match filter {
        None => Found::default(),
        Some(filter) => match by(list.order.key) {
            None => by_address(&ipam, &filter, after).await,
            Some(by) => {
                let order = (by, list.order.direction);
                sorted(&ipam, &filter, order, after, PATIENCE).await
            }
        },
    };
    let pager = Pager {
        first: (!after.is_empty()).then(|| list.link(&[])),
        next: found.next.map(|after| list.link(&[("after", &after)])),
        label: String::new(),
    };
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
    let text = |name: &str| Some(form.value(name).to_owned()).filter(|text| !text.is_empty());
    let pool = text("pool").map(|name| ledger.find_pool(&name).map(|pool| pool.id));
    let network = text("network").map(|name| convert::network(ledger, &name).map(|found| found.id));
    let state = text("state").map(|word| convert::parse("state", &word));
    let labels = lease_changes::wanted_labels(form.value("label").split_whitespace());
    let within = text("within").map(|text| text.parse::<AddressSpec>());
    let filter = LeaseFilter {
        tenant: text("tenant").map(|name| Tenant(name.into())),
        cluster: text("cluster").map(|name| convert::cluster_id(ledger, &name)),
        namespace: text("namespace").map(Into::into),
        contended: form.value("mark") == links::CONTENDED,
        out_of_range: form.value("mark") == links::OUT_OF_RANGE,
        text: text("q").map(Into::into),
        ..LeaseFilter::default()
    };
    let (pool, network) = (pool.transpose(), network.transpose());
    let (state, within) = (state.transpose(), within.transpose());
    if let Err(error) = &pool {
        form.wrong("pool", error.to_string());
    }
    if let Err(problem) = &network {
        form.wrong("network", problem.detail.to_string());
    }
    if let Err(problem) = &state {
        form.wrong("state", problem.detail.to_string());
    }
    if let Err(problem) = &labels {
        form.wrong("label", problem.detail.to_string());
    }
    if let Err(error) = &within {
        form.wrong("within", error.to_string());
    }
    Some(LeaseFilter {
        pool: pool.ok()?,
        network: network.ok()?,
        state: state.ok()?,
        labels: labels.ok()?,
        within: within.ok()?.map(|spec| spec.span()),
        ..filter
    })
}

async fn by_address(ipam: &Ipam, filter: &LeaseFilter, after: &str) -> Found {
    let mut after = cursor::read(after).ok();
    let mut rows = Vec::new();
    let started = Instant::now();
    loop {
        after = ipam.read(|ledger| {
            let step = ledger.leases(filter, after, PAGE - rows.len());
            let found = step.leases.iter();
            rows.extend(found.map(|lease| views::lease_row(ledger, lease)));
            step.next
        });
        if after.is_none() || rows.len() >= PAGE || started.elapsed() > PATIENCE {
            break;
        }
        tokio::task::yield_now().await;
    }
    Found {
        cut: after.is_some() && rows.len() < PAGE,
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
        rows: ipam.read(|ledger| {
            let rows = leases.iter();
            rows.map(|lease| views::lease_row(ledger, lease)).collect()
        }),
        cut: at.is_some(),
    }
}
