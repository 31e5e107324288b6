//! Decisions in flight: planned, not yet known to be durable.
//!
//! A decision in flight locks what it stands on. Another request that would stand on the same is not planned
//! until the first one is confirmed or aborted, so that decisions in flight can end in any order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    Ledger,
    index::{
        charges::{Charge, Charges},
        groups::{ShareGroup, group},
    },
    intern::{Prints, fingerprint},
    maps::uncount,
    space::memory::Age,
    waiters::{QueuePlace, Waiter, is_of},
};
use crate::{
    Action, Actor, Answer, AuditEntry, ClusterId, Identity, Lease, LeaseKey, LeasePrefix,
    NetworkId, Op, Pool, PoolId, Quota, Refusal, System, Text, Timestamp,
};

/// How far planning got; what is not a finished draft ends it.
pub(super) enum Stop {
    Answer(Answer),
    Busy,
    Refused(Refusal),
}

impl Stop {
    /// Busy where `locked`.
    pub fn busy_if(locked: bool) -> Result<(), Self> {
        if locked { Err(Self::Busy) } else { Ok(()) }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The result of planning one kind of request.
pub(super) type Draw = Result<(Draft, Answer), Stop>;

/// A decision being made: nothing of it is in the ledger yet but the addresses it has taken.
pub(super) struct Draft {
    pub now: Timestamp,
    pub actor: Actor,
    /// Boxed, as it goes through many hands.
    pub flight: Box<InFlight>,
    pub audit: Vec<AuditEntry>,
    /// What it adds to the pools' memories and forgets of them.
    pub shifts: BTreeMap<PoolId, Shift>,
}

/// What a draft changes in the memory of one pool.
#[derive(Default)]
pub(super) struct Shift {
    pub added: usize,
    pub forgotten: usize,
    /// The youngest row that is forgotten.
    pub last: Option<Age>,
}

impl Draft {
    pub fn new(now: Timestamp, actor: &Actor) -> Self {
        Self {
            now,
            actor: Arc::clone(actor),
            flight: Box::default(),
            audit: Vec::with_capacity(1),
            shifts: BTreeMap::new(),
        }
    }

    /// Writes a lease that is there already.
    pub fn write(&mut self, lease: Arc<Lease>) {
        self.flight.keys.push(lease.key);
        self.flight.ops.push(Op::PutLease(lease));
    }

    /// Writes a lease and says why.
    pub fn put(&mut self, lease: &Arc<Lease>, action: Action, detail: Text) {
        self.write(Arc::clone(lease));
        self.say_owner(lease, action, detail);
    }

    /// Writes a lease on an address that the draft has taken, and says why.
    pub fn put_new(&mut self, lease: &Arc<Lease>, action: Action, detail: Text) {
        self.flight.ops.push(Op::PutLease(Arc::clone(lease)));
        self.say_owner(lease, action, detail);
    }

    /// Writes a lease and says why it has `identity` now, or no more.
    pub fn put_for(
        &mut self,
        lease: Arc<Lease>,
        action: Action,
        identity: &Identity,
        detail: Text,
    ) {
        self.say_lease(&lease, action, Some(identity.clone()), detail);
        self.write(lease);
    }

    /// Deletes a lease and says why.
    pub fn delete(&mut self, lease: &Lease, action: Action, detail: Text) {
        self.flight.keys.push(lease.key);
        self.flight.ops.push(Op::DeleteLease(lease.key));
        self.say_owner(lease, action, detail);
    }

    /// Audits something about a lease and its owner.
    pub fn say_owner(&mut self, lease: &Lease, action: Action, detail: Text) {
        let owner = lease.owner().map(|holder| holder.identity.clone());
        self.say_lease(lease, action, owner, detail);
    }

    /// Audits something about a lease.
    pub fn say_lease(
        &mut self,
        lease: &Lease,
        action: Action,
        identity: Option<Identity>,
        detail: Text,
    ) {
        let entry = self.say(action, detail);
        entry.network = Some(lease.key.network);
        entry.address = Some(lease.key.address);
        entry.length = lease.prefix().explicit_length();
        entry.pool = lease.pool;
        entry.identity = identity;
    }

    /// Audits something about a pool.
    pub fn say_pool(&mut self, action: Action, pool: &Pool, detail: Text) {
        let entry = self.say(action, detail);
        entry.network = Some(pool.spec.network);
        entry.pool = Some(pool.id);
    }

    /// Audits something that is about no address.
    pub fn say(&mut self, action: Action, detail: impl Into<Text>) -> &mut AuditEntry {
        let entry = AuditEntry::new(self.now, &self.actor, action, detail);
        self.audit.push_mut(entry)
    }

    /// The decision to write one row.
    pub fn done(mut self, op: Op, action: Action, detail: impl Into<Text>) -> (Self, Answer) {
        self.flight.ops.push(op);
        self.say(action, detail);
        (self, Answer::Done)
    }
}

/// Stands for one decision in flight; hand it back by `confirm` or `abort`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "a ticket must be confirmed or aborted, or what it locks stays locked"]
pub struct Ticket(pub(super) usize);

/// Rows of which only one decision may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockedTable {
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
    pub table: Option<LockedTable>,
    /// Another one.
    pub also: Option<LockedTable>,
    /// The networks whose pools it edits: two when a pool moves.
    pub edits: SmallVec<[NetworkId; 2]>,
    /// Places in queues given up at planning; an abort gives them back.
    pub places: Vec<(PoolId, QueuePlace, Waiter)>,
    /// An identity that leaves all queues (of that instance) on confirmation.
    pub leaves: Option<Box<(Identity, Option<Text>)>>,
    /// A cluster whose identities leave all queues on confirmation.
    pub cluster_leaves: Option<ClusterId>,
}

/// All decisions in flight and their locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Drafts {
    /// By ticket; places of ended decisions are used again.
    flights: Vec<Option<Box<InFlight>>>,
    vacant: Vec<usize>,
    keys: BTreeSet<LeaseKey>,
    identities: BTreeMap<u64, usize>,
    tables: BTreeSet<LockedTable>,
    edits: BTreeSet<NetworkId>,
    quotas: BTreeSet<Charge>,
    groups: BTreeMap<ShareGroup, usize>,
    /// What decisions in flight add for tenants that have a quota.
    pub charges: Charges,
}

impl Drafts {
    /// Puts a decision in flight and locks what it says.
    pub fn start(&mut self, flight: Box<InFlight>) -> Ticket {
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
    pub fn end(&mut self, ticket: &Ticket) -> Option<Box<InFlight>> {
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
            uncount(&mut self.groups, &group);
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

    pub fn locks_table(&self, table: LockedTable) -> bool {
        self.tables.contains(&table)
    }

    /// Whether a pool of the network is being edited.
    pub fn edits(&self, network: NetworkId) -> bool {
        self.edits.contains(&network)
    }

    /// Whether a lease of the sharing group is being written.
    pub fn locks_group(&self, group: &ShareGroup) -> bool {
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
        self.flights.iter().flatten().map(|flight| &**flight)
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

    /// [`Drafts::forget_places`] of everybody in the cluster (and system).
    pub fn forget_places_of(&mut self, cluster: &ClusterId, system: Option<&System>) {
        for flight in self.flights.iter_mut().flatten() {
            let stays = |place: &QueuePlace| !is_of(&place.1, cluster, system);
            flight.places.retain(|(_, place, _)| stays(place));
        }
    }
}

/// The sharing groups of the leases that the decision writes.
fn groups(flight: &InFlight) -> impl Iterator<Item = ShareGroup> {
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

impl Ledger {
    /// Busy while another decision about the same table is in flight.
    pub(super) fn unlocked(&self, table: LockedTable) -> Result<(), Stop> {
        Stop::busy_if(self.drafts.locks_table(table))
    }

    /// Locks the table for a draft; busy while another decision about it is in flight.
    pub(super) fn lock(&self, table: LockedTable, draft: &mut Draft) -> Result<(), Stop> {
        self.unlocked(table)?;
        draft.flight.table = Some(table);
        Ok(())
    }

    /// Refused where there is no such network.
    pub(super) fn check_network(&self, id: NetworkId) -> Result<(), Refusal> {
        let known = self.rows.networks.contains_key(&id);
        known.then_some(()).ok_or(Refusal::UnknownNetwork(id))
    }

    /// The pool with this number; refused where there is none.
    pub(super) fn known_pool(&self, id: PoolId) -> Result<&Arc<Pool>, Refusal> {
        self.rows.pools.get(&id).ok_or(Refusal::UnknownPool(id))
    }

    /// Leases in which the identity is a member or contender, in key order; busy while a decision in flight may
    /// change that.
    pub(super) fn settled_leases(&self, identity: &Identity) -> Result<Vec<Arc<Lease>>, Stop> {
        self.settled_prints(fingerprint(identity), identity)
    }

    /// [`Ledger::settled_leases`] of an identity whose fingerprint is known.
    pub(super) fn settled_prints(
        &self,
        fingerprint: u64,
        identity: &Identity,
    ) -> Result<Vec<Arc<Lease>>, Stop> {
        Stop::busy_if(self.drafts.locks_identity(fingerprint))?;
        let leases = self.printed_leases(fingerprint, identity).cloned();
        let leases: Vec<_> = leases.collect();
        self.settled(leases.iter().map(|lease| lease.key))?;
        Ok(leases)
    }

    /// Busy if one of the leases is being changed.
    pub(super) fn settled(&self, mut keys: impl Iterator<Item = LeaseKey>) -> Result<(), Stop> {
        Stop::busy_if(keys.any(|key| self.drafts.locks(key) || self.free.is_taken(key)))
    }

    /// Busy if a decision in flight is about any of the prefix.
    pub(super) fn settled_prefix(&self, prefix: LeasePrefix) -> Result<(), Stop> {
        if self.drafts.is_empty() {
            return Ok(());
        }
        let network = prefix.key.network;
        Stop::busy_if(self.free.takes_in(network, prefix.span()))?;
        let over = self.lease_over(prefix).map(|lease| lease.key);
        self.settled(over.into_iter().chain([prefix.key]))
    }

    /// A decision that changes the memory is in flight.
    pub(super) fn start_in_memory(&mut self, flight: &InFlight) {
        for op in &flight.ops {
            if let Op::PutPast(past) = op {
                self.free.memory_mut().comes(past.pool);
            } else if let Op::DeletePast(key) = op {
                self.free.memory_mut().goes(*key);
            }
        }
    }

    /// It is no more.
    pub(super) fn end_in_memory(&mut self, flight: &InFlight) {
        for op in &flight.ops {
            if let Op::PutPast(past) = op {
                self.free.memory_mut().came(past.pool);
            } else if let Op::DeletePast(key) = op {
                self.free.memory_mut().gone(*key);
            }
        }
    }
}
