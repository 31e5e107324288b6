//! `[backup]`: how often the store is copied, where to and how many copies stay.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock;

/// The section.
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

const MOST: u64 = 10_000;

impl Default for Backup {
    fn default() -> Self {
        Self {
            every: Every(Some(Duration::from_secs(24 * 3600))),
            keep: Keep(7),
            directory: None,
        }
    }
}

impl TryFrom<String> for Every {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == "off" {
            return Ok(Self(None));
        }
        let least = Duration::from_secs(60);
        let every = clock::duration(&text).ok().filter(|every| *every >= least);
        every.map(|every| Self(Some(every))).ok_or_else(|| {
            format!("[backup] every = {text:?}: allowed is a number and m, h or d, such as \"24h\", or \"off\"")
        })
    }
}

impl TryFrom<u64> for Keep {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        match usize::try_from(number) {
            Ok(keep) if (1..=MOST).contains(&number) => Ok(Self(keep)),
            Ok(_) | Err(_) => Err(format!(
                "[backup] keep = {number}: allowed is 1 to {MOST}; every = \"off\" makes none"
            )),
        }
    }
}
