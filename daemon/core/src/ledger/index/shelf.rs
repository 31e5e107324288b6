//! The leases of a cluster, by what becomes of them when it leaves.

use std::collections::BTreeMap;

use crate::{Lease, LeaseState, ledger::keyset::KeySet};

/// The leases of one system of one cluster; no set is empty.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Shelf(pub BTreeMap<ShelfPart, KeySet>);

/// Which set of a shelf.
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

impl Shelf {
    pub fn sets(&self) -> impl Iterator<Item = &KeySet> {
        self.0.values()
    }
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
