//! `/api/v1/users`: people who sign in with a password.

use std::sync::Arc;

use axum::{Json, extract::State as Shared, response::Response};
use fipd_core::{Account, Action, Text};
use http::{HeaderMap, StatusCode};

use super::admin::plain_name;
use crate::{
    api::{
        access::{
            accounts::{AccountError, Accounts},
            auth::Caller,
        },
        etag::{IfMatch, IfNoneMatch, State, tagged},
        extract::{Body, Path, Query},
        page::Ask,
        problem::{Code, Problem},
        ui::Sessions,
        wire::{PageQuery, UserCreate, UserList, UserPatch, UserView},
    },
    ipam::Ipam,
};
use crate::{clock, ipam::Guard};

/// All users.
#[utoipa::path(get, path = "/api/v1/users", tag = "users", params(PageQuery), responses((status = 200, body = UserList)))]
pub async fn list(
    Shared(ipam): Shared<Ipam>,
    Query(query): Query<PageQuery>,
) -> Result<Json<UserList>, Problem> {
    let ask = Ask::<Text>::new(query.limit, query.cursor.as_deref())?;
    let (users, next) = ask.walk(|after, limit| {
        ipam.read(|ledger| {
            let accounts = ledger.accounts_after(after.as_deref());
            let page = Ask::<Text> { limit, after: None };
            page.of(
                accounts,
                |account| Text::clone(&account.name),
                |account| Some(view(account)),
            )
        })
    });
    Ok(Json(UserList { users, next }))
}

/// One user.
#[utoipa::path(get, path = "/api/v1/users/{name}", tag = "users", params(("name" = String, Path)),
    responses((status = 200, body = UserView, headers(("ETag" = String))), (status = 304)))]
pub async fn show(
    Shared(accounts): Shared<Accounts>,
    Path(name): Path<String>,
    known: IfNoneMatch,
) -> Result<Response, Problem> {
    let account = find(&accounts, &name)?;
    Ok(known.answer(&State::of(&account), &view(&account)))
}

/// Makes a user.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", request_body = UserCreate,
    responses((status = 201, body = UserView, headers(("ETag" = String)))))]
pub async fn create(
    Shared(accounts): Shared<Accounts>,
    caller: Caller,
    Body(body): Body<UserCreate>,
) -> Result<Response, Problem> {
    let name = plain_name(&body.name)?;
    // Before the costly hash; decided again by the ledger.
    if accounts.find(name).is_some() {
        return Err(fipd_core::Refusal::AccountExists(name.into()).into());
    }
    let made = accounts.create(name, body.role, body.password.0, caller.actor);
    made.await?;
    shown(&accounts, StatusCode::CREATED, name)
}

/// Gives a user another role or password, or lets nobody sign in as the user. The user's sessions end; tokens belong to
/// nobody and go on.
#[utoipa::path(patch, path = "/api/v1/users/{name}", tag = "users",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)), request_body = UserPatch,
    responses((status = 200, body = UserView, headers(("ETag" = String)))))]
pub async fn update(
    Shared(accounts): Shared<Accounts>,
    Shared(sessions): Shared<Arc<Sessions>>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Body(body): Body<UserPatch>,
) -> Result<Response, Problem> {
    // Before the costly hash; decided again by the ledger.
    if_match.check(
        &format!("user {name}"),
        Some(&State::of(&find(&accounts, &name)?)),
    )?;
    let ends = body.role.is_some() || body.password.is_some() || body.disabled.is_some();
    let guard = guard(if_match, &name);
    accounts.edit_if(&name, body, caller.actor, guard).await?;
    if ends {
        sessions.end_all(&name);
    }
    shown(&accounts, StatusCode::OK, &name)
}

/// Deletes a user and ends the user's sessions.
#[utoipa::path(delete, path = "/api/v1/users/{name}", tag = "users",
    params(("name" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 204), (status = 409, body = Problem)))]
pub async fn delete(
    Shared(accounts): Shared<Accounts>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    find(&accounts, &name)?;
    let guard = guard(if_match, &name);
    accounts.delete_if(&name, caller.actor, guard).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends all sessions of a user, or of somebody a provider vouches for, who may sign in again.
#[utoipa::path(delete, path = "/api/v1/users/{name}/sessions", tag = "users", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn sign_out(
    Shared(ipam): Shared<Ipam>,
    Shared(accounts): Shared<Accounts>,
    Shared(sessions): Shared<Arc<Sessions>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    if sessions.of(&name, &HeaderMap::new()).is_empty() {
        find(&accounts, &name)?;
        return Ok(StatusCode::NO_CONTENT);
    }
    note_sign_out(&ipam, &caller, &name).await?;
    sessions.end_all(&name);
    Ok(StatusCode::NO_CONTENT)
}

/// Notes in the audit log that an admin ends sessions of somebody.
pub(in crate::api) async fn note_sign_out(
    ipam: &Ipam,
    caller: &Caller,
    name: &str,
) -> Result<(), Problem> {
    let what = format!("{name}: signed out by an admin");
    let actor = caller.actor.clone();
    Ok(ipam.note(Action::AccountChanged, what, actor).await?)
}

fn find(accounts: &Accounts, name: &str) -> Result<Account, Problem> {
    let found = accounts.find(name);
    found.ok_or_else(|| Problem::not_found("user", name))
}

fn shown(accounts: &Accounts, status: StatusCode, name: &str) -> Result<Response, Problem> {
    let account = find(accounts, name)?;
    Ok(tagged(status, &State::of(&account), &view(&account)))
}

/// Refuses what is about another state of the user than that one.
fn guard(if_match: IfMatch, name: &str) -> Guard {
    let (what, name) = (format!("user {name}"), name.to_owned());
    if_match.guard(what, move |ledger| ledger.account(&name).map(State::of))
}

fn view(account: &Account) -> UserView {
    UserView {
        name: account.name.to_string(),
        role: account.role,
        created: clock::rfc3339(account.created),
        disabled: account.disabled,
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
