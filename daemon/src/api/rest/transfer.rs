//! `/api/v1/leases/{network}/{address}/transfer`.

use std::sync::Arc;

use axum::{extract::State as Shared, response::Response};
use fipd_core::{Answer, Holder, Lease, LeaseKey, Ledger, Request, Tenant, Transfer};
use http::StatusCode;

use super::leases::{lease_text, state_of};
use crate::api::{
    access::auth::Caller,
    convert,
    etag::{IfMatch, State, tagged},
    extract::{Body, Path},
    problem::Problem,
    wire::{LeaseView, TransferRequest},
};
use crate::ipam::Ipam;

/// Gives the lease of an address to another owner; it is never free in between. Asking again answers the same.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/transfer", tag = "leases",
    request_body = TransferRequest, params(("network" = String, Path), ("address" = String, Path),
        ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = LeaseView, headers(("ETag" = String))), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn transfer(
    Shared(ipam): Shared<Ipam>,
    caller: Caller,
    Path((network, address)): Path<(String, String)>,
    if_match: IfMatch,
    Body(body): Body<TransferRequest>,
) -> Result<Response, Problem> {
    let place = (&*network, &*address);
    let lease = hand(&ipam, &caller, place, if_match, &body).await?;
    let view = ipam.read(|ledger| convert::lease_view(ledger, &lease));
    Ok(tagged(StatusCode::OK, &State::of(&*lease), &view))
}

/// Transfers the lease of an address in a network.
pub(in crate::api) async fn hand(
    ipam: &Ipam,
    caller: &Caller,
    (network, address): (&str, &str),
    if_match: IfMatch,
    body: &TransferRequest,
) -> Result<Arc<Lease>, Problem> {
    let ask = ipam.read(|ledger| {
        let key = caller.within(ledger).key(network, address)?;
        to_transfer(ledger, key, body, caller)
    })?;
    let key = ask.key;
    let guard = if_match.guard(lease_text(key), move |ledger| state_of(ledger, key));
    let answer = caller
        .submit_if(ipam, Request::Transfer(ask), guard)
        .await?;
    let Answer::Transferred { lease } = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(lease)
}

fn to_transfer(
    ledger: &Ledger,
    key: LeaseKey,
    body: &TransferRequest,
    caller: &Caller,
) -> Result<Transfer, Problem> {
    if body.reason.trim().is_empty() {
        let allowed = "a few words for the audit log";
        return Err(Problem::invalid("reason", &*body.reason, allowed));
    }
    let tenant = body
        .tenant
        .as_deref()
        .map(|tenant| convert::text("tenant", tenant))
        .transpose()?;
    let owner = |field: &str, text: &str| {
        convert::owner(ledger, text).map_err(|problem| problem.about(field, text))
    };
    let from = match body.from.as_deref() {
        None => None,
        Some(text) => {
            let identity = owner("from", text)?;
            let instance = match body.from_instance.as_deref() {
                Some(instance) => convert::text("from_instance", instance)?,
                None => held_as(ledger, key, &identity),
            };
            Some(Holder { identity, instance })
        }
    };
    Ok(Transfer {
        key,
        from,
        to: Holder {
            identity: owner("to", &body.to)?,
            instance: convert::text("instance", &body.instance)?,
        },
        tenant: tenant.map(Tenant),
        force: body.force,
        actor: Arc::clone(&caller.actor),
        reason: convert::text("reason", &body.reason)?,
    })
}

/// The instance with which the identity holds the address; empty where it does not.
fn held_as(ledger: &Ledger, key: LeaseKey, identity: &fipd_core::Identity) -> fipd_core::Text {
    let members = ledger.lease(key.canonical());
    let mut members = members.into_iter().flat_map(|lease| &lease.members);
    members
        .find(|member| member.holder.identity == *identity)
        .map_or_else(|| "".into(), |member| Arc::clone(&member.holder.instance))
}
