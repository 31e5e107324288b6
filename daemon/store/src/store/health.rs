//! How the store is doing, for `/readyz`, metrics and the UI.

use super::high_water::HighWater;

/// Whether the store takes decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Serving,
    /// It belongs to another host, and nothing is decided until an admin says that it is this one's.
    OtherHost,
    /// The last batch was refused, because less than `needed` bytes were free.
    Full { free: u64, needed: u64 },
    /// A write failed; the file is being reopened, for the `attempts`-th time.
    Reopening { error: String, attempts: u32 },
    /// Nothing is decided any more: the daemon must be started again.
    Stopped { reason: String },
}

/// The store's figures. Counters start at zero with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    pub condition: Condition,
    pub commits: u64,
    pub decisions: u64,
    /// Time spent in commits, in nanoseconds.
    pub commit_nanos: u64,
    /// Commits that failed and were looked up in the reopened file.
    pub failed_commits: u64,
    /// How far the decisions of the store have come.
    pub high_water: HighWater,
    /// Numbers of the oldest and of the next audit entry.
    pub audit_first: u64,
    pub audit_next: u64,
}
