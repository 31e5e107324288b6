//! Many operations in one request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Allocate, QuotaPut, ReleaseRequest, ReserveRequest, TransferRequest};
use crate::api::problem::Problem;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// 1 to 1000. Each is decided by itself; none waits for another one or sees what it did.
    #[schema(min_items = 1, max_items = 1000)]
    pub operations: Vec<BulkOperation>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BulkOperation {
    Allocate(Allocate),
    Reserve(ReserveRequest),
    Release(ReleaseRequest),
    Transfer(BulkTransfer),
    PutQuota(BulkQuota),
    DeleteQuota(BulkQuotaOf),
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkTransfer {
    pub network: String,
    pub address: String,
    pub transfer: TransferRequest,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkQuota {
    /// Name of a pool.
    pub pool: String,
    pub tenant: String,
    pub quota: QuotaPut,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkQuotaOf {
    /// Name of a pool.
    pub pool: String,
    pub tenant: String,
}

/// In the order of the operations.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkDone {
    pub results: Vec<BulkResult>,
}

/// What the operation would have been answered by itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkResult {
    pub status: u16,
    /// Null for failures and where there is none.
    #[schema(value_type = Option<Object>)]
    pub body: Option<serde_json::Value>,
    /// Why it failed.
    pub problem: Option<Problem>,
}
