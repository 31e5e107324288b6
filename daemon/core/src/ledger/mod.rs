//! The complete view of networks, pools, leases, contenders and free space, and the decisions over it.
//!
//! ```text
//!  plan ----> Draft --(locks, takes addresses)--> Drafts --confirm--> Rows, Index, Free, Changes
//!                                                   \----abort-----> as it was
//! ```
//!
//! Readers see [`LedgerRows`] and what follows from them, never a draft. Every step costs O(log n) in the
//! number of leases, whatever the size of the pools. Nothing here iterates over a hash map: the same requests in
//! the same order give the same answers.

mod ambiguity;
mod changes;
mod check;
mod draft;
mod filter;
mod gate;
mod index;
mod intern;
mod keyset;
mod load;
mod lookout;
mod maps;
mod names;
mod plan;
mod quotas;
mod read;
mod read_quotas;
mod rollups;
mod rows;
mod rows_read;
mod space;
mod standing;
mod usage;
mod violation;
mod waiters;

use std::sync::Arc;

pub use changes::{Change, TooOld};
pub use check::CheckedPage;
pub use filter::{LeaseFilter, LeasePage};
pub use lookout::Lookout;

pub use draft::Ticket;
pub use names::NameError;
pub use plan::{MovePage, Planned, PoolPreview, Trial};
pub use rows_read::count_rows;
pub use space::{Overlap, PoolSpans};
pub use standing::PoolStanding;
pub use usage::PoolUsage;
pub use violation::Violation;

use crate::{
    Expectation, Identity, Lease, LeaseKey, Network, NetworkId, Op, Pool, PoolId, layout::Layout,
};
use ambiguity::Ambiguity;
use changes::Changes;
use draft::Drafts;
use gate::Gate;
use index::LeaseIndex;
use intern::{Interner, Prints};
use lookout::Lookouts;
use rollups::Rollups;
use rows::LedgerRows;
use space::{dice::Dice, free::Free};
use waiters::Waiters;

/// The address book.
///
/// Invariants, all checked by [`Ledger::check`]: leases of a network never overlap; free space,
/// indexes and counters follow from the rows; a lease that no pool of its length lists may have no pool, any
/// other has one.
#[derive(Clone, Debug)]
pub struct Ledger {
    rows: LedgerRows,
    index: LeaseIndex,
    free: Free,
    interner: Interner,
    gate: Gate,
    lookouts: Lookouts,
    waiters: Waiters,
    drafts: Drafts,
    changes: Changes,
    dice: Dice,
    rollups: Rollups,
    ambiguity: Ambiguity,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// An empty ledger with the network `default`.
    pub fn new() -> Self {
        Self::at(0)
    }

    /// Applies one row. Applying it twice changes nothing.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::PutNetwork(network) => self.rows.put_network(network.clone()),
            Op::PutPool(pool) => self.put_pool(Arc::clone(pool)),
            Op::DeletePool(id) => {
                self.free.drop_pool(*id);
                self.place(*id, None);
                self.waiters.close(*id);
                self.rollups.drop_pool(*id);
                self.lookouts.drop_pool(*id);
                self.rows.delete_pool(*id);
            }
            Op::PutNextPool(id) => self.rows.next_pool = self.rows.next_pool.max(*id),
            Op::PutQuota(quota) => self.put_quota(quota),
            Op::DeleteQuota { pool, tenant } => self.drop_quota(*pool, tenant),
            Op::PutLease(lease) => self.put_lease(Arc::clone(lease)),
            Op::DeleteLease(key) => self.delete_lease(*key),
            Op::PutPast(past) => self.free.remember(Arc::clone(past)),
            Op::DeletePast(key) => self.free.forget(*key),
            Op::PutCluster(record) => {
                self.rows.put_cluster(record.clone());
                self.gate.review(&self.rows);
            }
            Op::DeleteCluster(id) => {
                self.rows.delete_cluster(id);
                self.gate.review(&self.rows);
            }
            Op::PutAdoption(marker) => {
                self.rows.put_adoption(marker.clone());
                self.gate.review_network(marker.network, &self.rows);
            }
            Op::DeleteAdoption {
                network,
                cluster,
                system,
            } => {
                self.rows
                    .adoptions
                    .remove(&(*network, Arc::clone(cluster), system.clone()));
                self.gate.review_network(*network, &self.rows);
            }
            Op::PutAccount(account) => {
                self.rows
                    .accounts
                    .insert(Arc::clone(&account.name), account.clone());
            }
            Op::DeleteAccount(name) => drop(self.rows.accounts.remove(name)),
            Op::PutToken(token) => drop(self.rows.tokens.insert(token.id, token.clone())),
            Op::DeleteToken(id) => drop(self.rows.tokens.remove(id)),
            Op::PutKey(key) => drop(self.rows.keys.insert(key.id, key.clone())),
            Op::DeleteKey(id) => drop(self.rows.keys.remove(id)),
            Op::PutEpoch(epoch) => self.rows.epoch = Some(*epoch),
            Op::PutClock(_) => {}
            Op::PutSeparation(pair) => self.put_separation(*pair, true),
            Op::DeleteSeparation(pair) => self.put_separation(*pair, false),
            Op::PutRollup(row) => {
                self.rollups.put(*row);
                self.free.begin_hour(row.pool);
            }
        }
    }

    /// The decision is durable: makes it visible.
    pub fn confirm(&mut self, ticket: Ticket) -> Arc<Change> {
        let Some(flight) = self.drafts.end(&ticket) else {
            return Arc::new(Change {
                revision: self.changes.revision(),
                ..Change::default()
            });
        };
        self.uncount_ahead(&flight);
        self.end_in_memory(&flight);
        let mut taken = flight.taken;
        taken.sort_unstable();
        let is_new = |key: &LeaseKey| taken.binary_search(key).is_ok();
        let moving = self.moving(&flight.ops);
        let told = flight.ops.len() <= Changes::ROWS;
        let mut change = Change::default();
        change
            .pools
            .extend(flight.places.iter().map(|(id, ..)| *id));
        for op in flight.ops {
            match (op, flight.prints) {
                (Op::PutLease(lease), Some(prints)) if is_new(&lease.key) => {
                    self.put_first(lease, prints, &mut change);
                }
                (op, _) => {
                    if told {
                        self.note(&op, &mut change);
                    }
                    if let Op::PutPool(pool) = &op {
                        self.note_growth(pool);
                    }
                    self.apply(&op);
                }
            }
        }
        if let Some((pool, tally)) = moving {
            self.rollups.recount(pool, tally);
        }
        for key in taken {
            self.free.give_back(key);
        }
        if let Some((identity, instance)) = flight.leaves.map(|leaves| *leaves) {
            change
                .pools
                .extend(self.waiters.leave_all(&identity, instance.as_ref()));
        }
        if let Some(cluster) = flight.cluster_leaves {
            let pools = self.waiters.leave_cluster(&cluster, None);
            change.pools.extend(pools);
            self.drafts.forget_places_of(&cluster, None);
        }
        match told {
            true => self.changes.push(change),
            false => self.changes.skip(),
        }
    }

    /// The decision did not become durable: leaves everything as it was before planning.
    pub fn abort(&mut self, ticket: Ticket) {
        let Some(flight) = self.drafts.end(&ticket) else {
            return;
        };
        self.uncount_ahead(&flight);
        self.end_in_memory(&flight);
        for key in flight.taken {
            self.free.give_back(key);
        }
        for (pool, place, waiter) in flight.places {
            self.waiters.keep(pool, place, waiter);
        }
    }

    /// Replaces what the configuration maps to networks. In memory only; counts as a change.
    pub fn set_expectations(&mut self, expectations: Vec<Expectation>) {
        self.gate.set_expectations(expectations, &self.rows);
        self.note_other();
    }

    /// Where the choices of pools with the order `random` start from. To be called once, with a number that nobody
    /// knows: by default it is always the same.
    pub fn seed(&mut self, seed: u64) {
        self.dice = Dice::new(seed);
    }

    fn at(revision: u64) -> Self {
        let mut rows = LedgerRows::default();
        rows.next_pool = PoolId(1);
        rows.put_network(Network {
            id: NetworkId::DEFAULT,
            name: "default".into(),
            hold: None,
        });
        Self {
            rows,
            index: LeaseIndex::default(),
            free: Free::default(),
            interner: Interner::default(),
            gate: Gate::default(),
            lookouts: Lookouts::default(),
            waiters: Waiters::default(),
            drafts: Drafts::default(),
            changes: Changes::new(revision),
            dice: Dice::new(0),
            rollups: Rollups::default(),
            ambiguity: Ambiguity::default(),
        }
    }

    fn put_lease(&mut self, mut lease: Arc<Lease>) {
        self.interner.keep(&mut lease);
        let old = self.rows.leases.insert(lease.key, Arc::clone(&lease));
        self.tally(old.as_deref(), Some(&lease));
        match old {
            Some(old) => {
                self.index.remove(&old);
                self.interner.drop(&old);
                if old.length == lease.length {
                    let prefix = lease.prefix();
                    self.free.attributed(prefix, old.pool, lease.pool);
                } else {
                    self.free.freed(old.prefix(), old.pool);
                    self.free.leased(lease.prefix(), lease.pool);
                }
            }
            None => {
                self.free.leased(lease.prefix(), lease.pool);
            }
        }
        self.index.add(&lease);
    }

    /// [`Ledger::put_lease`] of a lease on a free address with one holder, whose prints are known.
    fn put_first(&mut self, mut lease: Arc<Lease>, prints: Prints, change: &mut Change) {
        change.leases.push(lease.prefix());
        change.pools.extend(lease.pool);
        change.identities.extend(identities(&lease).cloned());
        self.interner.keep_one(prints, &mut lease);
        self.index.add_one(prints, &lease);
        self.rollups.given(lease.pool);
        let pools = self.free.leased(lease.prefix(), lease.pool);
        change.pools.extend(pools);
        self.rows.leases.insert(lease.key, lease);
    }

    fn delete_lease(&mut self, key: LeaseKey) {
        if let Some(old) = self.rows.leases.remove(&key) {
            self.index.remove(&old);
            self.interner.drop(&old);
            self.tally(Some(&old), None);
            self.free.freed(old.prefix(), old.pool);
        }
    }

    /// A pool whose spec is not valid keeps its row and gives nothing; [`Ledger::check`] names it.
    fn put_pool(&mut self, pool: Arc<Pool>) {
        match Layout::new(&pool.spec) {
            Ok(layout) => {
                let (network, layout) = (pool.spec.network, Arc::new(layout));
                if pool.spec.network_by_default {
                    self.place(pool.id, Some((network, &layout)));
                } else {
                    self.place(pool.id, None);
                    self.free
                        .set_pool(pool.id, network, layout, &self.rows.leases);
                }
                if let Some(family) = pool.spec.family().filter(|_| pool.spec.remembers() > 0) {
                    let length = pool.spec.lease_length();
                    self.free.shun(pool.spec.network, family, length);
                }
            }
            Err(_) => {
                self.place(pool.id, None);
                self.free.drop_pool(pool.id);
            }
        }
        self.rows.put_pool(pool);
    }
}

/// Members and contenders.
fn identities(lease: &Lease) -> impl Iterator<Item = &Identity> {
    let contenders = lease.contenders.iter();
    let contenders = contenders.map(|contender| &contender.holder.identity);
    lease.owners().chain(contenders)
}
