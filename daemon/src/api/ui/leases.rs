//! The list of all leases: by address from the ledger's own order, in any other order from a walk in steps.

use std::{
    collections::BinaryHeap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::extract::State;
use fipd_core::{AddressSpec, Lease, LeaseFilter, LeaseKey, Ledger, Tenant};
use fipd_web_ui::{Direction, Form, Input, LeaseRow, LeasesPage, Nav, Pager, links};

use super::{
    list::{Listing, Order},
    page::{Answered, page},
    views,
    visit::{Query, Visitor},
};
use crate::{
    api::{Api, convert, labels, page as cursor},
    ipam::Ipam,
};

/// Leases of one page.
const PAGE: usize = 50;
/// How long one page looks for leases before it shows what it has.
const PATIENCE: Duration = Duration::from_millis(40);
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
];

/// Some rows and how it goes on.
#[derive(Default)]
struct Found {
    rows: Vec<LeaseRow>,
    /// Where the next page begins.
    next: Option<String>,
    /// Not all leases were looked at.
    cut: bool,
}

/// What a lease is sorted by: a time and, among equals, the address. Descending times are turned over.
type Rank = (u64, LeaseKey);

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    let states = STATES.map(|word| (word.to_owned(), word.to_owned()));
    let inputs = vec![
        Input::new("q", "Contains").note("part of owner or address"),
        Input::new("within", "On addresses").note("10.0.0.0/24"),
        Input::new("pool", "Pool"),
        Input::new("network", "Network"),
        Input::new("state", "State").kind(Form::any_of(states)),
        Input::new("namespace", "Namespace"),
        Input::new("tenant", "Tenant"),
        Input::new("label", "Label").note("key or key=value"),
        Input::new("cluster", "Cluster"),
    ];
    let mut list = Listing::new(links::LEASES, inputs, ORDERS, &query);
    let after = query.get("after");
    let filter = api.ipam.read(|ledger| filter(ledger, &mut list.filters));
    let found = match filter {
        None => Found::default(),
        Some(filter) => match list.order.key {
            "address" => by_address(&api.ipam, &filter, after).await,
            key => by_time(&api.ipam, &filter, (key, list.order.direction), after).await,
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
    let state = text("state").map(|word| convert::state(&word));
    let labels = labels::wanted(form.value("label").split_whitespace());
    let within = text("within").map(|text| text.parse::<AddressSpec>());
    let filter = LeaseFilter {
        tenant: text("tenant").map(|name| Tenant(name.into())),
        cluster: text("cluster").map(|name| convert::cluster_id(ledger, &name)),
        namespace: text("namespace").map(Into::into),
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

/// The first rows beyond `after`, kept in a heap while all leases pass by.
async fn by_time(
    ipam: &Ipam,
    filter: &LeaseFilter,
    order: (&str, Direction),
    after: &str,
) -> Found {
    let beyond = rank_of(after);
    let mut best: BinaryHeap<Rank> = BinaryHeap::new();
    let mut at = None;
    let started = Instant::now();
    loop {
        let step = ipam.read(|ledger| ledger.leases(filter, at, Ledger::SCAN));
        for lease in &step.leases {
            let Some(rank) = rank(lease, order).filter(|rank| Some(*rank) > beyond) else {
                continue;
            };
            if best.len() <= PAGE {
                best.push(rank);
            } else if best.peek().is_some_and(|worst| rank < *worst) {
                best.pop();
                best.push(rank);
            }
        }
        at = step.next;
        if at.is_none() || started.elapsed() > PATIENCE {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut ranks = best.into_sorted_vec();
    let more = ranks.len() > PAGE;
    ranks.truncate(PAGE);
    let next = ranks.last().filter(|_| more);
    Found {
        next: next.map(|(time, key)| format!("{time}_{}", cursor::text(key))),
        rows: ipam.read(|ledger| {
            let leases = ranks.iter().filter_map(|(_, key)| ledger.lease(*key));
            leases
                .map(|lease| views::lease_row(ledger, lease))
                .collect()
        }),
        cut: at.is_some(),
    }
}

/// `None` for leases without that time.
fn rank(lease: &Lease, (key, direction): (&str, Direction)) -> Option<Rank> {
    let time = match key {
        "until" => lease.until?,
        _ => lease.since,
    };
    let time = match direction {
        Direction::Up => time.0,
        Direction::Down => u64::MAX - time.0,
    };
    Some((time, lease.key))
}

fn rank_of(text: &str) -> Option<Rank> {
    let (time, key) = text.split_once('_')?;
    Some((time.parse().ok()?, cursor::read(key).ok()?))
}
