//! How a store is kept.

use std::{path::PathBuf, time::Duration};

use fipd_core::Retention;

use super::{batch::HistoryLimits, host_id::HostId};

/// How a store is kept.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Audit entries kept, about.
    pub audit_limit: u64,
    /// How long hourly figures of pools are kept.
    pub history: Retention,
    /// Bytes that must be free on the disk for a commit, beside what the commit itself needs.
    pub reserve: u64,
    /// Bytes of the ballast file beside the store, given up when the disk is full.
    pub ballast: u64,
    /// The first pause between two attempts to reopen the file; doubles up to 5 s.
    pub retry: Duration,
    /// Where backups of the store are, if not in `backups` beside it.
    pub backups: Option<PathBuf>,
    /// This host; `None` where it is not known, or no matter.
    pub host: Option<HostId>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            audit_limit: 1_000_000,
            history: Retention::default(),
            reserve: 4 << 20,
            ballast: 8 << 20,
            retry: Duration::from_millis(50),
            backups: None,
            host: None,
        }
    }
}

impl StoreOptions {
    pub(super) fn keep(&self) -> HistoryLimits {
        HistoryLimits {
            audit: self.audit_limit,
            history: self.history,
        }
    }
}
