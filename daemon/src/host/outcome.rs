//! What is told about the kernel after a pass.

use std::{sync::Arc, time::Duration};

use fipd_core::{
    Text,
    host::{Desired, Plan},
};
use tokio::time::Instant;

use super::{kernel::Listing, session::Session};
use crate::{
    clock,
    rules::{EngineState, Reached, Warning},
};

/// What is left to be done for so long is told.
const LATE: Duration = Duration::from_secs(5);

/// How the kernel is after a pass.
pub(super) struct PassOutcome {
    pub desired: Arc<Desired>,
    pub listing: Listing,
    pub plan: Plan,
    /// `None`: others changed rules all the time, so that nothing can be said.
    pub reached: Option<Reached>,
    pub missing: Vec<Text>,
    pub refused: Vec<String>,
}

impl Session<'_> {
    pub fn conclude(&mut self, outcome: PassOutcome) {
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
            _ if self.is_late() => EngineState::Degraded(
                "others change rules all the time, so that not all is as it is to be; it is tried again".to_owned(),
            ),
            _ => EngineState::Active,
        };
        self.engine.show(|view| {
            view.state = state;
            view.at = clock::now();
            view.desired = outcome.desired;
            view.kernel = Arc::new(outcome.listing.rules);
            view.plan = Arc::new(outcome.plan);
            view.warnings = warnings;
        });
    }

    fn is_late(&self) -> bool {
        let since = self.unfinished_since;
        since.is_some_and(|since| since.elapsed() > LATE)
    }

    fn warnings(&self, outcome: &PassOutcome) -> Vec<Warning> {
        let stuck = outcome.plan.stuck.iter().map(|rule| {
            Warning::new(
                "stuck",
                format!(
                    "{rule} cannot be deleted: another's rule of the same tag would go in its place"
                ),
            )
        });
        let index = match outcome.desired.not_indexed {
            0 => None,
            // Without a packet filter that was asked for there is no warning.
            count => Some(Warning::new(
                "not-indexed",
                format!(
                    "{count} sources should be indexed and are flat rules, which slows down every packet"
                ),
            )),
        };
        let flood = match outcome.desired.refused.len() {
            0 => None,
            count => Some(Warning::new(
                "not-applied",
                format!(
                    "{count} sources have no rule: they should be indexed and cannot be, and so many flat rules would slow down \
                     every packet. Install nftables, or say mode \"flat\" to have them all the same"
                ),
            )),
        };
        let fight = self.engine.contention.warning(Instant::now()).cloned();
        let some = [
            self.engine.notes.warning(),
            self.engine.rejected_echoes.warning(),
            fight,
            self.filter_problem.clone(),
            index,
            flood,
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
