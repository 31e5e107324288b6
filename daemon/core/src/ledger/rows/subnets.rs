//! Pools by the subnet of their link: an address finds them without a walk over all pools.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use crate::{
    Family, Pool, PoolId,
    ledger::maps::{take_out, uncount},
};

/// Pools that have a subnet. A look-up takes one search for each prefix length that occurs, at most 33 or 129.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Subnets {
    pools: BTreeMap<IpNet, BTreeSet<PoolId>>,
    /// How many subnets have each prefix length.
    lengths: BTreeMap<(Family, u8), usize>,
}

impl Subnets {
    pub fn put(&mut self, pool: &Pool) {
        let Some(subnet) = pool.spec.subnet.map(|subnet| subnet.trunc()) else {
            return;
        };
        let pools = self.pools.entry(subnet).or_default();
        if pools.is_empty() {
            *self.lengths.entry(length(subnet)).or_default() += 1;
        }
        pools.insert(pool.id);
    }

    pub fn remove(&mut self, pool: &Pool) {
        let Some(subnet) = pool.spec.subnet.map(|subnet| subnet.trunc()) else {
            return;
        };
        if take_out(&mut self.pools, &subnet, &pool.id) {
            uncount(&mut self.lengths, &length(subnet));
        }
    }

    /// The pools whose subnet has the address, in no order.
    pub fn around(&self, address: IpAddr) -> impl Iterator<Item = PoolId> {
        let family = Family::of(address);
        let lengths = self.lengths.range((family, 0)..=(family, u8::MAX));
        let nets = lengths.filter_map(move |((_, length), _)| IpNet::new(address, *length).ok());
        nets.filter_map(|net| self.pools.get(&net.trunc()))
            .flatten()
            .copied()
    }
}

fn length(subnet: IpNet) -> (Family, u8) {
    (Family::of(subnet.addr()), subnet.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolSpec, Timestamp};

    fn pool(id: u32, subnet: &str) -> Pool {
        let mut spec = PoolSpec::own("p", vec![]);
        spec.subnet = subnet.parse().ok();
        Pool {
            id: PoolId(id),
            spec,
            created: Timestamp(0),
            generation: 1,
        }
    }

    fn around(subnets: &Subnets, address: &str) -> BTreeSet<u32> {
        let address = address.parse().expect("an address");
        subnets.around(address).map(|id| id.0).collect()
    }

    #[test]
    fn an_address_finds_the_subnets_around_it_and_no_others() {
        let mut subnets = Subnets::default();
        let pools = [
            pool(1, "10.0.0.0/24"),
            pool(2, "10.0.0.77/16"),
            pool(3, "10.0.0.0/24"),
            pool(4, "10.1.0.0/24"),
            pool(5, "fd00::/64"),
            pool(6, "none"),
        ];
        pools.iter().for_each(|pool| subnets.put(pool));
        assert_eq!(around(&subnets, "10.0.0.9"), BTreeSet::from([1, 2, 3]));
        assert_eq!(around(&subnets, "10.0.9.9"), BTreeSet::from([2]));
        assert_eq!(around(&subnets, "fd00::9"), BTreeSet::from([5]));
        assert_eq!(around(&subnets, "fd01::9"), BTreeSet::new());
        for pool in [&pools[0], &pools[2]] {
            subnets.remove(pool);
        }
        assert_eq!(around(&subnets, "10.0.0.9"), BTreeSet::from([2]));
    }

    #[test]
    fn a_look_up_among_many_pools_searches_once_for_each_prefix_length() {
        let mut subnets = Subnets::default();
        for id in 0..5_000_u32 {
            let net = format!("10.{}.{}.0/24", id / 256, id % 256);
            subnets.put(&pool(id, &net));
        }
        assert_eq!(subnets.lengths.len(), 1);
        assert_eq!(
            around(&subnets, "10.3.7.200"),
            BTreeSet::from([3 * 256 + 7])
        );
    }
}
