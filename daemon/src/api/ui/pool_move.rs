//! Taking a pool to another network: a form, what would go along and what is in the way, and then the deed.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Collision, Ledger, NetworkId, Pool, Request};
use fipd_web_ui::{Form, FormPage, Input, InputKind, Nav, PreviewPage, count, links};
use http::StatusCode;

use super::{
    page::{Answered, go_to, page_as},
    pool::find,
    pool_form::{blame, typed},
    pool_preview::trail,
};
use crate::api::ui::session_extract::{Place, Posted, Visitor};
use crate::api::{
    Api, convert,
    convert::network_name,
    problem::Problem,
    rest::move_network::{Outlook, outlook},
};

/// Networks that are offered; with more, a name is typed.
const OFFERED: usize = 100;
/// Collisions that are named.
const SHOWN: usize = 20;

pub async fn ask(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(id): Place<String>,
) -> Answered {
    visitor.must_administer()?;
    let pool = find(&api, &visitor, &id)?;
    let form = api.ipam.read(|ledger| form(ledger, &pool));
    Ok(form_page(&visitor, &pool, StatusCode::OK, form))
}

/// From what was posted to the next page: the form again, what it would do, or the deed.
pub async fn step(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_administer()?;
    let pool = find(&api, &visitor, &id)?;
    let mut form = api.ipam.read(|ledger| form(ledger, &pool));
    typed(&mut form, &fields);
    if fields.get("step") == "edit" {
        return Ok(form_page(&visitor, &pool, StatusCode::OK, form));
    }
    let wanted = form.value("network").to_owned();
    let found = api.ipam.read(|ledger| {
        let network = convert::network(ledger, &wanted)?;
        Ok::<_, Problem>(network.id)
    });
    let found = match found {
        Ok(to) => outlook(&api, pool.id, to).await.map(|found| (to, found)),
        Err(problem) => Err(problem),
    };
    let (to, outlook) = match found {
        Ok(found) => found,
        Err(problem) => {
            let status = problem.status_code();
            blame(&mut form, &problem);
            return Ok(form_page(&visitor, &pool, status, form));
        }
    };
    if fields.get("step") != "do" {
        let (status, error) = (StatusCode::OK, None);
        let form = Form { error, ..form };
        return Ok(preview(&api, &visitor, &pool, status, (form, to, outlook)));
    }
    let request = Request::MoveNetwork {
        pool: pool.id,
        network: to,
        actor: visitor.actor(),
    };
    match api.ipam.submit(request).await {
        Ok(_) => {
            let text = format!("Pool {} went to network {wanted}.", pool.spec.name);
            visitor.tell(true, text, None);
            Ok(go_to(&links::pool(pool.id.0)))
        }
        Err(error) => {
            let problem = Problem::from(error);
            let error = Some(problem.detail.to_string());
            let form = Form { error, ..form };
            let status = problem.status_code();
            Ok(preview(&api, &visitor, &pool, status, (form, to, outlook)))
        }
    }
}

fn form(ledger: &Ledger, pool: &Pool) -> Form {
    let others = ledger
        .networks()
        .filter(|network| network.id != pool.spec.network);
    let names: Vec<String> = others
        .take(OFFERED + 1)
        .map(|network| network.name.to_string())
        .collect();
    let input = Input::new("network", "Network").required();
    let input = if names.len() > OFFERED {
        input
    } else {
        let choices = names.into_iter().map(|name| (name.clone(), name));
        input.kind(InputKind::Choice(choices.collect()))
    };
    Form {
        target: links::pool_move(pool.id.0),
        inputs: vec![input.hint("Each lease goes along; each address must be free there.")],
        button: "Look at what goes along".to_owned(),
        ..Form::default()
    }
}

fn form_page(visitor: &Visitor, pool: &Arc<Pool>, status: StatusCode, form: Form) -> Response {
    let lead = "An address of one network is another one than the same address of a second network. \
        All leases of the pool keep their holders, states and limits.";
    let page = FormPage {
        shell: visitor.shell(Nav::Pools),
        title: format!("Take pool {} to another network", pool.spec.name),
        trail: trail(Some(pool)),
        lead: vec![lead.to_owned()],
        caution: String::new(),
        form,
        back: links::pool(pool.id.0),
    };
    page_as(status, &page)
}

fn preview(
    api: &Api,
    visitor: &Visitor,
    pool: &Arc<Pool>,
    status: StatusCode,
    (form, to, outlook): (Form, NetworkId, Outlook),
) -> Response {
    let shell = visitor.shell(Nav::Pools);
    let page = api.ipam.read(|ledger| {
        let names = [pool.spec.network, to].map(|network| network_name(ledger, network));
        let [from, to] = names;
        let leases = count(outlook.leases.into());
        let size = ledger.usage(pool.id).map(|usage| usage.size);
        PreviewPage {
            shell,
            title: format!("Take pool {} to network {to}?", pool.spec.name),
            trail: trail(Some(pool)),
            changes: vec![
                (
                    "Leases",
                    format!("{leases} in {from}"),
                    format!("{leases} in {to}"),
                ),
                ("Network", from, to.clone()),
            ],
            size: (size, size),
            leaving: Vec::new(),
            leaving_count: 0,
            leaving_more: false,
            leaving_list: String::new(),
            overlaps: Vec::new(),
            quotas: Vec::new(),
            obstacle: obstacle(&to, &outlook),
            form: Form {
                inputs: form.hidden(),
                button: "Take it there".to_owned(),
                ..form
            },
            editable: true,
            back: links::pool(pool.id.0),
        }
    });
    page_as(status, &page)
}

/// What is in the way; empty where nothing is.
fn obstacle(to: &str, outlook: &Outlook) -> String {
    if outlook.collisions == 0 {
        return String::new();
    }
    let named = outlook.first.iter().take(SHOWN);
    let named: Vec<String> = named.map(Collision::to_string).collect();
    let more = outlook.collisions.saturating_sub(named.len() as u64);
    let more = match more {
        0 => String::new(),
        more => format!(", and {} more", count(more.into())),
    };
    format!(
        "Nothing can go: addresses of its leases are in use in network {to}: {}{more}. Release them in one of the networks first.",
        named.join(", ")
    )
}
