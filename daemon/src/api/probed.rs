//! `/api/v1/leases/{network}/{address}/probed`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State as Shared,
    response::{IntoResponse as _, Response},
};
use fipd_core::{LeaseKey, Ledger, ProbeVerdict, Probed, Request};
use http::StatusCode;

use super::{
    Api,
    auth::Caller,
    convert,
    extract::{Body, Path},
    problem::Problem,
    wire::{LeaseView, ProbedReport},
};

/// Reports what the check of an address with state `probing` has come to. Reporting the same again changes nothing. Answers
/// the lease of the address as it is then; nothing (204) where it has left the scope of who asks, as an address that is taken
/// is no tenant's.
#[utoipa::path(post, path = "/api/v1/leases/{network}/{address}/probed", tag = "leases",
    request_body = ProbedReport, params(("network" = String, Path), ("address" = String, Path)),
    responses((status = 200, body = LeaseView), (status = 204), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn probed(
    Shared(api): Shared<Arc<Api>>,
    caller: Caller,
    Path((network, address)): Path<(String, String)>,
    Body(body): Body<ProbedReport>,
) -> Result<Response, Problem> {
    let report = api.ipam.read(|ledger| {
        let key = caller.within(ledger).key(&network, &address)?;
        report(ledger, key, &body, &caller)
    })?;
    let key = report.key.canonical();
    api.submit(&caller, Request::Probed(report)).await?;
    let view = api.ipam.read(|ledger| {
        let lease = caller.within(ledger).lease(key)?;
        Some(convert::lease_view(ledger, lease))
    });
    Ok(match view {
        Some(view) => Json(view).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

fn report(
    ledger: &Ledger,
    key: LeaseKey,
    body: &ProbedReport,
    caller: &Caller,
) -> Result<Probed, Problem> {
    let verdict = match (body.verdict.as_str(), body.by.as_deref()) {
        ("taken", by) => ProbeVerdict::Taken {
            by: convert::text("by", by.unwrap_or_default())?,
        },
        ("free", None) => ProbeVerdict::Free,
        ("free", Some(by)) => {
            let allowed = "nothing where the address is free";
            return Err(Problem::invalid("by", by, allowed));
        }
        (other, _) => return Err(Problem::invalid("verdict", other, "free or taken")),
    };
    Ok(Probed {
        key,
        identity: convert::owner(ledger, &body.owner)?,
        verdict,
        actor: caller.actor.clone(),
    })
}
