//! Finding the pools that are there for an asker, best first, without looking at those of others.
//!
//! Each scope of a pool is filed under the narrowest of its parts that names one thing. An asker looks under what it
//! is itself and under what is there for everybody, step by step: the pools after the one that gives are never seen.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use smallvec::SmallVec;

use super::LedgerRows;
use crate::{
    Asker, ClusterId, Lease, LeaseKey, Pool, PoolId, PoolScope, Selection, Text,
    ledger::{Ledger, maps::take_out},
};

/// In which order pools are asked: by priority, then by name.
pub(in crate::ledger) type Rank = (Reverse<u16>, Text, PoolId);

/// What a scope is filed under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hook {
    Everybody,
    Cluster(Text),
    Project(Text),
    Namespace(Text),
}

/// The pools with scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct Candidates(BTreeMap<Hook, BTreeSet<Rank>>);

/// A selection with what it is looked up by.
pub(in crate::ledger) struct Search<'a> {
    pub selection: &'a Selection,
    hooks: SmallVec<[Hook; 4]>,
    names: &'a [Text],
}

impl Candidates {
    /// Files a pool.
    pub fn put(&mut self, pool: &Pool) {
        for hook in hooks(pool) {
            self.0.entry(hook).or_default().insert(rank(pool));
        }
    }

    /// Takes out a pool, as it was filed.
    pub fn remove(&mut self, pool: &Pool) {
        for hook in hooks(pool) {
            take_out(&mut self.0, &hook, &rank(pool));
        }
    }

    /// Whether the pool is filed under each of its scopes.
    pub fn has(&self, pool: &Pool) -> bool {
        let files = |hook| Some(self.0.get(&hook)?.contains(&rank(pool)));
        hooks(pool).all(|hook| files(hook) == Some(true))
    }

    /// Whether these pools and no others are filed.
    pub fn are_of(&self, pools: &BTreeMap<PoolId, Arc<Pool>>) -> bool {
        let mut all = Self::default();
        pools.values().for_each(|pool| all.put(pool));
        *self == all
    }

    fn after(&self, hooks: &[Hook], after: Option<&Rank>) -> Option<&Rank> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let first = |hook| self.0.get(hook)?.range((from, Bound::Unbounded)).next();
        hooks.iter().filter_map(first).min()
    }
}

/// The pool's place in the order.
pub(in crate::ledger) fn rank(pool: &Pool) -> Rank {
    let spec = &pool.spec;
    (Reverse(spec.priority), Arc::clone(&spec.name), pool.id)
}

fn hooks(pool: &Pool) -> impl Iterator<Item = Hook> {
    pool.spec.scopes.iter().flat_map(hooks_of)
}

fn hooks_of(scope: &PoolScope) -> SmallVec<[Hook; 1]> {
    match (&scope.cluster, &scope.project, scope.namespaces.as_slice()) {
        (_, Some(project), _) => [Hook::Project(Arc::clone(project))].into_iter().collect(),
        (Some(cluster), None, _) => [Hook::Cluster(Arc::clone(cluster))].into_iter().collect(),
        (None, None, []) => [Hook::Everybody].into_iter().collect(),
        (None, None, names) => names.iter().cloned().map(Hook::Namespace).collect(),
    }
}

impl LedgerRows {
    fn names_of(&self, cluster: Option<&ClusterId>) -> &[Text] {
        let record = cluster.and_then(|id| self.clusters.get(id));
        record.map_or(&[], |record| &record.names)
    }
}

impl Ledger {
    /// A selection ready to be looked up.
    pub(in crate::ledger) fn search<'a>(&'a self, selection: &'a Selection) -> Search<'a> {
        let Asker {
            cluster,
            project,
            namespace,
            labels: _,
        } = &selection.asker;
        let names = self.rows.names_of(cluster.as_ref());
        let mut hooks: SmallVec<[Hook; 4]> = SmallVec::new();
        hooks.push(Hook::Everybody);
        let ids = cluster.iter().map(|id| &id.0).chain(names);
        hooks.extend(ids.cloned().map(Hook::Cluster));
        hooks.extend(project.iter().cloned().map(Hook::Project));
        hooks.extend(namespace.iter().cloned().map(Hook::Namespace));
        Search {
            selection,
            hooks,
            names,
        }
    }

    /// The next pool of the selection; with `address` only of those that may give it or have a lease on it.
    pub(in crate::ledger) fn next_candidate(
        &self,
        search: &Search<'_>,
        address: Option<std::net::IpAddr>,
        after: Option<&Rank>,
    ) -> Option<Arc<Pool>> {
        let has = |pool: &Pool| {
            address.is_none_or(|address| {
                let network = pool.spec.network;
                self.is_of(LeaseKey { network, address }, pool)
            })
        };
        let mut after = after;
        loop {
            let rank = self.rows.candidates.after(&search.hooks, after)?;
            let pool = self.rows.pools.get(&rank.2)?;
            if search.takes(pool) && has(pool) {
                return Some(Arc::clone(pool));
            }
            after = Some(rank);
        }
    }

    /// Whether the pool may give the address or has its lease.
    fn is_of(&self, key: LeaseKey, pool: &Pool) -> bool {
        let lease = || self.rows.leases.get(&key);
        self.assigns(key, pool.id) || lease().is_some_and(|lease| lease.pool == Some(pool.id))
    }

    /// Whether a lease is on an address of one of the selection's pools.
    pub(in crate::ledger) fn is_selected(&self, lease: &Lease, search: &Search<'_>) -> bool {
        let takes = |id| {
            let pool = self.rows.pools.get(&id);
            pool.is_some_and(|pool| search.takes(pool))
        };
        let mut parts = self.free.stab(lease.prefix()).iter();
        lease.pool.is_some_and(takes) || parts.any(|part| part.in_range() && takes(part.pool))
    }
}

impl Search<'_> {
    /// Whether the pool is one of the selection's.
    pub fn takes(&self, pool: &Pool) -> bool {
        let Selection {
            network,
            family,
            length,
            asker,
        } = self.selection;
        let mut scopes = pool.spec.scopes.iter();
        network.is_none_or(|network| network == pool.spec.network)
            && pool.spec.family() == Some(*family)
            && pool.spec.allocation_length == *length
            && scopes.any(|scope| scope.fits(asker, self.names))
    }
}
