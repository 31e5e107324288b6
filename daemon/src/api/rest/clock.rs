//! `/api/v1/clock`.

use axum::{Json, extract::State};

use crate::api::{access::auth::Caller, problem::Problem, wire::ClockView};
use crate::{
    clock::{self, Synchronised},
    ipam::Ipam,
};

/// The time of the address book beside the host's clock.
#[utoipa::path(get, path = "/api/v1/clock", tag = "admin", responses((status = 200, body = ClockView)))]
pub async fn show(State(ipam): State<Ipam>) -> Json<ClockView> {
    Json(view(&ipam))
}

/// Lets a forward jump of the host's clock count that the kernel does not confirm.
#[utoipa::path(post, path = "/api/v1/clock/accept", tag = "admin", responses((status = 200, body = ClockView)))]
pub async fn accept(State(ipam): State<Ipam>, caller: Caller) -> Result<Json<ClockView>, Problem> {
    ipam.accept_clock(caller.actor).await?;
    Ok(Json(view(&ipam)))
}

fn view(ipam: &Ipam) -> ClockView {
    let time = ipam.time();
    let (kernel, reason) = match time.kernel {
        Synchronised::Yes => ("synchronised", None),
        Synchronised::No => ("not synchronised", None),
        Synchronised::Unknown(reason) => ("unknown", Some(reason)),
    };
    ClockView {
        book: clock::rfc3339(time.book),
        wall: clock::rfc3339(ipam.wall()),
        held_back_seconds: time.held_back.as_secs(),
        ahead_seconds: time.ahead.as_secs(),
        kernel: kernel.to_owned(),
        reason,
    }
}
