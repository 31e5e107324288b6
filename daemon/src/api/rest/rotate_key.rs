//! `/api/v1/fip-v1/rotate-key`.

use std::sync::Arc;

use axum::{Json, extract::State};

use crate::api::{
    access::auth::Caller,
    fip_v1::{FipV1, TokenError},
    problem::{Code, Problem},
    wire::Outcome,
};

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
