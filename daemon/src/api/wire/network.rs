//! Networks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkView {
    pub id: u32,
    pub name: String,
    pub pools: usize,
    /// Clusters that must be adopted before the network gives a new address; empty when it may.
    pub waiting_for: Vec<HoldView>,
    /// Until about when no free address is given, because a backup was restored.
    #[serde(default)]
    pub held_until: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkList {
    /// By id.
    pub networks: Vec<NetworkView>,
    /// Cursor of the next page; null on the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// Two networks of which an admin said that they are two; a row of an export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeparationView {
    /// Always `separation`.
    pub kind: String,
    /// Their names.
    pub networks: [String; 2],
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HoldView {
    pub cluster: String,
    /// The cluster's identity, once it was reached.
    pub id: Option<String>,
    pub system: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkCreate {
    /// 1 to 63 of `a-z`, `0-9` and `-`.
    pub name: String,
}
