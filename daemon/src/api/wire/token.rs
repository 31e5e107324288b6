//! Tokens.

use fipd_core::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// 1 to 63 characters; not that of another token that is in use.
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// RFC 3339; left out: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Instead of `expires`: seconds from now, by fipd's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub lasts: Option<u32>,
    /// Only for these pools, by name; left out: all. Where several of these lists are given, what is in all of them. A token
    /// with any of them reads and changes leases and quotas, and nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Only for these networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// Only for what these tenants are charged for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// CIDRs that it may be used from; left out: from anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: u64,
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub created: String,
    pub expires: Option<String>,
    /// Empty: all.
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default)]
    pub networks: Vec<String>,
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Empty: from anywhere.
    #[serde(default)]
    pub from: Vec<String>,
    /// Null where it was not used since fipd started.
    #[serde(default)]
    pub last_used: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By id.
    pub tokens: Vec<TokenView>,
    /// Cursor of the next page; null on the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// A fresh token; `token` is shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}
