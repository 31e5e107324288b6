//! Quotas: decided and counted.
//!
//! What a decision in flight adds for a tenant that has a quota is counted ahead, so that requests planned beside
//! each other cannot exceed it together. Without a quota nothing is counted ahead; a quota that becomes one while
//! decisions are in flight counts them then.

use super::{
    Change, Ledger,
    draft::InFlight,
    index::charges::{Charge, Charges, TenantPools, charge},
    violation::Violation,
};
use crate::{LeaseKey, Op, Pool, PoolId, Quota, Tenant, Text};

impl Ledger {
    /// Whether there is any quota, or one may come of a decision in flight.
    pub(super) fn has_quotas(&self) -> bool {
        !self.rows.quotas.is_empty() || !self.drafts.leaves_quotas()
    }

    /// The most that the tenant may have; `None`: any number.
    pub(super) fn limit_of(&self, key: &Charge) -> Option<u64> {
        let pool = self.rows.pools.get(&key.0);
        pool.and_then(|pool| self.limit_in(pool, key))
    }

    pub(super) fn limit_in(&self, pool: &Pool, key: &Charge) -> Option<u64> {
        let limit = self.rows.quotas.get(key).copied();
        limit.or_else(|| without_quota(pool))
    }

    /// What the decision adds for tenants with a quota. The same from its start to its end: the leases are locked.
    fn added(&self, flight: &InFlight) -> Vec<Charge> {
        if self.rows.quotas.is_empty() {
            return Vec::new();
        }
        let new = |op: &Op| {
            let Op::PutLease(lease) = op else { return None };
            let new = charge(lease).filter(|new| self.rows.quotas.contains_key(new))?;
            (self.charge_at(lease.key).as_ref() != Some(&new)).then_some(new)
        };
        flight.ops.iter().filter_map(new).collect()
    }

    fn charge_at(&self, key: LeaseKey) -> Option<Charge> {
        self.rows.leases.get(&key).and_then(|lease| charge(lease))
    }

    /// A decision goes in flight.
    pub(super) fn count_ahead(&mut self, flight: &InFlight) {
        for charge in self.added(flight) {
            self.drafts.charges.count(charge, 1);
        }
    }

    /// A decision is in flight no more; nothing of it is in the rows yet.
    pub(super) fn uncount_ahead(&mut self, flight: &InFlight) {
        if self.drafts.charges.is_empty() {
            return;
        }
        for charge in self.added(flight) {
            self.drafts.charges.uncount(&charge);
        }
    }

    pub(super) fn put_quota(&mut self, quota: &Quota) {
        let key = (quota.pool, quota.tenant.clone());
        self.rows.quota_tenants.put(&key);
        let known = self.rows.quotas.insert(key.clone(), quota.limit);
        if known.is_none() {
            let flights = self.drafts.flights();
            let added = flights.flat_map(|flight| self.added(flight));
            let ahead = added.filter(|added| *added == key).count();
            self.drafts.charges.count(key, ahead as u64);
        }
    }

    pub(super) fn drop_quota(&mut self, pool: PoolId, tenant: &Tenant) {
        let key = (pool, tenant.clone());
        self.rows.quotas.remove(&key);
        self.rows.quota_tenants.remove(&key);
        self.drafts.charges.forget(&key);
    }

    /// Notes the tenants that may be given more once `op` is applied.
    pub(super) fn note_room(&self, op: &Op, change: &mut Change) {
        if let Op::PutQuota(Quota {
            pool,
            tenant,
            limit,
        }) = op
        {
            change.pools.push(*pool);
            let known = self.limit_of(&(*pool, tenant.clone()));
            if known.is_some_and(|known| known < *limit) {
                change.tenants.push(tenant.clone());
            }
        }
        if let Op::DeleteQuota { pool, tenant } = op {
            change.pools.push(*pool);
            change.tenants.push(tenant.clone());
        }
        if self.rows.quotas.is_empty() {
            return;
        }
        if let Op::PutPool(pool) = op
            && pool.spec.quota_weight() < self.weight_of(pool.id)
        {
            let quotas = self.rows.quotas.range(first_of(pool.id)..);
            let mine = quotas.take_while(|((of, _), _)| *of == pool.id);
            change
                .tenants
                .extend(mine.map(|((_, tenant), _)| tenant.clone()));
        }
        let (before, after) = if let Op::PutLease(lease) = op {
            (self.charge_at(lease.key), charge(lease))
        } else if let Op::DeleteLease(key) = op {
            (self.charge_at(*key), None)
        } else {
            return;
        };
        let freed = before
            .filter(|freed| after.as_ref() != Some(freed) && self.rows.quotas.contains_key(freed));
        change.tenants.extend(freed.map(|(_, tenant)| tenant));
    }

    /// Quotas name pools that there are.
    pub(super) fn check_quotas(&self, found: &mut Vec<Violation>) {
        let unknown = self
            .rows
            .quotas
            .keys()
            .filter(|(pool, _)| !self.rows.pools.contains_key(pool));
        found.extend(unknown.map(|(pool, tenant)| Violation::QuotaOfUnknownPool {
            pool: *pool,
            tenant: tenant.clone(),
        }));
    }

    /// Whether the counts say what the rows and the decisions in flight say.
    pub(super) fn charges_follow(&self) -> bool {
        let (mut used, mut ahead) = (Charges::default(), Charges::default());
        for lease in self.rows.leases.values() {
            used.add(lease);
        }
        let flights = self.drafts.flights();
        for charge in flights.flat_map(|flight| self.added(flight)) {
            ahead.count(charge, 1);
        }
        let mut quotas = TenantPools::default();
        self.rows.quotas.keys().for_each(|key| quotas.put(key));
        used == self.index.charges
            && ahead == self.drafts.charges
            && quotas == self.rows.quota_tenants
    }
}

/// The most that a tenant may have of the pool to whom no quota gives a number.
pub(super) fn without_quota(pool: &Pool) -> Option<u64> {
    pool.spec.quota_required.then_some(0)
}

/// Below all quotas of the pool.
pub(super) fn first_of(pool: PoolId) -> Charge {
    (pool, Tenant(Text::default()))
}
