//! Making, changing and deleting a pool by hand: a form, what it would do, and then the deed.
//!
//! What the form says is carried from step to step unseen; nothing is kept in between. An edit is of the revision that
//! was shown: where somebody else was faster, what they set stands beside what was typed.

use std::sync::Arc;

use axum::response::Response;
use fipd_core::{Ledger, Pool, PoolPreview, PoolSpec};
use fipd_web_ui::{Form, FormPage, Nav, links};
use http::StatusCode;

use super::{
    change::WHY,
    forms::{AS_REST, beside, blame, filled, optional, require, typed},
    page::{Answered, Failure},
    pool::find,
    pool_form::{body, form, patch},
    pool_preview::{About, Would, deletion, show, titles, trail},
    session_extract::{LONG_FORM, PathParam, SubmittedForm, Visitor},
};
use crate::api::{
    etag::IfMatch,
    extract::Path,
    page::Ask,
    problem::{Code, Problem},
    rest::{pool_preview, pools},
    wire::{PoolCreate, PoolPatch},
};

/// Why a form about an older state of the pool does not delete it.
const CHANGED: &str = "The pool has changed since this was asked. This is how it is now.";

pub async fn new(visitor: Visitor) -> Answered {
    let empty = visitor.read(|ledger| form(ledger, None));
    Ok(ask(&visitor, None, StatusCode::OK, empty))
}

pub async fn create(posted: SubmittedForm<LONG_FORM>) -> Answered {
    step(&posted, None).await
}

pub async fn edit(visitor: Visitor, PathParam(id): PathParam<String>) -> Answered {
    let pool = own(&visitor, &id)?;
    let form = visitor.read(|ledger| present(ledger, &pool));
    Ok(ask(&visitor, Some(&pool), StatusCode::OK, form))
}

pub async fn update(
    PathParam(id): PathParam<String>,
    posted: SubmittedForm<LONG_FORM>,
) -> Answered {
    let pool = own(&posted.visitor, &id)?;
    step(&posted, Some(&pool)).await
}

/// Asks whether the pool shall go.
pub async fn ask_delete(visitor: Visitor, PathParam(id): PathParam<String>) -> Answered {
    let pool = own(&visitor, &id)?;
    Ok(deletion(&visitor, &pool, StatusCode::OK, None))
}

pub async fn delete(
    PathParam(id): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let pool = own(&visitor, &id)?;
    let deleted = pools::delete(
        visitor.requester(),
        Path(pool.spec.name.to_string()),
        IfMatch::shown(fields.get("generation")),
    );
    if let Err(problem) = deleted.await {
        let (status, error) = match problem.code == Code::Stale {
            true => (StatusCode::CONFLICT, CHANGED.to_owned()),
            false => (problem.status_code(), problem.detail.into_string()),
        };
        let pool = own(&visitor, &id)?;
        return Ok(deletion(&visitor, &pool, status, Some(error)));
    }
    let text = format!("Pool {} was deleted.", pool.spec.name);
    Ok(visitor.done(links::POOLS, text))
}

/// A pool that is changed here; a mirror says what its object says.
fn own(visitor: &Visitor, id: &str) -> Result<Arc<Pool>, Failure> {
    let pool = find(visitor, id)?;
    let next = "Change that object; the pool follows within seconds.";
    pools::refuse_mirror(&pool)
        .map_err(|problem| visitor.failure(problem.status_code(), problem.detail, next))?;
    Ok(pool)
}

/// The form as the pool is.
fn present(ledger: &Ledger, pool: &Pool) -> Form {
    let mut form = form(ledger, Some(&pool.spec));
    form.set("generation", pool.generation.to_string());
    form
}

/// What REST says of the pool that the form describes, or of the edit of this one.
fn look(
    visitor: &Visitor,
    about: About<'_>,
    form: &Form,
    create: PoolCreate,
) -> Result<(PoolSpec, PoolPreview), Problem> {
    let Some(pool) = about else {
        return pool_preview::of_new(&visitor.ipam, create);
    };
    let if_match = IfMatch::shown(form.value("generation"));
    let (which, patch) = ((&*pool.spec.name, &if_match), patch(create, form));
    let found = pool_preview::of_edit(&visitor.requester(), which, patch, Ask::step());
    found.map(|(_, found)| found)
}

/// The deed.
async fn send(
    visitor: &Visitor,
    about: About<'_>,
    form: &Form,
    create: PoolCreate,
    (force, reason): (bool, &str),
) -> Result<Arc<Pool>, Problem> {
    let requester = visitor.requester();
    let Some(pool) = about else {
        return pools::make(&requester, create).await;
    };
    let if_match = IfMatch::shown(form.value("generation"));
    let patch = PoolPatch {
        force,
        reason: optional(reason),
        ..patch(create, form)
    };
    pools::change(&requester, (&pool.spec.name, &if_match), patch).await
}

/// From what was posted to the next page: the form again, what it would do, or the deed.
async fn step<const MOST: usize>(posted: &SubmittedForm<MOST>, about: About<'_>) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = visitor.read(|ledger| form(ledger, about.map(|pool| &pool.spec)));
    typed(&mut form, fields);
    if fields.get("step") == "edit" {
        return Ok(ask(visitor, about, StatusCode::OK, form));
    }
    let Some(create) = body(&mut form, about.map(|pool| &pool.spec)) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(visitor, about, status, form));
    };
    let (spec, preview) = match look(visitor, about, &form, create.clone()) {
        Ok(found) => found,
        Err(problem) => return Ok(again(visitor, about, form, &problem)),
    };
    let mut asked = filled(&["reason"], fields);
    let force = !preview.leaving.is_empty();
    let status = if fields.get("step") != "do" {
        StatusCode::OK
    } else if force && !require(&mut asked, "reason", WHY) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        let reason = (force, asked.value("reason"));
        match send(visitor, about, &form, create, reason).await {
            Ok(pool) => return Ok(done(visitor, about, &pool)),
            Err(problem) if problem.code == Code::Stale => {
                return Ok(again(visitor, about, form, &problem));
            }
            Err(problem) => blame(&mut asked, &problem, AS_REST),
        }
    };
    let would = Would {
        about,
        spec,
        preview,
        asked,
    };
    Ok(show(visitor, status, &form, would))
}

fn done(visitor: &Visitor, about: About<'_>, pool: &Pool) -> Response {
    let verb = if about.is_some() { "changed" } else { "made" };
    let text = format!("Pool {} was {verb}.", pool.spec.name);
    visitor.done(&links::pool(pool.id.0), text)
}

/// The form with what is wrong, or with what somebody else changed meanwhile.
fn again(visitor: &Visitor, about: About<'_>, mut form: Form, problem: &Problem) -> Response {
    let status = blame(&mut form, problem, AS_REST);
    let now = about.and_then(|pool| visitor.read(|ledger| ledger.pool(pool.id).cloned()));
    if let Some(pool) = now.as_ref().filter(|_| problem.code == Code::Stale) {
        form = visitor.read(|ledger| changed(ledger, pool, form));
    }
    ask(visitor, now.as_ref(), status, form)
}

/// What was typed, with what the pool has at present beside each field that differs; sent again, it is of this revision.
fn changed(ledger: &Ledger, pool: &Pool, mut form: Form) -> Form {
    beside(&present(ledger, pool), &mut form);
    form.set("generation", pool.generation.to_string());
    form.error = Some(format!(
        "Somebody else changed the pool meanwhile: it has revision {} now. What it has is said beside each field that \
         differs; sending the form again replaces that by what stands in the fields.",
        pool.generation
    ));
    form
}

fn ask(visitor: &Visitor, about: About<'_>, status: StatusCode, form: Form) -> Response {
    let (title, target, back) = titles(about);
    let page = FormPage {
        title,
        trail: trail(about),
        form: Form { target, ..form },
        back,
        ..FormPage::default()
    };
    visitor.ask(Nav::Pools, status, page)
}
