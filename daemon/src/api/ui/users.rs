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
    page::{Answered, Failure, go_to, page},
    session_extract::{PathParam, Query, SubmittedForm, Visitor},
    views,
};
use crate::api::{
    access::accounts::Accounts,
    convert,
    etag::{self, IfMatch},
    extract::Path,
    page::Ask,
    problem::{Code, Problem},
    rest::users as rest,
    ui::Sessions,
    wire::{Password, UserCreate, UserPatch},
};
use crate::ipam::Ipam;

/// Users of one page.
const PAGE: usize = 100;
const ORDERS: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::down("role", "admins first"),
    Order::up("role", "viewers first"),
    Order::down("created", "newest first"),
    Order::up("created", "oldest first"),
];
/// What the query says as `by` where it asks for those whom a provider vouches for.
const PROVIDER: &str = "provider";
/// Their orders.
const PROVIDED: &[Order] = &[
    Order::up("name", "by name"),
    Order::down("name", "by name, from the end"),
    Order::down("role", "admins first"),
    Order::up("role", "viewers first"),
    Order::down("sessions", "most sessions first"),
    Order::up("sessions", "fewest sessions first"),
];

/// Accounts, or who is signed in without one.
pub async fn list(
    State(ipam): State<Ipam>,
    State(sessions): State<Arc<Sessions>>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let by_provider = query.get("by") == PROVIDER;
    let orders = if by_provider { PROVIDED } else { ORDERS };
    let by = [("", "with a password"), (PROVIDER, "by the provider")];
    let by = by.map(|(value, label)| (value.to_owned(), label.to_owned()));
    let mut inputs = filters();
    inputs.push(Input::new("by", "Sign in").kind(InputKind::Choice(by.to_vec())));
    let list = Listing::new(links::USERS, inputs, orders, &query);
    let all = sessions.provided();
    let signed_in = all.len();
    let (users, provided, pager) = match by_provider {
        true => {
            let (provided, pager) = provided(&list, all, &query);
            (Vec::new(), provided, pager)
        }
        false => {
            let (users, pager) = accounts(&ipam, &visitor, &list, &query).await;
            (users, Vec::new(), pager)
        }
    };
    let last = match by_provider {
        true => list.numbers("sessions", "Sessions"),
        false => list.column("created", "Made"),
    };
    Ok(page(&UsersPage {
        shell: visitor.shell(Nav::Users),
        columns: vec![
            list.column("name", "Name"),
            list.column("role", "Role"),
            last,
        ],
        filters: list.filters,
        users,
        provided,
        signed_in,
        pager,
    }))
}

async fn accounts(
    ipam: &Ipam,
    visitor: &Visitor,
    list: &Listing<'_>,
    query: &Fields,
) -> (Vec<UserRow>, Pager) {
    let wanted = |account: &&Account| {
        let wanted = wanted(list, &account.name, account.role);
        wanted.then(|| (*account).clone())
    };
    let accounts = all(ipam, |ledger, after: Option<Text>| {
        let accounts = ledger.accounts_after(after.as_deref());
        Ask::step().of(accounts, |account| Text::clone(&account.name), wanted)
    })
    .await;
    let (accounts, pager) = match list.order.key {
        "role" => list.page_by(accounts, |one| one.role, PAGE, query),
        "created" => list.page_by(accounts, |one| one.created, PAGE, query),
        _ => list.page_by(accounts, |one| Text::clone(&one.name), PAGE, query),
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

fn provided(
    list: &Listing<'_>,
    mut all: Vec<(Text, Role, usize)>,
    query: &Fields,
) -> (Vec<ProvidedRow>, Pager) {
    all.retain(|(name, role, _)| wanted(list, name, *role));
    let (shown, pager) = match list.order.key {
        "role" => list.page_by(all, |one| one.1, PAGE, query),
        "sessions" => list.page_by(all, |one| one.2, PAGE, query),
        _ => list.page_by(all, |one| Text::clone(&one.0), PAGE, query),
    };
    let row = |(name, role, sessions): (Text, Role, usize)| ProvidedRow {
        name: name.to_string(),
        role: role.as_str().to_owned(),
        sessions,
    };
    (shown.into_iter().map(row).collect(), pager)
}

pub async fn new(visitor: Visitor) -> Answered {
    Ok(ask(&visitor, StatusCode::OK, "Make a user", new_form()))
}

pub async fn create(State(accounts): State<Accounts>, posted: SubmittedForm) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let mut form = new_form();
    typed(&mut form, &fields);
    let name = form.value("name").to_owned();
    let Some(password) = new_password(&mut form, &fields) else {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Ok(ask(&visitor, status, "Make a user", form));
    };
    let made = match role(&form) {
        Ok(role) => {
            let password = Password(password);
            let name = name.clone();
            let body = UserCreate {
                name,
                role,
                password,
            };
            rest::make(&accounts, &visitor.caller(), body).await
        }
        Err(problem) => Err(problem),
    };
    if let Err(problem) = made {
        let status = blame(&mut form, &problem, AS_REST);
        return Ok(ask(&visitor, status, "Make a user", form));
    }
    visitor.tell(true, format!("User {name} was made."), None);
    Ok(go_to(links::USERS))
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
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, fields } = posted;
    let account = find(&accounts, &visitor, &name)?;
    let mut form = edit_form(&account);
    typed(&mut form, &fields);
    let title = format!("Change user {name}");
    let wants_password = !fields.raw("password").is_empty() || !fields.raw("again").is_empty();
    let password = match wants_password {
        true => new_password(&mut form, &fields),
        false => None,
    };
    let is_new = form.value("edition") != etag::State::of(&account).as_str();
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
            let if_match = IfMatch::shown(form.value("edition"));
            rest::change(
                &accounts,
                &sessions,
                &visitor.caller(),
                &name,
                if_match,
                body,
            )
            .await
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
    visitor.tell(true, format!("User {name} was changed."), None);
    Ok(go_to(links::USERS))
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
    posted: SubmittedForm,
) -> Answered {
    let SubmittedForm { visitor, .. } = posted;
    find(&accounts, &visitor, &name)?;
    let deleted = rest::delete(
        State(accounts.clone()),
        visitor.caller(),
        Path(name.clone()),
        IfMatch::default(),
    );
    if let Err(problem) = deleted.await {
        let (status, error) = (problem.status_code(), problem.detail.into_string());
        return Ok(deletion(&visitor, &name, status, Some(error)));
    }
    visitor.tell(true, format!("User {name} was deleted."), None);
    Ok(go_to(links::USERS))
}

fn find(accounts: &Accounts, visitor: &Visitor, name: &str) -> Result<Account, Failure> {
    let account = accounts.find(name);
    account.ok_or_else(|| visitor.not_found("There is no user of that name."))
}

/// Value and label of each role.
pub fn roles() -> Vec<(String, String)> {
    Role::WORDS
        .map(|word| (word.to_owned(), word.to_owned()))
        .to_vec()
}

/// What lists of names with roles are filtered by.
pub fn filters() -> Vec<Input> {
    let role = Input::new("role", "Role").kind(Form::any_of(roles()));
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
    let input = Input::new("role", "Role").kind(InputKind::Choice(roles()));
    input.hint(hint).value("viewer")
}

fn new_form() -> Form {
    let name = Input::new("name", "Name").required();
    let [password, again] = passwords("");
    Form {
        target: links::USER_NEW.to_owned(),
        inputs: vec![name, role_input(), password.required(), again.required()],
        button: "Make the user".to_owned(),
        ..Form::default()
    }
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
    let edition = Input::new("edition", "").kind(InputKind::Hidden);
    let edition = edition.value(etag::State::of(account).as_str());
    Form {
        target: links::user(&account.name),
        inputs: vec![role, password, again, disabled, edition],
        button: "Change the user".to_owned(),
        account: account.name.to_string(),
        ..Form::default()
    }
}

/// What was typed, with what the user has at present beside each field that differs; sent again, it is of this edition.
fn changed(form: &mut Form, account: &Account) {
    let at_present = edit_form(account);
    beside(&at_present, form);
    form.set("edition", at_present.value("edition"));
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
    let page = FormPage {
        title: title.to_owned(),
        trail: vec![(links::USERS.to_owned(), "Users".to_owned())],
        form,
        back: links::USERS.to_owned(),
        ..FormPage::default()
    };
    visitor.ask(Nav::Users, status, page)
}

fn deletion(visitor: &Visitor, name: &str, status: StatusCode, error: Option<String>) -> Response {
    let page = FormPage {
        title: format!("Delete user {name}?"),
        trail: vec![(links::USERS.to_owned(), "Users".to_owned())],
        lead: vec![format!(
            "{name} is signed out at once and cannot sign in any more. What {name} did stays in the audit log."
        )],
        form: Form {
            error,
            ..Form::confirm(links::user_delete(name), format!("Delete {name}"))
        },
        back: links::USERS.to_owned(),
        ..FormPage::default()
    };
    visitor.ask(Nav::Users, status, page)
}
