//! Networks, and pools that go to another one.

use std::{fmt, net::IpAddr};

use fipd_core::prefix_text;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkView {
    pub id: u32,
    pub name: String,
    pub pools: usize,
    /// Clusters that must be adopted before the network gives a new address; empty when it may.
    pub waiting_for: Vec<HoldView>,
    /// Until about when no free address is given, because a backup was restored.
    pub held_until: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetworkList {
    /// By id.
    pub networks: Vec<NetworkView>,
    /// Cursor of the next page; null on the last.
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

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PoolMove {
    /// Network that the pool goes to.
    pub network: String,
}

/// What a move would do.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolMovePreview {
    pub pool: String,
    pub from: String,
    pub to: String,
    /// Leases that go along.
    pub leases: u64,
    /// How many of their addresses are in use there; with any, the move is refused.
    pub collisions: u64,
    /// The lowest 100 of these.
    pub first: Vec<CollisionView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CollisionView {
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Bits of the prefix that begins with the address; left out where it is just the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u8>,
    /// Who has some of it there.
    pub owner: String,
}

/// `10.0.0.7 (OWNER)`.
impl fmt::Display for CollisionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = prefix_text(self.address, self.length);
        write!(f, "{what} ({})", self.owner)
    }
}
