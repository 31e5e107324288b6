//! Fields of queries and forms as they came: any may be missing, and what is wrong is said beside it.

/// Names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

/// More fields than any of our forms has are not read.
const MOST: usize = 32;

impl Fields {
    /// Reads `application/x-www-form-urlencoded`. Never fails: broken escapes stay as they are, broken UTF-8 is
    /// replaced.
    pub fn parse(text: &[u8]) -> Self {
        let pairs = text
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty())
            .take(MOST);
        Self(
            pairs
                .map(|pair| {
                    let mut parts = pair.splitn(2, |byte| *byte == b'=');
                    let mut part = || decode(parts.next().unwrap_or_default());
                    (part(), part())
                })
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

/// `address` and the pairs with a value as its query.
pub fn with_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let mut out = address.to_owned();
    let mut sign = '?';
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(sign);
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' => {
                    out.push(char::from(byte));
                }
                other => out.push_str(&format!("%{other:02X}")),
            }
        }
        sign = '&';
    }
    out
}

fn decode(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (escaped, first) {
            (Some((high, low)), _) => {
                out.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            (None, b'+') => {
                out.push(b' ');
                rest = after;
            }
            (None, other) => {
                out.push(*other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
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
