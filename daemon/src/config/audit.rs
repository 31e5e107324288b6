//! `[audit]`: how much of the audit log is kept.

use schemars::JsonSchema;
use serde::Deserialize;

/// The section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Audit {
    /// How many entries stay, about. Webhooks that are behind lose what is trimmed.
    pub keep: Entries,
}

/// A number of entries, about: older ones go in steps, in the commits of new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct Entries(pub u64);

const LEAST: u64 = 1_000;
/// More would be paid at each start after a crash, which reads all of them.
const MOST: u64 = 10_000_000;

impl Default for Entries {
    fn default() -> Self {
        Self(1_000_000)
    }
}

impl TryFrom<u64> for Entries {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        if (LEAST..=MOST).contains(&number) {
            Ok(Self(number))
        } else {
            Err(format!(
                "[audit] keep = {number}: allowed is {LEAST} to {MOST}"
            ))
        }
    }
}
