//! Receivers of events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
