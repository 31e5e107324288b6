//! Taking the rules of this host over from the original ip-rule-operator, which did not tag them.
//!
//! ```text
//!  IPRules, IPRuleConfigs, programs, Lease, kernel --observe--> inventory --judge--> report --> REST, command line
//! ```

mod judge;
mod observe;

use std::sync::Arc;

use fipd_core::{
    System, Text,
    host::{Rule, RuleSet},
};
use fipd_crds::ip_rule::{IPRule, IPRuleConfig};

use crate::{
    adopt::{
        self, AdoptLog, ChangeState, Looked, OriginalWorkload, Takeover, TakeoverError,
        TakeoverFuture, TakeoverReport, leases::LeaseHolder,
    },
    clusters::ClusterSession,
    rules::{Command, RuleBoard, View},
};

/// Looks at clusters of the system and takes this host's rules over.
pub struct RuleTakeover {
    /// What this daemon calls itself in Leases.
    me: Text,
    board: RuleBoard,
}

/// What was seen.
pub struct RuleInventory {
    pub rules: Vec<IPRule>,
    pub configs: Vec<IPRuleConfig>,
    /// The original's workloads.
    pub programs: Looked<Vec<OriginalWorkload>>,
    /// Who has the Lease by which the original's controller leads.
    pub lease: LeaseHolder,
    /// What is wanted on this host, in the order in which sources are given.
    pub sets: Vec<RuleSet>,
    /// The rules of this host.
    pub view: Arc<View>,
}

/// What is found. A rule without tag that is an IPRuleConfig's in full is taken over.
pub type RuleReport = TakeoverReport<Rule>;

impl RuleTakeover {
    pub fn new(me: Text, board: RuleBoard) -> Self {
        Self { me, board }
    }

    async fn report(&self, session: &ClusterSession) -> Result<RuleReport, TakeoverError> {
        adopt::require(session, &System::ip_rule())?;
        let found = observe::find(session, &self.me, &self.board).await?;
        Ok(judge::report(&found))
    }

    async fn take_all(&self, log: AdoptLog<'_>) -> Result<RuleReport, TakeoverError> {
        let mut report = self.report(log.session).await?.unblocked()?;
        let actions = report.changes.iter().filter_map(|one| one.action.clone());
        let rules: Vec<Rule> = actions.collect();
        if rules.is_empty() {
            return Ok(report);
        }
        let count = rules.len();
        let what = format!("{count} rules without tag are being taken over");
        let begun = log.begin(&what).await;
        begun.map_err(TakeoverError::NotBegun)?;
        let command = Command::AdoptUntagged {
            rules: rules.clone(),
            dry_run: false,
        };
        let done = self.board.order(command).await;
        log.end(&match &done {
            Ok(taken) => format!(
                "{} of {count} rules without tag were taken over",
                taken.len()
            ),
            Err(why) => format!("rules without tag were not all taken over: {why}"),
        })
        .await;
        let taken = done?;
        let view = self.board.view();
        let refused = judge::refused(&rules, &sets_of(&self.board), &view);
        for change in &mut report.changes {
            let Some(rule) = &change.action else { continue };
            let was_there = taken.iter().any(|one| one.rule == *rule);
            change.state = match (was_there, refused.get(rule)) {
                (true, _) => ChangeState::Done,
                // Packets would take another table.
                (false, Some(why)) => ChangeState::Failed(format!("it was left alone: {why}")),
                (false, None) if view.kernel.iter().any(|one| one.rule == *rule) => {
                    ChangeState::Failed("it is still there: run it again".to_owned())
                }
                (false, None) => ChangeState::Needless("it was not there any more".to_owned()),
            };
        }
        Ok(report)
    }
}

impl Takeover for RuleTakeover {
    fn look<'a>(&'a self, session: &'a ClusterSession) -> TakeoverFuture<'a> {
        Box::pin(async { Ok(self.report(session).await?.shown()) })
    }

    fn adopt<'a>(&'a self, log: AdoptLog<'a>) -> TakeoverFuture<'a> {
        Box::pin(async move { Ok(self.take_all(log).await?.shown()) })
    }
}

fn sets_of(board: &RuleBoard) -> Vec<RuleSet> {
    board.wanted().sets().cloned().collect()
}
