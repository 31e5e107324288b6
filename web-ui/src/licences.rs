//! The packages that the programs are made of, and their licences.
//!
//! The list is a file of the checkout; a test of the whole workspace compares it with what Cargo says and writes it anew
//! where it is asked to.

const LIST: &str = include_str!("../assets/licences.tsv");

/// One package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Licence {
    pub name: &'static str,
    pub version: &'static str,
    /// As an SPDX expression.
    pub licence: &'static str,
    /// Where its source is; may be empty.
    pub source: &'static str,
}

/// All packages, by name.
pub fn all() -> impl Iterator<Item = Licence> {
    LIST.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        Some(Licence {
            name: fields.next()?,
            version: fields.next()?,
            licence: fields.next()?,
            source: fields.next()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_package_with_a_licence() {
        let many = LIST.lines().count();
        assert!(many > 100, "{many}");
        assert_eq!(all().count(), many);
        assert!(all().all(|one| !one.licence.is_empty()));
        assert!(all().any(|one| one.name == "redb"));
    }
}
