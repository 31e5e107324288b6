//! What is found in a site of other programs, and what is taken over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptReport {
    /// The configured name of the cluster.
    pub cluster: String,
    /// Nothing was changed.
    pub dry_run: bool,
    pub message: String,
    /// How many of each there are.
    pub counts: BTreeMap<String, u64>,
    pub findings: Vec<AdoptFinding>,
    pub changes: Vec<AdoptChange>,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
    /// Why nothing can be taken over at present.
    pub blockers: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptFinding {
    /// `pool`, `quota`, `address`, `conflict`, `orphan`, `secret`, `leftover`, `program`, `refused`, `unwanted` or
    /// `malformed`.
    pub kind: String,
    pub name: String,
    /// Whether all is well with it.
    pub fine: bool,
    pub detail: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdoptChange {
    /// Who does it: `fipd` by itself while it leads, `adopt`, or `you`.
    pub by: String,
    pub name: String,
    pub does: String,
    /// `planned`, `done` or `failed`.
    pub state: String,
    /// Why it failed.
    pub error: Option<String>,
}
