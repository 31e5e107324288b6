//! A ledger from the rows of a store, and its rows again.

use super::{Ledger, Violation, index::LeaseIndex, space::free::Free};
use crate::Op;

impl Ledger {
    /// A ledger of stored rows, in any order. Fails with everything that is wrong with them.
    pub fn load(ops: impl Iterator<Item = Op>, revision: u64) -> Result<Self, Vec<Violation>> {
        let mut ledger = Self::at(revision);
        let (mut pools, mut leases, mut pasts) = (Vec::new(), Vec::new(), Vec::new());
        for op in ops {
            if let Op::PutPool(pool) = op {
                pools.push(pool);
            } else if let Op::PutLease(mut lease) = op {
                // At once, so that the next row reuses the room of this one's copies.
                ledger.interner.keep(&mut lease);
                leases.push(lease);
            } else if let Op::PutPast(past) = op {
                pasts.push(past);
            } else {
                ledger.apply(&op);
            }
        }
        leases.sort_by_key(|lease| lease.key);
        ledger.index = LeaseIndex::of_sorted(&leases);
        ledger.free = Free::of_sorted(&leases);
        let rows = leases.len();
        ledger.rows.leases = leases.into_iter().map(|lease| (lease.key, lease)).collect();
        // Free space is counted from the leases, so pools come last.
        ledger.place_all(&pools);
        for pool in pools {
            ledger.put_pool(pool);
        }
        for past in pasts {
            ledger.free.remember(past);
        }
        let mut violations = Vec::new();
        if rows != ledger.rows.leases.len() {
            violations.push(Violation::index("leases", "several rows of one address"));
        }
        ledger.check_rows(&mut violations);
        if violations.is_empty() {
            Ok(ledger)
        } else {
            Err(violations)
        }
    }

    /// All rows as ops, but roll-ups older than a forecast looks back; [`Ledger::load`] of them gives an equal ledger.
    pub fn dump(&self) -> impl Iterator<Item = Op> {
        let pasts = self.free.memory().rows().cloned().map(Op::PutPast);
        let rollups = self.rollups.rows().copied().map(Op::PutRollup);
        let separations = self.separations_after(None).map(Op::PutSeparation);
        let rows = self.rows.dump().chain(separations);
        rows.chain(pasts).chain(rollups)
    }
}
