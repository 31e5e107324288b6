//! Which pools list an address, and which one of them a lease on it is attributed to.

use super::segments::PoolPart;
use crate::{LeaseKey, LeasePrefix, PoolId, ledger::Ledger};

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
