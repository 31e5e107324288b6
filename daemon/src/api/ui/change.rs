//! What is done to one lease by hand, after asking once: freeing its address, or giving it to another owner.

use std::{net::IpAddr, sync::Arc};

use axum::response::Response;
use fipd_core::{Contender, Lease, LeaseKey, LeaseState, Ledger};
use fipd_web_ui::{AskedLease, Form, Nav, ReleasePage, TransferPage, links};
use http::StatusCode;

use super::{
    fields::{Fields, with_query},
    forms::{Words, blame, filled, optional},
    lease::{available, find},
    page::{Answered, Failure, page_as},
    session_extract::{PathParam, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert::{network_name, owner_text},
    etag::{IfMatch, State},
    extract::{Path, Query as RestQuery},
    problem::{Code, Problem},
    rest::{
        lease_changes::hand,
        leases::{Reason, release_address},
    },
    wire::TransferRequest,
};
use crate::ipam::Ipam;

/// Why a form about an older state of the lease does nothing.
const CHANGED: &str = "The lease has changed since this was asked. This is how it is now.";

/// What is said where a reason is needed.
pub const WHY: &str = "Say why, in a few words.";
pub const WORDS: Words = |field, value| match (field, value) {
    ("to", "") => Some("Say who shall have the address."),
    ("reason", "") => Some(WHY),
    _ => None,
};

/// The lease of the address or around it, with where it begins, for those who may change it.
fn open(
    visitor: &Visitor,
    (network, address): (&str, &str),
) -> Result<(LeaseKey, Option<Arc<Lease>>), Failure> {
    let key = find(visitor, network, address)?;
    let lease = held(visitor, key);
    Ok((lease.as_ref().map_or(key, |lease| lease.key), lease))
}

/// The lease of the address, or of the prefix around it.
fn held(visitor: &Visitor, key: LeaseKey) -> Option<Arc<Lease>> {
    visitor.read(|ledger| ledger.lease_around(key).cloned())
}

/// To the page of the address, which says that there was nothing to do.
fn nothing_there(visitor: &Visitor, key: LeaseKey) -> Response {
    let here = links::lease(key.network.0, key.address);
    let what = visitor.read(|ledger| available(ledger, key));
    visitor.done(&here, format!("{what} is free already."))
}

/// What is wrong with a form that changes a lease.
fn blame_of_lease(form: &mut Form, problem: &Problem) -> StatusCode {
    let status = blame(form, problem, WORDS);
    if problem.code == Code::Stale {
        form.error = Some(CHANGED.to_owned());
    }
    status
}

/// The lease as the asker has it in front of them.
fn asked(ledger: &Ledger, lease: &Lease) -> AskedLease {
    let uses_all = |one: &&Contender| one.uses.is_empty();
    let heir = lease.contenders.iter().find(uses_all);
    let owner = lease.owner();
    AskedLease {
        lease: views::lease_row(ledger, lease),
        seen: State::of(lease).as_str().to_owned(),
        heir: views::text(heir.map(|heir| owner_text(ledger, &heir.holder.identity))),
        users: match heir {
            Some(_) => 0,
            None => lease.contenders.len(),
        },
        controlled: owner.is_some_and(|holder| holder.identity.cluster.is_some()),
    }
}

/// Asks whether the address shall be freed.
pub async fn ask_release(
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    Ok(match lease {
        Some(lease) if cools(&lease) && !visitor.is_admin() => return Err(not_yet(&visitor)),
        Some(lease) => release_page(&visitor, &lease, StatusCode::OK, Form::default()),
        None => nothing_there(&visitor, key),
    })
}

/// Frees what was shown, and only that.
pub async fn release(
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
        visitor.requester(),
        Path((network, key.address.to_string())),
        RestQuery(query),
        IfMatch::shown(fields.get("seen")),
    );
    if let Err(problem) = freed.await {
        let status = blame_of_lease(&mut form, &problem);
        return Ok(match held(&visitor, key) {
            Some(lease) => release_page(&visitor, &lease, status, form),
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

/// What became of what was released.
fn outcome(ipam: &Ipam, before: &Lease) -> String {
    let what = before.prefix();
    let now = ipam.read(|ledger| {
        let lease = ledger.lease_over(what)?;
        Some((lease.prefix(), views::owner(ledger, lease)))
    });
    match now
        .as_ref()
        .map(|(prefix, owner)| (*prefix, owner.as_str()))
    {
        None => format!("{what} was released and is free."),
        Some((now, _)) if now != what => {
            format!("{what} was released. What others use of it is theirs now, the rest is free.")
        }
        Some((_, "")) => format!("{what} was released and is quarantined."),
        Some((_, owner)) => format!("{what} was released and is held by {owner} now."),
    }
}

fn back(lease: &Lease) -> String {
    let at = views::text(Some(lease.key.address).filter(IpAddr::is_ipv4));
    lease.pool.map_or_else(
        || links::POOLS.to_owned(),
        |id| with_query(&links::pool(id.0), &[("at", &at)]),
    )
}

fn release_page(visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = visitor.read(|ledger| ReleasePage {
        shell,
        asked: asked(ledger, lease),
        form,
        cools: quarantine(ledger, lease),
    });
    page_as(status, &page)
}

const FIELDS: [&str; 3] = ["to", "tenant", "reason"];

/// Asks who shall have the address.
pub async fn ask_transfer(
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let form = filled(&FIELDS, &Fields::default());
    Ok(transfer_page(&visitor, &lease, StatusCode::OK, form))
}

/// Transfers what was shown, and only that.
pub async fn transfer(
    PathParam((network, address)): PathParam<(String, String)>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let mut form = filled(&FIELDS, &fields);
    // The state that the form was shown with pins the holder. One of several would have to be named, which it does not ask for.
    let body = TransferRequest {
        to: form.value("to").to_owned(),
        tenant: optional(form.value("tenant")),
        reason: form.value("reason").to_owned(),
        ..TransferRequest::default()
    };
    let network = visitor.read(|ledger| network_name(ledger, key.network));
    let address = key.address.to_string();
    let if_match = IfMatch::shown(fields.get("seen"));
    let (requester, which) = (visitor.requester(), (&*network, &*address));
    match hand(&requester, which, if_match, &body).await {
        Ok(lease) => Ok(moved(&visitor, &lease)),
        Err(mut problem) => {
            if problem.field.as_deref() == Some("address") {
                problem.field = Some("to".into());
            }
            let status = blame_of_lease(&mut form, &problem);
            Ok(transfer_page(&visitor, &lease, status, form))
        }
    }
}

fn moved(visitor: &Visitor, lease: &Lease) -> Response {
    let LeaseKey { network, address } = lease.key;
    let owner = visitor.read(|ledger| views::owner(ledger, lease));
    let text = format!("{} is held by {owner} now.", lease.prefix());
    visitor.done(&links::lease(network.0, address), text)
}

fn transfer_page(visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = visitor.read(|ledger| TransferPage {
        shell,
        asked: asked(ledger, lease),
        form,
    });
    page_as(status, &page)
}
