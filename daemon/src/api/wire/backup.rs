//! Copies of the store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackupList {
    pub directory: String,
    /// Seconds between two of them; null where they are made only when asked.
    pub every: Option<u64>,
    /// How many stay.
    pub keep: usize,
    /// Newest first.
    pub backups: Vec<BackupView>,
    /// When the last attempt failed; null if it did not.
    pub failed: Option<String>,
    /// Why.
    pub error: Option<String>,
    /// What the running daemon holds.
    pub store: StoreCounts,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BackupView {
    pub name: String,
    pub created: String,
    pub bytes: u64,
    /// It was read back and checked before it got its name.
    pub verified: bool,
    /// The last time that it was restored on trial; null where it never was.
    #[serde(default)]
    pub drill: Option<DrillView>,
}

/// A copy was restored in a place of its own, opened and checked there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrillView {
    pub at: String,
    pub ok: bool,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// How much of everything a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreCounts {
    /// Number of the next audit entry: grows with every decision.
    pub revision: u64,
    pub networks: usize,
    pub pools: usize,
    pub quotas: usize,
    pub leases: usize,
    pub clusters: usize,
    pub users: usize,
    pub tokens: usize,
}
