//! Quarantined leases, by pool and by address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{Lease, LeaseKey, LeaseState, NetworkId, PoolId, ledger::maps::uncount};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Cooling {
    /// Pools without any are not in it.
    pools: BTreeMap<PoolId, u64>,
    places: BTreeSet<(IpAddr, NetworkId)>,
}

impl Cooling {
    /// Enters a lease, if it is quarantined.
    pub fn add(&mut self, lease: &Lease) {
        if lease.state != LeaseState::Quarantined {
            return;
        }
        self.places.insert((lease.key.address, lease.key.network));
        if let Some(pool) = lease.pool {
            *self.pools.entry(pool).or_default() += 1;
        }
    }

    /// Takes a lease out, as it was when it was entered.
    pub fn remove(&mut self, lease: &Lease) {
        if lease.state != LeaseState::Quarantined {
            return;
        }
        self.places.remove(&(lease.key.address, lease.key.network));
        if let Some(pool) = lease.pool {
            uncount(&mut self.pools, &pool);
        }
    }

    /// How many there are of the pool.
    pub fn count(&self, pool: PoolId) -> u64 {
        self.pools.get(&pool).copied().unwrap_or(0)
    }

    /// The same of all pools that have one.
    pub fn by_pool(&self) -> &BTreeMap<PoolId, u64> {
        &self.pools
    }

    /// Whether it has this one.
    pub fn has(&self, key: LeaseKey) -> bool {
        self.places.contains(&(key.address, key.network))
    }

    /// Those of an address, by network.
    pub fn at(&self, address: IpAddr) -> impl Iterator<Item = LeaseKey> {
        let networks = (address, NetworkId(0))..=(address, NetworkId(u32::MAX));
        let places = self.places.range(networks);
        places.map(|(address, network)| LeaseKey {
            network: *network,
            address: *address,
        })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }
}
