//! Why the ledger says no, in words that say what to do.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Collision, Family, Hold, Lease, LeasePrefix, NetworkId, PoolError, PoolId, Tenant, Text,
    Timestamp, prefix_text,
};

/// Why the ledger says no. Nothing has changed then (but for a place in a queue).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "pool {pool} has no {} available: {}; it is asked again when one is freed", if *.of_prefixes { "prefix" } else { "address" }, in_use(*.used, *.size, *.cooling)
    )]
    Exhausted {
        pool: Text,
        used: u128,
        size: u128,
        of_prefixes: bool,
        /// How many of those that were released cool, and when the first of them ends.
        cooling: Option<(u128, Timestamp)>,
    },
    #[error(
        "quota exceeded: tenant {} holds {used} of pool {pool} and may have {limit}; release some or raise the limit", .tenant.0
    )]
    QuotaExceeded {
        tenant: Tenant,
        pool: Text,
        used: u64,
        limit: u64,
    },
    #[error(
        "no pool is there for this asker that has {}; name a pool, or give one a scope that fits", sought(*family, *length, *address)
    )]
    NoPool {
        family: Family,
        /// Bits of the prefix that is to be given; `None` for an address.
        length: Option<u8>,
        address: Option<IpAddr>,
    },
    /// The first reasons, in the order of the pools; `more` were left out. `full`: it waits in a queue.
    #[error("none of the {} pools for this asker can give what is asked for: {}{}", .reasons.len() + .more, joined(.reasons, "; "), if *.more > 0 { "; ..." } else { "" })]
    NoneGives {
        reasons: Vec<Refusal>,
        more: usize,
        full: bool,
    },
    #[error("{address} is held by {owner}; choose another address or release that lease")]
    AddressTaken { address: LeasePrefix, owner: String },
    #[error(
        "{prefix} overlaps {held}, which is held by {owner}; choose another or release that lease"
    )]
    PrefixTaken {
        prefix: IpNet,
        held: IpNet,
        owner: String,
    },
    /// `keep`: it was to be kept for later, or checked first.
    #[error("{address} is in quarantine after a release until about {until}; choose another address, wait, {}", if *.keep { "or let an admin end the quarantine first" } else { "ask as the tenant that had it, or ask an admin" })]
    Quarantined {
        address: LeasePrefix,
        until: Timestamp,
        keep: bool,
    },
    #[error("{address} is not an assignable address of pool {pool}: {why}")]
    NotAssignable {
        pool: Text,
        address: IpAddr,
        why: String,
    },
    #[error(
        "pools {pool} of network {network} and {other} of network {there} may both mean {address}, and nobody chose their networks: an admin says whether they are two with `fipd network separate {network} {there}`, or takes one pool to the other's network with `fipd pool move-network`"
    )]
    NetworkAmbiguous {
        address: IpAddr,
        pool: Text,
        network: Text,
        other: Text,
        there: Text,
    },
    #[error("network {network} gives no new address until it has been adopted: waiting for {}", joined(.waiting, ", "))]
    NetworkHeld { network: Text, waiting: Vec<Hold> },
    #[error("pool {pool} is new and gives no address until what others use of it is known: waiting for {}", joined(.waiting, ", "))]
    PoolHeld { pool: Text, waiting: Vec<Hold> },
    #[error(
        "a backup was restored: until about {until} a free address is given to nobody new, for somebody may use it; an admin may end that with `fipd hold lift`"
    )]
    RestoreHeld { until: Timestamp },
    #[error("pool {0} is closed and gives no new address")]
    PoolClosed(Text),
    #[error("all numbers of pools are used up; change a pool instead of making another")]
    NoPoolNumber,
    #[error("no pool with number {0:?}")]
    UnknownPool(PoolId),
    #[error("no network with number {0:?}")]
    UnknownNetwork(NetworkId),
    #[error("no cluster {0} with orphaned leases")]
    UnknownCluster(String),
    #[error("a pool named {0} already exists; choose another name or update that one")]
    PoolExists(Text),
    #[error("pool {pool} still has {leases} leases; release them first")]
    PoolInUse { pool: Text, leases: u64 },
    #[error("the edit would leave {} leases of pool {pool} out of range ({}{}); release them first or force it", .count, joined(.sample, ", "), if *.count > .sample.len() as u64 { ", ..." } else { "" })]
    WouldOrphan {
        pool: Text,
        count: u64,
        sample: Vec<LeasePrefix>,
    },
    /// `first`: the lowest of them, at most [`Collision::LISTED`].
    #[error("pool {pool} cannot go to network {network}: {count} of its addresses are in use there: {}{}; release them in one of the networks first", joined(.first, ", "), if *.count > .first.len() as u64 { ", ..." } else { "" })]
    Collisions {
        pool: Text,
        network: Text,
        count: u64,
        first: Vec<Collision>,
    },
    #[error(
        "pool {pool} was changed by someone else: it has generation {actual}, not {expected}; read it again"
    )]
    Stale {
        pool: Text,
        expected: u64,
        actual: u64,
    },
    #[error("there is no user {0}")]
    UnknownAccount(Text),
    #[error("a user named {0} already exists; choose another name or change that one")]
    AccountExists(Text),
    #[error(
        "a token named {0} is in use, and the audit log could not tell the two apart; choose another name or revoke that one first"
    )]
    TokenNameTaken(Text),
    #[error("{0} is the last admin who may sign in; make or enable another one first")]
    LastAdmin(Text),
    #[error("nobody holds {0}")]
    NotHeld(IpAddr),
    #[error("{address} is held by {owner} and not by whom it was to be taken from; look again")]
    ChangedHands { address: LeasePrefix, owner: String },
    #[error("{address} cannot be transferred: {why}")]
    NotTransferable { address: LeasePrefix, why: String },
    #[error("{address} cannot be given as it is asked for: {why}")]
    NotShareable { address: IpAddr, why: String },
    #[error("{address} is not being checked on the wire by this owner: {why}")]
    NotProbed { address: IpAddr, why: String },
    #[error("{field}: {value:?} is not allowed: {allowed}")]
    Invalid {
        field: &'static str,
        value: String,
        allowed: String,
    },
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// What callers tell apart of a refusal: what it waits for and how it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass<'a> {
    /// Full: an address may become free.
    Exhausted,
    OverQuota(&'a Tenant),
    /// Somebody has the address, or had it until now.
    AddressTaken(IpAddr),
    NotAssignable,
    /// An admin has to say which networks are one.
    Ambiguous,
    /// Until clusters are adopted.
    Held,
    /// Until the hold after a restore ends.
    RestoreHeld,
    PoolClosed,
    /// No such pool or network, or none for the asker.
    PoolNotFound,
    /// The specification of a pool is not valid.
    InvalidPool,
    Invalid,
    /// Something other than a pool does not exist.
    NotFound,
    Exists,
    PoolInUse,
    WouldOrphan,
    Collision,
    Stale,
    ChangedHands,
    /// The current state contradicts the request.
    Conflict,
}

impl Refusal {
    /// The class of the refusal itself; [`Refusal::decisive`] looks behind "none of the pools gives".
    #[must_use]
    pub fn class(&self) -> RefusalClass<'_> {
        match self {
            Self::Exhausted { .. } | Self::NoneGives { .. } => RefusalClass::Exhausted,
            Self::QuotaExceeded { tenant, .. } => RefusalClass::OverQuota(tenant),
            Self::AddressTaken { address, .. } | Self::Quarantined { address, .. } => {
                RefusalClass::AddressTaken(address.key.address)
            }
            Self::PrefixTaken { held, .. } => RefusalClass::AddressTaken(held.addr()),
            Self::NotAssignable { .. } => RefusalClass::NotAssignable,
            Self::NetworkAmbiguous { .. } => RefusalClass::Ambiguous,
            Self::NetworkHeld { .. } | Self::PoolHeld { .. } => RefusalClass::Held,
            Self::RestoreHeld { .. } => RefusalClass::RestoreHeld,
            Self::PoolClosed(_) => RefusalClass::PoolClosed,
            Self::NoPool { .. } | Self::UnknownPool(_) | Self::UnknownNetwork(_) => {
                RefusalClass::PoolNotFound
            }
            Self::Pool(_) => RefusalClass::InvalidPool,
            Self::Invalid { .. } => RefusalClass::Invalid,
            Self::UnknownCluster(_) | Self::UnknownAccount(_) | Self::NotHeld(_) => {
                RefusalClass::NotFound
            }
            Self::PoolExists(_) | Self::AccountExists(_) | Self::TokenNameTaken(_) => {
                RefusalClass::Exists
            }
            Self::PoolInUse { .. } => RefusalClass::PoolInUse,
            Self::WouldOrphan { .. } => RefusalClass::WouldOrphan,
            Self::Collisions { .. } => RefusalClass::Collision,
            Self::Stale { .. } => RefusalClass::Stale,
            Self::ChangedHands { .. } => RefusalClass::ChangedHands,
            Self::NoPoolNumber
            | Self::LastAdmin(_)
            | Self::NotTransferable { .. }
            | Self::NotShareable { .. }
            | Self::NotProbed { .. } => RefusalClass::Conflict,
        }
    }

    /// Of several pools that cannot give, none of which is full: the reason of the first. Otherwise the refusal itself.
    #[must_use]
    pub fn decisive(&self) -> &Self {
        if let Self::NoneGives {
            reasons,
            full: false,
            ..
        } = self
        {
            return reasons.first().map_or(self, Self::decisive);
        }
        self
    }

    /// The field of the request at fault, and its value.
    #[must_use]
    pub fn field(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Exhausted { pool, .. }
            | Self::PoolHeld { pool, .. }
            | Self::PoolClosed(pool)
            | Self::PoolInUse { pool, .. }
            | Self::WouldOrphan { pool, .. }
            | Self::Stale { pool, .. } => Some(("pool", pool.to_string())),
            Self::NoPool { .. } | Self::NoneGives { .. } => Some(("select", String::new())),
            Self::QuotaExceeded { tenant, .. } => Some(("tenant", tenant.0.to_string())),
            Self::AddressTaken { address, .. }
            | Self::Quarantined { address, .. }
            | Self::ChangedHands { address, .. }
            | Self::NotTransferable { address, .. } => Some(("address", address.to_string())),
            Self::NotAssignable { address, .. }
            | Self::NetworkAmbiguous { address, .. }
            | Self::NotHeld(address)
            | Self::NotShareable { address, .. }
            | Self::NotProbed { address, .. } => Some(("address", address.to_string())),
            Self::PrefixTaken { prefix, .. } => Some(("address", prefix.to_string())),
            Self::NetworkHeld { network, .. } | Self::Collisions { network, .. } => {
                Some(("network", network.to_string()))
            }
            Self::PoolExists(name)
            | Self::UnknownAccount(name)
            | Self::AccountExists(name)
            | Self::TokenNameTaken(name)
            | Self::LastAdmin(name) => Some(("name", name.to_string())),
            Self::Invalid { field, value, .. } => Some((field, value.clone())),
            Self::Pool(error) => Some((error.field, error.value.clone())),
            Self::RestoreHeld { .. }
            | Self::NoPoolNumber
            | Self::UnknownPool(_)
            | Self::UnknownNetwork(_)
            | Self::UnknownCluster(_) => None,
        }
    }

    /// A field of a request has another value than what is allowed.
    #[must_use]
    pub fn invalid(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// A lease of another length has some of the prefix.
    #[must_use]
    pub fn overlap(prefix: LeasePrefix, lease: &Lease) -> Self {
        let owner = lease.owner().map(|owner| owner.identity.to_string());
        Self::PrefixTaken {
            prefix: prefix.net(),
            held: lease.prefix().net(),
            owner: owner.unwrap_or_else(|| "nobody while it is in quarantine".to_owned()),
        }
    }

    /// The address of a lease that cools is not given; `keep`: nor kept for later.
    #[must_use]
    pub fn cools(lease: &Lease, keep: bool) -> Self {
        Self::Quarantined {
            address: lease.prefix(),
            until: lease.until.unwrap_or(lease.since),
            keep,
        }
    }
}

/// What no pool has.
fn sought(family: Family, length: Option<u8>, address: Option<IpAddr>) -> String {
    match (address, length) {
        (Some(address), length) => prefix_text(address, length),
        (None, Some(length)) => format!("{family} prefixes of /{length}"),
        (None, None) => format!("{family} addresses"),
    }
}

/// The texts of all of them.
/// How full a pool is.
fn in_use(used: u128, size: u128, cooling: Option<(u128, Timestamp)>) -> String {
    match cooling {
        Some((cooling, until)) => format!(
            "{} of {size} are in use and {cooling} in quarantine after a release, the first until about {until}",
            used.saturating_sub(cooling)
        ),
        None => format!("{used} of {size} are in use"),
    }
}

pub(crate) fn joined(all: &[impl ToString], separator: &str) -> String {
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    texts.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pool_decides_where_none_is_full() {
        let none = |full| Refusal::NoneGives {
            reasons: vec![Refusal::PoolClosed("a".into()), Refusal::NoPoolNumber],
            more: 0,
            full,
        };
        assert_eq!(none(true).decisive().class(), RefusalClass::Exhausted);
        assert_eq!(none(false).decisive().class(), RefusalClass::PoolClosed);
        assert_eq!(none(false).class(), RefusalClass::Exhausted);
        assert_eq!(none(false).field(), Some(("select", String::new())));
    }

    #[test]
    fn the_field_and_its_value_are_those_of_the_request() {
        let taken = Refusal::AddressTaken {
            address: crate::testing::key([10, 0, 0, 5]).whole(),
            owner: "x".into(),
        };
        assert_eq!(taken.field(), Some(("address", "10.0.0.5".into())));
        let invalid = Refusal::Invalid {
            field: "count",
            value: "0".into(),
            allowed: "1 to 1024".into(),
        };
        assert_eq!(invalid.field(), Some(("count", "0".into())));
        assert_eq!(Refusal::UnknownPool(PoolId(7)).field(), None);
    }
}
