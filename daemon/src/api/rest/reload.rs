//! `/api/v1/reload`.

use axum::{Json, extract::State};

use crate::api::{
    access::auth::Caller,
    problem::{Code, Problem},
    wire::{ReloadStanding, ReloadView},
};
use crate::reload::{NotReloaded, Reload};

/// Reads configuration, kubeconfigs and certificates again, as SIGHUP does, and says what came of it. A file with errors changes
/// nothing.
#[utoipa::path(post, path = "/api/v1/reload", tag = "admin",
    responses((status = 200, body = ReloadView), (status = 422, body = Problem)))]
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
#[utoipa::path(get, path = "/api/v1/reload", tag = "admin",
    responses((status = 200, body = ReloadStanding)))]
pub async fn standing(State(reload): State<Reload>) -> Json<ReloadStanding> {
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
