//! How many addresses of a pool a tenant may hold.

use serde::{Deserialize, Serialize};

use crate::{PoolId, Tenant};

/// The most addresses of a pool that a tenant is given. A tenant without one in a pool may have any number there, or
/// none where the pool says that a quota is required.
///
/// What is found in use is adopted all the same, so a tenant may hold more than its limit; it is given nothing
/// then. A lease counts for its tenant in the pool it is attributed to, once however many members it has, and in
/// every state but `Quarantined`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Quota {
    pub pool: PoolId,
    pub tenant: Tenant,
    /// 0: none at all.
    pub limit: u64,
}

/// A quota and what counts against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    pub quota: Quota,
    /// May be above the limit.
    pub used: u64,
}

/// What a tenant holds of a pool, and may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenancy {
    pub pool: PoolId,
    pub tenant: Tenant,
    pub used: u64,
    /// `None`: any number.
    pub limit: Option<u64>,
}

impl Quota {
    /// The longest name of a tenant that can have one, in bytes.
    pub const MAX_TENANT: usize = 1_024;
}
