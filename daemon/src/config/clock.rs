//! `[clock]`: which clock the time of the address book follows.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock::ClockTrust;

/// The section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Clock {
    /// What a jump of the wall clock of more than five minutes needs before it counts. `kernel`: that the kernel says it is
    /// synchronised, or `fipd clock accept`. `wall`: nothing, for hosts whose kernel never says so.
    pub trust: ClockTrust,
}
