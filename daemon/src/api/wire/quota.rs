//! Quotas.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How much of a pool a tenant may hold, and how much it holds: leases, or addresses where the pool's `quota_unit` says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaView {
    pub tenant: String,
    pub pool: String,
    /// What the tenant holds of the pool, without what is in quarantine; more than the limit where that was lowered or
    /// leases were adopted.
    pub used: u64,
    /// 0: none is given.
    pub limit: u64,
}

/// One page of a list; `next` is the cursor of the page after it, null on the last.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QuotaPage {
    /// By pool, then by tenant.
    pub quotas: Vec<QuotaView>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaPut {
    /// 0: none is given.
    pub limit: u64,
}

/// Which quotas to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct QuotaQuery {
    pub tenant: Option<String>,
    /// Name of a pool.
    pub pool: Option<String>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}
