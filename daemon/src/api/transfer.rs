//! `/api/v1/leases/{network}/{address}/transfer`.

use std::sync::Arc;

use axum::{Json, extract::State};
use fipd_core::{Answer, Holder, LeaseKey, Ledger, Request, Tenant, Transfer};

use super::{
    Api,
    auth::Caller,
    convert,
    extract::{Body, Path},
    problem::Problem,
    wire::{LeaseView, TransferRequest},
};

/// Gives the lease of an address to another owner; it is never free in between. Asking again answers the same.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/transfer", tag = "leases",
    request_body = TransferRequest, params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn transfer(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path((network, address)): Path<(String, String)>,
    Body(body): Body<TransferRequest>,
) -> Result<Json<LeaseView>, Problem> {
    let address = convert::address("address", &address)?;
    let ask = api.ipam.read(|ledger| {
        let network = caller.within(ledger).network(&network)?.id;
        to_transfer(ledger, LeaseKey { network, address }, &body, &caller)
    })?;
    let answer = api.submit(&caller, Request::Transfer(ask)).await?;
    let Answer::Transferred { lease } = answer else {
        return Err(convert::unexpected(&answer));
    };
    Ok(Json(
        api.ipam.read(|ledger| convert::lease_view(ledger, &lease)),
    ))
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
