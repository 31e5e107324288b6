//! The end of what ends by itself.
//!
//! A reservation that is over is freed at once, quarantine or not: nobody has used the address. So is one whose check on
//! the wire nobody ended: its asker was not told of it.

use super::cluster::CHUNK;
use crate::{
    Action, Answer, LeaseState,
    ledger::{
        Ledger,
        draft::{Draft, Draw},
    },
};

impl Ledger {
    pub(super) fn plan_expire(&self, most: usize, mut draft: Draft) -> Draw {
        let (keys, more) = self.index.due.at(draft.now, most.clamp(1, CHUNK));
        let (keys, more) = self.affordable(keys, more);
        self.settled(keys.iter().copied())?;
        for lease in keys.iter().filter_map(|key| self.rows.leases.get(key)) {
            let what = match lease.state {
                LeaseState::Quarantined => "the quarantine is over",
                LeaseState::Probing => "the check was not finished",
                LeaseState::Reserved | LeaseState::Allocated | LeaseState::Orphaned => {
                    "the reservation is over"
                }
            };
            self.vacate(&mut draft, lease, (Action::Expired, &what.into()), false)?;
        }
        let leases = keys.len();
        Ok((draft, Answer::Moved { leases, more }))
    }
}
