//! Giving an address by hand, or keeping one for somebody who comes later.

use std::{net::IpAddr, sync::Arc};

use axum::{Json, response::Response};
use fipd_core::{LeaseKey, LeaseState, Ledger, Pool};
use fipd_web_ui::{AllocateForm, AllocatePage, Form, FormPage, Input, InputKind, Nav, links};
use http::StatusCode;

use super::{
    fields::with_query,
    forms::{Words, blame, filled, optional, time, typed},
    page::{Answered, go_to, page_as},
    pool::{example, find},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    convert,
    extract::Body,
    problem::{Code, Problem},
    rest::leases,
    wire::{Allocate, Granted, ReserveRequest, Want},
};

const FIELDS: [&str; 2] = ["owner", "address"];
const WORDS: Words = |field, value| match (field, value) {
    ("owner", "") => Some("Say who will hold the address."),
    ("address", _) => Some("That is no address."),
    _ => None,
};

/// The form alone, with what the query says filled in.
pub async fn ask(
    visitor: Visitor,
    PathParam(id): PathParam<String>,
    Query(query): Query,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let form = filled(&FIELDS, &query);
    Ok(form_page(&visitor, &pool, StatusCode::OK, form))
}

/// Allocates, or shows the form again with what is wrong.
pub async fn allocate(
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
    match leases::allocate(visitor.requester(), Body(body)).await {
        Ok((status, Json(granted))) => {
            let fresh = status == StatusCode::CREATED;
            Ok(allocated(&visitor, &pool, fresh, &granted))
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
fn allocated(visitor: &Visitor, pool: &Pool, fresh: bool, granted: &Granted) -> Response {
    let here = links::pool(pool.id.0);
    let Some(first) = granted.leases.first() else {
        return go_to(&here);
    };
    let address = first.address;
    let what = first.what();
    let text = match (fresh, granted.leases.len()) {
        (true, _) => format!("{what} was allocated."),
        (false, 1) => format!("Nothing was changed: the owner holds {what} already."),
        (false, many) => {
            format!("Nothing was changed: the owner holds {many} leases of the pool already.")
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
        allocation_length: pool.spec.allocation_length,
        form: AllocateForm {
            pool: pool.id.0,
            inputs: form,
            example: visitor.read(|ledger| example(ledger, pool)),
        },
    };
    page_as(status, &page)
}

const RESERVE_WORDS: Words = |field, value| match (field, value) {
    ("owner", "") => Some("Say who will come for it."),
    ("address", _) => Some("That is no address."),
    ("until", _) => Some("Write a day and a time to come, such as 2030-03-01T12:00."),
    _ => None,
};

pub async fn ask_reserve(visitor: Visitor, Query(query): Query) -> Answered {
    let mut form = reserve_form();
    typed(&mut form, &query);
    Ok(reserve_page(&visitor, StatusCode::OK, form))
}

/// Reserves, or shows the form again with what is wrong.
pub async fn reserve(SubmittedForm { visitor, fields }: SubmittedForm) -> Answered {
    let mut form = reserve_form();
    typed(&mut form, &fields);
    let kept = match visitor.read(|ledger| body(ledger, &form)) {
        Ok(body) => leases::reserve(visitor.requester(), Body(body)).await,
        Err(problem) => Err(problem),
    };
    match kept {
        Ok((_, Json(granted))) => Ok(reserved(&visitor, &granted)),
        Err(problem) => {
            let status = blame(&mut form, &problem, RESERVE_WORDS);
            Ok(reserve_page(&visitor, status, form))
        }
    }
}

fn reserve_form() -> Form {
    let inputs = vec![
        Input::new("pool", "Pool")
            .note("or an address below")
            .hint("Its next free address is kept."),
        Input::new("address", "Address")
            .note("optional")
            .hint("This one and no other, such as 10.0.0.7; a prefix such as 2001:db8:0:3::/64 of a pool of those."),
        Input::new("owner", "Owner")
            .required()
            .hint("SYSTEM/[CLUSTER/]KIND/NAMESPACE/NAME, for example fipd/host/lab/printer-7. Whoever comes by this name gets it."),
        Input::new("tenant", "Tenant")
            .note("optional")
            .hint("Who is charged for it."),
        Input::new("until", "Until (UTC)")
            .note("optional")
            .kind(InputKind::Time)
            .hint("Then it is free again. Empty: until somebody releases it."),
    ];
    Form::new(links::RESERVE, "Reserve", inputs)
}

fn reserve_page(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let lead = "Keeps an address for a service that comes later. Nobody else gets it until then.";
    let page = FormPage {
        lead: vec![lead.to_owned()],
        ..FormPage::below(links::LEASES, "Leases", "Reserve an address", form)
    };
    visitor.ask(Nav::Leases, status, page)
}

fn body(ledger: &Ledger, form: &Form) -> Result<ReserveRequest, Problem> {
    let address = optional(form.value("address"));
    let pool = match (form.value("pool"), &address) {
        ("", Some(address)) => pool_of(ledger, address)?,
        ("", None) => return Err(wrong("pool", "Name a pool, or an address of one.")),
        (name, _) => name.to_owned(),
    };
    Ok(ReserveRequest {
        owner: form.value("owner").to_owned(),
        tenant: optional(form.value("tenant")),
        wants: vec![Want {
            pool: Some(pool),
            address,
            ..Want::default()
        }],
        until: time(form.value("until")),
        lasts: None,
    })
}

/// The only pool that gives the address.
fn pool_of(ledger: &Ledger, address: &str) -> Result<String, Problem> {
    let (address, length) = convert::prefix("address", address)?;
    let networks = ledger.networks().take(Ledger::SCAN);
    let keys = networks.map(|network| LeaseKey {
        network: network.id,
        address,
    });
    let pools = keys.flat_map(|key| ledger.pools_at(key));
    let giving = pools.filter_map(|(id, gives)| ledger.pool(id).filter(|_| gives));
    let fits = |pool: &&Arc<Pool>| length.is_none_or(|length| length == pool.spec.lease_length());
    let giving = giving.filter(fits);
    match giving.collect::<Vec<_>>().as_slice() {
        [pool] => Ok(pool.spec.name.to_string()),
        [] => Err(wrong("address", "No pool gives this address.")),
        _ => Err(wrong("pool", "Several pools give this address: name one.")),
    }
}

fn wrong(field: &str, text: &str) -> Problem {
    let mut problem = Problem::new(Code::NotFound, text);
    problem.field = Some(field.into());
    problem
}

fn reserved(visitor: &Visitor, granted: &Granted) -> Response {
    let Some(lease) = granted.leases.first() else {
        return go_to(links::LEASES);
    };
    let address = lease.address;
    let what = lease.what();
    let text = match lease.state {
        LeaseState::Reserved => format!("{what} is reserved."),
        LeaseState::Allocated
        | LeaseState::Probing
        | LeaseState::Quarantined
        | LeaseState::Orphaned => {
            format!("Nothing was changed: that owner uses {what} already.")
        }
    };
    let network = visitor.read(|ledger| {
        let network = ledger.network_by_name(&lease.network);
        network.map(|network| network.id.0)
    });
    let lease = network.map(|network| links::lease(network, address));
    visitor.done(lease.as_deref().unwrap_or(links::LEASES), text)
}
