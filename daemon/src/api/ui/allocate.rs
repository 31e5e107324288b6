//! Giving an address by hand.

use std::{net::IpAddr, sync::Arc};

use axum::{extract::State, response::Response};
use fipd_core::{Allocate, Answer, Holder, Identity, Pool, Refusal, Request, Want};
use fipd_web_ui::{AllocateForm, AllocatePage, Field, Nav, links};
use http::StatusCode;

use super::{
    fields::{Fields, with_query},
    page::{Answered, go_to, page_as},
    pool::{example, find},
};
use crate::api::ui::session_extract::{Place, Posted, Query, Visitor};
use crate::{
    api::{Api, convert::owner, problem::Problem},
    ipam::IpamError,
};

/// The form alone, with what the query says filled in.
pub async fn show(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(id): Place<String>,
    Query(query): Query,
) -> Answered {
    visitor.must_write()?;
    let pool = find(&api, &visitor, &id)?;
    Ok(form_page(
        &api,
        &visitor,
        &pool,
        StatusCode::OK,
        filled(&pool, &query),
    ))
}

/// Allocates, or shows the form again with what is wrong.
pub async fn submit(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_write()?;
    let pool = find(&api, &visitor, &id)?;
    let mut form = filled(&pool, &fields);
    let Some((identity, address)) = parse(&api, &mut form) else {
        return Ok(form_page(
            &api,
            &visitor,
            &pool,
            StatusCode::UNPROCESSABLE_ENTITY,
            form,
        ));
    };
    let request = Request::Allocate(Allocate {
        holder: Holder {
            identity,
            instance: "".into(),
        },
        tenant: None,
        wants: vec![Want {
            pool: pool.id.into(),
            address,
            count: 1,
        }],
        waiting_since: None,
        by_admin: visitor.is_admin(),
        share: None,
        probe: false,
        actor: visitor.actor(),
    });
    let status = match api.submit_for_user(request).await {
        Ok(answer) => return Ok(granted(&visitor, &pool, &answer)),
        Err(error) => explain(&mut form, error),
    };
    Ok(form_page(&api, &visitor, &pool, status, form))
}

/// To the pool's page, which says what was given.
fn granted(visitor: &Visitor, pool: &Pool, answer: &Answer) -> Response {
    let here = links::pool(pool.id.0);
    let Answer::Granted { leases, fresh } = answer else {
        return go_to(&here);
    };
    let Some(key) = leases.first().map(|lease| lease.key) else {
        return go_to(&here);
    };
    let text = match (fresh, leases.len()) {
        (true, _) => format!("{} was allocated.", key.address),
        (false, 1) => format!(
            "Nothing was changed: the owner holds {} already.",
            key.address
        ),
        (false, many) => {
            format!("Nothing was changed: the owner holds {many} addresses of the pool already.")
        }
    };
    let link = (
        links::lease(key.network.0, key.address),
        "See the lease".to_owned(),
    );
    visitor.tell(true, text, Some(link));
    let at = if key.address.is_ipv4() {
        key.address.to_string()
    } else {
        String::new()
    };
    go_to(&with_query(&here, &[("at", &at)]))
}

fn filled(pool: &Pool, fields: &Fields) -> AllocateForm {
    let field = |name| Field {
        value: fields.get(name).to_owned(),
        error: None,
    };
    AllocateForm {
        pool: pool.id.0,
        owner: field("owner"),
        address: field("address"),
        ..AllocateForm::default()
    }
}

/// Owner and address; `None` with the mistakes noted beside the fields.
fn parse(api: &Api, form: &mut AllocateForm) -> Option<(Identity, Option<IpAddr>)> {
    let identity = api.ipam.read(|ledger| {
        owner(ledger, &form.owner.value).map_err(|problem| problem.detail.into_string())
    });
    form.owner.error = match &identity {
        Ok(_) => None,
        Err(_) if form.owner.value.is_empty() => Some("Say who will hold the address.".to_owned()),
        Err(detail) => Some(detail.clone()),
    };
    let text = &form.address.value;
    let address: Option<Result<IpAddr, _>> = (!text.is_empty()).then(|| text.parse());
    if let Some(Err(_)) = address {
        form.address.error = Some("That is no address.".to_owned());
    }
    match (identity, address.transpose()) {
        (Ok(identity), Ok(address)) => {
            Some((identity, address.map(|address| address.to_canonical())))
        }
        (Err(_), _) | (_, Err(_)) => None,
    }
}

/// Puts a refusal beside the field it is about.
fn explain(form: &mut AllocateForm, error: IpamError) -> StatusCode {
    let text = error.to_string();
    let IpamError::Refused(refusal) = &error else {
        form.error = Some(text);
        return Problem::from(error).status_code();
    };
    if matches!(refusal, Refusal::Invalid { .. }) {
        form.owner.error = Some(text);
    } else if matches!(refusal, Refusal::Exhausted { .. }) {
        form.error = Some(text.split(';').next().unwrap_or_default().to_owned());
    } else if refusal.field().is_some_and(|(name, _)| name == "address") {
        form.address.error = Some(text);
    } else {
        form.error = Some(text);
    }
    Problem::from(error).status_code()
}

fn form_page(
    api: &Api,
    visitor: &Visitor,
    pool: &Pool,
    status: StatusCode,
    form: AllocateForm,
) -> Response {
    let example = api.ipam.read(|ledger| example(ledger, pool));
    let page = AllocatePage {
        shell: visitor.shell(Nav::Pools),
        pool_name: pool.spec.name.to_string(),
        form: AllocateForm { example, ..form },
    };
    page_as(status, &page)
}
