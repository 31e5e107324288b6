//! Quotas and what tenants hold, as they are read.

use std::{collections::BTreeSet, ops::Bound};

use super::{
    Ledger,
    index::charges::Charge,
    quotas::{first_of, without_quota},
    rows_read::CountedRows as _,
};
use crate::{PoolId, Quota, QuotaUsage, Tenancy, Tenant};

impl Ledger {
    /// The tenant's quota in the pool, with its use.
    pub fn quota(&self, pool: PoolId, tenant: &Tenant) -> Option<QuotaUsage> {
        let key = (pool, tenant.clone());
        let limit = self.rows.quotas.get(&key)?;
        Some(self.quota_usage(&key, *limit))
    }

    /// How much counts for the tenant in the pool, in the unit of the pool's quotas.
    pub fn charged(&self, pool: PoolId, tenant: &Tenant) -> u64 {
        let leases = self.index.charges.of(&(pool, tenant.clone()));
        leases.saturating_mul(self.weight_of(pool))
    }

    /// How much of a quota one lease of the pool is.
    pub(super) fn weight_of(&self, pool: PoolId) -> u64 {
        let pool = self.rows.pools.get(&pool);
        pool.map_or(1, |pool| pool.spec.quota_weight())
    }

    /// Quotas (of the tenant, of the pool) by pool number and tenant, after the one of `after`, at most `limit`.
    pub fn quotas(
        &self,
        tenant: Option<&Tenant>,
        pool: Option<PoolId>,
        after: Option<(PoolId, Tenant)>,
        limit: usize,
    ) -> Vec<QuotaUsage> {
        let usage = |(key, limit): (&Charge, &u64)| self.quota_usage(key, *limit);
        if let (Some(tenant), Some(pool)) = (tenant, pool) {
            let is_next = after.is_none_or(|after| after < (pool, tenant.clone()));
            let found = self.quota(pool, tenant).filter(|_| is_next);
            return found.into_iter().take(limit).collect();
        }
        if let Some(tenant) = tenant {
            let pools = self.rows.quota_tenants.of(tenant, after.as_ref());
            let found = pools.counted().filter_map(|pool| self.quota(pool, tenant));
            return found.take(limit).collect();
        }
        let first = pool.map(first_of);
        let from = match (&first, &after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let within = |(key, _): &(&Charge, &u64)| pool.is_none_or(|pool| key.0 == pool);
        let rows = self.quotas_after(from).take_while(within);
        rows.take(limit).counted().map(usage).collect()
    }

    /// Who holds something of a pool or has a quota in it (all, or the tenant), by pool number and tenant, after the
    /// one of `after`, at most `limit`.
    pub fn tenancies(
        &self,
        tenant: Option<&Tenant>,
        after: Option<(PoolId, Tenant)>,
        limit: usize,
    ) -> Vec<Tenancy> {
        if let Some(tenant) = tenant {
            let charged = self.index.charges.tenants.of(tenant, after.as_ref());
            let limited = self.rows.quota_tenants.of(tenant, after.as_ref());
            let pools: BTreeSet<PoolId> = charged.take(limit).chain(limited.take(limit)).collect();
            let found = pools.into_iter().counted().map(|pool| {
                let key = (pool, tenant.clone());
                let limit = self.rows.quotas.get(&key).copied();
                self.tenancy(&key, self.index.charges.of(&key), limit)
            });
            return found.take(limit).collect();
        }
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        // Both are in the same order: one walk has them all, without a look-up for each.
        let mut limits = self.quotas_after(from).peekable();
        let mut charges = self.index.charges.after(from).peekable();
        let next = || {
            let limited = limits.peek().map(|(key, _)| *key);
            let charged = charges.peek().map(|(key, _)| *key);
            let key = limited.into_iter().chain(charged).min()?;
            let limit = limits.next_if(|(one, _)| *one == key);
            let used = charges.next_if(|(one, _)| *one == key);
            let used = used.map_or(0, |(_, used)| *used);
            Some(self.tenancy(key, used, limit.map(|(_, limit)| *limit)))
        };
        std::iter::from_fn(next).take(limit).counted().collect()
    }

    fn tenancy(&self, (pool, tenant): &Charge, used: u64, quota: Option<u64>) -> Tenancy {
        Tenancy {
            pool: *pool,
            tenant: tenant.clone(),
            used: used.saturating_mul(self.weight_of(*pool)),
            limit: quota.or_else(|| without_quota(self.rows.pools.get(pool)?)),
        }
    }

    pub(super) fn quotas_after<'a>(
        &'a self,
        from: Bound<&'a Charge>,
    ) -> impl Iterator<Item = (&'a Charge, &'a u64)> {
        self.rows.quotas.range((from, Bound::Unbounded))
    }

    fn quota_usage(&self, key: &Charge, limit: u64) -> QuotaUsage {
        QuotaUsage {
            quota: Quota {
                pool: key.0,
                tenant: key.1.clone(),
                limit,
            },
            used: self.charged(key.0, &key.1),
        }
    }
}
