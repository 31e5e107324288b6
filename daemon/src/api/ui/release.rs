//! Freeing an address by hand, after asking once.

use axum::{extract::State, response::Response};
use fipd_core::{Lease, LeaseState, Ledger};
use fipd_web_ui::{Form, Nav, ReleasePage, links};
use http::StatusCode;

use super::{
    change::{Concerned, blame_of_lease, concerned, nothing_there, open, seen},
    fields::with_query,
    forms::filled,
    page::{Answered, Failure, go_to, page_as},
    session_extract::{PathParam, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert::{network_name, owner_text},
    etag::IfMatch,
    extract::{Path, Query as RestQuery},
    rest::leases::{Reason, release_address},
};
use crate::ipam::Ipam;
use std::net::IpAddr;

/// Asks.
pub async fn show(
    State(ipam): State<Ipam>,
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&ipam, &visitor, (&network, &address))?;
    Ok(match lease {
        Some(lease) if cools(&lease) && !visitor.is_admin() => return Err(not_yet(&visitor)),
        Some(lease) => ask(&ipam, &visitor, &lease, StatusCode::OK, Form::default()),
        None => nothing_there(&visitor, key),
    })
}

/// Frees what was shown, and only that.
pub async fn submit(
    State(ipam): State<Ipam>,
    PathParam((network, address)): PathParam<(String, String)>,
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let (key, lease) = open(&ipam, &visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let mut form = filled(&["reason"], &fields);
    let query = Reason {
        reason: form.value("reason").to_owned(),
        end_quarantine: cools(&lease),
    };
    let network = ipam.read(|ledger| network_name(ledger, key.network));
    let freed = release_address(
        State(ipam.clone()),
        visitor.caller(),
        Path((network, key.address.to_string())),
        RestQuery(query),
        IfMatch::shown(fields.get("seen")),
    );
    if let Err(problem) = freed.await {
        let status = blame_of_lease(&mut form, &problem);
        let now = ipam.read(|ledger| ledger.lease(key).cloned());
        return Ok(match now {
            Some(lease) => ask(&ipam, &visitor, &lease, status, form),
            None => nothing_there(&visitor, key),
        });
    }
    visitor.tell(true, outcome(&ipam, &lease), None);
    Ok(go_to(&back(&lease)))
}

fn cools(lease: &Lease) -> bool {
    lease.state == LeaseState::Quarantined
}

/// How long the address is given to nobody then; empty where it is free at once.
fn quarantine(ledger: &Ledger, lease: &Lease) -> String {
    let used = matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned);
    let pool = lease.pool.filter(|_| used).and_then(|id| ledger.pool(id));
    pool.map_or_else(String::new, |pool| views::quarantine(pool))
}

fn not_yet(visitor: &Visitor) -> Failure {
    let what = "Only an admin may end a quarantine before its time.";
    visitor.failure(
        StatusCode::FORBIDDEN,
        what,
        "Wait, or ask an admin to do it.",
    )
}

/// What became of the address.
fn outcome(ipam: &Ipam, before: &Lease) -> String {
    let address = before.key.address;
    let now = ipam.read(|ledger| ledger.lease(before.key).cloned());
    match now {
        None => format!("{address} was released and is free."),
        Some(lease) => match lease.owner() {
            Some(holder) => {
                let owner = ipam.read(|ledger| owner_text(ledger, &holder.identity));
                format!("{address} was released and is held by {owner} now.")
            }
            None => format!("{address} was released and is cooling."),
        },
    }
}

fn back(lease: &Lease) -> String {
    let at = views::text(Some(lease.key.address).filter(IpAddr::is_ipv4));
    lease.pool.map_or_else(
        || links::POOLS.to_owned(),
        |id| with_query(&links::pool(id.0), &[("at", &at)]),
    )
}

fn ask(ipam: &Ipam, visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = ipam.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        ReleasePage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            reason: form.field("reason"),
            error: form.error,
            heir,
            cools: quarantine(ledger, lease),
            controlled,
        }
    });
    page_as(status, &page)
}
