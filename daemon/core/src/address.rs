//! Address families, spans of addresses and their text forms.
//!
//! An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) *is* the IPv4 address here, wherever it enters: one
//! address must not have two names, or it could be given out under each of them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// An inclusive run of addresses of one family, as numbers. Invariant: `first <= last <= family.max()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub family: Family,
    pub first: u128,
    pub last: u128,
}

/// A set of addresses as an admin writes it: `10.0.0.0/24`, `10.0.0.7` or `10.0.0.10-10.0.0.20`.
/// Serialised as that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressSpec {
    Cidr(IpNet),
    Single(IpAddr),
    Range(IpAddr, IpAddr),
}

/// Why a text is no set of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "{0:?} is neither an address, a CIDR such as 10.0.0.0/24, nor a range such as 10.0.0.10-10.0.0.20"
    )]
    Unparsable(String),
    #[error("{text:?}: the CIDR has host bits set; did you mean {network}?")]
    HostBits { text: String, network: IpNet },
    #[error("{0:?}: a range needs both ends of one family")]
    MixedFamilies(String),
    #[error("{0:?}: the first address of a range must not be above the last")]
    Reversed(String),
}

impl Family {
    /// The family of `address`.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The highest address as a number.
    pub fn max(self) -> u128 {
        match self {
            Self::V4 => u128::from(u32::MAX),
            Self::V6 => u128::MAX,
        }
    }

    /// The address with this number; bits above the family's width are cut off.
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(low_32(number))),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }

    /// How many addresses a prefix of so many bits has; all of IPv6 saturates to `u128::MAX`.
    pub fn prefix_size(self, length: u8) -> u128 {
        let spare = self.bits().saturating_sub(length);
        1_u128.checked_shl(spare.into()).unwrap_or(u128::MAX)
    }

    /// The span of the network of `prefix_len` bits around `number`. A longer prefix than the family's bits
    /// counts as all of them.
    pub fn network(self, number: u128, prefix_len: u8) -> Span {
        let host_bits = u32::from(self.bits().saturating_sub(prefix_len));
        let mask = 1_u128
            .checked_shl(host_bits)
            .map_or(u128::MAX, |bit| bit - 1);
        Span {
            family: self,
            first: number & !mask & self.max(),
            last: (number | mask) & self.max(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Span {
    /// The IPv4-mapped block `::ffff:0:0/96`, which is never used as IPv6.
    pub const MAPPED: Self = Self {
        family: Family::V6,
        first: 0xffff_0000_0000,
        last: 0xffff_ffff_ffff,
    };

    /// The prefix of so many bits that begins with `address`, its host bits ignored.
    pub fn of_prefix(address: IpAddr, length: u8) -> Self {
        Family::of(address).network(number(address), length)
    }

    /// Just `address`.
    pub fn single(address: IpAddr) -> Self {
        let number = number(address);
        Self {
            family: Family::of(address),
            first: number,
            last: number,
        }
    }

    /// All of `net`, its host bits ignored.
    pub fn of_net(net: IpNet) -> Self {
        let first = net.network();
        Self {
            family: Family::of(first),
            first: number(first),
            last: number(net.broadcast()),
        }
    }

    /// How many addresses; all of IPv6 (`::/0`) saturates to `u128::MAX`.
    pub fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Never: a span has at least one address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether some address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// Whether all addresses of `other` are in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    /// Whether `address` is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && (self.first..=self.last).contains(&number(address))
    }

    /// The lowest address.
    pub fn first_address(&self) -> IpAddr {
        self.family.address(self.first)
    }

    /// The highest address.
    pub fn last_address(&self) -> IpAddr {
        self.family.address(self.last)
    }
}

impl AddressSpec {
    /// The addresses it stands for.
    pub fn span(&self) -> Span {
        match *self {
            Self::Cidr(net) => Span::of_net(net),
            Self::Single(address) => Span::single(address),
            Self::Range(first, last) => Span {
                family: Family::of(first),
                first: number(first),
                last: number(last),
            },
        }
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        self.span().family
    }
}

impl FromStr for AddressSpec {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unparsable = || AddressError::Unparsable(text.to_owned());
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (
                parse_address(first).ok_or_else(unparsable)?,
                parse_address(last).ok_or_else(unparsable)?,
            );
            if Family::of(first) != Family::of(last) {
                return Err(AddressError::MixedFamilies(text.to_owned()));
            }
            if first > last {
                return Err(AddressError::Reversed(text.to_owned()));
            }
            return Ok(Self::Range(first, last));
        }
        if text.contains('/') {
            let net = parse_net(text).ok_or_else(unparsable)?;
            if net.addr() != net.network() {
                return Err(AddressError::HostBits {
                    text: text.to_owned(),
                    network: net.trunc(),
                });
            }
            return Ok(Self::Cidr(net));
        }
        parse_address(text).map(Self::Single).ok_or_else(unparsable)
    }
}

impl TryFrom<String> for AddressSpec {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AddressSpec> for String {
    fn from(spec: AddressSpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for AddressSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cidr(net) => net.fmt(f),
            Self::Single(address) => address.fmt(f),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// `ADDRESS/LENGTH`, or just the address where there is no length.
pub fn prefix_text(address: IpAddr, length: Option<u8>) -> String {
    match length {
        Some(length) => format!("{address}/{length}"),
        None => address.to_string(),
    }
}

/// The address as a number; an IPv4 address is below 2^32.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn low_32(number: u128) -> u32 {
    let [.., a, b, c, d] = number.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

/// Parses `ADDRESS/LENGTH`, keeping host bits.
fn parse_net(text: &str) -> Option<IpNet> {
    let (address, len) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let plain = !len.is_empty()
        && len.bytes().all(|b| b.is_ascii_digit())
        && (len == "0" || !len.starts_with('0'));
    let len: u8 = if plain {
        len.parse().ok()?
    } else {
        return None;
    };
    match address {
        IpAddr::V4(address) => Ipv4Net::new(address, len).ok().map(IpNet::V4),
        IpAddr::V6(address) => match (address.to_ipv4_mapped(), len.checked_sub(96)) {
            (Some(mapped), Some(len)) => Ipv4Net::new(mapped, len).ok().map(IpNet::V4),
            (Some(_), None) | (None, Some(_) | None) => {
                Ipv6Net::new(address, len).ok().map(IpNet::V6)
            }
        },
    }
}

#[cfg(test)]
mod tests;
