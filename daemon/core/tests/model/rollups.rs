//! What the model counts of each pool until its hour is over.

use std::collections::BTreeMap;

use fipd_core::{Lease, LeaseState, PoolId};

use super::Model;

/// Addresses that got a holder, and that lost their last one.
pub type Counts = BTreeMap<PoolId, (u64, u64)>;

impl Model {
    /// Counts what a row did to the leases. Where the pool moves they stay whose they are.
    pub fn count(&mut self, before: &[Lease], moves: bool) {
        if !moves {
            for pool in appeared(before, &self.leases) {
                self.counts.entry(pool).or_default().0 += 1;
            }
            for pool in appeared(&self.leases, before) {
                self.counts.entry(pool).or_default().1 += 1;
            }
        }
        let pools = &self.pools;
        self.counts
            .retain(|id, _| pools.iter().any(|pool| pool.id == *id));
    }

    pub fn locks_pools(&self) -> bool {
        self.flights.iter().any(super::Flight::locks_pools)
    }
}

/// The pools of the leases that somebody holds only in `after`.
fn appeared(before: &[Lease], after: &[Lease]) -> Vec<PoolId> {
    let held = |lease: &&Lease| lease.state != LeaseState::Quarantined;
    let known = |lease: &Lease| {
        before
            .iter()
            .filter(held)
            .any(|known| known.key == lease.key)
    };
    let new = after.iter().filter(held).filter(|lease| !known(lease));
    new.filter_map(|lease| lease.pool).collect()
}
