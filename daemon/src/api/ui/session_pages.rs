//! Where somebody is signed in, and the end of that: everybody's own sessions, and for admins those of others.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::Action;
use fipd_web_ui::{Nav, SessionRow, SessionsPage, links};
use http::StatusCode;

use super::{
    page::{Answered, Failure, go_to, page},
    sessions::Listed,
    views,
    visit::{Place, Posted, Visitor},
};
use crate::api::Api;

pub async fn own(State(api): State<Arc<Api>>, visitor: Visitor) -> Response {
    let name = visitor.session.name.to_string();
    show(&api, &visitor, &name, None)
}

/// Ends one of the own sessions, all others, or all.
pub async fn end_own(State(api): State<Arc<Api>>, posted: Posted) -> Answered {
    let Posted { visitor, fields } = posted;
    let name = visitor.session.name.to_string();
    end(&api, &visitor, &name, fields.get("end"))?;
    // Who ended the own one is led to the login by the page.
    Ok(go_to(links::SESSIONS))
}

pub async fn of_user(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(name): Place<String>,
) -> Answered {
    visitor.must_administer()?;
    Ok(show(&api, &visitor, &name, Some(name.clone())))
}

/// The same for an admin, who is named in the audit log.
pub async fn end_of_user(
    State(api): State<Arc<Api>>,
    Place(name): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_administer()?;
    let what = format!("{name}: signed out by an admin");
    let noted = api
        .ipam
        .note(Action::AccountChanged, what, visitor.actor())
        .await;
    noted.map_err(|error| {
        let next = "Nobody was signed out. Try again.";
        visitor.failure(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), next)
    })?;
    end(&api, &visitor, &name, fields.get("end"))?;
    Ok(go_to(&links::user_sessions(&name)))
}

fn end(api: &Api, visitor: &Visitor, name: &str, which: &str) -> Result<(), Failure> {
    let ended = match which {
        "all" => api.sessions.end_all(name),
        "others" => api.sessions.end_others(name, visitor.headers()),
        "" => return Err(visitor.not_found("Nothing was chosen that could be ended.")),
        id => usize::from(api.sessions.end_one(name, id)),
    };
    let text = match ended {
        0 => "There was no such session any more.".to_owned(),
        1 => "One session was ended.".to_owned(),
        many => format!("{many} sessions were ended."),
    };
    visitor.tell(ended > 0, text, None);
    Ok(())
}

fn show(api: &Api, visitor: &Visitor, name: &str, of: Option<String>) -> Response {
    let row = |listed: Listed| SessionRow {
        id: listed.id,
        from: listed.origin.address.to_string(),
        browser: listed.origin.browser,
        began: views::moment(listed.began),
        seen: views::moment(listed.seen),
        mine: listed.mine,
    };
    let sessions = api.sessions.of(name, visitor.headers());
    let target = match &of {
        Some(name) => links::user_sessions(name),
        None => links::SESSIONS.to_owned(),
    };
    page(&SessionsPage {
        shell: visitor.shell(match of {
            Some(_) => Nav::Users,
            None => Nav::None,
        }),
        of,
        target,
        sessions: sessions.into_iter().map(row).collect(),
    })
}
