//! What forms that change one lease share: opening it, noticing that it changed meanwhile, whom it concerns.

use std::sync::Arc;

use axum::response::Response;
use fipd_core::{Lease, LeaseKey, Ledger};
use fipd_web_ui::{Form, links};
use http::StatusCode;

use super::{
    forms::{Words, blame},
    lease::find,
    page::Failure,
};
use crate::api::ui::session_extract::Visitor;
use crate::api::{
    convert::owner_text,
    etag::State,
    problem::{Code, Problem},
};

/// Why a form about an older state of the lease does nothing.
const CHANGED: &str = "The lease has changed since this was asked. This is how it is now.";

/// What is said where a reason is needed.
pub const WHY: &str = "Say why, in a few words.";
pub const WORDS: Words = |field, value| match (field, value) {
    ("to", "") => Some("Say who shall have the address."),
    ("reason", "") => Some(WHY),
    _ => None,
};

/// Whom a change of the lease concerns beside its holder.
pub struct Concerned {
    /// Who was found using it for the longest time; empty without contenders.
    pub heir: String,
    /// A controller keeps this lease for its object.
    pub controlled: bool,
}

/// The address and its lease, for those who may change it.
pub fn open(
    visitor: &Visitor,
    (network, address): (&str, &str),
) -> Result<(LeaseKey, Option<Arc<Lease>>), Failure> {
    let key = find(visitor, network, address)?;
    let lease = visitor.read(|ledger| ledger.lease(key).cloned());
    Ok((key, lease))
}

/// To the page of the address, which says that there was nothing to do.
pub fn nothing_there(visitor: &Visitor, key: LeaseKey) -> Response {
    let here = links::lease(key.network.0, key.address);
    visitor.done(&here, format!("{} is free already.", key.address))
}

/// What the asker has in front of them, as `If-Match` compares it.
pub fn seen(lease: &Lease) -> String {
    State::of(lease).as_str().to_owned()
}

/// What is wrong with a form that changes a lease.
pub fn blame_of_lease(form: &mut Form, problem: &Problem) -> StatusCode {
    let status = blame(form, problem, WORDS);
    if problem.code == Code::Stale {
        form.error = Some(CHANGED.to_owned());
    }
    status
}

pub fn concerned(ledger: &Ledger, lease: &Lease) -> Concerned {
    let heir = lease.contenders.first();
    let owner = lease.owner();
    Concerned {
        heir: heir.map_or_else(String::new, |heir| {
            owner_text(ledger, &heir.holder.identity)
        }),
        controlled: owner.is_some_and(|holder| holder.identity.cluster.is_some()),
    }
}
