//! What a pool remembers of an address after its lease.

use serde::{Deserialize, Serialize};

use crate::{Identity, LeaseKey, PoolId, Timestamp};

/// The last lease of an address that is free or cools. There is none of an address in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastLease {
    pub key: LeaseKey,
    /// The pool that it was given from and that remembers it.
    pub pool: PoolId,
    /// Who had it.
    pub identity: Identity,
    pub released: Timestamp,
    /// Whether its holder gave it back; otherwise it was taken away.
    pub own: bool,
}
