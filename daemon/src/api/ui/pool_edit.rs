//! Making, changing and deleting a pool by hand: a form, what it would do, and then the deed.
//!
//! What the form says is carried from step to step unseen; nothing is kept in between. An edit is of the edition that
//! was shown: where somebody else was faster, what they set stands beside what was typed.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Ledger, Pool, PoolPreview, PoolSpec};
use fipd_web_ui::{Form, FormPage, Nav, links};
use http::StatusCode;

use super::{
    change::WHY,
    forms::{AS_REST, beside, blame, filled, optional, require, typed},
    page::{Answered, Failure, go_to},
    pool::find,
    pool_form::{body, form, patch},
    pool_preview::{About, Would, deletion, show, titles, trail},
    session_extract::{LONG_FORM, PathParam, SubmittedForm, Visitor},
};
use crate::api::{
    access::auth::Caller,
    etag::IfMatch,
    extract::Path,
    page::Ask,
    problem::{Code, Problem},
    rest::{pool_preview, pools},
    wire::{PoolCreate, PoolPatch},
};
use crate::ipam::Ipam;

/// Why a form about an older state of the pool does not delete it.
const CHANGED: &str = "The pool has changed since this was asked. This is how it is now.";

pub async fn new(State(ipam): State<Ipam>, visitor: Visitor) -> Answered {
    let empty = ipam.read(|ledger| form(ledger, None));
    Ok(ask(&visitor, None, StatusCode::OK, empty))
}

pub async fn create(State(ipam): State<Ipam>, posted: SubmittedForm<LONG_FORM>) -> Answered {
    step(&ipam, &posted, None).await
}

pub async fn edit(
    State(ipam): State<Ipam>,
    visitor: Visitor,
    PathParam(id): PathParam<String>,
) -> Answered {
    let pool = own(&ipam, &visitor, &id)?;
    let form = ipam.read(|ledger| present(ledger, &pool));
    Ok(ask(&visitor, Some(&pool), StatusCode::OK, form))
}

pub async fn update(
    State(ipam): State<Ipam>,
    PathParam(id): PathParam<String>,
    posted: SubmittedForm<LONG_FORM>,
) -> Answered {
    let pool = own(&ipam, &posted.visitor, &id)?;
    step(&ipam, &posted, Some(&pool)).await
}

/// Asks whether the pool shall go.
pub async fn ask_delete(
    State(ipam): State<Ipam>,
    visitor: Visitor,
    PathParam(id): PathParam<String>,
) -> Answered {
    let pool = own(&ipam, &visitor, &id)?;
    Ok(deletion(&ipam, &visitor, &pool, StatusCode::OK, None))
}

pub async fn delete(
    State(ipam): State<Ipam>,
    PathParam(id): PathParam<String>,
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let pool = own(&ipam, &visitor, &id)?;
    let deleted = pools::delete(
        State(ipam.clone()),
        visitor.caller(),
        Path(pool.spec.name.to_string()),
        IfMatch::shown(fields.get("generation")),
    );
    if let Err(problem) = deleted.await {
        let (status, error) = match problem.code == Code::Stale {
            true => (StatusCode::CONFLICT, CHANGED.to_owned()),
            false => (problem.status_code(), problem.detail.into_string()),
        };
        let pool = own(&ipam, &visitor, &id)?;
        return Ok(deletion(&ipam, &visitor, &pool, status, Some(error)));
    }
    visitor.tell(true, format!("Pool {} was deleted.", pool.spec.name), None);
    Ok(go_to(links::POOLS))
}

/// A pool that is changed here; a mirror says what its object says.
fn own(ipam: &Ipam, visitor: &Visitor, id: &str) -> Result<Arc<Pool>, Failure> {
    let pool = find(ipam, visitor, id)?;
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

/// What REST is asked for.
#[derive(Clone)]
enum PoolBody {
    Create(PoolCreate),
    /// Of the pool of that name in that state.
    Update(String, IfMatch, PoolPatch),
}

impl PoolBody {
    fn of(form: &mut Form, about: About<'_>) -> Option<Self> {
        let create = body(form)?;
        Some(match about {
            None => Self::Create(create),
            Some(pool) => Self::Update(
                pool.spec.name.to_string(),
                IfMatch::shown(form.value("generation")),
                patch(create, form),
            ),
        })
    }

    fn look(self, ipam: &Ipam, caller: &Caller) -> Result<(PoolSpec, PoolPreview), Problem> {
        match self {
            Self::Create(body) => pool_preview::of_new(ipam, body),
            Self::Update(name, if_match, patch) => {
                let which = (name.as_str(), &if_match);
                let found = pool_preview::of_edit(ipam, caller, which, patch, Ask::step());
                found.map(|(_, found)| found)
            }
        }
    }

    async fn send(
        self,
        ipam: &Ipam,
        caller: &Caller,
        (force, reason): (bool, &str),
    ) -> Result<Arc<Pool>, Problem> {
        match self {
            Self::Create(body) => pools::make(ipam, caller, body).await,
            Self::Update(name, if_match, patch) => {
                let patch = PoolPatch {
                    force,
                    reason: optional(reason),
                    ..patch
                };
                pools::change(ipam, caller, (&name, &if_match), patch).await
            }
        }
    }
}

/// From what was posted to the next page: the form again, what it would do, or the deed.
async fn step<const MOST: usize>(
    ipam: &Ipam,
    posted: &SubmittedForm<MOST>,
    about: About<'_>,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = ipam.read(|ledger| form(ledger, about.map(|pool| &pool.spec)));
    typed(&mut form, fields);
    if fields.get("step") == "edit" {
        return Ok(ask(visitor, about, StatusCode::OK, form));
    }
    let Some(body) = PoolBody::of(&mut form, about) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(visitor, about, status, form));
    };
    let caller = visitor.caller();
    let (spec, preview) = match body.clone().look(ipam, &caller) {
        Ok(found) => found,
        Err(problem) => return Ok(again(ipam, visitor, about, form, &problem)),
    };
    let mut asked = filled(&["reason"], fields);
    let force = !preview.leaving.is_empty();
    let status = if fields.get("step") != "do" {
        StatusCode::OK
    } else if force && !require(&mut asked, "reason", WHY) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        match body
            .send(ipam, &caller, (force, asked.value("reason")))
            .await
        {
            Ok(pool) => return Ok(done(visitor, about, &pool)),
            Err(problem) if problem.code == Code::Stale => {
                return Ok(again(ipam, visitor, about, form, &problem));
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
    Ok(show(ipam, visitor, status, &form, would))
}

fn done(visitor: &Visitor, about: About<'_>, pool: &Pool) -> Response {
    let verb = if about.is_some() { "changed" } else { "made" };
    visitor.tell(true, format!("Pool {} was {verb}.", pool.spec.name), None);
    go_to(&links::pool(pool.id.0))
}

/// The form with what is wrong, or with what somebody else changed meanwhile.
fn again(
    ipam: &Ipam,
    visitor: &Visitor,
    about: About<'_>,
    mut form: Form,
    problem: &Problem,
) -> Response {
    let status = blame(&mut form, problem, AS_REST);
    let now = about.and_then(|pool| ipam.read(|ledger| ledger.pool(pool.id).cloned()));
    if let Some(pool) = now.as_ref().filter(|_| problem.code == Code::Stale) {
        form = ipam.read(|ledger| changed(ledger, pool, form));
    }
    ask(visitor, now.as_ref(), status, form)
}

/// What was typed, with what the pool has at present beside each field that differs; sent again, it is of this edition.
fn changed(ledger: &Ledger, pool: &Pool, mut form: Form) -> Form {
    beside(&present(ledger, pool), &mut form);
    form.set("generation", pool.generation.to_string());
    form.error = Some(format!(
        "Somebody else changed the pool meanwhile: it has edition {} now. What it has is said beside each field that \
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
