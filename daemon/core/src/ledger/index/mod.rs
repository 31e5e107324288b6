//! Finding leases by who has them. Everything here follows from the lease rows.

pub(super) mod charges;
pub(super) mod cooling;
pub(super) mod due;
pub(super) mod groups;
mod shelf;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    intern::{Prints, fingerprint},
    keyset::{FiledKeys, KeySet},
};
use crate::{ClusterId, Lease, LeaseKey, PoolId, System};
use {charges::Charges, cooling::Cooling, due::Due, groups::Groups, shelf::ShelfPart};

/// The secondary indexes of the leases.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseIndex {
    /// By the fingerprints of members and contenders. May hold others' with the same fingerprint.
    pub identities: FiledKeys<u64>,
    /// By the clusters of the members, then by their systems and what becomes of the lease when the cluster leaves.
    clusters: BTreeMap<ClusterId, BTreeMap<(System, ShelfPart), KeySet>>,
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
            for identity in lease.owners() {
                if let Some(cluster) = &identity.cluster {
                    shelves
                        .entry((cluster, &identity.system, ShelfPart::of(lease)))
                        .or_default()
                        .push(lease.key);
                }
            }
        }
        let mut clusters: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for ((cluster, system, part), keys) in shelves {
            let sets = clusters.entry(cluster.clone()).or_default();
            sets.insert((system.clone(), part), keys.into_iter().collect());
        }
        Self {
            identities: leases.iter().flat_map(|lease| prints(lease)).collect(),
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
        for (print, key) in prints(lease) {
            self.identities.file(print, key);
        }
        self.add_rest(lease);
    }

    /// Enters a lease of one holder, whose prints are known.
    pub fn add_one(&mut self, prints: Prints, lease: &Lease) {
        self.identities.file(prints.whole, lease.key);
        self.add_rest(lease);
    }

    fn add_rest(&mut self, lease: &Lease) {
        let key = lease.key;
        self.due.add(lease);
        self.groups.add(lease);
        self.cooling.add(lease);
        self.charges.add(lease);
        for identity in lease.owners() {
            let Some(cluster) = &identity.cluster else {
                continue;
            };
            let under = (identity.system.clone(), ShelfPart::of(lease));
            let sets = self.clusters.entry(cluster.clone()).or_default();
            file(sets, &under, key);
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
        for (print, key) in prints(lease) {
            self.identities.unfile(print, key);
        }
        for identity in lease.owners() {
            if let Some(cluster) = &identity.cluster
                && let Some(sets) = self.clusters.get_mut(cluster)
            {
                let under = (identity.system.clone(), ShelfPart::of(lease));
                unfile(sets, &under, key);
                if sets.is_empty() {
                    self.clusters.remove(cluster);
                }
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
        let sets = self.sets(cluster, system);
        let keys = sets.flat_map(|(_, set)| set.after(after).take(limit));
        let mut keys: Vec<LeaseKey> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(limit);
        keys
    }

    /// How many leases have a member of the cluster (and system); a lease shared by several systems counts once
    /// for each.
    pub fn count_of_cluster(&self, cluster: &ClusterId, system: Option<&System>) -> usize {
        self.sets(cluster, system).map(|(_, set)| set.len()).sum()
    }

    /// The lowest `most` leases that may become orphaned, and whether there are more.
    pub fn live(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        most: usize,
    ) -> (Vec<LeaseKey>, bool) {
        let sets = self.sets(cluster, system);
        let live = sets.filter(|(part, _)| *part == ShelfPart::Live);
        let live: Vec<_> = live.map(|(_, set)| set).collect();
        lowest(&live, most)
    }

    /// Whether the cluster has no lease for itself that is in use: it has left.
    pub fn has_left(&self, cluster: &ClusterId) -> bool {
        self.sets(cluster, None)
            .all(|(part, _)| part != ShelfPart::Live)
    }

    /// The lowest `most` leases that forgetting the cluster changes, and whether there are more: its orphaned ones,
    /// those kept for it, those it contends for and, where it has left, those it shares with others.
    pub fn forgettable(&self, cluster: &ClusterId, most: usize) -> (Vec<LeaseKey>, bool) {
        let left = self.has_left(cluster);
        let own = self.sets(cluster, None).filter(|(part, _)| match part {
            ShelfPart::Orphaned | ShelfPart::Kept => true,
            ShelfPart::Shared => left,
            ShelfPart::Live | ShelfPart::Other => false,
        });
        let own = own.map(|(_, set)| set);
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

    fn sets(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
    ) -> impl Iterator<Item = (ShelfPart, &KeySet)> {
        let sets = self.clusters.get(cluster).into_iter().flatten();
        sets.filter(move |((name, _), _)| system.is_none_or(|system| name == system))
            .map(|((_, part), set)| (*part, set))
    }
}

/// What the lease is found by of each member and contender.
fn prints(lease: &Lease) -> impl Iterator<Item = (u64, LeaseKey)> {
    let identities = crate::ledger::identities(lease);
    identities.map(|identity| (fingerprint(identity), lease.key))
}

fn file<K: Clone + Ord>(sets: &mut BTreeMap<K, KeySet>, under: &K, key: LeaseKey) {
    sets.entry(under.clone()).or_default().insert(key);
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
    let keys = (sets.iter()).flat_map(|set| set.iter().take(most.saturating_add(1)));
    let mut keys: Vec<LeaseKey> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len() > most;
    keys.truncate(most);
    (keys, more)
}
