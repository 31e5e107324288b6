//! Which pools list an address, and which one of them a lease on it is attributed to.

use super::segments::PoolPart;
use crate::{ClusterId, Identity, Lease, LeaseKey, LeasePrefix, Origin, PoolId, ledger::Ledger};

impl Ledger {
    /// The pool that an address or prefix found in use is attributed to: of those that give what is as long and list it an
    /// open one, the smallest, the oldest.
    pub(in crate::ledger) fn pool_around(&self, prefix: LeasePrefix) -> Option<PoolId> {
        self.pool_around_but(prefix, None)
    }

    /// The same, as if there were not the other pool.
    pub(in crate::ledger) fn pool_around_but(
        &self,
        prefix: LeasePrefix,
        other: Option<PoolId>,
    ) -> Option<PoolId> {
        let pools = self.pools_around(prefix);
        let others = pools.filter(|(.., pool)| Some(*pool) != other);
        others.min().map(|(.., pool)| pool)
    }

    /// The pool that a lease is counted to once `to` has it. From one cluster to another it leaves the pool that mirrors an object of
    /// the first, which may go, for one of the second that lists it too.
    pub(in crate::ledger) fn pool_with(&self, lease: &Lease, to: &Identity) -> Option<PoolId> {
        let of_cluster = |pool: PoolId| {
            let pool = self.rows.pools.get(&pool)?;
            match &pool.spec.origin {
                Origin::Mirror {
                    system, cluster, ..
                } => Some((system == &to.system, cluster)),
                Origin::Own => None,
            }
        };
        let (Some(before), Some(cluster)) = (lease.pool, &to.cluster) else {
            return lease.pool;
        };
        let holds = |its: &ClusterId| {
            let mut holders = lease.members.iter().map(|member| &member.holder.identity);
            holders.any(|one| one.cluster.as_ref() == Some(its))
        };
        if of_cluster(before).is_none_or(|(_, its)| its == cluster || !holds(its)) {
            return lease.pool;
        }
        let theirs = |(.., pool): &(bool, u128, PoolId)| of_cluster(*pool) == Some((true, cluster));
        let pools = self.pools_around(lease.prefix()).filter(theirs);
        pools.min().map(|(.., pool)| pool).or(lease.pool)
    }

    /// The pools that list it and give what is as long. The lowest is the one that it is attributed to.
    pub(in crate::ledger) fn pools_around(
        &self,
        prefix: LeasePrefix,
    ) -> impl Iterator<Item = (bool, u128, PoolId)> {
        let parts = self.free.stab(prefix).iter();
        parts.filter_map(|part| self.attribution_rank(part))
    }

    /// Where the pool comes among those that something may be attributed to.
    pub(in crate::ledger) fn attribution_rank(
        &self,
        part: &PoolPart,
    ) -> Option<(bool, u128, PoolId)> {
        let pool = self.rows.pools.get(&part.pool)?;
        let layout = &self.free.room(part.pool)?.layout;
        let addresses = layout.size.listed.saturating_mul(layout.unit());
        Some((pool.spec.closed, addresses, part.pool))
    }

    /// Whether the pool may give the address.
    pub(in crate::ledger) fn assigns(&self, key: LeaseKey, pool: PoolId) -> bool {
        let part = self.free.part(key, pool);
        part.is_some_and(|part| part.in_range())
    }
}
