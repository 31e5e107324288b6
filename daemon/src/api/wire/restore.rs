//! The hold after a restore.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
