//! The committed rows: exactly what the store holds, and the names they are found by.

pub(super) mod candidates;
mod subnets;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::{candidates::Candidates, subnets::Subnets};
use super::{
    index::charges::TenantPools,
    maps::{take_out, uncount},
};
use crate::{
    Account, Adoption, ClusterId, ClusterRecord, Epoch, KeyId, Lease, LeaseKey, Network, NetworkId,
    Op, Origin, Pool, PoolId, Quota, SigningKey, System, Tenant, Text, Token, TokenId,
};

/// All rows but those of leases in their indexes.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerRows {
    pub networks: BTreeMap<NetworkId, Network>,
    pub pools: BTreeMap<PoolId, Arc<Pool>>,
    pub next_pool: PoolId,
    /// Limits.
    pub quotas: BTreeMap<(PoolId, Tenant), u64>,
    /// Pools by the tenants of these.
    pub quota_tenants: TenantPools,
    pub leases: BTreeMap<LeaseKey, Arc<Lease>>,
    pub clusters: BTreeMap<ClusterId, ClusterRecord>,
    pub adoptions: BTreeMap<(NetworkId, Text, System), Adoption>,
    pub accounts: BTreeMap<Text, Account>,
    pub tokens: BTreeMap<TokenId, Token>,
    pub keys: BTreeMap<KeyId, SigningKey>,
    pub epoch: Option<Epoch>,
    network_names: BTreeMap<Text, NetworkId>,
    /// Networks that are held by themselves.
    pub held_networks: BTreeSet<NetworkId>,
    pool_names: BTreeMap<Text, PoolId>,
    /// How many pools a network has; none that has none.
    pool_counts: BTreeMap<NetworkId, usize>,
    /// Last path part of the names.
    short_names: BTreeMap<Text, BTreeSet<(NetworkId, PoolId)>>,
    mirrors: BTreeMap<(System, ClusterId, Text), PoolId>,
    cluster_names: BTreeMap<Text, ClusterId>,
    /// Pools by whom they are there for.
    pub candidates: Candidates,
    /// Pools by the subnet of their link.
    pub subnets: Subnets,
}

impl LedgerRows {
    pub fn network_by_name(&self, name: &str) -> Option<&Network> {
        self.networks.get(self.network_names.get(name)?)
    }

    pub fn pool_by_name(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.get(self.pool_names.get(name)?)
    }

    /// How many pools the network has.
    pub fn pool_count(&self, network: NetworkId) -> usize {
        self.pool_counts.get(&network).copied().unwrap_or(0)
    }

    /// Pools whose name ends in `/short`, or is it.
    pub fn pools_by_short_name(&self, short: &str) -> impl Iterator<Item = &Arc<Pool>> {
        self.short_names
            .get(short)
            .into_iter()
            .flatten()
            .filter_map(|(_, id)| self.pools.get(id))
    }

    /// Those of them in a network.
    pub fn pools_by_short_name_in(
        &self,
        short: &str,
        network: NetworkId,
    ) -> impl Iterator<Item = &Arc<Pool>> {
        let all = self.short_names.get(short).into_iter();
        let ids =
            all.flat_map(move |all| all.range((network, PoolId(0))..=(network, PoolId(u32::MAX))));
        ids.filter_map(|(_, id)| self.pools.get(id))
    }

    pub fn mirror(&self, system: &System, cluster: &ClusterId, object: &str) -> Option<&Arc<Pool>> {
        let key = (system.clone(), cluster.clone(), object.into());
        self.pools.get(self.mirrors.get(&key)?)
    }

    /// The pool that follows the same object.
    pub fn mirror_of(&self, origin: &Origin) -> Option<&Arc<Pool>> {
        self.pools.get(self.mirrors.get(&mirror_key(origin)?)?)
    }

    pub fn cluster_by_name(&self, name: &str) -> Option<&ClusterRecord> {
        self.clusters.get(self.cluster_names.get(name)?)
    }

    pub fn adoption(
        &self,
        network: NetworkId,
        cluster: &str,
        system: &System,
    ) -> Option<&Adoption> {
        let key = (network, cluster.into(), system.clone());
        self.adoptions.get(&key)
    }

    pub fn put_network(&mut self, network: Network) {
        self.network_names
            .insert(Arc::clone(&network.name), network.id);
        match network.hold {
            Some(_) => self.held_networks.insert(network.id),
            None => self.held_networks.remove(&network.id),
        };
        self.networks.insert(network.id, network);
    }

    pub fn put_pool(&mut self, pool: Arc<Pool>) {
        self.delete_pool(pool.id);
        let name = &pool.spec.name;
        self.pool_names.insert(Arc::clone(name), pool.id);
        self.short_names
            .entry(short(name).into())
            .or_default()
            .insert((pool.spec.network, pool.id));
        if let Some(mirror) = mirror_key(&pool.spec.origin) {
            self.mirrors.insert(mirror, pool.id);
        }
        self.candidates.put(&pool);
        self.subnets.put(&pool);
        *self.pool_counts.entry(pool.spec.network).or_default() += 1;
        self.next_pool = self.next_pool.max(PoolId(pool.id.0.saturating_add(1)));
        self.pools.insert(pool.id, pool);
    }

    pub fn delete_pool(&mut self, id: PoolId) {
        let Some(pool) = self.pools.remove(&id) else {
            return;
        };
        self.candidates.remove(&pool);
        self.subnets.remove(&pool);
        uncount(&mut self.pool_counts, &pool.spec.network);
        let name = &pool.spec.name;
        if self.pool_names.get(name) == Some(&id) {
            self.pool_names.remove(name);
        }
        let place = (pool.spec.network, id);
        take_out(&mut self.short_names, short(name), &place);
        if let Some(mirror) = mirror_key(&pool.spec.origin)
            && self.mirrors.get(&mirror) == Some(&id)
        {
            self.mirrors.remove(&mirror);
        }
    }

    pub fn put_cluster(&mut self, record: ClusterRecord) {
        self.delete_cluster(&record.id);
        for name in &record.names {
            self.cluster_names
                .insert(Arc::clone(name), record.id.clone());
        }
        self.clusters.insert(record.id.clone(), record);
    }

    pub fn delete_cluster(&mut self, id: &ClusterId) {
        let Some(record) = self.clusters.remove(id) else {
            return;
        };
        for name in &record.names {
            if self.cluster_names.get(name) == Some(id) {
                self.cluster_names.remove(name);
            }
        }
    }

    pub fn put_adoption(&mut self, marker: Adoption) {
        let key = (
            marker.network,
            Arc::clone(&marker.cluster),
            marker.system.clone(),
        );
        self.adoptions.insert(key, marker);
    }

    /// All rows, in an order in which they can be applied again.
    pub fn dump(&self) -> impl Iterator<Item = Op> {
        let networks = self.networks.values().cloned().map(Op::PutNetwork);
        let next = std::iter::once(Op::PutNextPool(self.next_pool));
        let pools = self.pools.values().cloned().map(Op::PutPool);
        let quotas = self.quotas.iter().map(|((pool, tenant), limit)| {
            Op::PutQuota(Quota {
                pool: *pool,
                tenant: tenant.clone(),
                limit: *limit,
            })
        });
        let leases = self.leases.values().cloned().map(Op::PutLease);
        let clusters = self.clusters.values().cloned().map(Op::PutCluster);
        let adoptions = self.adoptions.values().cloned().map(Op::PutAdoption);
        let accounts = self.accounts.values().cloned().map(Op::PutAccount);
        let tokens = self.tokens.values().cloned().map(Op::PutToken);
        let keys = self.keys.values().cloned().map(Op::PutKey);
        let epoch = self.epoch.into_iter().map(Op::PutEpoch);
        networks
            .chain(next)
            .chain(pools)
            .chain(quotas)
            .chain(leases)
            .chain(clusters)
            .chain(adoptions)
            .chain(accounts)
            .chain(tokens)
            .chain(keys)
            .chain(epoch)
    }
}

/// The last path part of a pool's name.
pub fn short(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, short)| short)
}

fn mirror_key(origin: &Origin) -> Option<(System, ClusterId, Text)> {
    match origin {
        Origin::Own => None,
        Origin::Mirror {
            system,
            cluster,
            object,
            uid: _,
        } => Some((system.clone(), cluster.clone(), Arc::clone(object))),
    }
}
