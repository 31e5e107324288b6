//! `[history]`: how long the hourly figures of pools are kept.

use fipd_core::Retention;
use schemars::JsonSchema;
use serde::Deserialize;

/// The section; all in days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct History {
    /// For how many days each hour is kept; of older days only the last hour.
    keep_hours: Hourly,
    /// For how many days those are kept.
    keep_days: Daily,
}

/// For how long each hour is kept; of older days only the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
struct Hourly(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
struct Daily(u32);

impl History {
    /// A forecast looks at a week.
    const LEAST: u32 = 8;
    /// Ten years.
    const MOST: u32 = 3_660;

    pub fn retention(self) -> Retention {
        Retention {
            hourly: self.keep_hours.0,
            daily: self.keep_days.0,
        }
    }
}

impl Default for Hourly {
    fn default() -> Self {
        Self(Retention::default().hourly)
    }
}

impl Default for Daily {
    fn default() -> Self {
        Self(Retention::default().daily)
    }
}

impl TryFrom<u32> for Hourly {
    type Error = String;

    fn try_from(days: u32) -> Result<Self, Self::Error> {
        checked("keep-hours", days).map(Self)
    }
}

impl TryFrom<u32> for Daily {
    type Error = String;

    fn try_from(days: u32) -> Result<Self, Self::Error> {
        checked("keep-days", days).map(Self)
    }
}

fn checked(key: &str, days: u32) -> Result<u32, String> {
    let (least, most) = (History::LEAST, History::MOST);
    if (least..=most).contains(&days) {
        Ok(days)
    } else {
        Err(format!(
            "[history] {key} = {days}: allowed is {least} to {most} days"
        ))
    }
}
