//! A page of a list as an API server answers it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The parameter of the next page. Tokens are Base64 for URLs; whatever else somebody answers is escaped.
pub fn escaped(token: &str) -> String {
    format!("&continue={}", utf8_percent_encode(token, PLAIN))
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
