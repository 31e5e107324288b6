//! People and machines that may ask.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Scope, Text, Timestamp, words};

words! {
    /// What somebody may do. Ordered: each role may do all of the roles before it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Role {
        Viewer = "viewer",
        Operator = "operator",
        Admin = "admin",
    }
}

/// Someone who signs in with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: Text,
    pub role: Role,
    /// PHC string (argon2id). Never logged.
    pub password_hash: Text,
    pub created: Timestamp,
    /// May not sign in.
    pub disabled: bool,
}

/// The public number of a token; part of the token's text, so that it is found without trying all hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub u64);

/// A bearer token for the REST API. Only the hash of its secret is kept.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    pub name: Text,
    pub role: Role,
    /// SHA-256 of the secret (32 random bytes).
    pub hash: [u8; 32],
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    /// What it is for.
    pub scope: Scope,
    /// Where it may be used from; anywhere if empty.
    pub from: Vec<IpNet>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}
