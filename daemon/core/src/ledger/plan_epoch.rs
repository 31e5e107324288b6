//! What is held back: networks until they are adopted, and free addresses after a restore. How that hold passes and is
//! lifted.

use super::{
    Ledger,
    plan::{Draft, Draw, Stop},
    tentative::Table,
};
use crate::{Action, Actor, Answer, Epoch, NetworkId, Op, Refusal, RestoreHold, Text, Timestamp};

impl Ledger {
    /// The restore that the rows come from; `None` in a store that was never restored.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.rows.epoch.as_ref()
    }

    /// Until when free addresses are held after a restore.
    pub fn restore_hold(&self) -> Option<RestoreHold> {
        self.epoch()?.hold
    }

    /// Refuses what would give an address of a network that waits for clusters.
    pub(super) fn check_adopted(&self, network: NetworkId) -> Result<(), Refusal> {
        let holds = self.gate.holds(network);
        if holds.is_empty() {
            return Ok(());
        }
        Err(Refusal::NetworkHeld {
            network: self.network_name(network),
            waiting: holds.to_vec(),
        })
    }

    /// Refuses what would give a free address while they are held.
    pub(super) fn check_restored(&self) -> Result<(), Refusal> {
        match self.restore_hold() {
            Some(RestoreHold { until, .. }) => Err(Refusal::RestoreHeld { until }),
            None => Ok(()),
        }
    }

    pub(super) fn plan_pass_hold(&self, elapsed: u64, actor: &Actor, now: Timestamp) -> Draw {
        let (epoch, hold) = self.held_epoch()?;
        let hold = hold.after(elapsed, now);
        let mut draft = ending(Epoch { hold, ..epoch }, actor, now);
        if hold.is_none() {
            draft.say(Action::RestoreHoldEnded, "its time is over".into());
        }
        Ok((draft, Answer::Done))
    }

    pub(super) fn plan_lift_hold(&self, reason: &Text, actor: &Actor, now: Timestamp) -> Draw {
        if reason.trim().is_empty() {
            return Err(Refusal::Invalid {
                field: "reason",
                value: reason.to_string(),
                allowed: "why free addresses are certainly free".to_owned(),
            }
            .into());
        }
        let (epoch, _) = self.held_epoch()?;
        let mut draft = ending(
            Epoch {
                hold: None,
                ..epoch
            },
            actor,
            now,
        );
        draft.say(Action::RestoreHoldEnded, reason.clone());
        Ok((draft, Answer::Done))
    }

    /// Answers at once where nothing is held.
    fn held_epoch(&self) -> Result<(Epoch, RestoreHold), Stop> {
        self.unlocked(Table::Epoch)?;
        let held = self
            .epoch()
            .and_then(|epoch| epoch.hold.map(|hold| (*epoch, hold)));
        held.ok_or(Stop::Answer(Answer::Done))
    }
}

fn ending(epoch: Epoch, actor: &Actor, now: Timestamp) -> Draft {
    let mut draft = Draft::new(now, actor);
    draft.flight.table = Some(Table::Epoch);
    draft.flight.ops.push(Op::PutEpoch(epoch));
    draft
}
