//! Taking the rules of this host over from the original ip-rule-operator, which did not tag them.
//!
//! ```text
//!  IPRules, IPRuleConfigs, programs, Lease, kernel --observe--> Found --judge--> Report --> REST, command line
//! ```

mod judge;
mod observe;

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{
    Action, Actor, System, Text,
    host::{Refusal, Rule, RuleSet},
};
use fipd_crds::ip_rule::{IPRule, IPRuleConfig};

use crate::{
    clusters::{CallError, ClusterSession},
    rules::{Command, CommandError, RuleBoard, View},
};

/// Looks at clusters of the system and takes this host's rules over.
#[derive(Clone, Default)]
pub struct Takeover {
    /// What this daemon calls itself in Leases.
    me: Text,
    board: RuleBoard,
}

/// Why there is no report, or nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(
        "cluster {0} does not have the system ip-rule: its systems in the configuration lack \"ip-rule\""
    )]
    NotServed(Text),
    #[error(transparent)]
    Cluster(#[from] CallError),
    /// Nothing was changed.
    #[error("nothing was taken over: {}", .0.join("; "))]
    Blocked(Vec<String>),
    #[error("not begun, as the audit log cannot be written: {0}")]
    Unnoted(String),
    #[error(transparent)]
    Rules(#[from] CommandError),
    #[error("it broke off; the audit log says what was begun: {0}")]
    Broken(#[from] tokio::task::JoinError),
}

/// What was seen.
pub struct Found {
    pub rules: Vec<IPRule>,
    pub configs: Vec<IPRuleConfig>,
    /// The original's workloads, or why they could not be looked at.
    pub programs: Result<Vec<Program>, String>,
    pub lease: LeaseSeen,
    /// What is wanted on this host, in the order in which sources are given.
    pub sets: Vec<RuleSet>,
    /// The rules of this host.
    pub view: Arc<View>,
}

/// A workload of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Such as `DaemonSet NAMESPACE/NAME`.
    pub name: String,
    /// Pods that it is to have.
    pub wanted: i32,
}

/// Who has the Lease by which the original's controller leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseSeen {
    /// Nobody, or this daemon.
    Free,
    Other {
        by: String,
        /// Whether it was renewed between two looks.
        alive: bool,
    },
    Unknown(String),
}

/// What is found, and what would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many of each there are.
    pub counts: BTreeMap<&'static str, usize>,
    pub findings: Vec<Finding>,
    pub changes: Vec<Change>,
    /// What could not be looked at.
    pub unseen: Vec<String>,
    /// Why nothing is taken over at present; empty: it can be.
    pub blockers: Vec<String>,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `leftover`, `malformed`, `program`, `refused` or `unwanted`.
    pub kind: &'static str,
    pub name: String,
    /// Whether all is well with it.
    pub fine: bool,
    pub says: String,
}

/// A rule without tag that is an IPRuleConfig's in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub rule: Rule,
    pub does: String,
    /// `None`: it is planned.
    pub done: Option<Result<(), Undone>>,
}

/// Why a rule was not taken over after all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undone {
    #[error("it was not there any more")]
    Gone,
    /// Packets would take another table.
    #[error("it was left alone: {0}")]
    Refused(Refusal),
}

impl Takeover {
    pub fn new(me: Text, board: RuleBoard) -> Self {
        Self { me, board }
    }

    /// What is found in the cluster and on this host, and what would change. Changes nothing.
    pub async fn look(&self, session: &ClusterSession) -> Result<Report, AdoptError> {
        if !session.systems.contains(&System::ip_rule()) {
            return Err(AdoptError::NotServed(Text::clone(&session.name)));
        }
        let found = observe::find(session, &self.me, &self.board).await?;
        Ok(judge::report(&found))
    }

    /// Does it, and says what became of it. Doing it again changes nothing. To its end also where nobody waits for it.
    pub async fn take_over(
        &self,
        session: &ClusterSession,
        actor: &Actor,
    ) -> Result<Report, AdoptError> {
        let (takeover, session, actor) = (self.clone(), session.clone(), actor.clone());
        let work = async move { takeover.take_all(&session, &actor).await };
        tokio::spawn(work).await?
    }

    async fn take_all(
        &self,
        session: &ClusterSession,
        actor: &Actor,
    ) -> Result<Report, AdoptError> {
        let mut report = self.look(session).await?;
        if !report.blockers.is_empty() {
            return Err(AdoptError::Blocked(report.blockers));
        }
        if report.changes.is_empty() {
            return Ok(report);
        }
        let rules: Vec<Rule> = report.changes.iter().map(|one| one.rule.clone()).collect();
        let count = rules.len();
        note(
            session,
            actor,
            format!("{count} rules without tag are being taken over"),
        )
        .await
        .map_err(AdoptError::Unnoted)?;
        let command = Command::AdoptUntagged {
            rules: rules.clone(),
            dry_run: false,
        };
        let done = self.board.order(command).await;
        let end = match &done {
            Ok(taken) => format!(
                "{} of {count} rules without tag were taken over",
                taken.len()
            ),
            Err(why) => format!("rules without tag were not all taken over: {why}"),
        };
        if let Err(why) = note(session, actor, end).await {
            tracing::warn!(cluster = %session.name, why, "not in the audit log");
        }
        let taken = done?;
        let refused = judge::refused(&rules, &sets_of(&self.board), &self.board.view());
        for change in &mut report.changes {
            let was_there = taken.iter().any(|one| one.rule == change.rule);
            change.done = Some(match was_there {
                true => Ok(()),
                false => Err(match refused.get(&change.rule) {
                    Some(why) => Undone::Refused(why.clone()),
                    None => Undone::Gone,
                }),
            });
        }
        Ok(report)
    }
}

fn sets_of(board: &RuleBoard) -> Vec<RuleSet> {
    let wishes = board.wanted().wishes;
    wishes
        .values()
        .flat_map(|sets| sets.iter().cloned())
        .collect()
}

async fn note(session: &ClusterSession, actor: &Actor, what: String) -> Result<(), String> {
    let (what, actor) = (format!("{}: {what}", session.name), Actor::clone(actor));
    let noted = session.ipam.note(Action::TakenOver, what, actor);
    noted.await.map_err(|error| error.to_string())
}
