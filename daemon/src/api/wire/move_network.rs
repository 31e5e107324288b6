//! Pools that go to another network.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolMove {
    /// Network that the pool goes to.
    pub network: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PoolMoveQuery {
    /// Network that the pool would go to.
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
    /// Who has it there.
    pub owner: String,
}
