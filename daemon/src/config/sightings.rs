//! What becomes of addresses that other load balancers use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of addresses of fipd's pools that Services of other load balancers show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SightingMode {
    /// A free address is kept for the Service, a held one makes it a contender.
    #[default]
    Hold,
    /// They are only shown.
    Report,
    /// Nobody looks.
    Off,
}
