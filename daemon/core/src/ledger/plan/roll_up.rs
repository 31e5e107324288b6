//! Rows of the last hour.

use crate::{
    Answer, Hour, Op, PoolId,
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
        mut draft: Draft,
    ) -> Draw {
        self.lock(LockedTable::Rollups, &mut draft)?;
        // A pool that is being deleted must not get a row after its end.
        self.unlocked(LockedTable::Pools)?;
        let hour = Hour::of(draft.now).before(1);
        let mut pools = self.pools_after(after).map(|pool| pool.id).peekable();
        let mut last = after;
        for pool in pools.by_ref().take(most.max(1)) {
            last = Some(pool);
            let row = self.row(pool, hour);
            draft.flight.ops.extend(row.map(Op::PutRollup));
        }
        let rows = draft.flight.ops.len();
        let next = last.filter(|_| pools.peek().is_some());
        Ok((draft, Answer::RolledUp { rows, next }))
    }
}
