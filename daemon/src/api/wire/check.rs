//! What was checked, and whether the daemon is ready.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    pub ready: bool,
    /// Why it is not, or what a person should know.
    pub reasons: Vec<String>,
}
