//! The two lines of JSON between the daemon and the helper. Pure.

use std::{net::IpAddr, time::Duration};

use fipd_cni::frame::Mac;
use serde::{Deserialize, Serialize};

use super::AddressUse;

/// The longest request, with the end of its line.
pub(super) const REQUEST_LIMIT: usize = 1 << 10;
/// The longest answer: an error of [`ERROR_LIMIT`], each byte of which may be escaped.
pub(super) const ANSWER_LIMIT: usize = 4 << 10;
/// The longest error in an answer, in bytes.
pub(super) const ERROR_LIMIT: usize = 512;
/// How long a probe may take.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(100);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// `IFNAMSIZ` without the final zero.
const INTERFACE_LIMIT: usize = 15;

/// Why nothing can be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error(
        "{0:?} cannot be the name of an interface: 1 to {INTERFACE_LIMIT} bytes without '/', ':', spaces and control characters"
    )]
    Interface(String),
    #[error("{0} is not the address of one host: it must be unicast and not loopback")]
    Address(IpAddr),
    #[error(
        "a timeout of {0} ms: must be {min} to {max} ms",
        min = TIMEOUT_MIN.as_millis(),
        max = TIMEOUT_MAX.as_millis()
    )]
    Timeout(u64),
}

/// What the daemon asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeRequest {
    pub interface: InterfaceName,
    pub address: HostAddress,
    #[serde(rename = "timeout_ms")]
    pub timeout: ProbeTimeout,
}

impl ProbeRequest {
    pub fn new(
        interface: &str,
        address: IpAddr,
        timeout: Duration,
    ) -> Result<Self, InvalidRequest> {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            interface: InterfaceName::try_from(interface.to_owned())?,
            address: HostAddress::try_from(address)?,
            timeout: ProbeTimeout::try_from(millis)?,
        })
    }
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(super) enum ProbeAnswer {
    Free,
    InUse { mac: Mac },
    Failed { error: String },
}

impl ProbeAnswer {
    /// A failure, shortened to [`ERROR_LIMIT`].
    pub fn failed(error: &str) -> Self {
        let end = error.floor_char_boundary(ERROR_LIMIT);
        Self::Failed {
            error: error.get(..end).unwrap_or_default().to_owned(),
        }
    }
}

impl From<AddressUse> for ProbeAnswer {
    fn from(occupancy: AddressUse) -> Self {
        match occupancy {
            AddressUse::Free => Self::Free,
            AddressUse::InUse { mac } => Self::InUse { mac },
        }
    }
}

/// A name the kernel would accept for an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct InterfaceName(String);

impl InterfaceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InvalidRequest;

    fn try_from(name: String) -> Result<Self, InvalidRequest> {
        let is_bad = |c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control();
        if name.is_empty()
            || name.len() > INTERFACE_LIMIT
            || name.contains(is_bad)
            || matches!(name.as_str(), "." | "..")
        {
            return Err(InvalidRequest::Interface(name));
        }
        Ok(Self(name))
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}

/// An address one host of a network can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "IpAddr", into = "IpAddr")]
pub(super) struct HostAddress(IpAddr);

impl TryFrom<IpAddr> for HostAddress {
    type Error = InvalidRequest;

    fn try_from(address: IpAddr) -> Result<Self, InvalidRequest> {
        let is_host = match address {
            // Without 0.0.0.0/8, multicast and the reserved 240.0.0.0/4 with the broadcast address.
            IpAddr::V4(v4) => matches!(v4.octets(), [1..=126 | 128..=223, ..]),
            IpAddr::V6(v6) => {
                !v6.is_unspecified()
                    && !v6.is_loopback()
                    && !v6.is_multicast()
                    && v6.to_ipv4_mapped().is_none()
            }
        };
        match is_host {
            true => Ok(Self(address)),
            false => Err(InvalidRequest::Address(address)),
        }
    }
}

impl From<HostAddress> for IpAddr {
    fn from(address: HostAddress) -> Self {
        address.0
    }
}

/// Between [`TIMEOUT_MIN`] and [`TIMEOUT_MAX`]; in JSON in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub(super) struct ProbeTimeout(u64);

impl ProbeTimeout {
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<u64> for ProbeTimeout {
    type Error = InvalidRequest;

    fn try_from(millis: u64) -> Result<Self, InvalidRequest> {
        let range = TIMEOUT_MIN..=TIMEOUT_MAX;
        match range.contains(&Duration::from_millis(millis)) {
            true => Ok(Self(millis)),
            false => Err(InvalidRequest::Timeout(millis)),
        }
    }
}

impl From<ProbeTimeout> for u64 {
    fn from(timeout: ProbeTimeout) -> Self {
        timeout.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_string, to_value};

    use super::*;

    fn request(interface: &str, address: &str, timeout_ms: i64) -> Result<ProbeRequest, String> {
        let line = json!({"interface": interface, "address": address, "timeout_ms": timeout_ms});
        from_str(&line.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_lines_are_those_of_the_protocol() {
        let line = r#"{"interface":"eth0","address":"10.0.0.5","timeout_ms":3000}"#;
        let parsed: ProbeRequest = from_str(line).unwrap();
        let address = "10.0.0.5".parse().unwrap();
        let made = ProbeRequest::new("eth0", address, Duration::from_secs(3)).unwrap();
        assert_eq!(parsed, made);
        assert_eq!(to_string(&made).unwrap(), line);

        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let answers = [
            (AddressUse::Free.into(), json!({"result": "free"})),
            (
                AddressUse::InUse { mac }.into(),
                json!({"result": "in-use", "mac": "02:00:00:00:00:01"}),
            ),
            (
                ProbeAnswer::failed("why"),
                json!({"result": "failed", "error": "why"}),
            ),
        ];
        for (answer, line) in answers {
            assert_eq!(to_value(&answer).unwrap(), line);
            let back: ProbeAnswer = from_str(&line.to_string()).unwrap();
            assert_eq!(back, answer);
        }
    }

    #[test]
    fn names_no_interface_has_are_refused() {
        for name in ["eth0", "br-lan.100", "enp0s31f6np0123", "köln", "a%d"] {
            assert!(request(name, "10.0.0.5", 3000).is_ok(), "{name}");
        }
        let bad = [
            "",
            ".",
            "..",
            "a/b",
            "../../x",
            "eth0 ",
            "eth\t0",
            "eth\n0",
            "eth0:1",
            "eth\u{0}0",
            "eth\u{a0}0",
            "sixteen-bytes-00",
        ];
        for name in bad {
            let error = request(name, "10.0.0.5", 3000).unwrap_err();
            assert!(error.contains("name of an interface"), "{name:?}: {error}");
        }
    }

    #[test]
    fn addresses_of_no_single_host_are_refused() {
        let good = [
            "10.0.0.5",
            "169.254.7.7",
            "223.255.255.254",
            "2001:db8::5",
            "fe80::1",
            "fd00::1",
        ];
        for address in good {
            assert!(request("eth0", address, 3000).is_ok(), "{address}");
        }
        let bad = [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "224.0.0.251",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "ff0e::5",
            "::ffff:10.0.0.5",
        ];
        for address in bad {
            let error = request("eth0", address, 3000).unwrap_err();
            assert!(error.contains("must be unicast"), "{address}: {error}");
        }
        for address in ["10.0.0.5/24", "10.0.0", "fe80::1%eth0", "eth0", ""] {
            assert!(request("eth0", address, 3000).is_err(), "{address}");
        }
    }

    #[test]
    fn timeouts_are_bounded_and_unknown_fields_refused() {
        for (millis, good) in [(99, false), (100, true), (10_000, true), (10_001, false)] {
            assert_eq!(
                request("eth0", "10.0.0.5", millis).is_ok(),
                good,
                "{millis}"
            );
        }
        assert!(request("eth0", "10.0.0.5", -1).is_err());
        let later = r#"{"interface":"eth0","address":"10.0.0.5","timeout_ms":3000,"vlan":7}"#;
        assert!(from_str::<ProbeRequest>(later).is_err());
    }

    #[test]
    fn the_longest_error_fits_into_an_answer() {
        for filler in ["x", "\u{1}", "\"", "ü", "€", "😀"] {
            let answer = ProbeAnswer::failed(&filler.repeat(2 << 10));
            let line = to_string(&answer).unwrap();
            assert!(line.len() < ANSWER_LIMIT, "{filler:?}: {}", line.len());
            let ProbeAnswer::Failed { error } = answer else {
                panic!("not a failure")
            };
            assert!(error.len() > ERROR_LIMIT - 4, "{filler:?}");
        }
    }
}
