//! Who signs in with a password or is signed in by the provider, and the own password of everybody.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use fipd_core::{Account, Role, Text};
use fipd_web_ui::{
    Form, FormPage, Input, InputKind, Nav, Pager, ProvidedRow, UserRow, UsersPage, links,
};
use http::StatusCode;

use super::{
    fields::Fields,
    forms::{AS_REST, beside, blame, typed},
    list::{Listing, Order, all},
    page::{Answered, Failure, page},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    access::accounts::Accounts,
    convert,
    etag::{self, IfMatch},
    extract::{Body, Path},
    page::Ask,
    problem::{Code, Problem},
    rest::users as rest,
    ui::Sessions,
    wire::{Password, UserCreate, UserPatch},
};

/// Users of one page.
const PAGE: usize = 100;
const ORDERS: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::down_first("role", "admins first", "viewers first"),
    Order::down_first("created", "newest first", "oldest first"),
];
/// What the query says as `by` where it asks for those whom a provider vouches for.
const PROVIDER: &str = "provider";
/// Their orders.
const PROVIDED: &[[Order; 2]] = &[
    Order::up_first("name", "by name", "by name, from the end"),
    Order::down_first("role", "admins first", "viewers first"),
    Order::down_first("sessions", "most sessions first", "fewest sessions first"),
];

/// Accounts, or who is signed in without one.
pub async fn list(
    State(sessions): State<Arc<Sessions>>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let by_provider = query.get("by") == PROVIDER;
    let orders = if by_provider { PROVIDED } else { ORDERS };
    let by = InputKind::of([("", "with a password"), (PROVIDER, "by the provider")]);
    let mut inputs = filters();
    inputs.push(Input::new("by", "Sign in").kind(by));
    let list = Listing::new(links::USERS, inputs, orders.as_flattened(), &query);
    let all = sessions.provided();
    let signed_in = all.len();
    let (mut users, mut people) = (Vec::new(), Vec::new());
    let (last, pager);
    if by_provider {
        last = list.numbers("sessions", "Sessions");
        (people, pager) = provided(&list, all);
    } else {
        last = list.column("created", "Made");
        (users, pager) = accounts(&visitor, &list).await;
    }
    Ok(page(&UsersPage {
        shell: visitor.shell(Nav::Users),
        columns: vec![
            list.column("name", "Name"),
            list.column("role", "Role"),
            last,
        ],
        filters: list.filters,
        users,
        provided: people,
        signed_in,
        pager,
    }))
}

async fn accounts(visitor: &Visitor, list: &Listing<'_>) -> (Vec<UserRow>, Pager) {
    let wanted =
        |account: &&Account| wanted(list, &account.name, account.role).then(|| (*account).clone());
    let accounts = all(&visitor.ipam, |ledger, after: Option<Text>| {
        let accounts = ledger.accounts_after(after.as_deref());
        Ask::step().of(accounts, |account| Text::clone(&account.name), wanted)
    })
    .await;
    let (accounts, pager) = match list.order.key {
        "role" => list.page_by(accounts, PAGE, |one| one.role),
        "created" => list.page_by(accounts, PAGE, |one| one.created),
        _ => list.page_by(accounts, PAGE, |one| Text::clone(&one.name)),
    };
    let row = |account: &Account| UserRow {
        name: account.name.to_string(),
        role: account.role.as_str().to_owned(),
        created: views::moment(account.created),
        disabled: account.disabled,
        me: account.name == visitor.session.name,
    };
    (accounts.iter().map(row).collect(), pager)
}

fn provided(list: &Listing<'_>, mut all: Vec<(Text, Role, usize)>) -> (Vec<ProvidedRow>, Pager) {
    all.retain(|(name, role, _)| wanted(list, name, *role));
    let (shown, pager) = match list.order.key {
        "role" => list.page_by(all, PAGE, |one| one.1),
        "sessions" => list.page_by(all, PAGE, |one| one.2),
        _ => list.page_by(all, PAGE, |one| Text::clone(&one.0)),
    };
    let row = |(name, role, sessions): (Text, Role, usize)| ProvidedRow {
        name: name.to_string(),
        role: role.as_str().to_owned(),
        sessions,
    };
    (shown.into_iter().map(row).collect(), pager)
}

pub async fn new(visitor: Visitor) -> Answered {
    Ok(ask(&visitor, StatusCode::OK, "New user", new_form()))
}

pub async fn create(State(accounts): State<Accounts>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = new_form();
    typed(&mut form, &fields);
    let name = form.value("name").to_owned();
    let Some(password) = new_password(&mut form, &fields) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(&visitor, status, "New user", form));
    };
    let made = match role(&form) {
        Ok(role) => {
            let body = UserCreate {
                name: name.clone(),
                role,
                password: Password(password),
            };
            rest::create(State(accounts), visitor.caller(), Body(body)).await
        }
        Err(problem) => Err(problem),
    };
    if let Err(problem) = made {
        let status = blame(&mut form, &problem, AS_REST);
        return Ok(ask(&visitor, status, "New user", form));
    }
    Ok(visitor.done(links::USERS, format!("User {name} was made.")))
}

pub async fn edit(
    State(accounts): State<Accounts>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
) -> Answered {
    let account = find(&accounts, &visitor, &name)?;
    let title = format!("Change user {name}");
    Ok(ask(&visitor, StatusCode::OK, &title, edit_form(&account)))
}

pub async fn update(
    State(accounts): State<Accounts>,
    State(sessions): State<Arc<Sessions>>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, fields }: SubmittedForm,
) -> Answered {
    let account = find(&accounts, &visitor, &name)?;
    let mut form = edit_form(&account);
    typed(&mut form, &fields);
    let title = format!("Change user {name}");
    let wants_password = !fields.raw("password").is_empty() || !fields.raw("again").is_empty();
    let password = match wants_password {
        true => new_password(&mut form, &fields),
        false => None,
    };
    let is_new = form.value("revision") != etag::State::of(&account).as_str();
    if form.failed() && !is_new {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(&visitor, status, &title, form));
    }
    let edited = match role(&form) {
        Ok(role) => {
            let disabled = form.value("disabled") == "yes";
            let body = UserPatch {
                role: Some(role).filter(|role| *role != account.role),
                password: password.map(Password),
                disabled: Some(disabled).filter(|disabled| *disabled != account.disabled),
            };
            let if_match = IfMatch::shown(form.value("revision"));
            let (path, caller) = (Path(name.clone()), visitor.caller());
            let (accounts, sessions) = (State(accounts.clone()), State(sessions));
            rest::update(accounts, sessions, caller, path, if_match, Body(body)).await
        }
        Err(problem) => Err(problem),
    };
    if let Err(mut problem) = edited {
        // Who is the last admin keeps the role.
        if problem.field.as_deref() == Some("name") {
            problem.field = Some("role".into());
        }
        let stale = problem.code == Code::Stale;
        let status = blame(&mut form, &problem, AS_REST);
        if stale {
            changed(&mut form, &find(&accounts, &visitor, &name)?);
        }
        return Ok(ask(&visitor, status, &title, form));
    }
    Ok(visitor.done(links::USERS, format!("User {name} was changed.")))
}

pub async fn ask_delete(
    State(accounts): State<Accounts>,
    visitor: Visitor,
    PathParam(name): PathParam<String>,
) -> Answered {
    find(&accounts, &visitor, &name)?;
    Ok(deletion(&visitor, &name, StatusCode::OK, None))
}

pub async fn delete(
    State(accounts): State<Accounts>,
    PathParam(name): PathParam<String>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    find(&accounts, &visitor, &name)?;
    let (path, any) = (Path(name.clone()), IfMatch::default());
    let deleted = rest::delete(State(accounts), visitor.caller(), path, any);
    if let Err(problem) = deleted.await {
        let (status, error) = (problem.status_code(), problem.detail.into_string());
        return Ok(deletion(&visitor, &name, status, Some(error)));
    }
    Ok(visitor.done(links::USERS, format!("User {name} was deleted.")))
}

fn find(accounts: &Accounts, visitor: &Visitor, name: &str) -> Result<Account, Failure> {
    let account = accounts.find(name);
    account.ok_or_else(|| visitor.not_found("There is no user of that name."))
}

/// A choice of a role.
pub fn roles() -> InputKind {
    InputKind::of(Role::WORDS.map(|word| (word, word)))
}

/// What lists of names with roles are filtered by.
pub fn filters() -> Vec<Input> {
    let role = Input::new("role", "Role").kind(InputKind::any_word(Role::WORDS));
    vec![Input::new("filter", "Name contains"), role]
}

/// Whether the filters let a name with its role pass.
pub fn wanted(list: &Listing<'_>, name: &str, role: Role) -> bool {
    let asked = list.filter("role");
    name.contains(list.filter("filter")) && (asked.is_empty() || role.as_str() == asked)
}

/// The role that was chosen.
pub fn role(form: &Form) -> Result<Role, Problem> {
    convert::parse("role", form.value("role"))
}

pub fn passwords(note: &'static str) -> [Input; 2] {
    let secret = |name, label| Input::new(name, label).kind(InputKind::Secret);
    [
        secret("password", "New password")
            .note(note)
            .hint("At least 8 characters."),
        secret("again", "The same again").note(note),
    ]
}

fn role_input() -> Input {
    let hint = "Viewers look, operators give and take addresses, admins do everything.";
    let input = Input::new("role", "Role").kind(roles());
    input.hint(hint).value("viewer")
}

fn new_form() -> Form {
    let name = Input::new("name", "Name").required();
    let [password, again] = passwords("");
    let inputs = vec![name, role_input(), password.required(), again.required()];
    Form::new(links::USER_NEW, "Make the user", inputs)
}

fn edit_form(account: &Account) -> Form {
    let role = role_input().value(account.role.as_str());
    let [password, again] = passwords("only to give another one");
    let disabled = Input::new("disabled", "Disabled: cannot sign in")
        .kind(InputKind::Tick)
        .hint(
            "Ends the user's sessions. Tokens belong to nobody: revoke those that the user knows.",
        )
        .value(if account.disabled { "yes" } else { "" });
    let revision = Input::new("revision", "").kind(InputKind::Hidden);
    let revision = revision.value(etag::State::of(account).as_str());
    let target = format!("/ui/users/{}/edit", account.name);
    let inputs = vec![role, password, again, disabled, revision];
    Form {
        account: account.name.to_string(),
        ..Form::new(target, "Change the user", inputs)
    }
}

/// What was typed, with what the user has at present beside each field that differs; sent again, it is of this revision.
fn changed(form: &mut Form, account: &Account) {
    let at_present = edit_form(account);
    beside(&at_present, form);
    form.set("revision", at_present.value("revision"));
    form.error = Some(
        "The user has changed since this form was opened. What differs is said beside each field; sending the form again \
         replaces that by what stands in the fields. A new password has to be typed again."
            .to_owned(),
    );
}

/// A new password typed twice; `None` with the mistake noted.
pub fn new_password(form: &mut Form, fields: &Fields) -> Option<String> {
    let password = fields.raw("password");
    if password.chars().count() < 8 {
        form.wrong("password", "At least 8 characters are needed.");
    } else if password != fields.raw("again") {
        form.wrong("again", "That is not the same.");
    } else {
        return Some(password.to_owned());
    }
    None
}

fn ask(visitor: &Visitor, status: StatusCode, title: &str, form: Form) -> Response {
    let page = FormPage::below(links::USERS, "Users", title, form);
    visitor.ask(Nav::Users, status, page)
}

fn deletion(visitor: &Visitor, name: &str, status: StatusCode, error: Option<String>) -> Response {
    let target = format!("/ui/users/{name}/delete");
    let form = Form {
        error,
        ..Form::confirm(target, &format!("Delete {name}"))
    };
    let page = FormPage {
        lead: vec![format!(
            "{name} is signed out at once and cannot sign in any more. What {name} did stays in the audit log."
        )],
        ..FormPage::below(links::USERS, "Users", format!("Delete user {name}?"), form)
    };
    visitor.ask(Nav::Users, status, page)
}
