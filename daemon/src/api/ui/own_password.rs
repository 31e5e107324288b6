//! Everybody's own password.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use axum::{
    Extension,
    extract::{ConnectInfo, State},
    response::Response,
};
use fipd_web_ui::{Form, FormPage, Input, InputKind, Nav, links};
use http::StatusCode;

use super::{
    forms::{AS_REST, blame},
    login::{locked, retry_after},
    page::{Answered, Failure, go_to},
    session_extract::{SubmittedForm, Visitor},
    sessions::Sessions,
    users::{new_password, passwords},
};
use crate::api::{
    access::accounts::Accounts,
    wire::{Password, UserPatch},
};

pub async fn show(visitor: Visitor) -> Answered {
    has_password(&visitor)?;
    let form = form_of(&visitor.session.name);
    Ok(ask(&visitor, StatusCode::OK, form))
}

/// Changes it for who knows it, and asks to sign in again: all sessions of the account end. Guesses count as they do
/// at the sign-in.
pub async fn change(
    State(accounts): State<Accounts>,
    State(sessions): State<Arc<Sessions>>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    has_password(&visitor)?;
    let name = visitor.session.name.to_string();
    let mut form = form_of(&name);
    let wrong = StatusCode::UNPROCESSABLE_ENTITY;
    let Some(password) = new_password(&mut form, &fields) else {
        return Ok(ask(&visitor, wrong, form));
    };
    let from = from.map_or(IpAddr::from([0, 0, 0, 0]), |info| info.0.0.ip());
    let now = Instant::now();
    if let Err(wait) = sessions.limiter.attempt(&name, from, now) {
        form.wrong("present", locked(wait));
        let answer = ask(&visitor, StatusCode::TOO_MANY_REQUESTS, form);
        return Ok(retry_after(answer, wait));
    }
    let known = accounts.login(&name, fields.raw("present")).await;
    if known.is_none() {
        form.wrong("present", "That is not your password.");
        return Ok(ask(&visitor, wrong, form));
    }
    sessions.limiter.signed_in(&name, from, now);
    let change = UserPatch {
        password: Some(Password(password)),
        ..UserPatch::default()
    };
    let edited = accounts.edit(&name, change, visitor.actor());
    if let Err(error) = edited.await {
        let status = blame(&mut form, &error.into(), AS_REST);
        return Ok(ask(&visitor, status, form));
    }
    Ok(go_to(links::LOGIN))
}

fn has_password(visitor: &Visitor) -> Result<(), Failure> {
    if !visitor.session.by_provider {
        return Ok(());
    }
    let what = "You signed in by a provider, which keeps your password.";
    Err(visitor.failure(StatusCode::NOT_FOUND, what, "Change it there."))
}

fn form_of(name: &str) -> Form {
    let present = Input::new("present", "Present password").kind(InputKind::Secret);
    let [password, again] = passwords("");
    let inputs = vec![present.required(), password.required(), again.required()];
    Form {
        account: name.to_owned(),
        ..Form::new(links::PASSWORD, "Change the password", inputs)
    }
}

fn ask(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let page = FormPage {
        title: "Change your password".to_owned(),
        lead: vec![
            "You sign in again afterwards, here and wherever else you are signed in.".to_owned(),
        ],
        form,
        back: links::HOME.to_owned(),
        ..FormPage::default()
    };
    visitor.ask(Nav::None, status, page)
}
