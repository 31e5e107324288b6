//! Freeing an address by hand, after asking once.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Lease, LeaseState, Ledger, Release, ReleaseScope, Request};
use fipd_web_ui::{Field, Nav, ReleasePage, links};
use http::StatusCode;

use super::{
    change::{CHANGED, Concerned, check_reason, concerned, nothing_there, open, seen},
    fields::with_query,
    page::{Answered, Failure, go_to, page_as},
    views,
};
use crate::api::ui::session_extract::{Place, Posted, Visitor};
use crate::{
    api::{Api, convert::owner_text, problem::Problem},
    ipam::{Guard, IpamError},
};

/// Asks.
pub async fn show(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place((network, address)): Place<(String, String)>,
) -> Answered {
    let (key, lease) = open(&api, &visitor, (&network, &address))?;
    Ok(match lease {
        Some(lease) if cools(&lease) && !visitor.is_admin() => return Err(not_yet(&visitor)),
        Some(lease) => ask(
            &api,
            &visitor,
            &lease,
            StatusCode::OK,
            Field::default(),
            None,
        ),
        None => nothing_there(&visitor, key),
    })
}

/// Frees what was shown, and only that.
pub async fn submit(
    State(api): State<Arc<Api>>,
    Place((network, address)): Place<(String, String)>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    let (key, lease) = open(&api, &visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    if cools(&lease) && !visitor.is_admin() {
        return Err(not_yet(&visitor));
    }
    let mut reason = Field {
        value: fields.get("reason").to_owned(),
        error: None,
    };
    if !check_reason(&mut reason, false) {
        return Ok(ask(
            &api,
            &visitor,
            &lease,
            StatusCode::UNPROCESSABLE_ENTITY,
            reason,
            None,
        ));
    }
    if fields.get("seen") != seen(&lease) {
        let error = CHANGED.to_owned();
        return Ok(ask(
            &api,
            &visitor,
            &lease,
            StatusCode::CONFLICT,
            reason,
            Some(error),
        ));
    }
    let request = Request::Release(Release {
        scope: scope(&lease),
        actor: visitor.actor(),
        reason: reason.value.as_str().into(),
    });
    let guard = still(&lease);
    if let Err(error) = api.ipam.submit_if(request, guard).await {
        let (status, error) = if matches!(error, IpamError::Stale(_)) {
            (StatusCode::CONFLICT, CHANGED.to_owned())
        } else {
            let text = error.to_string();
            (Problem::from(error).status_code(), text)
        };
        let (_, now) = open(&api, &visitor, (&network, &address))?;
        let Some(lease) = now else {
            return Ok(nothing_there(&visitor, key));
        };
        return Ok(ask(&api, &visitor, &lease, status, reason, Some(error)));
    }
    visitor.tell(true, outcome(&api, &lease), None);
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

/// It is the word of whoever signed in, not of the holders: an address that cools then, cools for them too.
fn scope(lease: &Lease) -> ReleaseScope {
    if cools(lease) {
        ReleaseScope::Quarantine(lease.key)
    } else {
        ReleaseScope::Address(lease.key)
    }
}

/// The lease is freed only if it is what was shown when it is decided.
fn still(lease: &Lease) -> Guard {
    let (key, shown) = (lease.key, seen(lease));
    Box::new(move |ledger, _| {
        let now = ledger.lease(key);
        if now.is_some_and(|now| seen(now) == shown) {
            return Ok(());
        }
        Err(IpamError::Stale(format!("the lease of {}", key.address)))
    })
}

/// What became of the address.
fn outcome(api: &Api, before: &Lease) -> String {
    let address = before.key.address;
    let now = api.ipam.read(|ledger| ledger.lease(before.key).cloned());
    match now {
        None => format!("{address} was released and is free."),
        Some(lease) => match lease.owner() {
            Some(holder) => {
                let owner = api.ipam.read(|ledger| owner_text(ledger, &holder.identity));
                format!("{address} was released and is held by {owner} now.")
            }
            None => format!("{address} was released and is cooling."),
        },
    }
}

fn back(lease: &Lease) -> String {
    let at = if lease.key.address.is_ipv4() {
        lease.key.address.to_string()
    } else {
        String::new()
    };
    lease.pool.map_or_else(
        || links::POOLS.to_owned(),
        |id| with_query(&links::pool(id.0), &[("at", &at)]),
    )
}

fn ask(
    api: &Api,
    visitor: &Visitor,
    lease: &Lease,
    status: StatusCode,
    reason: Field,
    error: Option<String>,
) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = api.ipam.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        ReleasePage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            reason,
            error,
            heir,
            cools: quarantine(ledger, lease),
            controlled,
        }
    });
    page_as(status, &page)
}
