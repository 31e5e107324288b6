//! Routing domains.

use serde::{Deserialize, Serialize};

use crate::{RestoreHold, Text};

/// The immutable number of a network. 0 is `default`, which always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NetworkId(pub u32);

impl NetworkId {
    /// The network `default`.
    pub const DEFAULT: Self = Self(0);
}

/// Two networks of which an admin said that they are two; the lower number first.
pub type Separation = (NetworkId, NetworkId);

/// A routing domain (what NetBox calls a VRF). Inside one network an address has at most one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub id: NetworkId,
    /// Unique, 1 to 63 of `[a-z0-9-]`, starts and ends with a letter or digit.
    pub name: Text,
    /// Free addresses of it are held: a cluster knows decisions that the store does not. That of [`crate::Epoch`] counts as well.
    pub hold: Option<RestoreHold>,
}
