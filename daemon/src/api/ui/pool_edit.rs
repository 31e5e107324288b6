//! Making, changing and deleting a pool by hand: a form, what it would do, and then the deed.
//!
//! What the form says is carried from step to step unseen; nothing is kept in between. An edit is of the edition that
//! was shown: where somebody else was faster, what they set stands beside what was typed.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Answer, Ledger, Origin, Pool, PoolEdit, PoolSpec, Refusal, Request};
use fipd_web_ui::{Field, Form, FormPage, Nav, links};
use http::StatusCode;

use super::{
    change::check_reason,
    page::{Answered, Failure, go_to, page_as},
    pool::find,
    pool_form::{beside, blame, form, spec, typed},
    pool_preview::{About, Would, deletion, show, titles, trail},
};
use crate::api::ui::session_extract::{LONG_FORM, Place, Posted, Visitor};
use crate::{
    api::{Api, problem::Problem},
    ipam::IpamError,
};

pub async fn new(State(api): State<Arc<Api>>, visitor: Visitor) -> Answered {
    visitor.must_administer()?;
    let empty = api.ipam.read(|ledger| form(ledger, None));
    Ok(ask(&visitor, None, StatusCode::OK, empty))
}

pub async fn create(State(api): State<Arc<Api>>, posted: Posted<LONG_FORM>) -> Answered {
    posted.visitor.must_administer()?;
    step(&api, &posted, None).await
}

pub async fn edit(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(id): Place<String>,
) -> Answered {
    let pool = own(&api, &visitor, &id)?;
    let form = api.ipam.read(|ledger| present(ledger, &pool));
    Ok(ask(&visitor, Some(&pool), StatusCode::OK, form))
}

pub async fn update(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted<LONG_FORM>,
) -> Answered {
    let pool = own(&api, &posted.visitor, &id)?;
    step(&api, &posted, Some(&pool)).await
}

/// Asks whether the pool shall go.
pub async fn ask_delete(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(id): Place<String>,
) -> Answered {
    let pool = own(&api, &visitor, &id)?;
    Ok(deletion(&api, &visitor, &pool, StatusCode::OK, None))
}

pub async fn delete(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    let pool = own(&api, &visitor, &id)?;
    if fields.get("generation") != pool.generation.to_string() {
        let error = "The pool has changed since this was asked. This is how it is now.".to_owned();
        let status = StatusCode::CONFLICT;
        return Ok(deletion(&api, &visitor, &pool, status, Some(error)));
    }
    let request = Request::DeletePool {
        pool: pool.id,
        actor: visitor.actor(),
    };
    if let Err(error) = api.ipam.submit(request).await {
        let problem = Problem::from(error);
        let (status, error) = (problem.status_code(), problem.detail.into_string());
        return Ok(deletion(&api, &visitor, &pool, status, Some(error)));
    }
    visitor.tell(true, format!("Pool {} was deleted.", pool.spec.name), None);
    Ok(go_to(links::POOLS))
}

/// A pool that is changed here; a mirror says what its object says.
fn own(api: &Api, visitor: &Visitor, id: &str) -> Result<Arc<Pool>, Failure> {
    visitor.must_administer()?;
    let pool = find(api, visitor, id)?;
    match &pool.spec.origin {
        Origin::Own => Ok(pool),
        Origin::Mirror { object, .. } => {
            let what = format!(
                "Pool {} follows the object {object} of its cluster and is not changed here.",
                pool.spec.name
            );
            let next = "Change that object; the pool follows within seconds.";
            Err(visitor.failure(StatusCode::CONFLICT, what, next))
        }
    }
}

/// The form as the pool is.
fn present(ledger: &Ledger, pool: &Pool) -> Form {
    let mut form = form(ledger, Some(&pool.spec));
    form.set("generation", pool.generation.to_string());
    form
}

/// From what was posted to the next page: the form again, what it would do, or the deed.
async fn step<const MOST: usize>(api: &Api, posted: &Posted<MOST>, about: About<'_>) -> Answered {
    let Posted { visitor, fields } = posted;
    let before = about.map(|pool| &pool.spec);
    let mut form = api.ipam.read(|ledger| form(ledger, before));
    typed(&mut form, fields);
    if fields.get("step") == "edit" {
        return Ok(ask(visitor, about, StatusCode::OK, form));
    }
    if let Some(pool) = about
        && form.value("generation") != pool.generation.to_string()
    {
        let form = api.ipam.read(|ledger| changed(ledger, pool, form));
        return Ok(ask(visitor, about, StatusCode::CONFLICT, form));
    }
    let read = api.ipam.read(|ledger| {
        let spec = spec(ledger, &mut form, before)?;
        let preview = ledger.preview_pool(about.map(|pool| pool.id), &spec);
        let preview = preview.map_err(|refusal| blame(&mut form, &refusal.into()));
        Some((spec, preview.ok()?))
    });
    let Some((spec, preview)) = read else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(visitor, about, status, form));
    };
    let mut reason = Field {
        value: fields.get("reason").to_owned(),
        error: None,
    };
    let asked = fields.get("step") == "do";
    let force = asked && !preview.leaving.is_empty();
    if !asked || !check_reason(&mut reason, force) {
        let status = match reason.error {
            None => StatusCode::OK,
            Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let would = Would {
            about,
            spec,
            preview,
            reason,
            error: None,
        };
        return Ok(show(api, visitor, status, &form, would));
    }
    match submit(api, visitor, about, &spec, (force, &reason.value)).await {
        Ok(answer) => Ok(done(visitor, about, &answer)),
        Err(IpamError::Refused(Refusal::Stale { .. })) => {
            let now = about.and_then(|pool| api.ipam.read(|ledger| ledger.pool(pool.id).cloned()));
            let form = api.ipam.read(|ledger| match &now {
                Some(pool) => changed(ledger, pool, form),
                None => form,
            });
            Ok(ask(visitor, now.as_ref(), StatusCode::CONFLICT, form))
        }
        Err(error) => {
            let problem = Problem::from(error);
            let (status, error) = (problem.status_code(), problem.detail.into_string());
            let would = Would {
                about,
                spec,
                preview,
                reason,
                error: Some(error),
            };
            Ok(show(api, visitor, status, &form, would))
        }
    }
}

async fn submit(
    api: &Api,
    visitor: &Visitor,
    about: About<'_>,
    spec: &PoolSpec,
    (force, reason): (bool, &str),
) -> Result<Answer, IpamError> {
    let (spec, actor) = (spec.clone(), visitor.actor());
    let request = match about {
        None => Request::CreatePool { spec, actor },
        Some(pool) => Request::UpdatePool(PoolEdit {
            pool: pool.id,
            spec,
            if_generation: Some(pool.generation),
            force,
            actor,
            reason: reason.into(),
        }),
    };
    api.ipam.submit(request).await
}

fn done(visitor: &Visitor, about: About<'_>, answer: &Answer) -> Response {
    let Answer::Pool(pool) = answer else {
        return go_to(links::POOLS);
    };
    let verb = if about.is_some() { "changed" } else { "made" };
    visitor.tell(true, format!("Pool {} was {verb}.", pool.spec.name), None);
    go_to(&links::pool(pool.id.0))
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
        shell: visitor.shell(Nav::Pools),
        title,
        trail: trail(about),
        lead: Vec::new(),
        caution: String::new(),
        form: Form { target, ..form },
        back,
    };
    page_as(status, &page)
}
