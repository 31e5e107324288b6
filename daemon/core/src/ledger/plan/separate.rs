//! An admin says that two networks are two, or takes it back.

use crate::{
    Action, Actor, Answer, Op, Refusal, Timestamp,
    ledger::{
        Ledger,
        ambiguity::{Separation, separation},
        draft::{Draft, Draw, LockedTable, Stop},
    },
};

impl Ledger {
    pub(super) fn plan_separate(
        &self,
        (a, b): Separation,
        apart: bool,
        actor: &Actor,
        now: Timestamp,
    ) -> Draw {
        self.unlocked(LockedTable::Pools)?;
        for network in [a, b] {
            if !self.rows.networks.contains_key(&network) {
                return Err(Refusal::UnknownNetwork(network).into());
            }
        }
        if a == b {
            return Err(Refusal::Invalid {
                field: "network",
                value: self.network_name(a).to_string(),
                allowed: "two different networks".to_owned(),
            }
            .into());
        }
        let pair = separation(a, b);
        if self.separated(a, b) == apart {
            return Err(Stop::Answer(Answer::Done));
        }
        let mut draft = Draft::new(now, actor);
        draft.flight.table = Some(LockedTable::Pools);
        draft.flight.edits.extend([a, b]);
        let (op, action) = if apart {
            (Op::PutSeparation(pair), Action::NetworksSeparated)
        } else {
            (Op::DeleteSeparation(pair), Action::SeparationWithdrawn)
        };
        draft.flight.ops.push(op);
        let detail = format!(
            "{} and {}",
            self.network_name(pair.0),
            self.network_name(pair.1)
        );
        draft.say(action, detail.into());
        Ok((draft, Answer::Done))
    }
}
