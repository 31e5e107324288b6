//! `/api/v1/rules`: the policy-routing rules of this host.

use std::time::Duration;

use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fipd_core::{
    Action, Actor, Family, Text, Timestamp,
    host::{KernelRule, Plan, Step, check_table},
};
use sha2::{Digest as _, Sha256};

use crate::api::{
    access::auth::Caller,
    extract::{Body, Query},
    page::Ask,
    problem::{Code, Problem},
    wire::{
        Checked, FlushRules, ForeignRulePage, Outcome, PageQuery, PruneForeignRules, RuleClash,
        RuleDrift, RulePage, RulePlan, RuleQuery, RuleStep, RuleView, RuleWarning, RulesRemoved,
    },
};
use crate::{
    clock,
    ipam::Ipam,
    rules::{
        Command, CommandError, EngineState, RuleBoard, View, engine_state,
        rows::{Row, Rows, RulePosition, Standing},
    },
};

/// How long a command may take until its asker is told that it goes on.
const DEADLINE: Duration = Duration::from_secs(30);
/// Entries of the lists that have no pages.
const FEW: usize = 100;
/// Rules that an answer names.
const MANY: usize = 1_000;

/// How the rules of this host stand, and those that are to be.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", params(RuleQuery),
    responses((status = 200, body = RulePage), (status = 400, body = Problem), (status = 422, body = Problem)))]
pub async fn show(
    State(rules): State<RuleBoard>,
    Query(query): Query<RuleQuery>,
) -> Result<Json<RulePage>, Problem> {
    let ask = Ask::<RulePosition>::new(query.limit, query.cursor.as_deref())?;
    let state = query.state.as_deref().map(standing).transpose()?;
    let part = query.q.as_deref().unwrap_or_default();
    let rows = Rows::of(rules.view());
    let wanted = |row: &Row<'_>| {
        let fits = state.is_none_or(|state| row.standing == state) && row.has(part);
        fits.then(|| rule_view(row))
    };
    let (rules, next) = own_page(&rows, ask, wanted);
    Ok(Json(page(&rows, rules, next)))
}

/// Rules of others, which fipd leaves alone.
#[utoipa::path(get, path = "/api/v1/rules/foreign", tag = "rules", params(PageQuery),
    responses((status = 200, body = ForeignRulePage), (status = 400, body = Problem), (status = 422, body = Problem)))]
pub async fn foreign(
    State(rules): State<RuleBoard>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ForeignRulePage>, Problem> {
    let ask = Ask::<u64>::new(query.limit, query.cursor.as_deref())?;
    let rows = Rows::of(rules.view());
    let (rules, next) = foreign_page(&rows, ask, |row| Some(rule_view(row)));
    Ok(Json(ForeignRulePage { rules, next }))
}

/// What would be added to the kernel's rules and deleted from them now. Changes nothing.
#[utoipa::path(get, path = "/api/v1/rules/plan", tag = "rules", params(PageQuery),
    responses((status = 200, body = RulePlan), (status = 400, body = Problem), (status = 422, body = Problem)))]
pub async fn plan(
    State(rules): State<RuleBoard>,
    Query(query): Query<PageQuery>,
) -> Result<Json<RulePlan>, Problem> {
    let ask = Ask::<u64>::new(query.limit, query.cursor.as_deref())?;
    let view = rules.view();
    let (steps, next) = ask.walk(|after, limit| {
        let page = Ask::<u64> { limit, after: None };
        let rest = steps(&view.plan).enumerate().skip(behind(after));
        page.of(rest, |(at, _)| *at as u64, |(_, step)| Some(step.clone()))
    });
    let (state, reason) = engine_state(&view.state);
    let all = view.plan.adds.len() + view.plan.removals.len();
    let adds = steps_that_add(&view.plan);
    Ok(Json(RulePlan {
        state: state.to_owned(),
        reason,
        at: looked_at(&view),
        adds: adds as u64,
        deletes: (all - adds) as u64,
        stuck: first(FEW, &view.plan.stuck),
        steps,
        next,
    }))
}

/// Removes all of fipd's own rules, which do not come back before `resume`, or only says which these are.
#[utoipa::path(post, path = "/api/v1/rules/flush", tag = "rules", request_body = FlushRules,
    responses((status = 200, body = RulesRemoved), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub async fn flush(
    State(ipam): State<Ipam>,
    State(rules): State<RuleBoard>,
    caller: Caller,
    Body(FlushRules { dry_run }): Body<FlushRules>,
) -> Result<Json<RulesRemoved>, Problem> {
    let command = Command::Flush { dry_run };
    let what = "flush of all of fipd's rules";
    let removed = match dry_run {
        true => order(rules.clone(), command).await?,
        false => audited(&ipam, &rules, caller.actor, what, command).await?,
    };
    let done = match dry_run {
        true => "would be removed",
        false => "were removed; `fipd rules resume` brings back what is wanted",
    };
    let message = format!("{} of fipd's rules {done}", removed.len());
    Ok(Json(answer(dry_run, message, &removed, None)))
}

/// Ends what a flush began: rules that are wanted come back.
#[utoipa::path(post, path = "/api/v1/rules/resume", tag = "rules",
    responses((status = 200, body = Outcome), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub async fn resume(
    State(ipam): State<Ipam>,
    State(rules): State<RuleBoard>,
    caller: Caller,
) -> Result<Json<Outcome>, Problem> {
    let what = "end of the pause after a flush";
    audited(&ipam, &rules, caller.actor, what, Command::Resume).await?;
    let message = "rules that are wanted are brought back".to_owned();
    Ok(Json(Outcome { message }))
}

/// Removes rules of other programs that ask a table, those of the kernel apart. Without `plan` it only says which these are.
#[utoipa::path(post, path = "/api/v1/rules/prune-foreign", tag = "rules", request_body = PruneForeignRules,
    responses((status = 200, body = RulesRemoved), (status = 409, body = Problem), (status = 422, body = Problem),
        (status = 503, body = Problem)))]
pub async fn prune_foreign(
    State(ipam): State<Ipam>,
    State(rules): State<RuleBoard>,
    caller: Caller,
    Body(body): Body<PruneForeignRules>,
) -> Result<Json<RulesRemoved>, Problem> {
    let table = check_table(body.table)
        .map_err(|error| Problem::invalid("table", error.value, error.allowed))?;
    let priorities = body.priorities.map(<(u32, u32)>::from);
    if let Some((from, to)) = priorities.filter(|(from, to)| from > to) {
        let (given, allowed) = (
            format!("{from}-{to}"),
            "the first, and one that is not before it",
        );
        return Err(Problem::invalid("priorities", given, allowed));
    }
    let prune = |confirmed| Command::PruneForeign {
        table,
        priorities,
        confirmed,
    };
    let found = order(rules.clone(), prune(None)).await?;
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let token = token(table, priorities, &lines);
    let Some(plan) = body.plan else {
        let message = format!("{} rules of others would be removed", found.len());
        return Ok(Json(answer(true, message, &found, Some(token))));
    };
    if plan != token {
        return Err(CommandError::Changed.into());
    }
    let what = format!("removal of rules of others that ask table {table}");
    let removed = audited(&ipam, &rules, caller.actor, &what, prune(Some(lines))).await?;
    let message = format!("{} rules of others were removed", removed.len());
    Ok(Json(answer(false, message, &removed, None)))
}

/// How the rules are, as lines of a check; none where this host has none.
pub fn checks(view: &View) -> Vec<Checked> {
    let (ok, detail) = match &view.state {
        EngineState::Off => return Vec::new(),
        EngineState::Active => {
            let count = view.desired.rules.len();
            (true, format!("{count} are in the kernel"))
        }
        EngineState::Starting(_) | EngineState::Paused | EngineState::Degraded(_) => {
            let (state, why) = engine_state(&view.state);
            (false, format!("{state}: {}", why.unwrap_or_default()))
        }
    };
    let line = |ok, detail: String| Checked::new("rules", ok, detail);
    let warnings = view.warnings.iter();
    let warnings = warnings.map(|warning| line(true, format!("WARNING: {}", warning.text)));
    std::iter::once(line(ok, detail)).chain(warnings).collect()
}

/// Of the rules in their order, and of what was asked for.
fn token(table: u32, priorities: Option<(u32, u32)>, lines: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{table} {priorities:?}\n"));
    for line in lines {
        hash.update(line);
        hash.update("\n");
    }
    URL_SAFE_NO_PAD.encode(hash.finalize())
}

/// Has it done, with one row in the audit log before and one after. It goes on to its end also where the asker goes away.
async fn audited(
    ipam: &Ipam,
    rules: &RuleBoard,
    actor: Actor,
    what: &str,
    command: Command,
) -> Result<Vec<KernelRule>, Problem> {
    if rules.view().state == EngineState::Off {
        return Err(CommandError::Off.into());
    }
    let (ipam, rules) = (ipam.clone(), rules.clone());
    let what = what.to_owned();
    let work = async move {
        note(&ipam, &actor, format!("{what}: begun")).await?;
        let done = order(rules, command).await;
        let end = match &done {
            Ok(removed) => format!("{what}: done, {} rules removed", removed.len()),
            Err(problem) => format!("{what}: not done: {}", problem.detail),
        };
        if let Err(problem) = note(&ipam, &actor, end).await {
            tracing::warn!(what, why = %problem.detail, "not in the audit log");
        }
        done
    };
    let ended = |error| Problem::new(Code::Internal, format!("the task ended early: {error}"));
    tokio::spawn(work).await.map_err(ended)?
}

async fn note(ipam: &Ipam, actor: &Actor, what: String) -> Result<(), Problem> {
    let noted = (ipam).note(Action::RulesChanged, what, Actor::clone(actor));
    Ok(noted.await?)
}

async fn order(board: RuleBoard, command: Command) -> Result<Vec<KernelRule>, Problem> {
    match tokio::time::timeout(DEADLINE, board.order(command)).await {
        Ok(done) => Ok(done?),
        Err(_) => {
            let seconds = DEADLINE.as_secs();
            let detail =
                format!("it was not done within {seconds} s and may go on; look at the rules");
            Err(Problem::new(Code::Timeout, detail))
        }
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        let code = match error {
            CommandError::Off | CommandError::Changed => Code::Conflict,
            CommandError::Degraded(_) | CommandError::Kernel(_) => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

fn answer(
    dry_run: bool,
    message: String,
    rules: &[KernelRule],
    plan: Option<String>,
) -> RulesRemoved {
    RulesRemoved {
        dry_run,
        message,
        count: rules.len() as u64,
        rules: first(MANY, rules),
        plan,
    }
}

fn first<T: ToString>(most: usize, all: &[T]) -> Vec<String> {
    all.iter().take(most).map(ToString::to_string).collect()
}

/// A page of fipd's own rows, of those that `view` shows.
pub fn own_page<V>(
    rows: &Rows,
    ask: Ask<RulePosition>,
    view: impl Fn(&Row<'_>) -> Option<V>,
) -> (Vec<V>, Option<String>) {
    ask.walk(|after, limit| {
        let page = Ask { limit, after: None };
        page.of(rows.own(after.as_ref()), Row::place, &view)
    })
}

/// The same of rows of others.
pub fn foreign_page<V>(
    rows: &Rows,
    ask: Ask<u64>,
    view: impl Fn(&Row<'_>) -> Option<V>,
) -> (Vec<V>, Option<String>) {
    ask.walk(|after, limit| {
        let page = Ask { limit, after: None };
        let rest = rows.foreign(behind(after));
        page.of(rest, |(at, _)| *at as u64, |(_, row)| view(row))
    })
}

/// Where a list goes on that is numbered.
fn behind(after: Option<u64>) -> usize {
    let after = after.map(|after| usize::try_from(after).unwrap_or(usize::MAX));
    after.map_or(0, |after| after.saturating_add(1))
}

fn standing(word: &str) -> Result<Standing, Problem> {
    let found = Standing::OWN.into_iter().find(|one| one.as_str() == word);
    found.ok_or_else(|| {
        let allowed = Standing::OWN.map(Standing::as_str).join(", ");
        Problem::invalid("state", word, allowed)
    })
}

fn looked_at(view: &View) -> Option<String> {
    (view.at > Timestamp(0)).then(|| clock::rfc3339(view.at))
}

/// What a plan does, in its order.
pub fn steps(plan: &Plan) -> impl Iterator<Item = RuleStep> {
    let step = |does: &str, rule: &fipd_core::host::Rule| RuleStep {
        does: does.to_owned(),
        rule: rule.to_string(),
    };
    let adds = plan.adds.iter().map(move |rule| step("add", rule));
    adds.chain(plan.removals.iter().map(move |one| match one {
        Step::Add(rule) => step("add", rule),
        Step::Delete(rule) => step("delete", rule),
    }))
}

/// How many of them add.
pub fn steps_that_add(plan: &Plan) -> usize {
    let again = plan.removals.iter();
    plan.adds.len() + again.filter(|step| matches!(step, Step::Add(_))).count()
}

fn page(rows: &Rows, rules: Vec<RuleView>, next: Option<String>) -> RulePage {
    let view: &View = rows.view();
    let (state, reason) = engine_state(&view.state);
    let warning = |one: &crate::rules::Warning| RuleWarning {
        code: one.code.to_owned(),
        text: one.text.clone(),
    };
    let clashes = view.desired.clashes.iter().take(FEW);
    RulePage {
        state: state.to_owned(),
        reason,
        node: view.node.as_ref().map(Text::to_string),
        protocol: view.protocol,
        at: looked_at(view),
        desired: view.desired.rules.len() as u64,
        indexed: view.desired.index.len() as u64,
        missing: rows.missing() as u64,
        surplus: rows.strays() as u64,
        foreign: rows.foreign_count() as u64,
        drift: RuleDrift {
            removed: view.drift.removed,
            added: view.drift.added,
            index: view.drift.index,
            overruns: view.drift.overruns,
        },
        warnings: view.warnings.iter().map(warning).collect(),
        clashes: clashes
            .map(|(source, winner, loser)| RuleClash {
                source: source.to_string(),
                winner: winner.to_string(),
                loser: loser.to_string(),
            })
            .collect(),
        rules,
        next,
    }
}

fn rule_view(row: &Row<'_>) -> RuleView {
    RuleView {
        state: row.standing.as_str().to_owned(),
        owner: row.owner().map(Text::to_string),
        rule: row.to_string(),
        family: match row.rule.family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        }
        .to_owned(),
        priority: row.rule.priority,
        source: row.source(),
        table: row.rule.action.table(),
        mark: row
            .rule
            .mark
            .map(|mark| format!("{:#x}/{:#x}", mark.value, mark.mask)),
    }
}

#[cfg(test)]
mod tests;
