//! The daemon itself: what was checked, its copies, its time, its configuration, its receivers of events, and files of rows.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    pub ok: bool,
    pub checks: Vec<Checked>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Checked {
    /// `ledger`, `store`, `writer`, `config`, `cluster NAME`.
    pub what: String,
    pub ok: bool,
    /// What was seen, or what is wrong.
    pub detail: String,
}

impl CheckReport {
    /// All is well where each check is.
    pub fn of(checks: Vec<Checked>) -> Self {
        let ok = checks.iter().all(|check| check.ok);
        Self { ok, checks }
    }
}

impl Checked {
    pub fn new(what: impl Into<String>, ok: bool, detail: impl Into<String>) -> Self {
        let (what, detail) = (what.into(), detail.into());
        Self { what, ok, detail }
    }

    /// One for each thing that is wrong, or one that says what is fine.
    pub fn all<T: ToString>(what: &str, wrong: &[T], fine: String) -> Vec<Self> {
        if wrong.is_empty() {
            return vec![Self::new(what, true, fine)];
        }
        let entry = |one: &T| Self::new(what, false, one.to_string());
        wrong.iter().map(entry).collect()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Why it is not, or what a person should know.
    pub reasons: Vec<String>,
}

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

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RestoreHoldView {
    /// Whether free addresses are held: nobody new is given one.
    pub held: bool,
    /// The networks that are held while others are not, up to 1,000; empty where all are, or none.
    pub networks: Vec<String>,
    /// About when that ends, if fipd runs until then.
    pub until: Option<String>,
    /// How often the store was restored from a backup.
    pub epoch: u64,
    /// When it was restored last.
    pub restored: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LiftHold {
    /// For the audit log: why free addresses are certainly free.
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// What quarantines and reservations go by.
    pub book: String,
    /// The host's clock, which tokens and sessions go by.
    pub wall: String,
    /// How far the host's clock is ahead without being believed.
    pub held_back_seconds: u64,
    /// How far the time of the address book is ahead of the host's clock.
    pub ahead_seconds: u64,
    /// `synchronised`, `not synchronised` or `unknown`.
    pub kernel: String,
    /// Why the kernel cannot be asked.
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReloadView {
    /// Parts of the configuration that are in force as they are now, and were not before.
    pub applied: Vec<String>,
    /// Parts that are in force as they were at the start, until the next one.
    pub needs_restart: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReloadStanding {
    /// Why the file as it is now is not used; null while it is.
    pub failed: Option<String>,
    /// Parts that are in force as they were at the start, until the next one.
    pub needs_restart: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    pub webhooks: Vec<WebhookView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    pub name: String,
    pub url: String,
    /// What it is told.
    pub events: Vec<String>,
    /// Events received since the start.
    pub delivered: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Entries of the audit log that were trimmed before they were sent, since the start.
    pub missed: u64,
    /// Entries of the audit log that were not looked at for it yet.
    pub pending: u64,
    pub last_success: Option<String>,
    /// Why it fails; null where it does not.
    pub error: Option<String>,
    pub failing_since: Option<String>,
    pub next_attempt: Option<String>,
}

/// The receiver took the test.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookTested {
    pub name: String,
    /// The HTTP status of its answer.
    pub status: u16,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    /// `leases`, `pools`, `networks`, `separations`, `quotas` or `audit`; `leases` when left out.
    pub what: Option<String>,
    /// `jsonl` (one object a line) or `csv` (with a header line); `jsonl` when left out.
    pub format: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImportQuery {
    /// Only say what would become of each row.
    #[serde(default)]
    pub dry_run: bool,
    /// Tenants may have more than their quotas then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// `jsonl` (one object a line) or `csv` (with a header line); `jsonl` when left out.
    pub format: Option<String>,
}

impl ImportQuery {
    /// The largest file, in bytes: an export of 100,000 leases fits.
    pub const MAX_BYTES: usize = 128 * 1024 * 1024;
    /// What is taken at once, for people.
    pub const MOST: &str = "an import takes up to 128 MiB and 200,000 rows; split the file, with networks and pools before what is in them";
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImportReport {
    /// All rows are as the file says. Otherwise nothing was changed.
    pub written: bool,
    pub created: usize,
    pub changed: usize,
    pub same: usize,
    pub refused: usize,
    /// In the order of the file.
    pub rows: Vec<ImportedRow>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedRow {
    /// From 1; a header line does not count.
    pub row: usize,
    /// Of the file, from 1: where the row begins.
    #[serde(default)]
    pub line: usize,
    pub what: String,
    /// Who holds the address by this row, as it is written there; the first one of several.
    pub owner: Option<String>,
    /// `create`, `change`, `same` or `error`.
    pub fate: String,
    /// Why the row is refused.
    pub error: Option<String>,
    pub field: Option<String>,
    pub value: Option<String>,
    pub allowed: Option<String>,
}
