//! Rows of the last hour.

use crate::{
    Actor, Answer, Hour, Op, PoolId, Timestamp,
    ledger::{
        Ledger,
        draft::{Draft, Draw, LockedTable},
    },
};

impl Ledger {
    /// Rows of the last hour that is over, of up to `most` pools after `after` in which something happened.
    pub(super) fn plan_roll_up(
        &self,
        after: Option<PoolId>,
        most: usize,
        actor: &Actor,
        now: Timestamp,
    ) -> Draw {
        self.unlocked(LockedTable::Rollups)?;
        // A pool that is being deleted must not get a row after its end.
        self.unlocked(LockedTable::Pools)?;
        let mut draft = Draft::new(now, actor);
        let hour = Hour::of(now).before(1);
        let mut pools = self.pools_after(after).map(|pool| pool.id).peekable();
        let mut last = after;
        for pool in pools.by_ref().take(most.max(1)) {
            last = Some(pool);
            draft
                .flight
                .ops
                .extend(self.row(pool, hour).map(Op::PutRollup));
        }
        draft.flight.table = Some(LockedTable::Rollups);
        let rows = draft.flight.ops.len();
        let next = last.filter(|_| pools.peek().is_some());
        Ok((draft, Answer::RolledUp { rows, next }))
    }
}
