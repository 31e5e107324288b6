//! What is in the way of a pool that is to go to another network.

use std::{fmt, net::IpAddr};

/// An address of a pool that somebody has in the network that the pool was to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    pub address: IpAddr,
    /// Who has it there.
    pub owner: String,
}

impl Collision {
    /// The most that are listed.
    pub const LISTED: usize = 100;
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.owner)
    }
}
