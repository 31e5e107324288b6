//! Names that objects may have.

/// Whether an object may have this name (a DNS-1123 subdomain).
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        ends.into_iter().all(|end| end.is_some_and(alphanumeric))
            && label.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_subdomain() {
        for name in ["c-m-1", "local", "a.b-c.d", "0", "lab-1.site"] {
            assert!(is_object_name(name), "{name:?}");
        }
        let long = "a".repeat(254);
        for name in [
            "",
            "My Cluster",
            "Prod",
            "lab_1",
            "a/b",
            "-a",
            "a-",
            "a..b",
            "a.-b",
            "ä",
            &long,
        ] {
            assert!(!is_object_name(name), "{name:?}");
        }
    }
}
