//! How many leases count for which tenant, pool by pool.

use std::{collections::BTreeMap, ops::Bound};

use crate::{Lease, LeaseState, PoolId, Tenant};

/// Numbers of leases by pool and tenant; none is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Charges(BTreeMap<Charge, u64>);

/// The pool and the tenant that a lease counts for.
pub(super) type Charge = (PoolId, Tenant);

/// What the lease counts for, if it counts.
pub(super) fn charge(lease: &Lease) -> Option<Charge> {
    if lease.state == LeaseState::Quarantined {
        return None;
    }
    Some((lease.pool?, lease.tenant.clone()?))
}

impl Charges {
    /// Counts a lease.
    pub fn add(&mut self, lease: &Lease) {
        if let Some(charge) = charge(lease) {
            self.count(charge, 1);
        }
    }

    /// Uncounts a lease, as it was when it was counted.
    pub fn remove(&mut self, lease: &Lease) {
        if let Some(charge) = charge(lease) {
            self.uncount(&charge);
        }
    }

    pub fn count(&mut self, charge: Charge, number: u64) {
        if number > 0 {
            *self.0.entry(charge).or_default() += number;
        }
    }

    pub fn uncount(&mut self, charge: &Charge) {
        if let Some(number) = self.0.get_mut(charge) {
            *number -= 1;
            if *number == 0 {
                self.0.remove(charge);
            }
        }
    }

    pub fn forget(&mut self, charge: &Charge) {
        self.0.remove(charge);
    }

    pub fn of(&self, charge: &Charge) -> u64 {
        self.0.get(charge).copied().unwrap_or(0)
    }

    /// What leases count for, in order, and how many.
    pub fn after<'a>(
        &'a self,
        from: Bound<&'a Charge>,
    ) -> impl Iterator<Item = (&'a Charge, &'a u64)> {
        self.0.range((from, Bound::Unbounded))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
