//! Giving a lease to another owner by hand.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Answer, Holder, Lease, Ledger, Refusal, Request, Tenant, Transfer};
use fipd_web_ui::{Field, Nav, TransferPage, links};
use http::StatusCode;

use super::{
    change::{CHANGED, Concerned, check_reason, concerned, nothing_there, open, seen},
    fields::Fields,
    page::{Answered, go_to, page_as},
    views,
};
use crate::api::ui::session_extract::{Place, Posted, Visitor};
use crate::{
    api::{
        Api,
        convert::{self, owner_text},
        problem::Problem,
    },
    ipam::IpamError,
};

/// What was typed, and what is wrong with it.
#[derive(Default)]
struct Form {
    to: Field,
    tenant: Field,
    reason: Field,
    error: Option<String>,
}

/// Asks.
pub async fn show(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place((network, address)): Place<(String, String)>,
) -> Answered {
    let (key, lease) = open(&api, &visitor, (&network, &address))?;
    let Some(lease) = lease else {
        return Ok(nothing_there(&visitor, key));
    };
    let form = Form::default();
    Ok(ask(&api, &visitor, &lease, StatusCode::OK, form))
}

/// Transfers what was shown, and only that.
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
    let mut form = filled(&fields);
    let Some(request) = parse(&api, &visitor, &lease, &mut form) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(&api, &visitor, &lease, status, form));
    };
    if fields.get("seen") != seen(&lease) {
        form.error = Some(CHANGED.to_owned());
        return Ok(ask(&api, &visitor, &lease, StatusCode::CONFLICT, form));
    }
    let status = match api.ipam.submit(Request::Transfer(request)).await {
        Ok(answer) => return Ok(moved(&api, &visitor, &lease, &answer)),
        Err(error) => explain(&mut form, error),
    };
    Ok(ask(&api, &visitor, &lease, status, form))
}

fn moved(api: &Api, visitor: &Visitor, before: &Lease, answer: &Answer) -> Response {
    let key = before.key;
    if let Answer::Transferred { lease } = answer {
        let owner = lease.owner().map_or_else(String::new, |holder| {
            api.ipam.read(|ledger| owner_text(ledger, &holder.identity))
        });
        visitor.tell(
            true,
            format!("{} is held by {owner} now.", key.address),
            None,
        );
    }
    go_to(&links::lease(key.network.0, key.address))
}

fn filled(fields: &Fields) -> Form {
    let field = |name| Field {
        value: fields.get(name).trim().to_owned(),
        error: None,
    };
    Form {
        to: field("to"),
        tenant: field("tenant"),
        reason: field("reason"),
        error: None,
    }
}

/// The request; `None` with the mistakes noted beside the fields.
fn parse(api: &Api, visitor: &Visitor, lease: &Lease, form: &mut Form) -> Option<Transfer> {
    let identity = api.ipam.read(|ledger| {
        convert::owner(ledger, &form.to.value).map_err(|problem| problem.detail.into_string())
    });
    form.to.error = match &identity {
        Ok(_) => None,
        Err(_) if form.to.value.is_empty() => Some("Say who shall have the address.".to_owned()),
        Err(detail) => Some(detail.clone()),
    };
    let tenant = convert::text("tenant", &form.tenant.value);
    if let Err(problem) = &tenant {
        form.tenant.error = Some(problem.detail.to_string());
    }
    let reason = check_reason(&mut form.reason, true);
    let (Ok(identity), Ok(tenant), true) = (identity, tenant, reason) else {
        return None;
    };
    // One of several holders must be named, which this form does not ask for.
    let from = match lease.members.as_slice() {
        [member] => Some(member.holder.clone()),
        _ => None,
    };
    Some(Transfer {
        key: lease.key,
        from,
        to: Holder {
            identity,
            instance: "".into(),
        },
        tenant: (!tenant.is_empty()).then_some(Tenant(tenant)),
        force: false,
        actor: visitor.actor(),
        reason: form.reason.value.as_str().into(),
    })
}

/// Puts a refusal where it belongs.
fn explain(form: &mut Form, error: IpamError) -> StatusCode {
    let text = error.to_string();
    if matches!(error, IpamError::Refused(Refusal::NotTransferable { .. })) {
        form.to.error = Some(text);
    } else {
        form.error = Some(text);
    }
    // Another than the page showed, not than a header says.
    if matches!(error, IpamError::Stale(_)) {
        return StatusCode::CONFLICT;
    }
    Problem::from(error).status_code()
}

fn ask(api: &Api, visitor: &Visitor, lease: &Lease, status: StatusCode, form: Form) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = api.ipam.read(|ledger: &Ledger| {
        let Concerned { heir, controlled } = concerned(ledger, lease);
        TransferPage {
            shell,
            lease: views::lease_row(ledger, lease),
            seen: seen(lease),
            to: form.to,
            tenant: form.tenant,
            reason: form.reason,
            error: form.error,
            heir,
            controlled,
        }
    });
    page_as(status, &page)
}
