//! What can be wrong with a ledger.

use crate::{
    ClusterId, LeaseKey, LeasePrefix, LeaseState, NetworkId, PoolId, PortClaim, Tenant, Text,
    refusal::joined,
};

/// A broken invariant. Names the rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("{}: its row says {} of network {}", at(.row), .says.address, .says.network.0)]
    LeaseUnderOtherKey { row: LeaseKey, says: LeaseKey },
    #[error("{}: the network does not exist", at(.lease))]
    UnknownNetwork { lease: LeaseKey },
    #[error("{}: the address is an IPv4 address written as IPv6", at(.lease))]
    MappedAddress { lease: LeaseKey },
    #[error("{}: bits are set behind its length {length}", at(.lease))]
    HostBits { lease: LeaseKey, length: u8 },
    #[error("{}: it overlaps {other}, which has a lease of its own", at(.lease))]
    Overlap { lease: LeaseKey, other: LeasePrefix },
    #[error("{}: its pool {} gives other lengths than {length}", at(.lease), .pool.0)]
    PoolOfOtherLength {
        lease: LeaseKey,
        pool: PoolId,
        length: u8,
    },
    #[error("{}: its pool {} does not exist", at(.lease), .pool.0)]
    UnknownPool { lease: LeaseKey, pool: PoolId },
    #[error("{}: its pool {} is in another network", at(.lease), .pool.0)]
    PoolOfOtherNetwork { lease: LeaseKey, pool: PoolId },
    #[error("{}: its pool {} is of the other family", at(.lease), .pool.0)]
    PoolOfOtherFamily { lease: LeaseKey, pool: PoolId },
    #[error("{}: pool {} lists the address, but the lease has no pool", at(.lease), .pool.0)]
    Unattributed { lease: LeaseKey, pool: PoolId },
    #[error("{}: it has {members} members in state {state:?}", at(.lease))]
    Members {
        lease: LeaseKey,
        state: LeaseState,
        members: usize,
    },
    #[error("{}: it has {members} members without a sharing group", at(.lease))]
    NotShared { lease: LeaseKey, members: usize },
    #[error("{}: {port} is used by two members", at(.lease))]
    SamePortTwice { lease: LeaseKey, port: PortClaim },
    #[error("{}: {identity} is in it twice", at(.lease))]
    SameIdentityTwice { lease: LeaseKey, identity: String },
    #[error("{}: its labels: {why}", at(.lease))]
    Labels { lease: LeaseKey, why: String },
    #[error("{}: its contenders are not ordered by age", at(.lease))]
    ContendersOutOfOrder { lease: LeaseKey },
    #[error("{}: the uses noted for {identity} are not separate parts of it", at(.lease))]
    ContenderUses { lease: LeaseKey, identity: String },
    #[error("{}: its end does not fit the state {state:?}", at(.lease))]
    Until { lease: LeaseKey, state: LeaseState },
    #[error("pool {}: {why}", .pool.0)]
    InvalidPool { pool: PoolId, why: String },
    #[error("pool {}: its network {} does not exist", .pool.0, .network.0)]
    PoolInUnknownNetwork { pool: PoolId, network: NetworkId },
    #[error("several pools are named or mirror the same: {name}")]
    SamePoolName { name: Text },
    #[error("several networks are named {name}")]
    SameNetworkName { name: Text },
    #[error("pool {}: the next pool would get number {}", .pool.0, .next.0)]
    PoolNumber { pool: PoolId, next: PoolId },
    #[error("quota of tenant {}: its pool {} does not exist", .tenant.0, .pool.0)]
    QuotaOfUnknownPool { pool: PoolId, tenant: Tenant },
    #[error("past {}: {why}", at(.address))]
    PastLease {
        address: LeaseKey,
        why: &'static str,
    },
    #[error("several clusters are named {name}: {}", joined(.clusters, ", "))]
    SameClusterName {
        name: Text,
        clusters: Vec<ClusterId>,
    },
    #[error("{what} do not follow from the rows at {row}")]
    Index { what: &'static str, row: String },
}

impl Violation {
    pub(super) fn index(what: &'static str, row: impl ToString) -> Self {
        let row = row.to_string();
        Self::Index { what, row }
    }
}

fn at(key: &LeaseKey) -> String {
    format!("lease {} of network {}", key.address, key.network.0)
}
