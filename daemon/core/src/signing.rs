//! Keys that sign the tokens of the API that the stock LB controller speaks.

use std::{fmt, sync::Arc};

use crate::Timestamp;

/// The number of a key: each new one has the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

/// A private key: PKCS#1, DER. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyBytes(pub Arc<[u8]>);

/// A key that signs, or only verifies what it signed. At most one signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKey {
    pub id: KeyId,
    pub created: Timestamp,
    pub bytes: KeyBytes,
    /// What it signed counts until then; `None`: it signs.
    pub until: Option<Timestamp>,
}

impl SigningKey {
    /// How long what a key signed counts once another signs, in milliseconds: longer than a token lasts.
    pub const OVERLAP: u64 = 2 * 3_600_000;
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes")
    }
}
