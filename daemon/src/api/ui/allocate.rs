//! Giving an address by hand.

use axum::response::Response;
use fipd_core::Pool;
use fipd_web_ui::{AllocateForm, AllocatePage, Form, Nav, links};
use http::StatusCode;

use super::{
    fields::with_query,
    forms::{Words, blame, filled, optional},
    page::{Answered, go_to, page_as},
    pool::{example, find},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    problem::Code,
    rest::leases::give,
    wire::{Allocate, Granted, Want},
};
use std::net::IpAddr;

const FIELDS: [&str; 2] = ["owner", "address"];
const WORDS: Words = |field, value| match (field, value) {
    ("owner", "") => Some("Say who will hold the address."),
    ("address", _) => Some("That is no address."),
    _ => None,
};

/// The form alone, with what the query says filled in.
pub async fn show(
    visitor: Visitor,
    PathParam(id): PathParam<String>,
    Query(query): Query,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let form = filled(&FIELDS, &query);
    Ok(form_page(&visitor, &pool, StatusCode::OK, form))
}

/// Allocates, or shows the form again with what is wrong.
pub async fn submit(
    PathParam(id): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let mut form = filled(&FIELDS, &fields);
    let body = Allocate {
        owner: form.value("owner").to_owned(),
        wants: vec![Want {
            pool: Some(pool.spec.name.to_string()),
            address: optional(form.value("address")),
            ..Want::default()
        }],
        ..Allocate::default()
    };
    match give(&visitor.ipam, &visitor.caller(), body).await {
        Ok((status, granted)) => {
            let fresh = status == StatusCode::CREATED;
            Ok(shown(&visitor, &pool, fresh, &granted))
        }
        Err(mut problem) => {
            if problem.code == Code::Exhausted {
                // What else there is to do is for those who choose the pool.
                let first = problem.detail.split(';').next().unwrap_or_default();
                problem.detail = first.into();
            }
            let status = blame(&mut form, &problem, WORDS);
            Ok(form_page(&visitor, &pool, status, form))
        }
    }
}

/// To the pool's page, which says what was given.
fn shown(visitor: &Visitor, pool: &Pool, fresh: bool, granted: &Granted) -> Response {
    let here = links::pool(pool.id.0);
    let Some(first) = granted.leases.first() else {
        return go_to(&here);
    };
    let address = first.address;
    let text = match (fresh, granted.leases.len()) {
        (true, _) => format!("{address} was allocated."),
        (false, 1) => format!("Nothing was changed: the owner holds {address} already."),
        (false, many) => {
            format!("Nothing was changed: the owner holds {many} addresses of the pool already.")
        }
    };
    let lease = links::lease(pool.spec.network.0, address);
    visitor.tell(true, text, Some((lease, "See the lease".to_owned())));
    let at = views::text(Some(address).filter(IpAddr::is_ipv4));
    go_to(&with_query(&here, &[("at", &at)]))
}

fn form_page(visitor: &Visitor, pool: &Pool, status: StatusCode, form: Form) -> Response {
    let page = AllocatePage {
        shell: visitor.shell(Nav::Pools),
        pool_name: pool.spec.name.to_string(),
        form: AllocateForm {
            pool: pool.id.0,
            inputs: form,
            example: visitor.read(|ledger| example(ledger, pool)),
        },
    };
    page_as(status, &page)
}
