//! Keeping an address for somebody who comes later.

use std::{net::IpAddr, sync::Arc};

use axum::{extract::State, response::Response};
use fipd_core::{
    Allocate, Answer, Holder, LeaseKey, Ledger, PoolId, Refusal, Request, Reserve, Tenant, Want,
};
use fipd_web_ui::{Form, FormPage, Input, InputKind, Nav, links};
use http::StatusCode;

use super::{
    page::{Answered, go_to, page_as},
    pool_form::typed,
};
use crate::api::ui::session_extract::{Posted, Query, Visitor};
use crate::{
    api::{Api, convert, problem::Problem},
    clock,
    ipam::IpamError,
};

pub async fn show(visitor: Visitor, Query(query): Query) -> Answered {
    visitor.must_write()?;
    let mut form = form();
    typed(&mut form, &query);
    Ok(ask(&visitor, StatusCode::OK, form))
}

/// Reserves, or shows the form again with what is wrong.
pub async fn submit(State(api): State<Arc<Api>>, posted: Posted) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_write()?;
    let mut form = form();
    typed(&mut form, &fields);
    let Some(request) = api.ipam.read(|ledger| parse(ledger, &visitor, &mut form)) else {
        return Ok(ask(&visitor, StatusCode::UNPROCESSABLE_ENTITY, form));
    };
    match api.submit_for_user(Request::Reserve(request)).await {
        Ok(answer) => Ok(reserved(&visitor, &answer)),
        Err(error) => {
            explain(&mut form, &error);
            let status = Problem::from(error).status_code();
            Ok(ask(&visitor, status, form))
        }
    }
}

fn form() -> Form {
    Form {
        target: links::RESERVE.to_owned(),
        inputs: vec![
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
        ],
        button: "Reserve".to_owned(),
        ..Form::default()
    }
}

fn ask(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let page = FormPage {
        shell: visitor.shell(Nav::Leases),
        title: "Reserve an address".to_owned(),
        trail: vec![(links::LEASES.to_owned(), "Leases".to_owned())],
        lead: vec![
            "Keeps an address for a service that comes later. Nobody else gets it until then."
                .to_owned(),
        ],
        caution: String::new(),
        form,
        back: links::LEASES.to_owned(),
    };
    page_as(status, &page)
}

/// The request; `None` with the mistakes noted beside the fields.
fn parse(ledger: &Ledger, visitor: &Visitor, form: &mut Form) -> Option<Reserve> {
    let address = match form.value("address") {
        "" => None,
        text => match text.parse::<IpAddr>() {
            Ok(address) => Some(address.to_canonical()),
            Err(_) => {
                form.wrong("address", "That is no address.");
                None
            }
        },
    };
    let pool = pool(ledger, form, address);
    let owner = convert::owner(ledger, form.value("owner"));
    match &owner {
        Ok(_) => {}
        Err(_) if form.value("owner").is_empty() => {
            form.wrong("owner", "Say who will come for it.")
        }
        Err(problem) => form.wrong("owner", problem.detail.to_string()),
    }
    let tenant = convert::text("tenant", form.value("tenant"));
    if let Err(problem) = &tenant {
        form.wrong("tenant", problem.detail.to_string());
    }
    let until = match form.value("until") {
        "" => None,
        text => {
            let until = clock::parse_typed(text).filter(|until| *until > clock::now());
            if until.is_none() {
                form.wrong(
                    "until",
                    "Write a day and a time to come, such as 2030-03-01T12:00.",
                );
            }
            until
        }
    };
    if form.failed() {
        return None;
    }
    let tenant = tenant.ok().filter(|tenant| !tenant.is_empty());
    let ask = Allocate {
        holder: Holder {
            identity: owner.ok()?,
            instance: "".into(),
        },
        tenant: tenant.map(Tenant),
        wants: vec![Want {
            pool: pool?.into(),
            address,
            count: 1,
        }],
        waiting_since: None,
        by_admin: visitor.is_admin(),
        share: None,
        probe: false,
        actor: visitor.actor(),
    };
    Some(Reserve { ask, until })
}

/// The pool that was named, or the only one that gives the address.
fn pool(ledger: &Ledger, form: &mut Form, address: Option<IpAddr>) -> Option<PoolId> {
    let name = form.value("pool").to_owned();
    if !name.is_empty() {
        let found = ledger.find_pool(&name).map(|pool| pool.id);
        return found
            .map_err(|error| form.wrong("pool", error.to_string()))
            .ok();
    }
    let Some(address) = address else {
        if form.value("address").is_empty() {
            form.wrong("pool", "Name a pool, or an address of one.");
        }
        return None;
    };
    let networks = ledger.networks().take(Ledger::SCAN);
    let giving = networks.flat_map(|network| {
        ledger.pools_at(LeaseKey {
            network: network.id,
            address,
        })
    });
    let giving: Vec<_> = giving
        .filter(|(_, gives)| *gives)
        .map(|(pool, _)| pool)
        .collect();
    match giving.as_slice() {
        [pool] => Some(*pool),
        [] => {
            form.wrong("address", "No pool gives this address.");
            None
        }
        _ => {
            form.wrong("pool", "Several pools give this address: name one.");
            None
        }
    }
}

fn reserved(visitor: &Visitor, answer: &Answer) -> Response {
    let Answer::Granted { leases, .. } = answer else {
        return go_to(links::LEASES);
    };
    let Some(lease) = leases.first() else {
        return go_to(links::LEASES);
    };
    let text = match lease.state {
        fipd_core::LeaseState::Reserved => format!("{} is reserved.", lease.key.address),
        fipd_core::LeaseState::Allocated
        | fipd_core::LeaseState::Probing
        | fipd_core::LeaseState::Quarantined
        | fipd_core::LeaseState::Orphaned => {
            format!(
                "Nothing was changed: that owner uses {} already.",
                lease.key.address
            )
        }
    };
    visitor.tell(true, text, None);
    go_to(&links::lease(lease.key.network.0, lease.key.address))
}

/// Puts a refusal beside the field it is about.
fn explain(form: &mut Form, error: &IpamError) {
    let text = error.to_string();
    let name = match error {
        IpamError::Refused(
            Refusal::AddressTaken { .. }
            | Refusal::Quarantined { .. }
            | Refusal::NotAssignable { .. },
        ) => "address",
        IpamError::Refused(Refusal::Exhausted { .. } | Refusal::PoolClosed(_)) => "pool",
        IpamError::Refused(Refusal::QuotaExceeded { .. }) => "tenant",
        IpamError::Refused(_)
        | IpamError::Store(_)
        | IpamError::Forbidden(_)
        | IpamError::Stale(_)
        | IpamError::Stopping => "",
    };
    form.wrong(name, text);
}
