//! `/api/v1/users`: people who sign in with a password.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use fipd_core::Account;
use http::StatusCode;

use super::{
    Api,
    accounts::AccountError,
    admin::plain_name,
    auth::Caller,
    extract::{Body, Path},
    problem::{Code, Problem},
    wire::{UserCreate, UserList, UserPatch, UserView},
};
use crate::clock;

/// All users.
#[utoipa::path(get, path = "/api/v1/users", tag = "users", responses((status = 200, body = UserList)))]
pub async fn list(State(api): State<Arc<Api>>) -> Json<UserList> {
    let users = api
        .ipam
        .read(|ledger| ledger.accounts().map(view).collect());
    Json(UserList { users })
}

/// Makes a user.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", request_body = UserCreate,
    responses((status = 201, body = UserView), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Body(body): Body<UserCreate>,
) -> Result<Response, Problem> {
    let name = plain_name(&body.name)?;
    // Before the costly hash; decided again by the ledger.
    if api.ipam.read(|ledger| ledger.account(name).is_some()) {
        return Err(fipd_core::Refusal::AccountExists(name.into()).into());
    }
    api.accounts
        .create(name, body.role, body.password.0, caller.actor)
        .await?;
    Ok((StatusCode::CREATED, Json(show(&api, name)?)).into_response())
}

/// Gives a user another role or password. The user's sessions end.
#[utoipa::path(patch, path = "/api/v1/users/{name}", tag = "users", params(("name" = String, Path)),
    request_body = UserPatch, responses((status = 200, body = UserView), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn update(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
    Body(body): Body<UserPatch>,
) -> Result<Json<UserView>, Problem> {
    show(&api, &name)?;
    let password = body.password.map(|password| password.0);
    api.accounts
        .edit(&name, body.role, password, caller.actor)
        .await?;
    show(&api, &name).map(Json)
}

/// Deletes a user and ends the user's sessions.
#[utoipa::path(delete, path = "/api/v1/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn delete(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    show(&api, &name)?;
    api.accounts.delete(&name, caller.actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn show(api: &Api, name: &str) -> Result<UserView, Problem> {
    let found = api.ipam.read(|ledger| ledger.account(name).map(view));
    found.ok_or_else(|| Problem::not_found("user", name))
}

fn view(account: &Account) -> UserView {
    UserView {
        name: account.name.to_string(),
        role: account.role,
        created: clock::rfc3339(account.created),
    }
}

impl From<AccountError> for Problem {
    fn from(error: AccountError) -> Self {
        let detail = error.to_string();
        match error {
            AccountError::Ipam(error) => error.into(),
            AccountError::Length { length } => {
                let mut problem =
                    Self::invalid("password", format!("{length} bytes"), "8 to 1024 bytes");
                problem.detail = detail.into();
                problem
            }
            AccountError::Random(_) | AccountError::Hash(_) | AccountError::File { .. } => {
                Self::new(Code::Internal, detail)
            }
        }
    }
}
