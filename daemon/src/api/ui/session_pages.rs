//! Where somebody is signed in, and the end of that: everybody's own sessions, and for admins those of others.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_web_ui::{Column, Input, Nav, SessionRow, SessionsPage, links};

use super::{
    fields::Fields,
    list::{Listing, Order},
    page::{Answered, Failure, go_to, page},
    sessions::Listed,
    views,
};
use crate::api::rest::users::note_sign_out;
use crate::api::ui::{
    Sessions,
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
};

/// Sessions of one page.
const PAGE: usize = 50;
const ORDERS: &[[Order; 2]] = &[
    Order::down_first("seen", "last seen first", "longest idle first"),
    Order::down_first("began", "newest first", "oldest first"),
    Order::up_first("from", "by address", "by address, from the end"),
];

pub async fn own(
    State(sessions): State<Arc<Sessions>>,
    visitor: Visitor,
    Query(query): Query,
) -> Response {
    let name = visitor.session.name.to_string();
    show(&sessions, &visitor, &name, (None, &query))
}

/// Ends one of the own sessions, all others, or all.
pub async fn end_own(State(sessions): State<Arc<Sessions>>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let name = visitor.session.name.to_string();
    end(&sessions, &visitor, &name, fields.get("end"))?;
    // Who ended the own one is led to the login by the page.
    Ok(go_to(links::SESSIONS))
}

pub async fn of_user(
    State(sessions): State<Arc<Sessions>>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
    Query(query): Query,
) -> Answered {
    let of = Some(name.clone());
    Ok(show(&sessions, &visitor, &name, (of, &query)))
}

/// The same for an admin, who is named in the audit log.
pub async fn end_of_user(
    State(sessions): State<Arc<Sessions>>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let which = fields.get("end");
    let there = sessions.of(&name, visitor.headers());
    if there.iter().any(|one| is_meant(one, which)) {
        let noted = note_sign_out(&visitor.ipam, &visitor.caller(), &name).await;
        noted.map_err(|problem| {
            let next = "Nobody was signed out. Try again.";
            visitor.failure(problem.status_code(), problem.detail, next)
        })?;
    }
    end(&sessions, &visitor, &name, which)?;
    Ok(go_to(&links::user_sessions(&name)))
}

/// Whether it is among those that are chosen to end.
fn is_meant(one: &Listed, which: &str) -> bool {
    match which {
        "all" => true,
        "others" => !one.mine,
        id => one.id == id,
    }
}

fn end(sessions: &Sessions, visitor: &Visitor, name: &str, which: &str) -> Result<(), Failure> {
    let ended = match which {
        "all" => sessions.end_all(name),
        "others" => sessions.end_others(name, visitor.headers()),
        "" => return Err(visitor.not_found("Nothing was chosen that could be ended.")),
        id => usize::from(sessions.end_one(name, id)),
    };
    let text = match ended {
        0 => "There was no such session any more.".to_owned(),
        1 => "One session was ended.".to_owned(),
        many => format!("{many} sessions were ended."),
    };
    visitor.tell(ended > 0, text, None);
    Ok(())
}

fn show(
    sessions: &Sessions,
    visitor: &Visitor,
    name: &str,
    (of, query): (Option<String>, &Fields),
) -> Response {
    let row = |listed: Listed| SessionRow {
        id: listed.id,
        from: listed.origin.address.to_string(),
        browser: listed.origin.browser,
        began: views::moment(listed.began),
        seen: views::moment(listed.seen),
        mine: listed.mine,
    };
    let mut sessions = sessions.of(name, visitor.headers());
    let total = sessions.len();
    let target = match &of {
        Some(name) => links::user_sessions(name),
        None => links::SESSIONS.to_owned(),
    };
    let inputs = vec![Input::new("filter", "From or browser contains")];
    let list = Listing::new(&target, inputs, ORDERS.as_flattened(), query);
    let part = list.filter("filter");
    sessions.retain(|one| {
        one.origin.address.to_string().contains(part) || one.origin.browser.contains(part)
    });
    let (sessions, pager) = match list.order.key {
        "began" => list.page_by(sessions, PAGE, |one| one.began),
        "from" => list.page_by(sessions, PAGE, |one| one.origin.address),
        _ => list.page_by(sessions, PAGE, |one| one.seen),
    };
    let columns = vec![
        list.column("from", "From"),
        Column::plain("Browser"),
        list.column("began", "Signed in"),
        list.column("seen", "Last seen"),
    ];
    let filters = list.filters;
    page(&SessionsPage {
        shell: visitor.shell(match of {
            Some(_) => Nav::Users,
            None => Nav::None,
        }),
        of,
        target,
        filters,
        columns,
        total,
        pager,
        sessions: sessions.into_iter().map(row).collect(),
    })
}
