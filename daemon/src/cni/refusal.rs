//! Why a call is not done.

use std::io;

use fipd_cni::{CniError, Code};

/// A code of the specification, and what is wrong and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRefusal {
    pub code: Code,
    pub why: String,
}

impl CallRefusal {
    pub fn new(code: Code, why: impl Into<String>) -> Self {
        Self {
            code,
            why: why.into(),
        }
    }

    /// The runtime may ask again.
    pub fn later(why: impl Into<String>) -> Self {
        Self::new(Code::TryAgain, why)
    }

    /// In the form of the specification.
    pub fn to_error(&self, version: &str) -> CniError {
        let msg = match self.code {
            Code::InvalidConfig | Code::UnsupportedField => "the network configuration is wrong",
            Code::InvalidEnvironment => "the environment is wrong",
            Code::TryAgain => "fipd cannot do it now",
            Code::NotAvailable => "fipd gives no address now",
            Code::AddressConflict => "the address is somebody else's",
            Code::NotAsMade => "the attachment is not as it was made",
            Code::IncompatibleVersion
            | Code::UnknownContainer
            | Code::IoFailure
            | Code::DecodingFailure
            | Code::InvalidNamespace => "fipd does not take the call",
        };
        CniError::new(version, self.code, msg, self.why.clone())
    }
}

/// What the kernel refused: `what` is what it should do.
pub fn kernel(what: &str, error: &io::Error) -> CallRefusal {
    CallRefusal::new(
        Code::IoFailure,
        format!("the kernel could not {what}: {error}"),
    )
}
