//! Ethernet addresses.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// The MAC address of a network card; in text `02:00:5e:10:00:ff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// One that a single card can have: neither of a group nor zero.
    pub fn of_station(text: &str) -> Option<Self> {
        let mac: Self = text.parse().ok()?;
        let is_group = mac.0[0] & 1 == 1;
        (!is_group && mac.0 != [0; 6]).then_some(mac)
    }
}

/// The text is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address of six bytes in hexadecimal, such as 02:00:5e:10:00:ff")]
pub struct InvalidMac(String);

impl Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let byte = |part: &str| {
            let is_hex = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| InvalidMac(text.to_owned()))
    }
}

impl TryFrom<String> for Mac {
    type Error = InvalidMac;

    fn try_from(text: String) -> Result<Self, InvalidMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_anything_else_is_refused() {
        let mac = Mac([2, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert_eq!("02:00:5E:10:00:fF".parse(), Ok(mac));
        let bad = [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:ff:00",
            "2:0:5e:10:0:ff",
            "+2:00:5e:10:00:ff",
            "02-00-5e-10-00-ff",
            "02:00:5e:10:00:fg",
        ];
        for text in bad {
            assert_eq!(text.parse::<Mac>(), Err(InvalidMac(text.to_owned())));
        }
    }

    #[test]
    fn a_card_has_neither_the_mac_of_a_group_nor_zero() {
        let mac = Mac([2, 0, 0, 0, 0, 10]);
        assert_eq!(Mac::of_station("02:00:00:00:00:0a"), Some(mac));
        for wrong in ["01:00:00:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00"] {
            assert_eq!(Mac::of_station(wrong), None, "{wrong}");
        }
    }
}
