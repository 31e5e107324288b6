//! Pools: named sets of addresses of one family in one network.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{AddressSpec, ClusterId, Family, NetworkId, Span, System, Text, Timestamp};

/// The immutable number of a pool; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolId(pub u32);

/// Which free address is given next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The numerically lowest.
    #[default]
    Lowest,
}

/// What the reserved ends are counted from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndsOf {
    /// The network of each address by the pool's prefix length (network and broadcast address of the link).
    #[default]
    Prefix,
    /// Each CIDR of the pool.
    EachCidr,
}

/// How many addresses at the ends are never given. Adopted leases may hold them all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    pub first: u32,
    pub last: u32,
    pub of: EndsOf,
}

/// Whose pool it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Origin {
    /// Made through UI, API or CLI.
    Own,
    /// Follows an object of a cluster.
    Mirror {
        system: System,
        cluster: ClusterId,
        /// `[namespace/]name` of the object.
        object: Text,
        /// UID of the object.
        uid: Text,
    },
}

/// What an admin or a mirrored object says of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Unique. Own pools `name`, mirrors `system/cluster-name/[namespace/]name`.
    pub name: Text,
    pub network: NetworkId,
    /// CIDRs, ranges and single addresses, all of one family, at least one.
    pub addresses: Vec<AddressSpec>,
    pub exclusions: Vec<AddressSpec>,
    /// Never given.
    pub gateway: Option<IpAddr>,
    /// Prefix length handed out with an address. `None`: that of the CIDR around the address, else 32 or 128.
    pub prefix_len: Option<u8>,
    /// The link's subnet, where it is wider than the pool.
    pub subnet: Option<IpNet>,
    pub ends: Ends,
    pub order: Order,
    pub origin: Origin,
    /// A closed pool gives nothing more; its leases stay. A mirror whose object is gone is closed.
    pub closed: bool,
}

/// A pool as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub id: PoolId,
    pub spec: PoolSpec,
    pub created: Timestamp,
    /// Grows by one with each edit; what ETags show.
    pub generation: u64,
}
