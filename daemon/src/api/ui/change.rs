//! What forms that change one lease share: opening it, noticing that it changed meanwhile, whom it concerns.

use std::sync::Arc;

use axum::response::Response;
use fipd_core::{Lease, LeaseKey, Ledger};
use fipd_web_ui::{Field, links};

use super::{
    cookies::fingerprint,
    lease::find,
    page::{Failure, go_to},
};
use crate::api::ui::session_extract::Visitor;
use crate::api::{Api, convert::owner_text};

/// The longest reason, in characters.
const MAX_REASON: usize = 200;
/// Why a form about an older state of the lease does nothing.
pub const CHANGED: &str = "The lease has changed since this was asked. This is how it is now.";

/// Whom a change of the lease concerns beside its holder.
pub struct Concerned {
    /// Who was found using it for the longest time; empty without contenders.
    pub heir: String,
    /// A controller keeps this lease for its object.
    pub controlled: bool,
}

/// The address and its lease, for those who may change it.
pub fn open(
    api: &Api,
    visitor: &Visitor,
    (network, address): (&str, &str),
) -> Result<(LeaseKey, Option<Arc<Lease>>), Failure> {
    visitor.must_write()?;
    let key = find(api, visitor, network, address)?;
    Ok((key, api.ipam.read(|ledger| ledger.lease(key).cloned())))
}

/// To the page of the address, which says that there was nothing to do.
pub fn nothing_there(visitor: &Visitor, key: LeaseKey) -> Response {
    visitor.tell(true, format!("{} is free already.", key.address), None);
    go_to(&links::lease(key.network.0, key.address))
}

/// What the asker has in front of them: another holder, instance or time is another lease.
pub fn seen(lease: &Lease) -> String {
    let holders: Vec<_> = lease.members.iter().map(|member| &member.holder).collect();
    let text = format!(
        "{:?} {holders:?} {:?} {:?}",
        lease.key, lease.state, lease.since
    );
    fingerprint(&text)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Notes what is wrong with the reason; whether nothing is.
pub fn check_reason(reason: &mut Field, required: bool) -> bool {
    let length = reason.value.chars().count();
    if required && length == 0 {
        reason.error = Some("Say why, in a few words.".to_owned());
    } else if length > MAX_REASON {
        reason.error = Some(format!("At most {MAX_REASON} characters are kept."));
    }
    reason.error.is_none()
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
