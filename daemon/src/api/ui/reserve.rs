//! Keeping an address for somebody who comes later.

use axum::response::Response;
use fipd_core::{LeaseKey, LeaseState, Ledger};
use fipd_web_ui::{Form, FormPage, Input, InputKind, Nav, links};
use http::StatusCode;

use super::{
    forms::{Words, blame, optional, time, typed},
    page::{Answered, go_to},
    session_extract::{Query, SubmittedForm, Visitor},
};
use crate::api::{
    convert,
    problem::{Code, Problem},
    rest::leases::keep,
    wire::{Granted, ReserveRequest, Want},
};

const WORDS: Words = |field, value| match (field, value) {
    ("owner", "") => Some("Say who will come for it."),
    ("address", _) => Some("That is no address."),
    ("until", _) => Some("Write a day and a time to come, such as 2030-03-01T12:00."),
    _ => None,
};

pub async fn show(visitor: Visitor, Query(query): Query) -> Answered {
    let mut form = form();
    typed(&mut form, &query);
    Ok(ask(&visitor, StatusCode::OK, form))
}

/// Reserves, or shows the form again with what is wrong.
pub async fn submit(SubmittedForm { visitor, fields }: SubmittedForm) -> Answered {
    let mut form = form();
    typed(&mut form, &fields);
    let kept = match visitor.read(|ledger| body(ledger, &form)) {
        Ok(body) => keep(&visitor.ipam, &visitor.caller(), body).await,
        Err(problem) => Err(problem),
    };
    match kept {
        Ok((_, granted)) => Ok(reserved(&visitor, &granted)),
        Err(problem) => {
            let status = blame(&mut form, &problem, WORDS);
            Ok(ask(&visitor, status, form))
        }
    }
}

fn form() -> Form {
    let inputs = vec![
        Input::new("pool", "Pool")
            .note("or an address below")
            .hint("Its next free address is kept."),
        Input::new("address", "Address")
            .note("optional")
            .hint("This one and no other, such as 10.0.0.7."),
        Input::new("owner", "For whom")
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

fn ask(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
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
    let address = convert::address("address", address)?;
    let networks = ledger.networks().take(Ledger::SCAN);
    let keys = networks.map(|network| LeaseKey {
        network: network.id,
        address,
    });
    let pools = keys.flat_map(|key| ledger.pools_at(key));
    let giving = pools.filter_map(|(id, gives)| ledger.pool(id).filter(|_| gives));
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
    let text = match lease.state {
        LeaseState::Reserved => format!("{address} is reserved."),
        LeaseState::Allocated
        | LeaseState::Probing
        | LeaseState::Quarantined
        | LeaseState::Orphaned => {
            format!("Nothing was changed: that owner uses {address} already.")
        }
    };
    let network = visitor.read(|ledger| {
        let network = ledger.network_by_name(&lease.network);
        network.map(|network| network.id.0)
    });
    let lease = network.map(|network| links::lease(network, address));
    visitor.done(lease.as_deref().unwrap_or(links::LEASES), text)
}
