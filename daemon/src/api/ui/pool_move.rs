//! Taking a pool to another network: a form, what would go along and what is in the way, and then the deed.

use std::sync::Arc;

use axum::{Json, response::Response};
use fipd_core::{Ledger, Pool};
use fipd_web_ui::{Form, FormPage, Input, InputKind, Nav, PreviewPage, count, links};
use http::StatusCode;

use super::{
    forms::{AS_REST, blame, typed},
    page::{Answered, page_as},
    pool::find,
    pool_preview::trail,
    session_extract::{PathParam, SubmittedForm, Visitor},
};
use crate::api::{
    convert::network_name,
    etag::IfMatch,
    extract::{Body, Path, Query as RestQuery},
    rest::{move_network, separate as rest},
    wire::{PoolMove, PoolMovePreview},
};

/// Networks that are offered; with more, a name is typed.
const OFFERED: usize = 100;
/// Collisions that are named.
const SHOWN: usize = 20;

pub async fn ask(visitor: Visitor, PathParam(id): PathParam<String>) -> Answered {
    let pool = find(&visitor, &id)?;
    let form = visitor.read(|ledger| form(ledger, &pool));
    Ok(form_page(&visitor, &pool, StatusCode::OK, form))
}

/// From what was posted to the next page: the form again, what it would do, or the deed.
pub async fn step(
    PathParam(id): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let mut form = visitor.read(|ledger| form(ledger, &pool));
    typed(&mut form, &fields);
    if fields.get("step") == "edit" {
        return Ok(form_page(&visitor, &pool, StatusCode::OK, form));
    }
    let name = pool.spec.name.to_string();
    let network = form.value("network").to_owned();
    let query = PoolMove {
        network: network.clone(),
    };
    let looked = move_network::preview(visitor.requester(), Path(name.clone()), RestQuery(query));
    let would = match looked.await {
        Ok(Json(would)) => would,
        Err(problem) => {
            blame(&mut form, &problem, AS_REST);
            return Ok(form_page(&visitor, &pool, problem.status_code(), form));
        }
    };
    if fields.get("step") != "do" {
        return Ok(preview(&visitor, &pool, StatusCode::OK, (form, would)));
    }
    let moved = move_network::move_network(
        visitor.requester(),
        Path(name),
        IfMatch::default(),
        Body(PoolMove { network }),
    );
    if let Err(problem) = moved.await {
        form.error = Some(problem.detail.to_string());
        let status = problem.status_code();
        return Ok(preview(&visitor, &pool, status, (form, would)));
    }
    let text = format!("Pool {} went to network {}.", pool.spec.name, would.to);
    Ok(visitor.done(&links::pool(pool.id.0), text))
}

/// Says that the network of the pool and another are two.
pub async fn separate(
    PathParam(id): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let pool = find(&visitor, &id)?;
    let name = fields.get("network").to_owned();
    let network = visitor.read(|ledger| network_name(ledger, pool.spec.network));
    let networks = Path((network, name.clone()));
    let done = rest::separate(visitor.requester(), networks).await;
    let text = match &done {
        Ok(_) => format!("The networks of {} and {name} are two.", pool.spec.name),
        Err(problem) => problem.detail.to_string(),
    };
    Ok(visitor.redirect_with(&links::pool(pool.id.0), done.is_ok(), text))
}

fn form(ledger: &Ledger, pool: &Pool) -> Form {
    let others = (ledger.networks()).filter(|network| network.id != pool.spec.network);
    let names: Vec<&str> = others
        .take(OFFERED + 1)
        .map(|network| &*network.name)
        .collect();
    let kind = match names.len() > OFFERED {
        true => InputKind::Line,
        false => InputKind::of(names.into_iter().map(|name| (name, name))),
    };
    let input = Input::new("network", "Network").required().kind(kind);
    let input = input.hint("Each lease goes along; each address must be free there.");
    let target = links::pool(pool.id.0) + "/move";
    Form::new(target, "Preview", vec![input])
}

fn form_page(visitor: &Visitor, pool: &Arc<Pool>, status: StatusCode, form: Form) -> Response {
    let lead = "An address of one network is another one than the same address of a second network. \
        All leases of the pool keep their holders, states and limits.";
    let page = FormPage {
        title: format!("Move pool {} to another network", pool.spec.name),
        trail: trail(Some(pool)),
        lead: vec![lead.to_owned()],
        form,
        back: links::pool(pool.id.0),
        ..FormPage::default()
    };
    visitor.ask(Nav::Pools, status, page)
}

fn preview(
    visitor: &Visitor,
    pool: &Arc<Pool>,
    status: StatusCode,
    (form, would): (Form, PoolMovePreview),
) -> Response {
    let obstacle = obstacle(&would);
    let PoolMovePreview { from, to, .. } = would;
    let leases = count(would.leases);
    let usage = visitor.read(|ledger| ledger.usage(pool.id));
    let size = usage.map(|usage| usage.size);
    let page = PreviewPage {
        shell: visitor.shell(Nav::Pools),
        title: format!("Move pool {} to network {to}?", pool.spec.name),
        trail: trail(Some(pool)),
        changes: vec![
            (
                "Leases",
                format!("{leases} in {from}"),
                format!("{leases} in {to}"),
            ),
            ("Network", from, to),
        ],
        size: (size, size),
        prefixes: pool.spec.allocation_length.is_some(),
        obstacle,
        form: Form {
            inputs: form.hidden(),
            button: "Take it there".to_owned(),
            ..form
        },
        editable: true,
        back: links::pool(pool.id.0),
        ..PreviewPage::default()
    };
    page_as(status, &page)
}

/// What is in the way; empty where nothing is.
fn obstacle(would: &PoolMovePreview) -> String {
    if would.collisions == 0 {
        return String::new();
    }
    let named = would.first.iter().take(SHOWN);
    let named: Vec<String> = named.map(ToString::to_string).collect();
    let more = would.collisions.saturating_sub(named.len() as u64);
    let more = match more {
        0 => String::new(),
        more => format!(", and {} more", count(more)),
    };
    format!(
        "Nothing can go: addresses of its leases are in use in network {}: {}{more}. Release them in one of the networks first.",
        would.to,
        named.join(", ")
    )
}
