//! The time of the address book.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// What quarantines and reservations go by.
    pub book: String,
    /// The host's clock, which tokens and sessions go by.
    pub wall: String,
    /// How far the host's clock is ahead without being believed.
    pub held_back_seconds: u64,
    /// How far the time of the address book is ahead of the host's clock.
    pub ahead_seconds: u64,
    /// `synchronised`, `not synchronised` or `unknown`.
    pub kernel: String,
    /// Why the kernel cannot be asked.
    pub reason: Option<String>,
}
