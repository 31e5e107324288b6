//! Tokens, and people who sign in.

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
    pub expires: Option<String>,
    /// Instead of `expires`: seconds from now, by fipd's time.
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
    pub last_used: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By id.
    pub tokens: Vec<TokenView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

/// A fresh token; `token` is shown here and never again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    #[serde(flatten)]
    pub view: TokenView,
    pub token: String,
}

/// A password on its way to be hashed. Shown by nothing.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(pub String);

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// 1 to 63 characters.
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    /// 8 to 1024 bytes.
    #[schema(value_type = String, format = Password)]
    pub password: Password,
}

/// What is left out stays. Each change ends the user's sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserPatch {
    #[schema(value_type = Option<String>)]
    pub role: Option<Role>,
    /// 8 to 1024 bytes.
    #[schema(value_type = Option<String>, format = Password)]
    pub password: Option<Password>,
    /// Whether the user may not sign in; refused for the last admin who may.
    pub disabled: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    pub name: String,
    #[schema(value_type = String)]
    pub role: Role,
    pub created: String,
    /// May not sign in.
    #[serde(default)]
    pub disabled: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    /// By name.
    pub users: Vec<UserView>,
    /// Cursor of the next page; null on the last.
    pub next: Option<String>,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let text = r#"{"name":"ann","role":"admin","password":"open sesame"}"#;
        let body: UserCreate = serde_json::from_str(text).unwrap();
        assert_eq!(body.password.0, "open sesame");
        assert!(!format!("{body:?}").contains("sesame"));
    }
}
