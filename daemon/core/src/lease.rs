//! One address held, or one prefix.

use std::{cmp::Ordering, fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{
    Contender, Family, Holder, Identity, Labels, NetworkId, PoolId, Refusal, Span, Tenant, Text,
    Timestamp, labels::Wrong, prefix_text, words,
};

/// What a lease is found by: its first address. Orders by network, then IPv4 before IPv6, then address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseKey {
    pub network: NetworkId,
    pub address: IpAddr,
}

/// What a lease covers: the prefix of `length` bits that begins at the key; an address is one of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeasePrefix {
    pub key: LeaseKey,
    pub length: u8,
}

words! {
    /// What is being done with the address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum LeaseState {
        /// In use by its members.
        Allocated = "allocated",
        /// Kept for its members, not in use yet; may expire at `until`.
        Reserved = "reserved",
        /// Being checked on the wire until `until`, by its owner or by fipd for it.
        Probing = "probing",
        /// Cooling after a release until `until`; has no members.
        Quarantined = "quarantined",
        /// Its cluster left or its system was switched off; kept for its members until forgotten.
        Orphaned = "orphaned",
    }
}

words! {
    /// What a reader should know about a lease; derived from the ledger, never stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Mark {
        /// No open pool of the network has the address among its assignable ones.
        OutOfRange = "out-of-range",
        /// Somebody else was found using it.
        Contended = "contended",
    }
}

words! {
    /// Transport protocol of a shared port.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Protocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
    }
}

/// A port that a member of a sharing group has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PortClaim {
    pub protocol: Protocol,
    pub port: u16,
}

/// Why a text is no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {0:?} must be PROTOCOL/NUMBER such as TCP/80: TCP, UDP or SCTP, and 1 to 65535")]
pub struct PortError(String);

/// `TCP/80`.
impl fmt::Display for PortClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.port)
    }
}

/// As it is displayed, in any case.
impl FromStr for PortClaim {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PortError(text.to_owned());
        let (protocol, port) = text.split_once('/').ok_or_else(error)?;
        let protocol = protocol.to_ascii_uppercase().parse();
        let protocol = protocol.map_err(|_| error())?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(error)?;
        Ok(Self { protocol, port })
    }
}

/// One of the holders of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub holder: Holder,
    /// Ports it has for itself in a sharing group; empty in an exclusive lease.
    pub ports: Vec<PortClaim>,
}

/// One address held, or one prefix.
///
/// Invariants: the key's address has no bit set behind `length`; `members` is empty exactly when the state is `Quarantined`;
/// without `group` there is at most one member; no two members have a port in common; members and contenders have distinct
/// identities; contenders are ordered by `since`, and what they use are parts of the prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub key: LeaseKey,
    /// Bits of its prefix: 32 or 128 for an address, see [`LeaseKey::bits`].
    pub length: u8,
    /// The pool it was given from, or whose range it was found in. `None` while no pool has the address.
    pub pool: Option<PoolId>,
    pub state: LeaseState,
    pub members: SmallVec<[Member; 1]>,
    pub contenders: Vec<Contender>,
    /// Who is charged; while the address cools, who was last.
    pub tenant: Option<Tenant>,
    /// Key of the sharing group; `None` for an exclusive lease.
    pub group: Option<Text>,
    /// When it was given, adopted or put into quarantine.
    pub since: Timestamp,
    /// End of `Reserved`, `Probing` or `Quarantined`; `None` elsewhere and for reservations without end.
    pub until: Option<Timestamp>,
    /// What people noted about it; none while the address cools.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// As deriving it would, but comparing numbers instead of octets: it is done some dozen times a decision.
impl Ord for LeaseKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let addresses = match (self.address, other.address) {
            (IpAddr::V4(mine), IpAddr::V4(theirs)) => mine.to_bits().cmp(&theirs.to_bits()),
            (IpAddr::V6(mine), IpAddr::V6(theirs)) => mine.to_bits().cmp(&theirs.to_bits()),
            (IpAddr::V4(_), IpAddr::V6(_)) => Ordering::Less,
            (IpAddr::V6(_), IpAddr::V4(_)) => Ordering::Greater,
        };
        self.network.cmp(&other.network).then(addresses)
    }
}

impl PartialOrd for LeaseKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl LeaseKey {
    /// The length of an address: 32 or 128.
    pub fn bits(&self) -> u8 {
        Family::of(self.address).bits()
    }

    /// The keys of the span's addresses in the network.
    pub fn within(network: NetworkId, span: Span) -> RangeInclusive<Self> {
        let key = |address| Self { network, address };
        key(span.first_address())..=key(span.last_address())
    }

    /// Just this address.
    pub fn whole(self) -> LeasePrefix {
        let length = self.bits();
        LeasePrefix { key: self, length }
    }

    /// The prefix of that length, as [`LeasePrefix::explicit_length`] says it; `None`: just this address.
    pub fn prefix(self, length: Option<u8>) -> LeasePrefix {
        length.map_or_else(|| self.whole(), |length| LeasePrefix { key: self, length })
    }

    /// The same key with an IPv4-mapped IPv6 address as the IPv4 address it is.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self {
            address: self.address.to_canonical(),
            ..self
        }
    }
}

impl From<LeaseKey> for LeasePrefix {
    /// The address alone.
    fn from(key: LeaseKey) -> Self {
        let length = key.bits();
        Self { key, length }
    }
}

impl LeasePrefix {
    /// The prefix in a network.
    pub fn of(network: NetworkId, net: IpNet) -> Self {
        let (address, length) = (net.addr(), net.prefix_len());
        let key = LeaseKey { network, address };
        Self { key, length }
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        Span::of_prefix(self.key.address, self.length)
    }

    /// Whether it is a single address.
    pub fn is_address(&self) -> bool {
        self.length == self.key.bits()
    }

    /// Its bits; `None` for a single address.
    pub fn explicit_length(&self) -> Option<u8> {
        Some(self.length).filter(|_| !self.is_address())
    }

    /// What may be leased: aligned, and with no IPv4-mapped address in it.
    ///
    /// # Errors
    /// Names the field `address`.
    pub(crate) fn leasable(self) -> Result<Self, Refusal> {
        if self.is_aligned() && !self.is_mapped() {
            return Ok(self);
        }
        let bits = self.key.bits();
        let allowed =
            format!("a prefix of 0 to {bits} bits without host bits, and without ::ffff:0:0/96");
        let value = prefix_text(self.key.address, Some(self.length));
        Err(Refusal::invalid("address", value, allowed))
    }

    /// Whether no bit behind its length is set, and the family has so many bits.
    pub fn is_aligned(&self) -> bool {
        self.length <= self.key.bits() && self.span().first_address() == self.key.address
    }

    /// Whether it has addresses of IPv4 under their IPv6 names (`::ffff:0:0/96`), where those are other leases.
    pub(crate) fn is_mapped(&self) -> bool {
        self.span().overlaps(&Span::MAPPED)
    }

    /// Its address and length; all bits where the length is beyond them.
    pub fn net(&self) -> IpNet {
        let address = self.key.address;
        IpNet::new(address, self.length).unwrap_or_else(|_| IpNet::from(address))
    }
}

/// `10.0.0.7`, or `2001:db8::/64` for what is more than an address.
impl fmt::Display for LeasePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_address() {
            true => self.key.address.fmt(f),
            false => self.net().fmt(f),
        }
    }
}

impl Lease {
    /// The most members.
    pub const MAX_MEMBERS: usize = 64;

    /// The most uses of its parts by foreign contenders, and by others: each is written with each change of the lease.
    pub const MAX_USES: usize = 1_000;

    /// What it covers.
    pub fn prefix(&self) -> LeasePrefix {
        let (key, length) = (self.key, self.length);
        LeasePrefix { key, length }
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        self.prefix().span()
    }

    /// Whether `identity` is one of the members.
    pub fn held_by(&self, identity: &Identity) -> bool {
        self.member(identity).is_some()
    }

    /// The member with this identity.
    pub fn member(&self, identity: &Identity) -> Option<&Member> {
        let mut members = self.members.iter();
        members.find(|member| member.holder.identity == *identity)
    }

    /// The contender with this identity.
    pub fn contender(&self, identity: &Identity) -> Option<&Contender> {
        let mut contenders = self.contenders.iter();
        contenders.find(|contender| contender.holder.identity == *identity)
    }

    /// Whether any of these addresses is one of the lease that the identity has, or uses as contender.
    pub fn is_used_by(&self, identity: &Identity, span: Span) -> bool {
        let contender = || self.contender(identity);
        let uses = || contender().is_some_and(|one| one.uses_any(span));
        self.span().overlaps(&span) && (self.held_by(identity) || uses())
    }

    /// How many uses of its parts are noted for contenders like these.
    pub fn part_uses(&self, like: impl Fn(&Identity) -> bool) -> usize {
        let contenders = self.contenders.iter();
        let like = contenders.filter(|one| like(&one.holder.identity));
        like.map(|one| one.uses.len()).sum()
    }

    /// Whether one use more of a part of it may be noted. What foreign objects use keeps out no others.
    pub fn has_room_for_use(&self, by: &Identity) -> bool {
        self.part_uses(|one| one.is_foreign() == by.is_foreign()) < Self::MAX_USES
    }

    /// What the identity has of it: all of it, or what it uses as contender. To be given back by the keys of these.
    pub fn parts_of(&self, identity: &Identity) -> impl Iterator<Item = LeasePrefix> {
        let all = Some(self.prefix()).filter(|_| self.held_by(identity));
        let contender = self.contender(identity).into_iter();
        let uses = contender.flat_map(|one| one.used_of(self.prefix()));
        all.into_iter().chain(uses)
    }

    /// Whether this instance of an identity is one of the members.
    pub fn has_member(&self, holder: &Holder) -> bool {
        self.members.iter().any(|member| member.holder == *holder)
    }

    /// Who the members are.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Identity> {
        self.members.iter().map(|member| &member.holder.identity)
    }

    pub(crate) fn check_labels(&self) -> Result<(), Wrong> {
        if self.state == LeaseState::Quarantined && !self.labels.is_empty() {
            let allowed = "none while the address cools".to_owned();
            return Err((self.labels.to_string(), allowed));
        }
        self.labels.check()
    }

    /// The first member's holder; `None` for a quarantined address.
    pub fn owner(&self) -> Option<&Holder> {
        self.members.first().map(|member| &member.holder)
    }
}
