//! Giving a lease to another owner by hand.

use axum::{extract::State, response::Response};
use fipd_core::{Lease, LeaseKey, Ledger};
use fipd_web_ui::{Form, Nav, TransferPage, links};
use http::StatusCode;

use super::{
    change::{Concerned, blame_of_lease, concerned, nothing_there, open, seen},
    fields::Fields,
    forms::{filled, optional},
    page::{Answered, go_to, page_as},
    session_extract::{PathParam, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert::{network_name, owner_text},
    etag::IfMatch,
    rest::lease_changes::hand,
    wire::TransferRequest,
};
use crate::ipam::Ipam;

const FIELDS: [&str; 3] = ["to", "tenant", "reason"];

/// Asks.
pub async fn show(
    State(ipam): State<Ipam>,
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&ipam, &visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let form = filled(&FIELDS, &Fields::default());
    Ok(ask(&ipam, &visitor, &lease, StatusCode::OK, form))
}

/// Transfers what was shown, and only that.
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
    let mut form = filled(&FIELDS, &fields);
    // The state that the form was shown with pins the holder. One of several would have to be named, which it does not ask for.
    let body = TransferRequest {
        to: form.value("to").to_owned(),
        tenant: optional(form.value("tenant")),
        reason: form.value("reason").to_owned(),
        ..TransferRequest::default()
    };
    let network = ipam.read(|ledger| network_name(ledger, key.network));
    let if_match = IfMatch::shown(fields.get("seen"));
    let handed = hand(
        &ipam,
        &visitor.caller(),
        (&network, &address),
        if_match,
        &body,
    )
    .await;
    match handed {
        Ok(lease) => Ok(moved(&ipam, &visitor, &lease)),
        Err(mut problem) => {
            if problem.field.as_deref() == Some("address") {
                problem.field = Some("to".into());
            }
            let status = blame_of_lease(&mut form, &problem);
            Ok(ask(&ipam, &visitor, &lease, status, form))
        }
    }
}

fn moved(ipam: &Ipam, visitor: &Visitor, lease: &Lease) -> Response {
    let LeaseKey { network, address } = lease.key;
    let owner = lease.owner().map_or_else(String::new, |holder| {
        ipam.read(|ledger| owner_text(ledger, &holder.identity))
    });
    visitor.tell(true, format!("{address} is held by {owner} now."), None);
    go_to(&links::lease(network.0, address))
}

fn ask(ipam: &Ipam, visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = ipam.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        TransferPage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            to: form.field("to"),
            tenant: form.field("tenant"),
            reason: form.field("reason"),
            error: form.error,
            heir,
            controlled,
        }
    });
    page_as(status, &page)
}
