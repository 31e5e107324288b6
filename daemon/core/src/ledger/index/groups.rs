//! Sharing groups: the leases that another member may join.

use std::collections::BTreeMap;

use super::unfile;
use crate::{Lease, LeaseKey, LeaseState, NetworkId, Tenant, Text, ledger::keyset::KeySet};

/// Leases are shared among those of one network and tenant that name one key.
pub(in crate::ledger) type ShareGroup = (NetworkId, Option<Tenant>, Text);

/// Leases in use that have room for a member, by group.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Groups(BTreeMap<ShareGroup, KeySet>);

/// The group of the lease.
pub(in crate::ledger) fn group(lease: &Lease) -> Option<ShareGroup> {
    let key = lease.group.clone()?;
    Some((lease.key.network, lease.tenant.clone(), key))
}

/// The group of a lease that may be joined: who contends for one gets it next, and a member without ports needs all.
pub(in crate::ledger) fn joinable(lease: &Lease) -> Option<ShareGroup> {
    let fits = lease.state == LeaseState::Allocated
        && lease.contenders.is_empty()
        && lease.members.len() < Lease::MAX_MEMBERS
        && lease.members.iter().all(|member| !member.ports.is_empty());
    group(lease).filter(|_| fits)
}

impl Groups {
    /// Enters a lease, if it may be joined.
    pub fn add(&mut self, lease: &Lease) {
        if lease.group.is_some()
            && let Some(group) = joinable(lease)
        {
            self.0.entry(group).or_default().insert(lease.key);
        }
    }

    /// Takes a lease out, as it was when it was entered.
    pub fn remove(&mut self, lease: &Lease) {
        if let Some(group) = joinable(lease) {
            unfile(&mut self.0, &group, lease.key);
        }
    }

    /// The leases that one of the group may join, in order.
    pub fn of(&self, group: &ShareGroup) -> impl Iterator<Item = LeaseKey> {
        self.0.get(group).into_iter().flat_map(KeySet::iter)
    }

    /// Whether the lease is entered if it may be joined.
    pub fn has(&self, lease: &Lease) -> bool {
        joinable(lease).is_none_or(|group| {
            let keys = self.0.get(&group);
            keys.is_some_and(|keys| keys.contains(lease.key))
        })
    }

    pub fn len(&self) -> usize {
        self.0.values().map(KeySet::len).sum()
    }
}
