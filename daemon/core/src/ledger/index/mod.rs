//! Finding leases by who has them. Everything here follows from the lease rows.

pub(super) mod charges;
pub(super) mod cooling;
pub(super) mod due;
pub(super) mod groups;
mod identities;
mod shelf;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    intern::{Prints, fingerprint},
    keyset::KeySet,
};
use crate::{ClusterId, Lease, LeaseKey, PoolId, System};
use {
    charges::Charges,
    cooling::Cooling,
    due::Due,
    groups::Groups,
    identities::Identities,
    shelf::{Shelf, ShelfPart},
};

/// The secondary indexes of the leases.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseIndex {
    identities: Identities,
    /// By cluster and system of the members.
    clusters: BTreeMap<ClusterId, BTreeMap<System, Shelf>>,
    /// Leases attributed to a pool; pools without any are not in it.
    pub pools: BTreeMap<PoolId, KeySet>,
    /// Leases of no pool.
    pub poolless: KeySet,
    /// Leases with contenders.
    pub contended: KeySet,
    /// Leases with a contender of the cluster.
    contending: BTreeMap<ClusterId, KeySet>,
    /// Leases that end by themselves.
    pub due: Due,
    /// Quarantined leases.
    pub cooling: Cooling,
    /// How many leases count for whom.
    pub charges: Charges,
    /// Leases that others of their group may join.
    pub groups: Groups,
}

impl LeaseIndex {
    /// The indexes of leases sorted by key: faster and denser than adding one by one.
    pub fn of_sorted(leases: &[Arc<Lease>]) -> Self {
        let mut pools: BTreeMap<PoolId, Vec<LeaseKey>> = BTreeMap::new();
        let mut shelves: BTreeMap<(&ClusterId, &System, ShelfPart), Vec<LeaseKey>> =
            BTreeMap::new();
        let (mut poolless, mut contended) = (Vec::new(), Vec::new());
        let mut contending: BTreeMap<ClusterId, KeySet> = BTreeMap::new();
        let (mut charges, mut groups) = (Charges::default(), Groups::default());
        let (mut cooling, mut due) = (Cooling::default(), Due::default());
        for lease in leases {
            charges.add(lease);
            groups.add(lease);
            cooling.add(lease);
            due.add(lease);
            match lease.pool {
                Some(pool) => pools.entry(pool).or_default().push(lease.key),
                None => poolless.push(lease.key),
            }
            if !lease.contenders.is_empty() {
                contended.push(lease.key);
            }
            for cluster in contending_clusters(lease) {
                file(&mut contending, cluster, lease.key);
            }
            for member in &lease.members {
                let identity = &member.holder.identity;
                if let Some(cluster) = &identity.cluster {
                    shelves
                        .entry((cluster, &identity.system, ShelfPart::of(lease)))
                        .or_default()
                        .push(lease.key);
                }
            }
        }
        let mut clusters: BTreeMap<ClusterId, BTreeMap<System, Shelf>> = BTreeMap::new();
        for ((cluster, system, part), keys) in shelves {
            let systems = clusters.entry(cluster.clone()).or_default();
            let shelf = systems.entry(system.clone()).or_default();
            shelf.0.insert(part, keys.into_iter().collect());
        }
        Self {
            identities: Identities::of_sorted(leases),
            clusters,
            pools: pools
                .into_iter()
                .map(|(pool, keys)| (pool, keys.into_iter().collect()))
                .collect(),
            poolless: poolless.into_iter().collect(),
            contended: contended.into_iter().collect(),
            contending,
            due,
            cooling,
            charges,
            groups,
        }
    }

    /// Enters a lease.
    pub fn add(&mut self, lease: &Lease) {
        for identity in crate::ledger::identities(lease) {
            self.identities.insert(fingerprint(identity), lease.key);
        }
        self.add_rest(lease);
    }

    /// Enters a lease of one holder, whose prints are known.
    pub fn add_one(&mut self, prints: Prints, lease: &Lease) {
        self.identities.insert(prints.whole, lease.key);
        self.add_rest(lease);
    }

    fn add_rest(&mut self, lease: &Lease) {
        let key = lease.key;
        self.due.add(lease);
        self.groups.add(lease);
        self.cooling.add(lease);
        self.charges.add(lease);
        for member in &lease.members {
            let identity = &member.holder.identity;
            let Some(cluster) = &identity.cluster else {
                continue;
            };
            let part = ShelfPart::of(lease);
            // Names are copied for the first lease only.
            match self
                .clusters
                .get_mut(cluster)
                .and_then(|systems| systems.get_mut(&identity.system))
            {
                Some(shelf) => file(&mut shelf.0, &part, key),
                None => {
                    let systems = self.clusters.entry(cluster.clone()).or_default();
                    let shelf = systems.entry(identity.system.clone()).or_default();
                    file(&mut shelf.0, &part, key);
                }
            }
        }
        match lease.pool {
            Some(pool) => file(&mut self.pools, &pool, key),
            None => {
                self.poolless.insert(key);
            }
        }
        if !lease.contenders.is_empty() {
            self.contended.insert(key);
        }
        for cluster in contending_clusters(lease) {
            file(&mut self.contending, cluster, key);
        }
    }

    /// Takes a lease out, as it was when it was entered.
    pub fn remove(&mut self, lease: &Lease) {
        let key = lease.key;
        self.due.remove(lease);
        self.groups.remove(lease);
        self.cooling.remove(lease);
        self.charges.remove(lease);
        for identity in crate::ledger::identities(lease) {
            self.identities.remove(fingerprint(identity), key);
        }
        for member in &lease.members {
            let identity = &member.holder.identity;
            let Some(cluster) = &identity.cluster else {
                continue;
            };
            let Some(systems) = self.clusters.get_mut(cluster) else {
                continue;
            };
            let Some(shelf) = systems.get_mut(&identity.system) else {
                continue;
            };
            unfile(&mut shelf.0, &ShelfPart::of(lease), key);
            if shelf.0.is_empty() {
                systems.remove(&identity.system);
            }
            if systems.is_empty() {
                self.clusters.remove(cluster);
            }
        }
        match lease.pool {
            Some(pool) => unfile(&mut self.pools, &pool, key),
            None => {
                self.poolless.remove(key);
            }
        }
        self.contended.remove(key);
        for cluster in contending_clusters(lease) {
            unfile(&mut self.contending, cluster, key);
        }
    }

    /// Keys of leases in which the fingerprint's identity is a member or contender, IPv4 first. May hold others'
    /// with the same fingerprint.
    pub fn of_identity(&self, fingerprint: u64) -> impl Iterator<Item = LeaseKey> {
        self.identities.of(fingerprint)
    }

    /// The same in key order, those above `after`.
    pub fn of_identity_after(
        &self,
        fingerprint: u64,
        after: Option<LeaseKey>,
    ) -> impl Iterator<Item = LeaseKey> {
        self.identities.after(fingerprint, after)
    }

    /// How many entries the index of identities has.
    pub fn identity_entries(&self) -> usize {
        self.identities.len()
    }

    /// Leases attributed to a pool; `None` if there are none.
    pub fn of_pool(&self, pool: PoolId) -> Option<&KeySet> {
        self.pools.get(&pool)
    }

    /// Leases with a member of the cluster (and system), in order, above `after`.
    pub fn of_cluster(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> Vec<LeaseKey> {
        let sets = self.shelves(cluster, system).flat_map(|shelf| shelf.sets());
        let mut keys: Vec<LeaseKey> = sets.flat_map(|set| set.after(after).take(limit)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(limit);
        keys
    }

    /// How many leases have a member of the cluster (and system); a lease shared by several systems counts once
    /// for each.
    pub fn count_of_cluster(&self, cluster: &ClusterId, system: Option<&System>) -> usize {
        self.shelves(cluster, system)
            .flat_map(|shelf| shelf.sets())
            .map(KeySet::len)
            .sum()
    }

    /// The lowest `most` leases that may become orphaned, and whether there are more.
    pub fn live(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        most: usize,
    ) -> (Vec<LeaseKey>, bool) {
        let sets: Vec<_> = self
            .shelves(cluster, system)
            .filter_map(|shelf| shelf.0.get(&ShelfPart::Live))
            .collect();
        lowest(&sets, most)
    }

    /// Whether the cluster has no lease for itself that is in use: it has left.
    pub fn has_left(&self, cluster: &ClusterId) -> bool {
        self.shelves(cluster, None)
            .all(|shelf| !shelf.0.contains_key(&ShelfPart::Live))
    }

    /// The lowest `most` leases that forgetting the cluster changes, and whether there are more: its orphaned ones,
    /// those kept for it, those it contends for and, where it has left, those it shares with others.
    pub fn forgettable(&self, cluster: &ClusterId, most: usize) -> (Vec<LeaseKey>, bool) {
        let of = |part: ShelfPart| {
            self.shelves(cluster, None)
                .filter_map(move |shelf| shelf.0.get(&part))
        };
        let left = self.has_left(cluster);
        let shared = of(ShelfPart::Shared).filter(|_| left);
        let own = of(ShelfPart::Orphaned)
            .chain(of(ShelfPart::Kept))
            .chain(shared);
        let sets: Vec<_> = own.chain(self.contending.get(cluster)).collect();
        lowest(&sets, most)
    }

    /// Whether the lease is filed under each cluster that contends for it.
    pub fn files_contenders(&self, lease: &Lease) -> bool {
        let files = |cluster| Some(self.contending.get(cluster)?.contains(lease.key));
        contending_clusters(lease).all(|cluster| files(cluster) == Some(true))
    }

    /// Leases with a contender of the cluster; `None` if there are none.
    pub fn contending(&self, cluster: &ClusterId) -> Option<&KeySet> {
        self.contending.get(cluster)
    }

    /// How many entries the index of contending clusters has.
    pub fn contending_entries(&self) -> usize {
        self.contending.values().map(KeySet::len).sum()
    }

    fn shelves(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
    ) -> impl Iterator<Item = &Shelf> {
        self.clusters
            .get(cluster)
            .into_iter()
            .flatten()
            .filter(move |(name, _)| system.is_none_or(|system| *name == system))
            .map(|(_, shelf)| shelf)
    }
}

fn file<K: Clone + Ord>(sets: &mut BTreeMap<K, KeySet>, under: &K, key: LeaseKey) {
    match sets.get_mut(under) {
        Some(keys) => keys.insert(key),
        None => sets.entry(under.clone()).or_default().insert(key),
    };
}

fn unfile<K: Ord>(sets: &mut BTreeMap<K, KeySet>, under: &K, key: LeaseKey) {
    if let Some(keys) = sets.get_mut(under) {
        keys.remove(key);
        if keys.is_empty() {
            sets.remove(under);
        }
    }
}

/// The clusters of the contenders; one may come several times.
pub(super) fn contending_clusters(lease: &Lease) -> impl Iterator<Item = &ClusterId> {
    let contenders = lease.contenders.iter();
    contenders.filter_map(|contender| contender.holder.identity.cluster.as_ref())
}

fn lowest(sets: &[&KeySet], most: usize) -> (Vec<LeaseKey>, bool) {
    let mut keys: Vec<LeaseKey> = sets
        .iter()
        .flat_map(|set| set.iter().take(most.saturating_add(1)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len() > most;
    keys.truncate(most);
    (keys, more)
}
