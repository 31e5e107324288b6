//! Pools: named sets of addresses of one family in one network.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    AddressSpec, ClusterId, Family, LeaseKey, LeasePrefix, NetworkId, PoolScope, System, Text,
    Timestamp, words,
};

/// The immutable number of a pool; never used again. The first one is 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PoolId(pub u32);

words! {
    /// Which free address is given next.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Order {
        /// The numerically lowest.
        #[default]
        Lowest = "lowest",
        /// Any, so that nobody can tell which it will be.
        Random = "random",
        /// The lowest of those that were never used, then the one that was released longest ago. The pool remembers the
        /// last [`PoolSpec::MAX_REMEMBERED`] releases; what it has forgotten was never used.
        LeastRecentlyUsed = "least-recently-used",
    }
}

/// Whether who had an address gets the same one again: an identity that asks for any address of the pool, as long
/// as nobody has the one that it had, and not later than `lasts` seconds after its release. Others are given it
/// only where the pool has no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sticky {
    /// Seconds; 0: nobody is remembered.
    pub lasts: u32,
    /// How many addresses are remembered; the oldest release is forgotten first. A pool with the order
    /// [`Order::LeastRecentlyUsed`] remembers more.
    pub most: u32,
}

words! {
    /// What a quota of a pool counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum QuotaUnit {
        /// Leases: an address or a prefix is one.
        #[default]
        Lease = "lease",
        /// Addresses: a /64 of IPv6 is 2^64. What does not fit 64 bits is as much as fits.
        Address = "address",
    }
}

words! {
    /// What the reserved ends are counted from.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum EndsOf {
        /// The network of each address by the pool's prefix length (network and broadcast address of the link).
        #[default]
        Prefix = "prefix",
        /// Each CIDR of the pool.
        EachCidr = "each-cidr",
    }
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
    /// Nobody chose the network. Where pools of two such networks give the same addresses, neither gives them until an
    /// admin says whether the networks are two.
    pub network_by_default: bool,
    /// CIDRs, ranges and single addresses, all of one family, at least one.
    pub addresses: Vec<AddressSpec>,
    pub exclusions: Vec<AddressSpec>,
    /// The pool allocates prefixes of so many bits, 1 to 32 or 128, and no single addresses; `None`: addresses. Its
    /// `addresses` are CIDRs that are at least as large, an exclusion takes away each prefix that it touches, and the gateway
    /// takes away none. It stays as it is.
    pub allocation_length: Option<u8>,
    /// Never given. A pool of prefixes only passes it on.
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
    /// Seconds that an address cools after a release before it is free; 0 for none. At most [`PoolSpec::MAX_QUARANTINE`].
    pub quarantine: u32,
    pub sticky: Sticky,
    /// Of the pools that are there for an asker the one with the highest is asked first; equal ones by name.
    pub priority: u16,
    /// For whom the pool is there without being named; without any it is given only by name.
    pub scopes: Vec<PoolScope>,
    /// Whether the members of a sharing group may be of several clusters.
    pub share_across_clusters: bool,
    /// A tenant without a quota gets nothing, as one with a quota of 0. Off: it may have any number.
    pub quota_required: bool,
    pub quota_unit: QuotaUnit,
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

/// Why a specification makes no pool. Names the field, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {field}: {value:?} is not allowed: {allowed}")]
pub struct PoolError {
    pub field: &'static str,
    pub value: String,
    pub allowed: String,
}

impl Ends {
    /// None at all.
    pub const NONE: Self = Self::of_prefix(0, 0);

    const fn of_prefix(first: u32, last: u32) -> Self {
        let of = EndsOf::Prefix;
        Self { first, last, of }
    }

    /// Own pools. IPv4: network and broadcast address. IPv6: the subnet-router anycast address
    /// (RFC 4291, 2.6.1), and no last one, since IPv6 has no broadcast.
    pub fn own_default(family: Family) -> Self {
        match family {
            Family::V4 => Self::of_prefix(1, 1),
            Family::V6 => Self::of_prefix(1, 0),
        }
    }

    /// Where a new pool of fipd's own says nothing: [`Ends::own_default`], and none of a pool that gives prefixes, which have
    /// no ends that somebody else uses.
    pub fn own_default_of(family: Family, allocation_length: Option<u8>) -> Self {
        match allocation_length {
            Some(_) => Self::NONE,
            None => Self::own_default(family),
        }
    }
}

impl Sticky {
    /// Nobody is remembered.
    pub const OFF: Self = Self { lasts: 0, most: 0 };

    /// Pools that an admin makes: a thousand addresses for a week.
    pub const OWN_DEFAULT: Self = Self {
        lasts: 7 * 24 * 3_600,
        most: 1_000,
    };

    /// Whether anybody is remembered.
    pub fn is_on(&self) -> bool {
        self.lasts > 0
    }

    /// Whether what was released then is remembered no more.
    pub fn is_over(&self, released: Timestamp, now: Timestamp) -> bool {
        released.0.saturating_add(u64::from(self.lasts) * 1_000) <= now.0
    }
}

impl PoolSpec {
    /// The most entries of `addresses` and `exclusions` together.
    pub const MAX_SPECS: usize = 100_000;
    /// The most links whose ends are reserved one by one.
    pub const MAX_LINKS: u128 = 65_536;
    /// The longest quarantine, in seconds: 30 days.
    pub const MAX_QUARANTINE: u32 = 30 * 24 * 3_600;
    /// The longest time that it is remembered who had an address, in seconds: 365 days.
    pub const MAX_STICKY: u32 = 365 * 24 * 3_600;
    /// The most addresses that a pool remembers.
    pub const MAX_REMEMBERED: u32 = 65_536;
    /// The longest name, in bytes.
    pub const MAX_NAME: usize = 640;

    /// An open own pool in the default network that gives all of its addresses, the lowest first.
    pub fn own(name: impl Into<Text>, addresses: Vec<AddressSpec>) -> Self {
        Self {
            name: name.into(),
            network: NetworkId::DEFAULT,
            network_by_default: false,
            addresses,
            exclusions: Vec::new(),
            allocation_length: None,
            gateway: None,
            prefix_len: None,
            subnet: None,
            ends: Ends::NONE,
            order: Order::Lowest,
            origin: Origin::Own,
            closed: false,
            quarantine: 0,
            sticky: Sticky::OFF,
            priority: 0,
            scopes: Vec::new(),
            share_across_clusters: false,
            quota_required: false,
            quota_unit: QuotaUnit::default(),
        }
    }

    /// How many past leases the pool remembers.
    pub fn remembers(&self) -> usize {
        let most = match self.order {
            Order::LeastRecentlyUsed => Self::MAX_REMEMBERED,
            Order::Lowest | Order::Random if self.sticky.is_on() => self.sticky.most,
            Order::Lowest | Order::Random => 0,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Bits of what the pool allocates: its allocation length, or that of an address.
    pub fn lease_length(&self) -> u8 {
        let bits = || self.family().map_or(0, Family::bits);
        self.allocation_length.unwrap_or_else(bits)
    }

    /// What of the pool begins with the key; the address itself where that is of the other family.
    pub fn prefix_at(&self, key: LeaseKey) -> LeasePrefix {
        let alike = self.family() == Some(Family::of(key.address));
        let length = self.allocation_length.filter(|_| alike);
        let length = length.unwrap_or_else(|| key.bits());
        LeasePrefix { key, length }
    }

    /// How many addresses are in a prefix that the pool gives, saturating; `None` for a pool of addresses.
    pub fn prefix_size(&self) -> Option<u128> {
        Some(self.family()?.prefix_size(self.allocation_length?))
    }

    /// How much of a quota one lease of the pool is.
    pub fn quota_weight(&self) -> u64 {
        match self.quota_unit {
            QuotaUnit::Lease => 1,
            QuotaUnit::Address => {
                u64::try_from(self.prefix_size().unwrap_or(1)).unwrap_or(u64::MAX)
            }
        }
    }

    /// The family of the pool: that of its first entry; `None` for a specification without addresses.
    pub fn family(&self) -> Option<Family> {
        self.addresses.first().map(AddressSpec::family)
    }
}
