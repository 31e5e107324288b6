//! Points in time as plain numbers.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC.
///
/// The caller hands in `max(wall clock, last persisted time)`, so that it never runs backwards.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);
