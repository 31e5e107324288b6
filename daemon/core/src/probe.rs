//! Checks of addresses on the wire before they are used.

use crate::{Actor, Identity, LeaseKey, Text};

/// What the check of a `Probing` lease on the wire has come to. Reporting the same again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    pub key: LeaseKey,
    /// Who has the lease.
    pub identity: Identity,
    pub verdict: ProbeVerdict,
    pub actor: Actor,
}

/// Whether somebody answered for the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Nobody did: the lease is in use by its holder from here on.
    Free,
    /// The holder loses it and asks again. It goes to a contender, or cools for [`Probed::TAKEN`], and longer where the pool
    /// says so.
    Taken {
        /// Who answered, such as a MAC address; for the audit log, may be empty.
        by: Text,
    },
}

impl Probed {
    /// For how many seconds an address is given to nobody after it was found in use: an hour, so that it is not tried
    /// again and again while whoever uses it is looked for.
    pub const TAKEN: u32 = 3_600;
}
