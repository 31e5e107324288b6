//! Spec versions that the plugin speaks.

use serde::{Deserialize, Serialize};

/// The released versions of the specification that fipd answers in.
pub const SUPPORTED: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The answer to `VERSION`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    pub cni_version: String,
    pub supported_versions: Vec<String>,
}

impl VersionInfo {
    /// The versions spoken, in the form of the asker's `version`.
    pub fn new(version: &str) -> Self {
        Self {
            cni_version: version.to_owned(),
            supported_versions: SUPPORTED.map(str::to_owned).to_vec(),
        }
    }
}
