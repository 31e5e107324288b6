//! Tokens.

use fipd_core::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// 1 to 63 characters.
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// RFC 3339; left out: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: u64,
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub created: String,
    pub expires: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By id.
    pub tokens: Vec<TokenView>,
}

/// A fresh token; `token` is shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}
