//! Address families, spans of addresses and their text forms.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// An inclusive run of addresses of one family, as numbers.
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
    #[error("{0:?} is neither an address, a CIDR such as 10.0.0.0/24, nor a range such as 10.0.0.10-10.0.0.20")]
    Unparsable(String),
    #[error("{text:?}: the CIDR has host bits set; did you mean {network}?")]
    HostBits { text: String, network: IpNet },
    #[error("{0:?}: a range needs both ends of one family")]
    MixedFamilies(String),
    #[error("{0:?}: the first address of a range must not be above the last")]
    Reversed(String),
}
