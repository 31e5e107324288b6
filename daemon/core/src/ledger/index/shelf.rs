//! The leases of a cluster, by what becomes of them when it leaves.

use crate::{Lease, LeaseState};

/// Which of the leases of one system of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) enum ShelfPart {
    /// `Allocated`, and all members are of this cluster and system: what may become orphaned.
    Live,
    Orphaned,
    /// Not in use yet, and all members are of this cluster.
    Kept,
    /// `Allocated`, with members of others.
    Shared,
    Other,
}

impl ShelfPart {
    pub fn of(lease: &Lease) -> Self {
        let mut members = lease.owners();
        let first = members.next();
        let mut others = members.filter_map(|next| first.map(|first| (first, next)));
        match lease.state {
            LeaseState::Allocated
                if others.all(|(a, b)| (&a.cluster, &a.system) == (&b.cluster, &b.system)) =>
            {
                Self::Live
            }
            LeaseState::Allocated => Self::Shared,
            LeaseState::Reserved | LeaseState::Probing
                if others.all(|(a, b)| a.cluster == b.cluster) =>
            {
                Self::Kept
            }
            LeaseState::Orphaned => Self::Orphaned,
            LeaseState::Reserved | LeaseState::Probing | LeaseState::Quarantined => Self::Other,
        }
    }
}
