//! People who sign in.

use fipd_core::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Role>,
    /// 8 to 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Password)]
    pub password: Option<Password>,
    /// Whether the user may not sign in; refused for the last admin who may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default)]
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
