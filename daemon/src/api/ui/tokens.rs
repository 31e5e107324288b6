//! What programs sign in with.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Ledger, Refusal, Request, Role, Scope, Token, TokenId};
use fipd_web_ui::{
    Form, FormPage, Input, InputKind, Nav, TokenMadePage, TokenRow, TokensPage, links,
};
use http::StatusCode;
use ipnet::IpNet;

use super::{
    list::{Listing, Order, all},
    page::{Answered, Failure, go_to, page, page_as},
    pool_form::{entries, typed},
    users::{filters, role, roles, wanted},
    views,
};
use crate::api::ui::session_extract::{Place, Posted, Query, Visitor};
use crate::{
    api::{
        Api,
        access::auth::role_name,
        page::Ask,
        problem::Problem,
        rest::{
            admin::plain_name,
            tokens::{Grant, mint, scope_of, sources, token_view},
        },
        wire::{TokenCreate, TokenView},
    },
    clock,
    ipam::IpamError,
};

/// Tokens of one page.
const PAGE: usize = 100;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::down("role", "admins first"),
    Order::up("role", "viewers first"),
    Order::down("created", "newest first"),
    Order::up("created", "oldest first"),
    Order::up("expires", "next to expire first"),
    Order::down("expires", "last to expire first"),
];

pub async fn list(State(api): State<Arc<Api>>, visitor: Visitor, Query(query): Query) -> Answered {
    visitor.must_administer()?;
    let list = Listing::new(links::TOKENS, filters(), ORDERS, &query);
    let wanted = |token: &&Token| {
        let wanted = wanted(&list, &token.name, token.role);
        wanted.then(|| (*token).clone())
    };
    let tokens = all(&api.ipam, |ledger, after| {
        Ask::step().of(ledger.tokens_after(after), |token| token.id, wanted)
    })
    .await;
    let (tokens, pager) = match list.order.key {
        "role" => list.page_by(tokens, |one| one.role, PAGE, &query),
        "created" => list.page_by(tokens, |one| one.created, PAGE, &query),
        // Those that never do come last.
        "expires" => list.page_by(
            tokens,
            |one| (one.expires.is_none(), one.expires),
            PAGE,
            &query,
        ),
        _ => list.page_by(tokens, |one| one.name.clone(), PAGE, &query),
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
        tokens: api
            .ipam
            .read(|ledger| tokens.iter().map(|token| row(ledger, token)).collect()),
        pager,
    }))
}

pub async fn new(visitor: Visitor) -> Answered {
    visitor.must_administer()?;
    Ok(ask(&visitor, StatusCode::OK, form()))
}

/// Makes it and shows its text, once.
pub async fn create(State(api): State<Arc<Api>>, posted: Posted) -> Answered {
    let Posted { visitor, fields } = posted;
    visitor.must_administer()?;
    let mut form = form();
    typed(&mut form, &fields);
    let name = form.value("name").to_owned();
    if let Err(problem) = plain_name(&name) {
        form.wrong("name", problem.detail.to_string());
    }
    let now = clock::now();
    let expires = match form.value("expires") {
        "" => None,
        text => {
            let end = clock::parse_typed(text).filter(|end| *end > now);
            if end.is_none() {
                form.wrong(
                    "expires",
                    "Write a day and a time to come, such as 2030-03-01T12:00.",
                );
            }
            end
        }
    };
    let role = role(&mut form);
    let limits = api.ipam.read(|ledger| limited(ledger, &mut form));
    let (Some(role), Some((scope, from)), false) = (role, limits, form.failed()) else {
        return Ok(ask(&visitor, StatusCode::UNPROCESSABLE_ENTITY, form));
    };
    let grant = Grant {
        name: name.clone(),
        role,
        expires,
        scope,
        from,
    };
    let minted = match mint(grant, now) {
        Ok(minted) => minted,
        Err(error) => {
            form.error = Some(format!("The system gives no random numbers: {error}."));
            return Ok(ask(&visitor, StatusCode::INTERNAL_SERVER_ERROR, form));
        }
    };
    let request = Request::PutToken {
        token: minted.token,
        actor: visitor.actor(),
    };
    match api.ipam.submit(request).await {
        Ok(_) => {}
        Err(IpamError::Refused(error @ Refusal::TokenNameTaken(_))) => {
            form.wrong("name", error.to_string());
            return Ok(ask(&visitor, StatusCode::CONFLICT, form));
        }
        Err(error) => {
            form.error = Some(error.to_string());
            let status = Problem::from(error).status_code();
            return Ok(ask(&visitor, status, form));
        }
    }
    Ok(page(&TokenMadePage {
        shell: visitor.shell(Nav::Users),
        name,
        text: minted.text,
    }))
}

pub async fn ask_revoke(
    State(api): State<Arc<Api>>,
    visitor: Visitor,
    Place(id): Place<String>,
) -> Answered {
    let token = find(&api, &visitor, &id)?;
    Ok(revocation(&visitor, &token, StatusCode::OK, None))
}

pub async fn revoke(
    State(api): State<Arc<Api>>,
    Place(id): Place<String>,
    posted: Posted,
) -> Answered {
    let Posted { visitor, .. } = posted;
    let token = find(&api, &visitor, &id)?;
    let request = Request::DeleteToken {
        id: token.id,
        actor: visitor.actor(),
    };
    if let Err(error) = api.ipam.submit(request).await {
        let why = error.to_string();
        let status = Problem::from(error).status_code();
        return Ok(revocation(&visitor, &token, status, Some(why)));
    }
    visitor.tell(true, format!("Token {} was revoked.", token.name), None);
    Ok(go_to(links::TOKENS))
}

fn find(api: &Api, visitor: &Visitor, id: &str) -> Result<Token, Failure> {
    visitor.must_administer()?;
    let id = id.parse().ok().map(TokenId);
    let token = id.and_then(|id| api.ipam.read(|ledger| ledger.token(id).cloned()));
    token.ok_or_else(|| visitor.not_found("There is no such token."))
}

fn row(ledger: &Ledger, token: &Token) -> TokenRow {
    TokenRow {
        id: token.id.0,
        name: token.name.to_string(),
        role: role_name(token.role).to_owned(),
        scope: limits(&token_view(ledger, token, None)),
        created: views::moment(token.created),
        expires: token.expires.map(views::moment),
        expired: token.expires.is_some_and(|end| end <= clock::now()),
    }
}

/// The fields that limit a token.
const LIMITS: [&str; 4] = ["pools", "networks", "tenants", "from"];

/// What the form limits the token to; `None` with the mistakes noted beside their fields.
fn limited(ledger: &Ledger, form: &mut Form) -> Option<(Scope, Vec<IpNet>)> {
    let read = |asked: &TokenCreate| Ok::<_, Problem>((scope_of(ledger, asked)?, sources(asked)?));
    for field in LIMITS {
        if let Err(problem) = read(&asked(form, &[field])) {
            form.wrong(field, problem.detail.to_string());
        }
    }
    read(&asked(form, &LIMITS)).ok()
}

/// What stands in these of the fields.
fn asked(form: &Form, fields: &[&str]) -> TokenCreate {
    let text = |name: &str| match fields.contains(&name) {
        true => form.value(name),
        false => "",
    };
    let tenants = text("tenants").lines().map(str::trim);
    let tenants = tenants.filter(|line| !line.is_empty());
    TokenCreate {
        name: String::new(),
        role: Role::Viewer,
        expires: None,
        lasts: None,
        pools: entries(text("pools")),
        networks: entries(text("networks")),
        tenants: tenants.map(ToOwned::to_owned).collect(),
        from: entries(text("from")),
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
    let role = Input::new("role", "Role").kind(InputKind::Choice(roles()));
    Form {
        target: links::TOKEN_NEW.to_owned(),
        inputs: vec![
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
        ],
        button: "Make the token".to_owned(),
        ..Form::default()
    }
}

fn trail() -> Vec<(String, String)> {
    vec![(links::TOKENS.to_owned(), "Tokens".to_owned())]
}

fn ask(visitor: &Visitor, status: StatusCode, form: Form) -> Response {
    let page = FormPage {
        shell: visitor.shell(Nav::Users),
        title: "Make a token".to_owned(),
        trail: trail(),
        lead: vec!["For a program that talks to the REST API. Its text is shown once.".to_owned()],
        caution: String::new(),
        form,
        back: links::TOKENS.to_owned(),
    };
    page_as(status, &page)
}

fn revocation(
    visitor: &Visitor,
    token: &Token,
    status: StatusCode,
    error: Option<String>,
) -> Response {
    let page = FormPage {
        shell: visitor.shell(Nav::Users),
        title: format!("Revoke token {}?", token.name),
        trail: trail(),
        lead: vec!["Whatever program uses it is refused from then on.".to_owned()],
        caution: String::new(),
        form: Form {
            target: links::token_revoke(token.id.0),
            error,
            button: "Revoke it".to_owned(),
            danger: true,
            ..Form::default()
        },
        back: links::TOKENS.to_owned(),
    };
    page_as(status, &page)
}
