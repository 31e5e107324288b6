//! Values of labels that are always valid (defect g1-17): at most 63 bytes, with a letter or digit at each end.

use std::net::IpAddr;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::mac::MacAddress;

/// The longest value of a label, in bytes.
const LONGEST: usize = 63;

/// An address, with `.` for `:`; one that would begin or end with that gets the 0 that is left out there.
pub fn address(address: IpAddr) -> String {
    let text = address.to_canonical().to_string().replace(':', ".");
    let zero = |missing: bool| if missing { "0" } else { "" };
    format!(
        "{}{text}{}",
        zero(text.starts_with('.')),
        zero(text.ends_with('.'))
    )
}

/// A MAC without colons.
pub fn mac(mac: &MacAddress) -> String {
    mac.to_string().replace(':', "")
}

/// A name as it is, where it is a valid value; else as much of it as fits, and a hash of all of it.
pub fn name(name: &str) -> String {
    if is_value(name) {
        return name.to_owned();
    }
    shortened(name, LONGEST)
}

/// The beginning of a name and a digest of all of it, at most `longest` bytes, of characters that a label may have.
pub fn shortened(name: &str, longest: usize) -> String {
    let tail = digest(name);
    let room = longest.saturating_sub(tail.len() + 1);
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let head = name.chars().map(|c| if known(c) { c } else { '-' });
    let head: String = head.take(room).collect();
    match head.trim_matches(['-', '_', '.']) {
        "" => tail,
        head => format!("{head}-{tail}"),
    }
}

/// Eight hexadecimal digits, always the same for a text.
pub fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..4])
}

/// The selector of the pods of a workload, as in `job-NAMESPACE-NAME`.
pub fn workload(kind: &str, namespace: &str, of: &str) -> String {
    name(&format!("{}-{namespace}-{of}", kind.to_ascii_lowercase()))
}

/// Whether it is a valid value of a label; the empty one is, too.
pub fn is_value(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.');
    text.is_empty()
        || text.len() <= LONGEST
            && text.starts_with(end)
            && text.ends_with(end)
            && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn g1_17_addresses_are_valid_values() {
        for (text, value) in [
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::1", "fd00..1"),
            ("fd00::", "fd00..0"),
            ("::1", "0..1"),
            ("::", "0..0"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(address(text.parse().unwrap()), value);
            assert!(is_value(value));
        }
        let twenty: MacAddress = ["02"; 20].join(":").parse().unwrap();
        assert_eq!(mac(&twenty), "02".repeat(20));
    }

    #[test]
    fn g1_17_long_names_are_cut_and_stay_apart() {
        let long = |end: &str| name(&format!("{}.{end}", "a".repeat(80)));
        assert!(long("x") != long("y") && long("x") == long("x"));
        assert!(is_value(&long("x")) && long("x").len() <= 63);
        assert_eq!(name("web-1.site"), "web-1.site");
        // Objects are called so, and found again by that.
        assert_eq!(digest("web"), "4b5e57f6");
        assert_eq!(workload("CronJob", "ns", "night"), "cronjob-ns-night");
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let cut = |end: &str| shortened(&format!("{}-{end}", "a".repeat(60)), 50);
        assert!(cut("x").len() <= 50 && cut("x") == cut("x"));
        assert_ne!(cut("x"), cut("y"));
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_valid_value(text in ".{0,100}", bytes: [u8; 16]) {
            let value = name(&text);
            prop_assert!(is_value(&value), "{value:?}");
            prop_assert_eq!(value.is_empty(), text.is_empty());
            let value = address(IpAddr::from(bytes));
            prop_assert!(is_value(&value), "{value:?}");
        }
    }
}
