//! `/api/v1/reload`, `/clock` and `/fip-v1/rotate-key`.

use std::sync::Arc;

use axum::{Json, extract::State};

use crate::{
    api::{
        access::auth::Caller,
        fip_v1::{FipV1, TokenError},
        problem::{Code, Problem},
        wire::{ClockView, Outcome, ReloadStanding, ReloadView},
    },
    clock::{self, Synchronised},
    ipam::Ipam,
    reload::{NotReloaded, Reload},
};

/// Reads configuration, kubeconfigs and certificates again, as SIGHUP does, and says what came of it. A file with errors changes
/// nothing.
#[utoipa::path(post, path = "/api/v1/reload", tag = "admin", responses((status = 200, body = ReloadView)))]
pub async fn reload(
    State(reload): State<Reload>,
    caller: Caller,
) -> Result<Json<ReloadView>, Problem> {
    tracing::info!(actor = %caller.actor, "the configuration is to be read again");
    let done = reload.now().await?;
    let list = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
    Ok(Json(ReloadView {
        applied: list(done.applied),
        needs_restart: list(done.needs_restart),
    }))
}

/// How the configuration in force stands to the file.
#[utoipa::path(get, operation_id = "standing", path = "/api/v1/reload", tag = "admin",
    responses((status = 200, body = ReloadStanding)))]
pub async fn reload_standing(State(reload): State<Reload>) -> Json<ReloadStanding> {
    let standing = reload.standing();
    let keys = standing.needs_restart.into_iter().map(str::to_owned);
    Json(ReloadStanding {
        failed: standing.failed.map(|why| why.to_string()),
        needs_restart: keys.collect(),
    })
}

impl From<NotReloaded> for Problem {
    fn from(error: NotReloaded) -> Self {
        let detail = error.to_string();
        let code = match error {
            NotReloaded::Invalid(_) => Code::Invalid,
            NotReloaded::Stopping => Code::Unavailable,
        };
        Self::new(code, detail)
    }
}

/// The time of the address book beside the host's clock.
#[utoipa::path(get, operation_id = "show", path = "/api/v1/clock", tag = "admin", responses((status = 200, body = ClockView)))]
pub async fn show_clock(State(ipam): State<Ipam>) -> Json<ClockView> {
    Json(view(&ipam))
}

/// Lets a forward jump of the host's clock count that the kernel does not confirm.
#[utoipa::path(post, operation_id = "accept", path = "/api/v1/clock/accept", tag = "admin", responses((status = 200, body = ClockView)))]
pub async fn accept_clock(
    State(ipam): State<Ipam>,
    caller: Caller,
) -> Result<Json<ClockView>, Problem> {
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

/// Lets another key sign the tokens of LB controllers. Those that the last one signed count until they end.
#[utoipa::path(post, path = "/api/v1/fip-v1/rotate-key", tag = "admin", responses((status = 200, body = Outcome)))]
pub async fn rotate_key(
    State(fip_v1): State<Arc<FipV1>>,
    caller: Caller,
) -> Result<Json<Outcome>, Problem> {
    let rotated = fip_v1.rotate_key(caller.actor).await;
    let key = rotated.map_err(|error| match error {
        TokenError::Ledger(error) => Problem::from(error),
        error @ (TokenError::Make(_) | TokenError::Unusable { .. } | TokenError::Random) => {
            Problem::new(Code::Internal, error.to_string())
        }
    })?;
    Ok(Json(Outcome {
        message: format!("key {key} signs the tokens of LB controllers"),
    }))
}
