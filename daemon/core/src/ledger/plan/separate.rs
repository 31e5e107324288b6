//! An admin says that two networks are two, or takes it back.

use crate::{
    Action, Answer, Op, Refusal, Separation,
    ledger::{
        Ledger,
        ambiguity::separation,
        draft::{Draft, Draw, LockedTable, Stop},
    },
};

impl Ledger {
    pub(super) fn plan_separate(&self, (a, b): Separation, apart: bool, mut draft: Draft) -> Draw {
        self.lock(LockedTable::Pools, &mut draft)?;
        self.check_network(a)?;
        self.check_network(b)?;
        if a == b {
            let allowed = "two different networks";
            return Err(Refusal::invalid("network", self.network_name(a), allowed).into());
        }
        let pair = separation(a, b);
        if self.separated(a, b) == apart {
            return Err(Stop::Answer(Answer::Done));
        }
        draft.flight.edits.extend([a, b]);
        let (op, action) = if apart {
            (Op::PutSeparation(pair), Action::NetworksSeparated)
        } else {
            (Op::DeleteSeparation(pair), Action::SeparationWithdrawn)
        };
        let (one, other) = (self.network_name(pair.0), self.network_name(pair.1));
        Ok(draft.done(op, action, format!("{one} and {other}")))
    }
}
