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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn lease(network: u32, pool: Option<u32>, state: LeaseState) -> Lease {
        Lease {
            length: 32,
            key: LeaseKey {
                network: NetworkId(network),
                address: [10, 0, 0, 1].into(),
            },
            pool: pool.map(PoolId),
            state,
            members: std::iter::empty().collect(),
            contenders: Vec::new(),
            tenant: None,
            group: None,
            since: Timestamp(1),
            until: None,
            labels: Default::default(),
        }
    }

    #[test]
    fn an_address_finds_its_quarantined_leases_in_every_network() {
        let (one, other) = (NetworkId(1), NetworkId(2));
        let leases = [
            lease(1, Some(7), LeaseState::Quarantined),
            lease(2, None, LeaseState::Quarantined),
            lease(3, Some(7), LeaseState::Allocated),
        ];
        let mut cooling = Cooling::default();
        leases.iter().for_each(|lease| cooling.add(lease));
        let at = |cooling: &Cooling, last: u8| -> Vec<NetworkId> {
            let found = cooling.at([10, 0, 0, last].into());
            found.map(|key| key.network).collect()
        };
        assert_eq!(at(&cooling, 1), [one, other]);
        assert_eq!(at(&cooling, 2), []);
        assert_eq!((cooling.len(), cooling.count(PoolId(7))), (2, 1));
        cooling.remove(&leases[0]);
        cooling.remove(&leases[2]);
        assert_eq!(at(&cooling, 1), [other]);
        assert_eq!(cooling.by_pool().len(), 0);
    }
}
