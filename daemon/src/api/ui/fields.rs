//! Fields of queries and forms as they came: any may be missing, and what is wrong is said beside it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

/// More fields than any of our forms has are not read.
const MOST: usize = 32;

impl Fields {
    /// Reads `application/x-www-form-urlencoded`. Never fails: broken escapes stay as they are, broken UTF-8 is
    /// replaced.
    pub fn parse(text: &[u8]) -> Self {
        Self(
            form_urlencoded::parse(text)
                .into_owned()
                .take(MOST)
                .collect(),
        )
    }

    /// One more, unless there are more than any form has.
    pub fn add(&mut self, name: String, value: String) {
        if self.0.len() < MOST {
            self.0.push((name, value));
        }
    }

    /// The first value of that name without space around it; empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// The first value of that name as it was typed, for passwords and long texts.
    pub fn raw(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map_or("", |(_, value)| value)
    }
}

/// What queries have as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':');

/// `address` and the pairs with a value as its query.
pub fn with_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let texts = pairs.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, PLAIN)));
    match texts.collect::<Vec<_>>().join("&") {
        query if query.is_empty() => address.to_owned(),
        query => format!("{address}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_missing_ones_empty() {
        let fields = Fields::parse(b"owner=a%2Fb+c&address=&owner=second&x");
        assert_eq!(fields.get("owner"), "a/b c");
        assert_eq!(fields.get("address"), "");
        assert_eq!(fields.get("missing"), "");
        assert_eq!(Fields::parse(b"p=+a+").raw("p"), " a ");
        assert_eq!(Fields::parse(b"p=+a+").get("p"), "a");
    }

    #[test]
    fn nonsense_is_kept_and_never_fails() {
        for (text, value) in [
            ("a=%", "%"),
            ("a=%4", "%4"),
            ("a=%zz", "%zz"),
            ("a=%FF", "\u{fffd}"),
            ("a=1=2", "1=2"),
        ] {
            assert_eq!(Fields::parse(text.as_bytes()).get("a"), value);
        }
        let many = "a=1&".repeat(10_000);
        assert_eq!(Fields::parse(many.as_bytes()).0.len(), MOST);
    }

    #[test]
    fn queries_come_back_as_they_went() {
        let link = with_query("/ui/pools", &[("filter", "a b/ü&="), ("after", "")]);
        assert_eq!(link, "/ui/pools?filter=a%20b/%C3%BC%26%3D");
        let (_, query) = link.split_once('?').unwrap();
        assert_eq!(Fields::parse(query.as_bytes()).get("filter"), "a b/ü&=");
    }
}
