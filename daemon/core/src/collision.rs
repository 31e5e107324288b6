//! What is in the way of a pool that is to go to another network.

use std::{fmt, net::IpAddr};

use crate::prefix_text;

/// A lease of a pool whose address or prefix somebody has some of in the network that the pool was to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Where the pool's lease begins.
    pub address: IpAddr,
    /// Its bits, where it is no single address.
    pub length: Option<u8>,
    /// Who has it there.
    pub owner: String,
}

impl Collision {
    /// The most that are listed.
    pub const LISTED: usize = 100;
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = prefix_text(self.address, self.length);
        write!(f, "{what} ({})", self.owner)
    }
}
