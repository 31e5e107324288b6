//! `fipd rules`.

use std::io::{IsTerminal as _, Write as _};

use clap::Subcommand;
use serde::Serialize;

use super::{
    CliSession,
    client::with_query,
    exit::Failure,
    output::{Format, Table, or_dash},
    session::done,
};
use crate::api::wire::{
    FlushRules, ForeignRulePage, PruneForeignRules, RulePage, RulePlan, RuleQuery, RuleView,
    RulesRemoved,
};

#[derive(Debug, Subcommand)]
pub enum Rules {
    /// How they stand: those that are to be, what is in the kernel, and those of others
    Show {
        /// Only those in which this is, or whose owner has it in its name
        #[arg(short, long, value_name = "TEXT")]
        filter: Option<String>,
        /// Only those that are so
        #[arg(long, value_name = "STATE", value_parser = ["applied", "missing", "indexed", "surplus"])]
        state: Option<String>,
    },
    /// What would be added and deleted now; changes nothing
    Plan,
    /// Remove all of fipd's own rules, until `fipd rules resume`
    Flush {
        /// Do it
        #[arg(long)]
        yes: bool,
    },
    /// Bring the rules back after a flush
    Resume,
    /// Remove rules of other programs that ask a table, once
    PruneForeign {
        #[arg(long, value_name = "N")]
        table: u32,
        /// Only those at these priorities
        #[arg(long, value_name = "A-B", value_parser = priorities)]
        priority: Option<(u32, u32)>,
        /// Do it without asking
        #[arg(long)]
        yes: bool,
    },
}

/// All there is to show.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    own: RulePage,
    foreign_rules: Vec<RuleView>,
}

impl Rules {
    pub(super) async fn run(self, session: &CliSession) -> Result<(), Failure> {
        match self {
            Self::Show { filter, state } => show(session, filter, state).await,
            Self::Plan => session.show_list("/api/v1/rules/plan", "steps", plan).await,
            Self::Flush { yes } => flush(session, yes).await,
            Self::Resume => {
                session
                    .post_and_show("/api/v1/rules/resume", &(), done)
                    .await
            }
            Self::PruneForeign {
                table,
                priority,
                yes,
            } => prune(session, table, priority, yes).await,
        }
    }
}

/// Reads `100-200`, or `100`.
fn priorities(text: &str) -> Result<(u32, u32), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("allowed is one priority or two, such as 100-200".to_owned()),
    }
}

async fn show(
    session: &CliSession,
    filter: Option<String>,
    state: Option<String>,
) -> Result<(), Failure> {
    let query = RuleQuery {
        q: filter,
        state,
        ..RuleQuery::default()
    };
    let path = with_query("/api/v1/rules", &query)?;
    let client = &session.client;
    let own = client.rows(&path, "rules", usize::MAX).await?;
    let foreign = client.rows("/api/v1/rules/foreign", "rules", usize::MAX);
    let foreign: ForeignRulePage = foreign.await?;
    let shown = Shown {
        own,
        foreign_rules: foreign.rules,
    };
    session.output.show(&shown, table)
}

fn table(shown: &Shown) -> Table {
    let own = &shown.own;
    let mut table = Table::new(["STATE", "OWNER", "RULE"]);
    let mut fact = |name: &str, says: String| table.row([name.to_owned(), String::new(), says]);
    let why = own.reason.as_ref().map(|why| format!(": {why}"));
    fact("is", own.state.clone() + &why.unwrap_or_default());
    let node = or_dash(own.node.as_ref());
    fact("host", format!("node {node}, tag {}", own.protocol));
    fact(
        "count",
        format!(
            "{} desired, {} sources indexed, {} missing, {} surplus, {} of others",
            own.desired, own.indexed, own.missing, own.surplus, own.foreign
        ),
    );
    let drift = &own.drift;
    fact(
        "repaired",
        format!(
            "{} removed, {} added, {} times the packet filter, {} times all was read anew",
            drift.removed, drift.added, drift.index, drift.overruns
        ),
    );
    for warning in &own.warnings {
        fact("warning", warning.text.clone());
    }
    for clash in &own.clashes {
        let (source, winner, loser) = (&clash.source, &clash.winner, &clash.loser);
        fact("clash", format!("{source} is of {winner}, not of {loser}"));
    }
    for rule in own.rules.iter().chain(&shown.foreign_rules) {
        let owner = rule.owner.clone().unwrap_or_default();
        table.row([rule.state.clone(), owner, rule.rule.clone()]);
    }
    table
}

fn plan(plan: &RulePlan) -> Table {
    let mut table = Table::new(["STEP", "RULE"]);
    for step in &plan.steps {
        table.row([step.does.clone(), step.rule.clone()]);
    }
    for rule in &plan.stuck {
        table.row(["stuck".to_owned(), rule.clone()]);
    }
    let why = plan.reason.as_ref().map(|why| format!(" ({why})"));
    let why = why.unwrap_or_default();
    let steps = match plan.at {
        Some(_) => format!("{} to add, {} to delete", plan.adds, plan.deletes),
        None => "not known, as the kernel was not looked at yet".to_owned(),
    };
    let all = format!("{steps}; the rules are {}{why}", plan.state);
    table.row(["all".to_owned(), all]);
    table
}

async fn flush(session: &CliSession, yes: bool) -> Result<(), Failure> {
    if !yes {
        return Err(Failure::Input(
            "rules flush removes all of fipd's own rules from this host; say --yes to do it, and see `fipd rules show`"
                .to_owned(),
        ));
    }
    let body = FlushRules { dry_run: false };
    session
        .post_and_show("/api/v1/rules/flush", &body, removals)
        .await
}

async fn prune(
    session: &CliSession,
    table: u32,
    priority: Option<(u32, u32)>,
    yes: bool,
) -> Result<(), Failure> {
    let path = "/api/v1/rules/prune-foreign";
    let mut body = PruneForeignRules {
        table: table.into(),
        priorities: priority.map(<[u32; 2]>::from),
        plan: None,
    };
    let planned: RulesRemoved = session.client.post(path, &body).await?;
    if planned.count == 0 || !(yes || asked(session, &planned)?) {
        return session.output.show(&planned, removals);
    }
    body.plan = planned.plan;
    session.post_and_show(path, &body, removals).await
}

/// Shows the plan and asks whether to do it, if somebody is there to be asked.
fn asked(session: &CliSession, planned: &RulesRemoved) -> Result<bool, Failure> {
    let people = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    session.output.show(planned, removals)?;
    if !people || session.output != Format::Table {
        return Err(Failure::Input(
            "nothing is removed without --yes where nobody can be asked".to_owned(),
        ));
    }
    let mut err = std::io::stderr();
    let prompt = format!("Remove these {} rules of others? [y/N] ", planned.count);
    err.write_all(prompt.as_bytes()).map_err(Failure::failed)?;
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(Failure::failed)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(true),
        _ => Err(Failure::Failed(
            "not confirmed; nothing was removed".to_owned(),
        )),
    }
}

fn removals(removed: &RulesRemoved) -> Table {
    let state = match removed.dry_run {
        true => "planned",
        false => "removed",
    };
    let rules = removed.rules.iter();
    let rows = rules.map(|rule| [state.to_owned(), rule.clone()]);
    let mut table = Table::of(["STATE", "RULE"], rows);
    table.row(["result".to_owned(), removed.message.clone()]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_one_or_a_range() {
        assert_eq!(priorities("100"), Ok((100, 100)));
        assert_eq!(priorities("100-200"), Ok((100, 200)));
        for bad in ["", "-", "200-100", "a-b", "-1", "1-4294967296"] {
            assert!(priorities(bad).is_err(), "{bad}");
        }
    }
}
