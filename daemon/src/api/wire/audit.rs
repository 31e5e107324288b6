//! The audit log.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Part of who asked, such as `user:ann`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// What was decided, such as `allocated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whose lease it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Not before: RFC 3339, or a day with or without a time, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Not after: as `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
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
    /// Newest first; fewer than `limit`, even none, where the rest is further back than one request looks.
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
