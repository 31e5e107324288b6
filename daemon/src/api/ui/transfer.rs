//! Giving a lease to another owner by hand.

use axum::response::Response;
use fipd_core::{Lease, LeaseKey, Ledger};
use fipd_web_ui::{Form, Nav, TransferPage, links};
use http::StatusCode;

use super::{
    change::{Concerned, blame_of_lease, concerned, nothing_there, open, seen},
    fields::Fields,
    forms::{filled, optional},
    page::{Answered, page_as},
    session_extract::{PathParam, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert::network_name, etag::IfMatch, rest::lease_changes::hand, wire::TransferRequest,
};

const FIELDS: [&str; 3] = ["to", "tenant", "reason"];

/// Asks.
pub async fn show(
    visitor: Visitor,
    PathParam((network, address)): PathParam<(String, String)>,
) -> Answered {
    let (key, lease) = open(&visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let form = filled(&FIELDS, &Fields::default());
    Ok(ask(&visitor, &lease, StatusCode::OK, form))
}

/// Transfers what was shown, and only that.
pub async fn submit(
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
    let if_match = IfMatch::shown(fields.get("seen"));
    let (caller, which) = (visitor.caller(), (&*network, &*address));
    match hand(&visitor.ipam, &caller, which, if_match, &body).await {
        Ok(lease) => Ok(moved(&visitor, &lease)),
        Err(mut problem) => {
            if problem.field.as_deref() == Some("address") {
                problem.field = Some("to".into());
            }
            let status = blame_of_lease(&mut form, &problem);
            Ok(ask(&visitor, &lease, status, form))
        }
    }
}

fn moved(visitor: &Visitor, lease: &Lease) -> Response {
    let LeaseKey { network, address } = lease.key;
    let owner = visitor.read(|ledger| views::owner(ledger, lease));
    let text = format!("{address} is held by {owner} now.");
    visitor.done(&links::lease(network.0, address), text)
}

fn ask(visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = visitor.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        TransferPage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            form,
            heir,
            controlled,
        }
    });
    page_as(status, &page)
}
