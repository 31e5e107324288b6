//! What changed.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Since when.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ChangesQuery {
    /// Changes after this revision; left out: after the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out. Not for event streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

/// One page of changes. With `accept: text/event-stream` each comes as an event `change` with its revision as the id.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangesPage {
    pub changes: Vec<ChangeView>,
    /// Nothing up to this revision is missing; ask for changes since it.
    pub revision: u64,
    /// The changes since then are no longer known: read everything anew, then ask for changes since `revision`.
    pub reset: bool,
    /// Cursor of the next page; null where nothing more has changed.
    pub next: Option<String>,
}

/// One decision. What is named has changed, has come or is gone; several decisions later it may be different again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    pub revision: u64,
    /// What it touched, of `pools`, `leases`, `quotas` and `other` (networks, clusters, users, tokens).
    pub kinds: Vec<String>,
    /// Pools that changed themselves, in their use or in their quotas.
    pub pools: Vec<ChangedPool>,
    pub leases: Vec<ChangedLease>,
    /// Tenants that may be given more than before.
    pub tenants: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangedPool {
    pub id: u32,
    /// Null where it is gone.
    pub name: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangedLease {
    pub network: String,
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// As it is now; null where nobody holds the address.
    pub state: Option<String>,
    pub pool: Option<String>,
    pub owner: Option<String>,
}
