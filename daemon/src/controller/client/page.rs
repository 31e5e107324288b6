//! A page of a list as an API server answers it.

use serde::Deserialize;
use serde_json::Value;

/// The parameter of the next page. Tokens are Base64 for URLs; whatever else somebody answers is escaped.
pub fn escaped(token: &str) -> String {
    let bytes = token.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    });
    format!("&continue={}", bytes.collect::<String>())
}

/// A page of a list.
#[derive(Deserialize)]
pub struct Page {
    pub items: Option<Vec<Value>>,
    pub metadata: Option<PageMetadata>,
}

#[derive(Deserialize)]
pub struct PageMetadata {
    #[serde(rename = "continue")]
    pub token: Option<String>,
}
