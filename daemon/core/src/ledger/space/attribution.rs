//! Which pools list an address, and which one of them a lease on it is attributed to.

use super::segments::PoolPart;
use crate::{LeaseKey, PoolId, ledger::Ledger};

impl Ledger {
    /// The pool that an address found in use is attributed to: of those that list it an open one, the smallest,
    /// the oldest.
    pub(in crate::ledger) fn pool_around(&self, key: LeaseKey) -> Option<PoolId> {
        self.pool_around_but(key, None)
    }

    /// The same, as if there were not the other pool.
    pub(in crate::ledger) fn pool_around_but(
        &self,
        key: LeaseKey,
        other: Option<PoolId>,
    ) -> Option<PoolId> {
        let pools = self.pools_around(key);
        let others = pools.filter(|(.., pool)| Some(*pool) != other);
        others.min().map(|(.., pool)| pool)
    }

    /// The pools that list the address. The lowest is the one that it is attributed to.
    pub(in crate::ledger) fn pools_around(
        &self,
        key: LeaseKey,
    ) -> impl Iterator<Item = (bool, u128, PoolId)> {
        let rank = |part: &PoolPart| {
            let pool = self.rows.pools.get(&part.pool)?;
            let listed = self.free.room(part.pool)?.layout.size.listed;
            Some((pool.spec.closed, listed, part.pool))
        };
        self.free.stab(key).iter().filter_map(rank)
    }

    /// Whether the pool may give the address.
    pub(in crate::ledger) fn assigns(&self, key: LeaseKey, pool: PoolId) -> bool {
        let mut parts = self.free.stab(key).iter();
        parts.any(|part| part.pool == pool && part.in_range())
    }
}
