//! Hardware addresses.

use std::{fmt, str::FromStr};

/// A hardware address of 6, 8 or 20 bytes. Displayed in lower case with colons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(Vec<u8>);

/// Why a text is no hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be a MAC address of 6, 8 or 20 bytes, such as 02:00:00:00:00:01")]
pub struct MacError;

/// The longest text: 20 bytes with separators.
const LONGEST: usize = 59;

impl MacAddress {
    /// `None`: no hardware address has so many bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        matches!(bytes.len(), 6 | 8 | 20).then(|| Self(bytes.to_vec()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What keeps an interface from having it.
    pub fn fault(&self) -> Option<&'static str> {
        if self.0.iter().all(|byte| *byte == 0) {
            return Some("no interface can have the address of zeros; write another, or auto");
        }
        // The first byte of an InfiniBand address, of 20 bytes, has other meanings.
        let group = self.0.first().is_some_and(|first| first & 1 == 1);
        (group && self.0.len() < 20).then_some(
            "it is a multicast address, which no interface can have: the first byte must be even; write another, or auto",
        )
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// `02:00:00:00:00:01`, `02-00-00-00-00-01` or `0200.0000.0001`, in any case.
impl FromStr for MacAddress {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > LONGEST {
            return Err(MacError);
        }
        let (separator, digits) = match text {
            _ if text.contains('.') => ('.', 4),
            _ if text.contains('-') => ('-', 2),
            _ => (':', 2),
        };
        let mut bytes = Vec::new();
        for group in text.split(separator) {
            if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            let number = u16::from_str_radix(group, 16).map_err(|_| MacError)?;
            let [high, low] = number.to_be_bytes();
            if digits == 4 {
                bytes.push(high);
            }
            bytes.push(low);
        }
        Self::of(&bytes).ok_or(MacError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_spellings_are_one_address() {
        for text in ["AA:bb:CC:dd:ef:01", "aa-bb-cc-dd-ef-01", "aabb.ccdd.ef01"] {
            let mac: MacAddress = text.parse().unwrap();
            assert_eq!(mac.to_string(), "aa:bb:cc:dd:ef:01");
            assert_eq!(mac.fault(), None);
        }
        let eight: MacAddress = "02:00:00:00:00:00:00:01".parse().unwrap();
        let twenty: MacAddress = ["03"; 20].join(":").parse().unwrap();
        assert_eq!((eight.bytes().len(), twenty.bytes().len()), (8, 20));
        assert_eq!(twenty.fault(), None);
    }

    /// Row 48.
    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ":",
            "aa:bb:cc:dd:ef",
            "aa:bb:cc:dd:ef:01:02",
            "aa:bb:cc:dd:ef:1",
            "aa:bb:cc:dd:ef:+1",
            "aa:bb:cc-dd:ef:01",
            "aabbccddef01",
            "aabb.ccdd.ef0g",
            "ää:bb:cc:dd:ef:01",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(MacError), "{text:?}");
        }
        assert_eq!(["02"; 100].join(":").parse::<MacAddress>(), Err(MacError));
    }

    #[test]
    fn addresses_that_no_interface_can_have_are_named() {
        let fault = |text: &str| text.parse::<MacAddress>().unwrap().fault();
        assert!(fault("00:00:00:00:00:00").unwrap().contains("zeros"));
        assert!(fault("01:00:5e:00:00:01").unwrap().contains("multicast"));
        assert!(fault("ff:ff:ff:ff:ff:ff").unwrap().contains("multicast"));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_written_the_same(text in "[0-9a-fA-F:.\\-]{0,64}|.{0,64}") {
            if let Ok(mac) = text.parse::<MacAddress>() {
                prop_assert_eq!(mac.to_string().parse::<MacAddress>(), Ok(mac));
            }
        }
    }
}
