//! `fipd.io`: fipd's own kinds. Pools of addresses as objects of a cluster, and claims on addresses of them.
//!
//! A [`Pool`] with the label [`crate::labels::MANAGED_BY`] mirrors a pool of fipd's address book, so that other objects
//! can refer to it; one without it is the source of a pool, as every [`NamespacedPool`] is. What the values mean is
//! judged elsewhere.

mod claim;
mod pool;

pub use claim::{AddressClaim, AddressClaimSpec, AddressClaimStatus, PoolRef};
pub(crate) use pool::ADDRESSES;
pub use pool::{NamespacedPool, NamespacedPoolSpec, Pool, PoolSpec, PoolStatus, ReservedEnds};

/// The API group of all three kinds.
pub const GROUP: &str = "fipd.io";

/// [`PoolRef::kind`]: a [`Pool`].
pub const POOL: &str = "Pool";
/// [`PoolRef::kind`]: a [`NamespacedPool`] of the claim's own namespace.
pub const NAMESPACED_POOL: &str = "NamespacedPool";
/// [`ReservedEnds::of`]: the ends of the network that the prefix length makes.
pub const OF_PREFIX: &str = "Prefix";
/// [`ReservedEnds::of`]: the ends of each CIDR of the pool.
pub const OF_EACH_CIDR: &str = "EachCidr";

#[cfg(test)]
mod tests;
