//! `[helm]`: the CLI that installs the charts of load balancers in clusters.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock;

/// The section.
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

const LEAST: Duration = Duration::from_secs(10);
const MOST: Duration = Duration::from_secs(3600);
const MOST_AT_ONCE: u64 = 2;

impl Default for Deadline {
    fn default() -> Self {
        Self(Duration::from_secs(300))
    }
}

impl Default for AtOnce {
    fn default() -> Self {
        Self(2)
    }
}

impl Helm {
    pub(super) fn resolve_paths(&mut self, base: &Path) {
        for path in [&mut self.path, &mut self.ca_file].into_iter().flatten() {
            *path = base.join(&*path);
        }
    }
}

impl TryFrom<String> for Deadline {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let given = clock::duration(&text).ok();
        let given = given.filter(|given| (LEAST..=MOST).contains(given));
        given.map(Self).ok_or_else(|| {
            format!("[helm] timeout = {text:?}: allowed is 10s to 1h, as a number and s, m or h, such as \"5m\"")
        })
    }
}

impl TryFrom<u64> for AtOnce {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        match usize::try_from(number) {
            Ok(given) if (1..=MOST_AT_ONCE).contains(&number) => Ok(Self(given)),
            Ok(_) | Err(_) => Err(format!(
                "[helm] at-once = {number}: allowed is 1 to {MOST_AT_ONCE}"
            )),
        }
    }
}
