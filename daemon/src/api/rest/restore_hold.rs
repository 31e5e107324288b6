//! `/api/v1/restore-hold`.

use axum::{Json, extract::State};
use fipd_core::{Ledger, Request};

use crate::api::{
    access::auth::Caller,
    convert,
    extract::Body,
    problem::Problem,
    wire::{LiftHold, RestoreHoldView},
};
use crate::{clock, ipam::Ipam};

/// Whether free addresses are held because a backup was restored, and until when.
#[utoipa::path(get, path = "/api/v1/restore-hold", tag = "admin",
    responses((status = 200, body = RestoreHoldView)))]
pub async fn show(State(ipam): State<Ipam>) -> Json<RestoreHoldView> {
    Json(ipam.read(view))
}

/// Gives free addresses again before the hold has ended. Lifting nothing succeeds.
#[utoipa::path(post, path = "/api/v1/restore-hold/lift", tag = "admin", request_body = LiftHold,
    responses((status = 200, body = RestoreHoldView), (status = 422, body = Problem)))]
pub async fn lift(
    State(ipam): State<Ipam>,
    caller: Caller,
    Body(LiftHold { reason }): Body<LiftHold>,
) -> Result<Json<RestoreHoldView>, Problem> {
    let request = Request::LiftHold {
        reason: convert::text("reason", &reason)?,
        actor: caller.actor,
    };
    ipam.submit(request).await?;
    Ok(Json(ipam.read(view)))
}

fn view(ledger: &Ledger) -> RestoreHoldView {
    let (epoch, hold) = (ledger.epoch(), ledger.restore_hold());
    let of_all = epoch.is_some_and(|epoch| epoch.hold.is_some());
    let networks = ledger.networks_held().filter(|_| !of_all);
    RestoreHoldView {
        held: hold.is_some(),
        networks: networks
            .take(Ledger::SCAN)
            .map(|network| network.name.to_string())
            .collect(),
        until: hold.map(|hold| clock::rfc3339(hold.until)),
        epoch: epoch.map_or(0, |epoch| epoch.number),
        restored: epoch.map(|epoch| clock::rfc3339(epoch.began)),
    }
}
