//! The policy-routing rules of the host.

use axum::{Json, extract::State, response::Response};
use fipd_core::{Family, Timestamp};
use fipd_web_ui::{
    Column, Form, FormPage, Health, Input, InputKind, Nav, Pager, RuleRow, RulesPage, StepRow,
    count, links,
};
use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    fields::Fields,
    list::{Listing, Order},
    page::{Answered, page},
    views,
};
use crate::{
    api::{
        extract::Body,
        page::{self as cursor, Ask},
        rest::rules::{self as rest, foreign_page, own_page, steps},
        ui::session_extract::{Query, SubmittedForm, Visitor},
        wire::{FlushRules, RuleStep},
    },
    rules::{
        EngineState, RuleBoard, View, engine_state,
        rows::{Row, Rows, Standing},
    },
};

/// Rules, or steps of the plan, of one page.
const PAGE: usize = 50;
/// Rules of others beside fipd's.
const FEW: usize = 20;
/// What the query says as `of` where it asks for the plan.
const PLAN: &str = "plan";
const ORDERS: &[Order] = &[
    Order::up("priority", "by priority"),
    Order::up("state", "by state"),
    Order::down("state", "by state, from the end"),
    Order::up("owner", "by who wants it"),
    Order::down("owner", "by who wants it, from the end"),
    Order::up("family", "IPv4 first"),
    Order::down("family", "IPv6 first"),
];
/// Those of the plan.
const STEPS: &[Order] = &[
    Order::up("order", "in their order"),
    Order::up("does", "what adds first"),
    Order::down("does", "what deletes first"),
    Order::up("rule", "by rule"),
    Order::down("rule", "by rule, from the end"),
];

/// What the page lists: rules, or the steps of the plan.
struct Listed {
    filters: Form,
    columns: Vec<Column>,
    steps: Vec<StepRow>,
    rules: Vec<RuleRow>,
    /// Rules of others.
    strange: bool,
    pager: Pager,
}

pub async fn show(
    State(board): State<RuleBoard>,
    visitor: Visitor,
    Query(query): Query,
) -> Answered {
    let rows = Rows::of(board.view());
    let of_plan = query.get("of") == PLAN;
    let listed = match of_plan {
        true => plan(rows.view(), &query),
        false => rules(&rows, &query),
    };
    let view = rows.view();
    let (state, reason) = engine_state(&view.state);
    let others = rows.foreign(0).take(FEW + 1);
    let others: Vec<RuleRow> = others.map(|(_, one)| row(&one)).collect();
    let to_do = view.plan.adds.len() + view.plan.removals.len();
    Ok(page(&RulesPage {
        shell: visitor.shell(Nav::Rules),
        on: view.state != EngineState::Off,
        health: health(&view.state),
        state: state.to_owned(),
        means: reason
            .unwrap_or_else(|| "The kernel's rules are kept as they are to be.".to_owned()),
        node: view.node.as_deref().unwrap_or_default().to_owned(),
        protocol: view.protocol,
        at: (view.at > Timestamp(0)).then(|| views::moment(view.at)),
        may_flush: visitor.is_admin(),
        paused: view.state == EngineState::Paused,
        counts: counts(&rows),
        drift: drift(&rows),
        warnings: warnings(&rows),
        to_do: (to_do > 0).then(|| count(to_do)),
        of_plan,
        steps: listed.steps,
        pager: listed.pager,
        columns: listed.columns,
        rules: listed.rules,
        strange: listed.strange,
        more_foreign: (others.len() > FEW)
            .then(|| format!("{}?state={}", links::RULES, Standing::Foreign.as_str())),
        foreign: others.into_iter().take(FEW).collect(),
        filters: listed.filters,
    }))
}

/// Which list it is.
fn of() -> Input {
    let lists = InputKind::of([("", "Rules"), (PLAN, "Steps of the plan")]);
    Input::new("of", "List").kind(lists)
}

fn rules(rows: &Rows, query: &Fields) -> Listed {
    let words = Standing::OWN.map(Standing::as_str).into_iter();
    let states = InputKind::any_word(words.chain([Standing::Foreign.as_str()]));
    let inputs = vec![
        Input::new("filter", "Rule or owner contains"),
        Input::new("state", "State").kind(states),
        of(),
    ];
    let list = Listing::new(links::RULES, inputs, ORDERS, query);
    let strange = list.filter("state") == Standing::Foreign.as_str();
    let (part, state) = (list.filter("filter"), list.filter("state"));
    let wanted = |one: &Row<'_>| {
        (strange || state.is_empty() || one.standing.as_str() == state) && one.has(part)
    };
    let view = |one: &Row<'_>| wanted(one).then(|| row(one));
    let after = query.get("after");
    let onward = |(rules, next)| (rules, list.onward(after, next));
    let (rules, pager) = match (strange, list.order.key) {
        (true, "priority") => onward(foreign_page(rows, ask(after), view)),
        (false, "priority") => onward(own_page(rows, ask(after), view)),
        (true, _) => sorted(&list, rows.foreign(0).map(|(_, one)| one).filter(wanted)),
        (false, _) => sorted(&list, rows.own(None).filter(wanted)),
    };
    let mut columns = vec![
        list.column("priority", "Rule"),
        list.column("family", "Family"),
        list.column("state", "State"),
    ];
    if !strange {
        columns.push(list.column("owner", "Wanted by"));
    }
    Listed {
        columns,
        steps: Vec::new(),
        rules,
        strange,
        pager,
        filters: list.filters,
    }
}

/// What is still to be done.
fn plan(view: &View, query: &Fields) -> Listed {
    let does = InputKind::any_word(["add", "delete"]);
    let inputs = vec![
        Input::new("filter", "Rule contains"),
        Input::new("does", "Step").kind(does),
        of(),
    ];
    let list = Listing::new(links::RULES, inputs, STEPS, query);
    let (part, does) = (list.filter("filter"), list.filter("does"));
    let wanted =
        |step: &RuleStep| (does.is_empty() || step.does == does) && step.rule.contains(part);
    let found: Vec<_> = steps(&view.plan).filter(wanted).collect();
    let (shown, pager) = match list.order.key {
        "does" => list.page_by(found, PAGE, |step| step.does.clone()),
        "rule" => list.page_by(found, PAGE, |step| step.rule.clone()),
        _ => list.page_by(found, PAGE, |_| ()),
    };
    let row = |step: RuleStep| StepRow {
        does: step.does,
        rule: step.rule,
    };
    Listed {
        columns: vec![list.column("does", "Step"), list.column("rule", "Rule")],
        steps: shown.into_iter().map(row).collect(),
        rules: Vec::new(),
        strange: false,
        pager,
        filters: list.filters,
    }
}

/// Asks whether all of fipd's rules are to go.
pub async fn ask_flush(State(board): State<RuleBoard>, visitor: Visitor) -> Answered {
    Ok(flushing(&board, &visitor, StatusCode::OK, None))
}

/// Removes them; they are gone until somebody brings them back.
pub async fn flush(
    State(board): State<RuleBoard>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let body = Body(FlushRules { dry_run: false });
    let (ipam, rules) = (State(visitor.ipam.clone()), State(board.clone()));
    match rest::flush(ipam, rules, visitor.caller(), body).await {
        Ok(Json(removed)) => {
            let count = count(removed.count);
            let text = format!("{count} of fipd's rules were removed.");
            Ok(visitor.done(links::RULES, text))
        }
        Err(problem) => {
            let why = Some(problem.detail.to_string());
            Ok(flushing(&board, &visitor, problem.status_code(), why))
        }
    }
}

/// Ends what a flush began.
pub async fn resume(
    State(board): State<RuleBoard>,
    SubmittedForm { visitor, .. }: SubmittedForm,
) -> Answered {
    let ipam = State(visitor.ipam.clone());
    let (good, text) = match rest::resume(ipam, State(board), visitor.caller()).await {
        Ok(_) => (true, "Rules that are wanted are brought back.".to_owned()),
        Err(problem) => (false, format!("The pause goes on: {}.", problem.detail)),
    };
    Ok(visitor.redirect_with(links::RULES, good, text))
}

fn flushing(
    board: &RuleBoard,
    visitor: &Visitor,
    status: StatusCode,
    error: Option<String>,
) -> Response {
    let own = Rows::of(board.view()).own_in_kernel();
    let form = Form {
        error,
        ..Form::confirm(links::RULES_FLUSH, "Remove them")
    };
    let page = FormPage {
        lead: vec![format!(
            "{} rules with fipd's tag are in the kernel of this host. Packets from their addresses go by the main table \
             from then on, until somebody brings the rules back here or by fipd rules resume.",
            count(own)
        )],
        caution: "Connections by other tables may break at once.".to_owned(),
        ..FormPage::below(links::RULES, "Rules", "Remove all of fipd's rules?", form)
    };
    visitor.ask(Nav::Rules, status, page)
}

fn ask<K: Serialize + DeserializeOwned>(after: &str) -> Ask<K> {
    Ask {
        limit: PAGE,
        after: cursor::read(after).ok(),
    }
}

/// One page of these in an order that is not the kernel's, within which it stays.
fn sorted<'r>(list: &Listing<'_>, all: impl Iterator<Item = Row<'r>>) -> (Vec<RuleRow>, Pager) {
    let all: Vec<Row<'r>> = all.collect();
    let (shown, pager) = match list.order.key {
        "state" => list.page_by(all, PAGE, |one| one.standing.as_str()),
        "owner" => list.page_by(all, PAGE, Row::owner),
        _ => list.page_by(all, PAGE, |one| one.rule.family == Family::V6),
    };
    (shown.iter().map(row).collect(), pager)
}

pub fn counts(rows: &Rows) -> Vec<(&'static str, String)> {
    let desired = &rows.view().desired;
    let figures = [
        ("To be", desired.rules.len()),
        ("Sources indexed", desired.index.len()),
        ("Missing", rows.missing()),
        ("Surplus", rows.strays()),
        ("Of other programs", rows.foreign_count()),
    ];
    figures.map(|(label, number)| (label, count(number))).into()
}

pub fn drift(rows: &Rows) -> Vec<(&'static str, String)> {
    let drift = rows.view().drift;
    let figures = [
        ("Removed by others", drift.removed),
        ("Added by others", drift.added),
        ("Packet filter changed", drift.index),
        ("Notifications lost", drift.overruns),
    ];
    figures.map(|(label, number)| (label, count(number))).into()
}

fn warnings(rows: &Rows) -> Vec<String> {
    let view = rows.view();
    let warnings = view.warnings.iter().map(|warning| warning.text.clone());
    let clashes = view.desired.clashes.iter().take(FEW);
    let clashes = clashes.map(|(source, winner, loser)| {
        format!("{source} is wanted by {winner} and by {loser}; {winner} has it.")
    });
    warnings.chain(clashes).collect()
}

fn row(one: &Row<'_>) -> RuleRow {
    RuleRow {
        health: match one.standing {
            Standing::Applied | Standing::Indexed => Health::Good,
            Standing::Missing | Standing::Surplus => Health::Bad,
            Standing::Foreign | Standing::Kernel => Health::Busy,
        },
        state: one.standing.as_str().to_owned(),
        owner: views::text(one.owner()),
        family: match one.rule.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        },
        text: one.to_string(),
    }
}

pub fn health(state: &EngineState) -> Health {
    match state {
        EngineState::Active => Health::Good,
        EngineState::Off | EngineState::Starting(_) | EngineState::Paused => Health::Busy,
        EngineState::Degraded(_) => Health::Bad,
    }
}
