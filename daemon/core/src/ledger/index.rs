//! Finding leases by who has them. Everything here follows from the lease rows.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::intern::fingerprint;
use crate::{ClusterId, Identity, Lease, LeaseKey, LeaseState, NetworkId, PoolId, System};

/// The secondary indexes of the leases.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Members and contenders, by the fingerprint of the identity.
    identities: BTreeSet<(u64, LeaseKey)>,
    /// By cluster and system of the members.
    clusters: BTreeMap<ClusterId, BTreeMap<System, Shelf>>,
    pools: BTreeMap<PoolId, BTreeSet<LeaseKey>>,
    /// Leases of no pool.
    poolless: BTreeSet<LeaseKey>,
    contended: BTreeSet<LeaseKey>,
}

/// The leases of one system of one cluster.
#[derive(Clone, Debug, Default)]
struct Shelf {
    /// `Allocated`, and all members are of this cluster and system: what may become orphaned.
    live: BTreeSet<LeaseKey>,
    orphaned: BTreeSet<LeaseKey>,
    other: BTreeSet<LeaseKey>,
}

impl Shelf {
    fn sets(&self) -> [&BTreeSet<LeaseKey>; 3] {
        [&self.live, &self.orphaned, &self.other]
    }

    fn of(&mut self, lease: &Lease) -> &mut BTreeSet<LeaseKey> {
        let whose = |identity: &Identity| (identity.cluster.clone(), identity.system.clone());
        let mut members = lease.members.iter().map(|member| &member.holder.identity);
        let alike = lease.members.len() <= 1
            || members.next().map(whose).is_none_or(|first| members.all(|next| whose(next) == first));
        match lease.state {
            LeaseState::Allocated if alike => &mut self.live,
            LeaseState::Orphaned => &mut self.orphaned,
            LeaseState::Allocated
            | LeaseState::Reserved
            | LeaseState::Probing
            | LeaseState::Quarantined => &mut self.other,
        }
    }
}

impl Index {
    /// Enters a lease.
    pub fn add(&mut self, lease: &Lease) {
        let key = lease.key;
        for member in &lease.members {
            let identity = &member.holder.identity;
            self.identities.insert((fingerprint(identity), key));
            if let Some(cluster) = &identity.cluster {
                if !self.clusters.contains_key(cluster) {
                    self.clusters.insert(cluster.clone(), BTreeMap::new());
                }
                let Some(systems) = self.clusters.get_mut(cluster) else { continue };
                if !systems.contains_key(&identity.system) {
                    systems.insert(identity.system.clone(), Shelf::default());
                }
                let Some(shelf) = systems.get_mut(&identity.system) else { continue };
                shelf.of(lease).insert(key);
            }
        }
        for contender in &lease.contenders {
            self.identities.insert((fingerprint(&contender.holder.identity), key));
        }
        match lease.pool {
            Some(pool) => self.pools.entry(pool).or_default().insert(key),
            None => self.poolless.insert(key),
        };
        if !lease.contenders.is_empty() {
            self.contended.insert(key);
        }
    }

    /// Takes a lease out, as it was when it was entered.
    pub fn remove(&mut self, lease: &Lease) {
        let key = lease.key;
        for member in &lease.members {
            let identity = &member.holder.identity;
            self.identities.remove(&(fingerprint(identity), key));
            let Some(cluster) = &identity.cluster else { continue };
            let Some(systems) = self.clusters.get_mut(cluster) else { continue };
            let Some(shelf) = systems.get_mut(&identity.system) else { continue };
            shelf.of(lease).remove(&key);
            if shelf.sets().iter().all(|set| set.is_empty()) {
                systems.remove(&identity.system);
            }
            if systems.is_empty() {
                self.clusters.remove(cluster);
            }
        }
        for contender in &lease.contenders {
            self.identities.remove(&(fingerprint(&contender.holder.identity), key));
        }
        match lease.pool {
            Some(pool) => {
                if let Some(keys) = self.pools.get_mut(&pool) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.pools.remove(&pool);
                    }
                }
            }
            None => {
                self.poolless.remove(&key);
            }
        }
        self.contended.remove(&key);
    }

    /// Keys of leases in which the fingerprint's identity is a member or contender, in order. May hold others'
    /// with the same fingerprint.
    pub fn of_identity(&self, fingerprint: u64) -> impl Iterator<Item = LeaseKey> {
        let from = (fingerprint, LeaseKey::FIRST);
        self.identities
            .range(from..)
            .take_while(move |(found, _)| *found == fingerprint)
            .map(|(_, key)| *key)
    }

    /// Leases attributed to a pool, in order.
    pub fn of_pool(&self, pool: PoolId) -> Option<&BTreeSet<LeaseKey>> {
        self.pools.get(&pool)
    }

    /// Leases of no pool.
    pub fn poolless(&self) -> &BTreeSet<LeaseKey> {
        &self.poolless
    }

    /// Leases with contenders.
    pub fn contended(&self) -> &BTreeSet<LeaseKey> {
        &self.contended
    }

    /// Leases with a member of the cluster (and system), in order, from after `after` on.
    pub fn of_cluster(
        &self,
        cluster: &ClusterId,
        system: Option<&System>,
        after: Option<LeaseKey>,
        limit: usize,
    ) -> SmallVec<[LeaseKey; 16]> {
        let bound = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut keys: SmallVec<[LeaseKey; 16]> = self
            .shelves(cluster, system)
            .flat_map(|shelf| shelf.sets())
            .flat_map(|set| set.range((bound, std::ops::Bound::Unbounded)).take(limit).copied())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(limit);
        keys
    }

    /// How many leases have a member of the cluster (and system).
    pub fn count_of_cluster(&self, cluster: &ClusterId, system: Option<&System>) -> usize {
        self.shelves(cluster, system).flat_map(|shelf| shelf.sets()).map(BTreeSet::len).sum()
    }

    /// The lowest `most` leases that may become orphaned, and whether there are more.
    pub fn live(&self, cluster: &ClusterId, system: Option<&System>, most: usize) -> (Vec<LeaseKey>, bool) {
        let sets: Vec<_> = self.shelves(cluster, system).map(|shelf| &shelf.live).collect();
        lowest(&sets, most)
    }

    /// The lowest `most` orphaned leases, and whether there are more.
    pub fn orphaned(&self, cluster: &ClusterId, most: usize) -> (Vec<LeaseKey>, bool) {
        let sets: Vec<_> = self.shelves(cluster, None).map(|shelf| &shelf.orphaned).collect();
        lowest(&sets, most)
    }

    /// How many entries the index of identities has.
    pub fn identity_entries(&self) -> usize {
        self.identities.len()
    }

    fn shelves(&self, cluster: &ClusterId, system: Option<&System>) -> impl Iterator<Item = &Shelf> {
        self.clusters
            .get(cluster)
            .into_iter()
            .flatten()
            .filter(move |(name, _)| system.is_none_or(|system| *name == system))
            .map(|(_, shelf)| shelf)
    }
}

impl LeaseKey {
    /// Not above any other key.
    pub(crate) const FIRST: Self = Self {
        network: NetworkId(0),
        address: std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    };
}

fn lowest(sets: &[&BTreeSet<LeaseKey>], most: usize) -> (Vec<LeaseKey>, bool) {
    let mut keys: Vec<LeaseKey> =
        sets.iter().flat_map(|set| set.iter().take(most.saturating_add(1)).copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len() > most;
    keys.truncate(most);
    (keys, more)
}
