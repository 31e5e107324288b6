//! Names that objects may have.

/// Whether an object may have this name (a DNS-1123 subdomain).
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether it is a part of such a name, of whatever length.
#[must_use]
pub fn is_label(label: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    label.starts_with(alphanumeric)
        && label.ends_with(alphanumeric)
        && label.len() <= 63
        && label.chars().all(|c| alphanumeric(c) || c == '-')
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
