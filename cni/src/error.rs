//! The error object that a plugin prints on standard output.

use serde::{Deserialize, Serialize};

/// Error codes of CNI specification 1.1.0, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    IncompatibleVersion = 1,
    UnsupportedField = 2,
    UnknownContainer = 3,
    InvalidEnvironment = 4,
    IoFailure = 5,
    DecodingFailure = 6,
    InvalidConfig = 7,
    /// The network namespace is not one of a container. As libcni's skeleton has it.
    InvalidNamespace = 8,
    /// What is in the way goes by itself; the runtime asks again.
    TryAgain = 11,
    /// `STATUS`: the plugin is not available, `ADD` is not possible.
    NotAvailable = 50,
    /// fipd's own: an interface, address or route is not as `ADD` made it.
    NotAsMade = 100,
    /// fipd's own: somebody else uses the address.
    AddressConflict = 101,
}

/// A refusal in the spec's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{msg}: {details}")]
pub struct CniError {
    pub cni_version: String,
    pub code: u32,
    pub msg: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// `msg` is one short line, `details` says what to do.
    pub fn new(version: &str, code: Code, msg: &str, details: impl Into<String>) -> Self {
        Self {
            cni_version: version.to_owned(),
            code: code as u32,
            msg: msg.to_owned(),
            details: details.into(),
        }
    }
}
