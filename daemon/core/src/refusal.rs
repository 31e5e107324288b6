//! Why the ledger says no, in words that say what to do.

use std::net::IpAddr;

use crate::{
    Collision, Family, Hold, Lease, NetworkId, PoolError, PoolId, Tenant, Text, Timestamp,
};

/// Why the ledger says no. Nothing has changed then (but for a place in a queue).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "pool {pool} has no free address: {used} of {size} are in use; it is asked again when one is freed"
    )]
    Exhausted { pool: Text, used: u128, size: u128 },
    #[error(
        "quota exceeded: tenant {} holds {used} addresses of pool {pool} and may have {limit}; release some or raise the limit", .tenant.0
    )]
    QuotaExceeded {
        tenant: Tenant,
        pool: Text,
        used: u64,
        limit: u64,
    },
    #[error(
        "no pool is there for this asker that has {}; name a pool, or give one a scope that fits", .address.map_or_else(|| format!("{family} addresses"), |address| address.to_string())
    )]
    NoPool {
        family: Family,
        address: Option<IpAddr>,
    },
    /// The first reasons, in the order of the pools; `more` were left out. `full`: it waits in a queue.
    #[error("none of the {} pools for this asker can give an address: {}{}", .reasons.len() + .more, texts(.reasons), if *.more > 0 { "; ..." } else { "" })]
    NoneGives {
        reasons: Vec<Refusal>,
        more: usize,
        full: bool,
    },
    #[error("{address} is held by {owner}; choose another address or release that lease")]
    AddressTaken { address: IpAddr, owner: String },
    /// `keep`: it was to be kept for later, or checked first.
    #[error("{address} is in quarantine after a release until about {until}; choose another address, wait, {}", if *.keep { "or let an admin end the quarantine first" } else { "ask as the tenant that had it, or ask an admin" })]
    Quarantined {
        address: IpAddr,
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
    #[error("network {network} gives no new address until it has been adopted: waiting for {}", list(.waiting))]
    NetworkHeld { network: Text, waiting: Vec<Hold> },
    #[error("pool {pool} is new and gives no address until what others use of it is known: waiting for {}", list(.waiting))]
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
    #[error("the edit would leave {} leases of pool {pool} out of range ({}{}); release them first or force it", .count, .sample.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), if *.count > .sample.len() as u64 { ", ..." } else { "" })]
    WouldOrphan {
        pool: Text,
        count: u64,
        sample: Vec<IpAddr>,
    },
    /// `first`: the lowest of them, at most [`Collision::LISTED`].
    #[error("pool {pool} cannot go to network {network}: {count} of its addresses are in use there: {}{}; release them in one of the networks first", .first.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), if *.count > .first.len() as u64 { ", ..." } else { "" })]
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
    ChangedHands { address: IpAddr, owner: String },
    #[error("{address} cannot be transferred: {why}")]
    NotTransferable { address: IpAddr, why: String },
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

impl Refusal {
    /// The address of a lease that cools is not given; `keep`: nor kept for later.
    #[must_use]
    pub fn cools(lease: &Lease, keep: bool) -> Self {
        Self::Quarantined {
            address: lease.key.address,
            until: lease.until.unwrap_or(lease.since),
            keep,
        }
    }
}

fn texts(reasons: &[Refusal]) -> String {
    let texts: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn list(waiting: &[Hold]) -> String {
    waiting
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
