//! Pools and leases for the tests of this folder; what a test is about it sets itself.

use std::net::IpAddr;

use fipd_core::{
    Holder, Lease, LeaseKey, LeaseState, Member, NetworkId, Pool, PoolId, PoolSpec, Timestamp,
};

/// An own pool of the default network, without addresses.
pub fn pool(id: u32, name: &str) -> Pool {
    let spec = PoolSpec::own(name, vec![]);
    Pool {
        id: PoolId(id),
        spec,
        created: Timestamp(0),
        generation: 1,
    }
}

/// A place in the default network.
pub fn place(address: &str) -> LeaseKey {
    let address: IpAddr = address.parse().expect("an address");
    LeaseKey {
        network: NetworkId::DEFAULT,
        address,
    }
}

/// A lease of no pool.
pub fn lease(key: LeaseKey, holder: Option<Holder>) -> Lease {
    let member = holder.map(|holder| Member {
        holder,
        ports: vec![],
    });
    Lease {
        key,
        pool: None,
        state: LeaseState::Allocated,
        members: member.into_iter().collect(),
        contenders: vec![],
        tenant: None,
        group: None,
        since: Timestamp(0),
        until: None,
        labels: Default::default(),
    }
}
