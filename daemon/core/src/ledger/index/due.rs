//! Leases that end by themselves, by when they do.

use std::collections::BTreeSet;

use crate::{Lease, LeaseKey, LeaseState, Timestamp};

/// The ends, soonest first.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Due(BTreeSet<(Timestamp, LeaseKey)>);

impl Due {
    /// Enters a lease, if it has an end.
    pub fn add(&mut self, lease: &Lease) {
        self.0.extend(end(lease));
    }

    /// Takes a lease out, as it was when it was entered.
    pub fn remove(&mut self, lease: &Lease) {
        if let Some(end) = end(lease) {
            self.0.remove(&end);
        }
    }

    /// The soonest end.
    pub fn first(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// All of them.
    pub fn soonest(&self) -> impl Iterator<Item = (Timestamp, LeaseKey)> {
        self.0.iter().copied()
    }

    /// The first `most` leases whose end has come at `now`, and whether there are more.
    pub fn at(&self, now: Timestamp, most: usize) -> (Vec<LeaseKey>, bool) {
        let mut come = self.0.iter().take_while(|(at, _)| *at <= now);
        let keys = come.by_ref().take(most).map(|(_, key)| *key).collect();
        (keys, come.next().is_some())
    }

    /// Whether the lease is entered if it has an end.
    pub fn has(&self, lease: &Lease) -> bool {
        end(lease).is_none_or(|end| self.0.contains(&end))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// When the lease ends by itself.
pub(in crate::ledger) fn end(lease: &Lease) -> Option<(Timestamp, LeaseKey)> {
    match lease.state {
        LeaseState::Reserved | LeaseState::Probing | LeaseState::Quarantined => {
            lease.until.map(|at| (at, lease.key))
        }
        LeaseState::Allocated | LeaseState::Orphaned => None,
    }
}
