//! `[fip-v1]`: the API that the stock LB controller speaks.

use schemars::JsonSchema;
use serde::Deserialize;

/// The section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FipV1 {
    /// Calls of one project.
    pub rate_limit_per_second: Rate,
    /// Of these, at once.
    pub rate_limit_burst: Rate,
    /// Calls for tokens, and calls of nobody's, from one address.
    pub peer_rate_limit_per_second: Rate,
    /// Of these, at once.
    pub peer_rate_limit_burst: Rate,
}

/// A number of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
pub struct Rate(u32);

const MOST: u32 = 10_000;

impl Default for FipV1 {
    fn default() -> Self {
        Self {
            rate_limit_per_second: Rate(10),
            rate_limit_burst: Rate(20),
            peer_rate_limit_per_second: Rate(200),
            peer_rate_limit_burst: Rate(1_000),
        }
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.0.into()
    }
}

impl TryFrom<u32> for Rate {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if (1..=MOST).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!(
                "[fip-v1] rate-limit-per-second, rate-limit-burst, peer-rate-limit-per-second and peer-rate-limit-burst: {number} is not allowed: 1 to {MOST}"
            ))
        }
    }
}
