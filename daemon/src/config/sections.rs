//! Sections of a few keys each: `[audit]`, `[backup]`, `[clock]`, `[cni]`, `[fip-v1]`, `[helm]` and `[history]`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use fipd_core::Retention;
use schemars::JsonSchema;
use serde::Deserialize;

use super::checked::{checked, number, time};
use crate::clock::ClockTrust;

/// How much of the audit log is kept.
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

/// More would be paid at each start after a crash, which reads all of them.
const MOST_ENTRIES: u64 = 10_000_000;

checked!(Entries(u64) = 1_000_000, |written| {
    number("[audit] keep", written, 1_000..=MOST_ENTRIES, "")
});

/// How often the store is copied, where to and how many copies stay.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Backup {
    /// How often the store is copied while fipd runs; `off` for never.
    pub every: Every,
    /// How many copies stay, at least 1.
    pub keep: Keep,
    /// `None`: `backups` in the data directory.
    pub directory: Option<PathBuf>,
}

/// How often; `None` for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Every(pub Option<Duration>);

/// How many copies stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct Keep(pub usize);

impl Default for Backup {
    fn default() -> Self {
        Self {
            every: Every(Some(Duration::from_secs(24 * 3600))),
            keep: Keep(7),
            directory: None,
        }
    }
}

checked!(Every(String), |text| match &*text {
    "off" => Ok(None),
    text => {
        let words = "a number and m, h or d, such as \"24h\", or \"off\"";
        time("[backup] every", text, 60..=u64::MAX, words).map(Some)
    }
});

checked!(Keep(u64), |copies| {
    let or_none = "; every = \"off\" makes none";
    number("[backup] keep", copies, 1..=10_000, or_none)
});

/// What CNI plugins of this host may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Cni {
    /// Whether pods of Kubernetes get addresses of the pools that a network names as `ipam.pools`. Whoever may write
    /// NetworkAttachmentDefinitions then takes addresses of any pool, and no quota counts.
    pub pods_use_pools: bool,
}

/// Which clock the time of the address book follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Clock {
    /// What a jump of the wall clock of more than five minutes needs before it counts. `kernel`: that the kernel says it is
    /// synchronised, or `fipd clock accept`. `wall`: nothing, for hosts whose kernel never says so.
    pub trust: ClockTrust,
}

/// The API that the stock LB controller speaks.
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

const MOST_CALLS: u32 = 10_000;

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

checked!(Rate(u32), |calls| match (1..=MOST_CALLS).contains(&calls) {
    true => Ok(calls),
    false => Err(format!(
        "[fip-v1] rate-limit-per-second, rate-limit-burst, peer-rate-limit-per-second and peer-rate-limit-burst: {calls} is not allowed: 1 to {MOST_CALLS}"
    )),
});

/// The CLI that installs the charts of load balancers in clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Helm {
    /// `None`: `helm` on PATH.
    pub path: Option<PathBuf>,
    /// How long one operation may take, 10s to 1h.
    pub timeout: Deadline,
    /// How many run at once, 1 or 2.
    pub at_once: AtOnce,
    /// Whether an operation ends only when the workloads are ready.
    pub wait: bool,
    /// A PEM file of CAs that are trusted beside the system's, for chart repositories and registries.
    pub ca_file: Option<PathBuf>,
}

/// How long one operation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Deadline(pub Duration);

/// How many of them run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct AtOnce(pub usize);

impl Helm {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        for path in [&mut self.path, &mut self.ca_file].into_iter().flatten() {
            *path = base.join(&*path);
        }
    }
}

checked!(Deadline(String) = Duration::from_secs(300), |text| {
    let words = "10s to 1h, as a number and s, m or h, such as \"5m\"";
    time("[helm] timeout", &text, 10..=3600, words)
});

checked!(AtOnce(u64) = 2, |runs| {
    number("[helm] at-once", runs, 1..=2, "")
});

/// How long the hourly figures of pools are kept, in days.
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

checked!(Hourly(u32) = Retention::default().hourly, |days| {
    let allowed = History::LEAST..=History::MOST;
    number("[history] keep-hours", days, allowed, " days")
});

checked!(Daily(u32) = Retention::default().daily, |days| {
    let allowed = History::LEAST..=History::MOST;
    number("[history] keep-days", days, allowed, " days")
});
