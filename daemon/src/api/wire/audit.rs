//! The audit log.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only entries with a smaller number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// 1 to 1000; 100 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Newest first.
    pub entries: Vec<AuditView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    pub number: u64,
    pub at: String,
    pub actor: String,
    pub action: String,
    pub network: Option<String>,
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    pub pool: Option<String>,
    pub owner: Option<String>,
    pub detail: String,
}
