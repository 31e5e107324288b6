//! Freeing an address by hand, after asking once.

use axum::{extract::State, response::Response};
use fipd_core::{Lease, LeaseState, Ledger};
use fipd_web_ui::{Form, Nav, ReleasePage, links};
use http::StatusCode;

use super::{
    change::{Concerned, blame_of_lease, concerned, nothing_there, open, seen},
    fields::with_query,
    forms::filled,
    page::{Answered, Failure, page_as},
    session_extract::{PathParam, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert::network_name,
    etag::IfMatch,
    extract::{Path, Query as RestQuery},
    rest::leases::{Reason, release_address},
};
use crate::ipam::Ipam;
use std::net::IpAddr;

/// Asks.
pub async fn show(
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    Ok(match lease {
        Some(lease) if cools(&lease) && !visitor.is_admin() => return Err(not_yet(&visitor)),
        Some(lease) => ask(&visitor, &lease, StatusCode::OK, Form::default()),
        None => nothing_there(&visitor, key),
    })
}

/// Frees what was shown, and only that.
pub async fn submit(
    PathParam((network, address)): PathParam<(String, String)>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let mut form = filled(&["reason"], &fields);
    let query = Reason {
        reason: form.value("reason").to_owned(),
        end_quarantine: cools(&lease),
    };
    let network = visitor.read(|ledger| network_name(ledger, key.network));
    let freed = release_address(
        State(visitor.ipam.clone()),
        visitor.caller(),
        Path((network, key.address.to_string())),
        RestQuery(query),
        IfMatch::shown(fields.get("seen")),
    );
    if let Err(problem) = freed.await {
        let status = blame_of_lease(&mut form, &problem);
        let now = visitor.read(|ledger| ledger.lease(key).cloned());
        return Ok(match now {
            Some(lease) => ask(&visitor, &lease, status, form),
            None => nothing_there(&visitor, key),
        });
    }
    Ok(visitor.done(&back(&lease), outcome(&visitor.ipam, &lease)))
}

fn cools(lease: &Lease) -> bool {
    lease.state == LeaseState::Quarantined
}

/// How long the address is given to nobody then; empty where it is free at once.
fn quarantine(ledger: &Ledger, lease: &Lease) -> String {
    let used = matches!(lease.state, LeaseState::Allocated | LeaseState::Orphaned);
    let pool = lease.pool.filter(|_| used).and_then(|id| ledger.pool(id));
    views::text(pool.map(|pool| views::quarantine(pool)))
}

fn not_yet(visitor: &Visitor) -> Failure {
    let what = "Only an admin may end a quarantine before its time.";
    let next = "Wait, or ask an admin to do it.";
    visitor.failure(StatusCode::FORBIDDEN, what, next)
}

/// What became of the address.
fn outcome(ipam: &Ipam, before: &Lease) -> String {
    let address = before.key.address;
    let now = ipam.read(|ledger| ledger.lease(before.key).cloned());
    let owner = now.map(|lease| ipam.read(|ledger| views::owner(ledger, &lease)));
    match owner.as_deref() {
        None => format!("{address} was released and is free."),
        Some("") => format!("{address} was released and is cooling."),
        Some(owner) => format!("{address} was released and is held by {owner} now."),
    }
}

fn back(lease: &Lease) -> String {
    let at = views::text(Some(lease.key.address).filter(IpAddr::is_ipv4));
    lease.pool.map_or_else(
        || links::POOLS.to_owned(),
        |id| with_query(&links::pool(id.0), &[("at", &at)]),
    )
}

fn ask(visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = visitor.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        ReleasePage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            form,
            heir,
            cools: quarantine(ledger, lease),
            controlled,
        }
    });
    page_as(status, &page)
}
