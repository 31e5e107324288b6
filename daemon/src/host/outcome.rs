//! What is told about the kernel after a pass.

use std::sync::Arc;

use fipd_core::{
    Text,
    host::{Desired, Plan, is_own},
};
use tokio::time::Instant;

use super::{kernel::Listing, session::Session};
use crate::{
    clock,
    rules::{EngineState, Reached, Warning},
};

/// How the kernel is after a pass.
pub(super) struct Outcome {
    pub desired: Desired,
    pub listing: Listing,
    pub plan: Plan,
    /// `None`: others changed rules all the time, so that nothing can be said.
    pub reached: Option<Reached>,
    pub missing: Vec<Text>,
    pub refused: Vec<String>,
}

impl Session<'_> {
    pub fn conclude(&mut self, outcome: Outcome) {
        let protocol = self.engine.protocol();
        let own = outcome.listing.rules.iter();
        let own = own
            .filter(|one| is_own(one, protocol))
            .map(|one| one.rule.clone());
        self.engine.left = outcome.listing.quiet.then(|| Arc::new(own.collect()));
        if let Some(reached) = outcome.reached.clone() {
            self.engine.board.reach(reached);
        }
        let warnings = self.warnings(&outcome);
        let state = match (self.engine.paused, outcome.refused.first()) {
            (true, _) => EngineState::Paused,
            (_, Some(refused)) => EngineState::Degraded(refused.clone()),
            _ if !outcome.missing.is_empty() => EngineState::Starting(format!(
                "{} did not say yet which rules are wanted; until then rules are added, and none is removed that may be theirs",
                outcome.missing.join(", ")
            )),
            _ => EngineState::Active,
        };
        self.engine.show(|view| {
            view.state = state;
            view.at = clock::now();
            view.desired = Arc::new(outcome.desired);
            view.kernel = Arc::new(outcome.listing.rules);
            view.plan = Arc::new(outcome.plan);
            view.warnings = warnings;
        });
    }

    fn warnings(&self, outcome: &Outcome) -> Vec<Warning> {
        let stuck = outcome.plan.stuck.iter().map(|rule| Warning {
            code: "stuck",
            text: format!(
                "{rule} cannot be deleted: another's rule of the same tag would go in its place"
            ),
        });
        let index = match outcome.desired.not_indexed {
            0 => None,
            // Without a packet filter that was asked for there is no warning.
            count => Some(Warning {
                code: "not-indexed",
                text: format!(
                    "{count} sources should be indexed and are flat rules, which slows down every packet"
                ),
            }),
        };
        let fight = self.engine.fights.warning(Instant::now()).cloned();
        let some = [
            self.engine.notes.warning(),
            self.engine.unkept.warning(),
            fight,
            self.filter_problem.clone(),
            index,
        ];
        let some = some.into_iter().flatten();
        let node = self.engine.board.node_warnings();
        self.preflight
            .iter()
            .flatten()
            .cloned()
            .chain(node)
            .chain(some)
            .chain(stuck)
            .collect()
    }
}
