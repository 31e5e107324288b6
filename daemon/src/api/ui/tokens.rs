//! What programs sign in with.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use fipd_core::{Ledger, Role, Token, TokenId};
use fipd_web_ui::{
    Form, FormPage, Input, InputKind, Nav, TokenMadePage, TokenRow, TokensPage, links,
};
use http::StatusCode;

use super::{
    forms::{Words, blame, entries, lines, time, typed},
    list::{Listing, Order, all},
    page::{Answered, Failure, page},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
    users::{filters, role, roles, wanted},
    views,
};
use crate::api::{
    etag::IfMatch,
    extract::{Body, Path},
    page::Ask,
    rest::tokens::{self as rest, LastUsed, token_view},
    wire::{TokenCreate, TokenView},
};
use crate::clock;

/// Tokens of one page.
const PAGE: usize = 100;
const WORDS: Words = |field, _| match field {
    "expires" => Some("Write a day and a time to come, such as 2030-03-01T12:00."),
    _ => None,
};
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::down_first("role", "admins first", "viewers first"),
    Order::down_first("created", "newest first", "oldest first"),
    Order::up_first("expires", "next to expire first", "last to expire first"),
];

pub async fn list(visitor: Visitor, Query(query): Query) -> Answered {
    let list = Listing::new(links::TOKENS, filters(), ORDERS.as_flattened(), &query);
    let wanted = |token: &&Token| wanted(&list, &token.name, token.role).then(|| (*token).clone());
    let tokens = all(&visitor.ipam, |ledger, after| {
        Ask::step().of(ledger.tokens_after(after), |token| token.id, wanted)
    })
    .await;
    let (tokens, pager) = match list.order.key {
        "role" => list.page_by(tokens, PAGE, |one| one.role),
        "created" => list.page_by(tokens, PAGE, |one| one.created),
        // Those that never do come last.
        "expires" => list.page_by(tokens, PAGE, |one| (one.expires.is_none(), one.expires)),
        _ => list.page_by(tokens, PAGE, |one| one.name.clone()),
    };
    Ok(page(&TokensPage {
        shell: visitor.shell(Nav::Users),
        columns: vec![
            list.column("name", "Name"),
            list.column("role", "Role"),
            list.column("scope", "Limited to"),
            list.column("created", "Made"),
            list.column("expires", "Expires"),
        ],
        filters: list.filters,
        tokens: visitor.read(|ledger| tokens.iter().map(|token| row(ledger, token)).collect()),
        pager,
    }))
}

pub async fn new(visitor: Visitor) -> Answered {
    Ok(ask(&visitor, StatusCode::OK, form()))
}

/// Makes it and shows its text, once.
pub async fn create(SubmittedForm { visitor, fields }: SubmittedForm) -> Answered {
    let mut form = form();
    typed(&mut form, &fields);
    let made = match role(&form) {
        Ok(role) => rest::create(visitor.requester(), Body(body(&form, role))).await,
        Err(problem) => Err(problem),
    };
    match made {
        Ok((_, Json(made))) => Ok(page(&TokenMadePage {
            shell: visitor.shell(Nav::Users),
            name: made.view.name,
            text: made.token,
        })),
        Err(problem) => {
            let status = blame(&mut form, &problem, WORDS);
            Ok(ask(&visitor, status, form))
        }
    }
}

fn body(form: &Form, role: Role) -> TokenCreate {
    TokenCreate {
        name: form.value("name").to_owned(),
        role,
        expires: time(form.value("expires")),
        lasts: None,
        pools: entries(form.value("pools")),
        networks: entries(form.value("networks")),
        tenants: lines(form.value("tenants")),
        from: entries(form.value("from")),
    }
}

pub async fn ask_revoke(visitor: Visitor, PathParam(id): PathParam<String>) -> Answered {
    let token = find(&visitor, &id)?;
    Ok(revocation(&visitor, &token, StatusCode::OK, None))
}

pub async fn revoke(
    State(tokens_used): State<Arc<LastUsed>>,
    PathParam(id): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let token = find(&visitor, &id)?;
    let (used, any) = (State(tokens_used), IfMatch::default());
    let revoked = rest::revoke(used, visitor.requester(), Path(id), any).await;
    if let Err(problem) = revoked {
        let (status, why) = (problem.status_code(), problem.detail.into_string());
        return Ok(revocation(&visitor, &token, status, Some(why)));
    }
    Ok(visitor.done(links::TOKENS, format!("Token {} was revoked.", token.name)))
}

fn find(visitor: &Visitor, id: &str) -> Result<Token, Failure> {
    let id = id.parse().ok().map(TokenId);
    let token = id.and_then(|id| visitor.read(|ledger| ledger.token(id).cloned()));
    token.ok_or_else(|| visitor.not_found("There is no such token."))
}

fn row(ledger: &Ledger, token: &Token) -> TokenRow {
    TokenRow {
        id: token.id.0,
        name: token.name.to_string(),
        role: token.role.as_str().to_owned(),
        scope: limits(&token_view(ledger, token, None)),
        created: views::moment(token.created),
        expires: token.expires.map(views::moment),
        expired: token.expires.is_some_and(|end| end <= clock::now()),
    }
}

/// What the token is limited to; empty where it is for all that its role may.
fn limits(token: &TokenView) -> String {
    let parts = [
        ("pools", &token.pools),
        ("networks", &token.networks),
        ("tenants", &token.tenants),
        ("from", &token.from),
    ];
    let named = parts.iter().filter(|(_, names)| !names.is_empty());
    let texts: Vec<_> = named
        .map(|(what, names)| format!("{what} {}", names.join(", ")))
        .collect();
    texts.join("; ")
}

fn form() -> Form {
    let lines = |name, label| {
        Input::new(name, label)
            .note("optional")
            .kind(InputKind::Lines)
    };
    let role = Input::new("role", "Role").kind(roles());
    let inputs = vec![
        Input::new("name", "Name")
            .required()
            .hint("For whom it is, such as ci: the audit log says token:ci."),
        role.value("viewer"),
        Input::new("expires", "Expires (UTC)")
            .note("optional")
            .kind(InputKind::Time)
            .hint("Empty: never."),
        lines("pools", "Only for pools").hint("Names, one a line. Empty: all pools."),
        lines("networks", "Only for networks").hint("Names, one a line. Empty: all networks."),
        lines("tenants", "Only for tenants")
            .hint("One a line: the token acts only for them. Empty: for all."),
        lines("from", "Only from")
            .hint("CIDRs such as 10.0.0.0/8, one a line. Empty: from anywhere."),
    ];
    Form::new(links::TOKEN_NEW, "Make the token", inputs)
}

fn ask(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let page = FormPage {
        lead: vec!["For a program that talks to the REST API. Its text is shown once.".to_owned()],
        ..FormPage::below(links::TOKENS, "Tokens", "New token", form)
    };
    visitor.ask(Nav::Users, status, page)
}

fn revocation(
    visitor: &Visitor,
    token: &Token,
    status: StatusCode,
    error: Option<String>,
) -> Response {
    let title = format!("Revoke token {}?", token.name);
    let form = Form {
        error,
        ..Form::confirm(links::token_revoke(token.id.0), "Revoke it")
    };
    let page = FormPage {
        lead: vec!["Whatever program uses it is refused from then on.".to_owned()],
        ..FormPage::below(links::TOKENS, "Tokens", title, form)
    };
    visitor.ask(Nav::Users, status, page)
}
