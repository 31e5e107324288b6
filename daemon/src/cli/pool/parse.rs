//! Forms of what options take.

use fipd_core::{AddressSpec, PoolSpec};

use crate::clock::duration;

pub fn cidr(text: &str) -> Result<String, String> {
    match parsed(text)? {
        AddressSpec::Cidr(_) | AddressSpec::Single(_) => Ok(text.to_owned()),
        AddressSpec::Range(..) => {
            Err("a CIDR such as 192.0.2.0/24 is allowed; use --range for a range".into())
        }
    }
}

pub fn range(text: &str) -> Result<String, String> {
    match parsed(text)? {
        AddressSpec::Range(..) | AddressSpec::Single(_) => Ok(text.to_owned()),
        AddressSpec::Cidr(_) => {
            Err("a range such as 192.0.2.10-192.0.2.20 is allowed; use --cidr for a CIDR".into())
        }
    }
}

pub fn any(text: &str) -> Result<String, String> {
    parsed(text).map(|_| text.to_owned())
}

fn parsed(text: &str) -> Result<AddressSpec, String> {
    text.parse::<AddressSpec>()
        .map_err(|error| error.to_string())
}

pub fn quarantine(text: &str) -> Result<u32, String> {
    seconds(text, PoolSpec::MAX_QUARANTINE)
}

pub fn sticky_for(text: &str) -> Result<u32, String> {
    seconds(text, PoolSpec::MAX_STICKY)
}

fn seconds(text: &str, most: u32) -> Result<u32, String> {
    if text == "0" {
        return Ok(0);
    }
    let days = most / (24 * 3_600);
    duration(text)
        .ok()
        .and_then(|time| u32::try_from(time.as_secs()).ok())
        .filter(|seconds| *seconds <= most)
        .ok_or_else(|| format!("0 to {days}d is allowed, such as 90s, 2h or 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_takes_its_own_form() {
        assert!(cidr("10.0.0.0/24").is_ok() && cidr("10.0.0.1-10.0.0.2").is_err());
        assert!(range("10.0.0.1-10.0.0.2").is_ok() && range("10.0.0.0/24").is_err());
        assert!(any("2001:db8::/64").is_ok() && any("10.0.0.0/33").is_err());
    }
}
