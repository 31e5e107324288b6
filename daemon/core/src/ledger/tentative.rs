//! Decisions in flight: planned, not yet known to be durable.
//!
//! A decision in flight locks what it stands on. Another request that would stand on the same is not planned
//! until the first one is confirmed or aborted, so that decisions in flight can end in any order.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::{
    charges::{Charge, Charges},
    groups::{Group, group},
    intern::Prints,
    waiters::{Place, Waiter, is_of},
};
use crate::{ClusterId, Identity, LeaseKey, NetworkId, Op, PoolId, Quota, System, Text};

/// Stands for one decision in flight; hand it back by `confirm` or `abort`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a ticket must be confirmed or aborted, or what it locks stays locked"]
pub struct Ticket(pub(super) usize);

/// Rows of which only one decision may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Networks,
    Pools,
    Clusters,
    Accounts,
    Tokens,
    Keys,
    Epoch,
    Rollups,
}

/// What a decision in flight locks and leaves behind.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    pub ops: SmallVec<[Op; 1]>,
    /// Leases it changes or deletes.
    pub keys: SmallVec<[LeaseKey; 1]>,
    /// Free addresses it takes; [`super::free::Free`] has them, too.
    pub taken: SmallVec<[LeaseKey; 1]>,
    /// Fingerprints of identities that gain leases.
    pub identities: SmallVec<[u64; 1]>,
    /// Prints of the one holder of all leases on `taken` addresses.
    pub prints: Option<Prints>,
    pub table: Option<Table>,
    /// Another one.
    pub also: Option<Table>,
    /// The networks whose pools it edits: two when a pool moves.
    pub edits: SmallVec<[NetworkId; 2]>,
    /// Places in queues given up at planning; an abort gives them back.
    pub places: Vec<(PoolId, Place, Waiter)>,
    /// An identity that leaves all queues (of that instance) on confirmation.
    pub leaves: Option<Box<(Identity, Option<Text>)>>,
    /// A cluster whose identities leave all queues on confirmation.
    pub cluster_leaves: Option<ClusterId>,
}

/// All decisions in flight and their locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Tentative {
    /// By ticket; places of ended decisions are used again.
    flights: Vec<Option<InFlight>>,
    vacant: Vec<usize>,
    keys: BTreeSet<LeaseKey>,
    identities: BTreeMap<u64, usize>,
    tables: BTreeSet<Table>,
    edits: BTreeSet<NetworkId>,
    quotas: BTreeSet<Charge>,
    groups: BTreeMap<Group, usize>,
    /// What decisions in flight add for tenants that have a quota.
    pub charges: Charges,
}

impl Tentative {
    /// Puts a decision in flight and locks what it says.
    pub fn start(&mut self, flight: InFlight) -> Ticket {
        let at = self.vacant.pop().unwrap_or(self.flights.len());
        self.keys.extend(flight.keys.iter().copied());
        self.identities
            .extend(flight.identities.iter().map(|print| (*print, at)));
        self.tables.extend(flight.table);
        self.tables.extend(flight.also);
        self.edits.extend(flight.edits.iter().copied());
        self.quotas.extend(quotas(&flight));
        for group in groups(&flight) {
            *self.groups.entry(group).or_default() += 1;
        }
        match self.flights.get_mut(at) {
            Some(place) => *place = Some(flight),
            None => self.flights.push(Some(flight)),
        }
        Ticket(at)
    }

    /// Ends a decision and unlocks; `None` for a ticket of another ledger.
    pub fn end(&mut self, ticket: &Ticket) -> Option<InFlight> {
        let flight = self.flights.get_mut(ticket.0)?.take()?;
        self.vacant.push(ticket.0);
        for key in &flight.keys {
            self.keys.remove(key);
        }
        for print in &flight.identities {
            self.identities.remove(print);
        }
        for table in flight.table.iter().chain(&flight.also) {
            self.tables.remove(table);
        }
        for network in &flight.edits {
            self.edits.remove(network);
        }
        for quota in quotas(&flight) {
            self.quotas.remove(&quota);
        }
        for group in groups(&flight) {
            if let Some(times) = self.groups.get_mut(&group) {
                *times -= 1;
                if *times == 0 {
                    self.groups.remove(&group);
                }
            }
        }
        Some(flight)
    }

    /// Whether the lease is being changed. Addresses being taken are not among them.
    pub fn locks(&self, key: LeaseKey) -> bool {
        !self.keys.is_empty() && self.keys.contains(&key)
    }

    pub fn locks_identity(&self, fingerprint: u64) -> bool {
        self.identities.contains_key(&fingerprint)
    }

    pub fn locks_table(&self, table: Table) -> bool {
        self.tables.contains(&table)
    }

    /// Whether a pool of the network is being edited.
    pub fn edits(&self, network: NetworkId) -> bool {
        self.edits.contains(&network)
    }

    /// Whether a lease of the sharing group is being written.
    pub fn locks_group(&self, group: &Group) -> bool {
        self.groups.contains_key(group)
    }

    /// Whether the quota is being changed.
    pub fn locks_quota(&self, key: &Charge) -> bool {
        !self.quotas.is_empty() && self.quotas.contains(key)
    }

    /// Whether a quota of the pool is being changed.
    pub fn locks_quota_of(&self, pool: PoolId) -> bool {
        self.quotas.iter().any(|(of, _)| *of == pool)
    }

    /// Whether no quota is being changed.
    pub fn leaves_quotas(&self) -> bool {
        self.quotas.is_empty()
    }

    /// All decisions in flight.
    pub fn flights(&self) -> impl Iterator<Item = &InFlight> {
        self.flights.iter().flatten()
    }

    /// Whether a lease in `range` is being changed.
    pub fn locks_in(&self, range: std::ops::RangeInclusive<LeaseKey>) -> bool {
        self.keys.range(range).next().is_some()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.vacant.len() == self.flights.len()
    }

    /// Drops the places that a decision in flight would give back.
    pub fn forget_places(&mut self, fingerprint: u64, identity: &Identity) {
        let flight = self
            .identities
            .get(&fingerprint)
            .and_then(|ticket| self.flights.get_mut(*ticket)?.as_mut());
        if let Some(flight) = flight {
            flight.places.retain(|(_, place, _)| place.1 != *identity);
        }
    }

    /// [`Tentative::forget_places`] of everybody in the cluster (and system).
    pub fn forget_places_of(&mut self, cluster: &ClusterId, system: Option<&System>) {
        for flight in self.flights.iter_mut().flatten() {
            let stays = |place: &Place| !is_of(&place.1, cluster, system);
            flight.places.retain(|(_, place, _)| stays(place));
        }
    }
}

/// The sharing groups of the leases that the decision writes.
fn groups(flight: &InFlight) -> impl Iterator<Item = Group> {
    flight.ops.iter().filter_map(|op| {
        if let Op::PutLease(lease) = op {
            group(lease)
        } else {
            None
        }
    })
}

/// The quotas that the decision changes.
fn quotas(flight: &InFlight) -> impl Iterator<Item = Charge> {
    flight.ops.iter().filter_map(|op| {
        if let Op::PutQuota(Quota { pool, tenant, .. }) | Op::DeleteQuota { pool, tenant } = op {
            Some((*pool, tenant.clone()))
        } else {
            None
        }
    })
}
