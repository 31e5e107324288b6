//! How many leases count for which tenant, pool by pool.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use crate::{Lease, LeaseState, PoolId, Tenant, ledger::maps::uncount};

/// Numbers of leases by pool and tenant; none is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct Charges {
    numbers: BTreeMap<Charge, u64>,
    /// Finds pools by tenant.
    pub tenants: TenantPools,
}

/// The pool and the tenant that a lease counts for.
pub(in crate::ledger) type Charge = (PoolId, Tenant);

/// What the lease counts for, if it counts.
pub(in crate::ledger) fn charge(lease: &Lease) -> Option<Charge> {
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
            self.tenants.put(&charge);
            *self.numbers.entry(charge).or_default() += number;
        }
    }

    pub fn uncount(&mut self, charge: &Charge) {
        if uncount(&mut self.numbers, charge) {
            self.tenants.remove(charge);
        }
    }

    pub fn forget(&mut self, charge: &Charge) {
        self.numbers.remove(charge);
        self.tenants.remove(charge);
    }

    pub fn of(&self, charge: &Charge) -> u64 {
        self.numbers.get(charge).copied().unwrap_or(0)
    }

    /// What leases count for, in order, and how many.
    pub fn after<'a>(
        &'a self,
        from: Bound<&'a Charge>,
    ) -> impl Iterator<Item = (&'a Charge, &'a u64)> {
        self.numbers.range((from, Bound::Unbounded))
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// The pools of charges or quotas, by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct TenantPools(BTreeSet<(Tenant, PoolId)>);

impl TenantPools {
    pub fn put(&mut self, (pool, tenant): &Charge) {
        if !self.0.contains(&(tenant.clone(), *pool)) {
            self.0.insert((tenant.clone(), *pool));
        }
    }

    pub fn remove(&mut self, (pool, tenant): &Charge) {
        self.0.remove(&(tenant.clone(), *pool));
    }

    /// The tenant's pools by number, those whose charge is above `after`.
    pub fn of<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: Option<&Charge>,
    ) -> impl Iterator<Item = PoolId> + use<'a> {
        let from = match after {
            None => Bound::Included((tenant.clone(), PoolId::default())),
            Some((pool, other)) if tenant > other => Bound::Included((tenant.clone(), *pool)),
            Some((pool, _)) => Bound::Excluded((tenant.clone(), *pool)),
        };
        let found = self.0.range((from, Bound::Unbounded));
        let found = found.take_while(move |(one, _)| one == tenant);
        found.map(|(_, pool)| *pool)
    }
}
