//! Pools and leases for the tests of this folder; what a test is about it sets itself.

use std::net::IpAddr;

use fipd_core::{
    Ends, EndsOf, Holder, Lease, LeaseKey, LeaseState, Member, NetworkId, Order, Origin, Pool,
    PoolId, PoolSpec, Timestamp,
};

/// An own pool of the default network, without addresses.
pub fn pool(id: u32, name: &str) -> Pool {
    let spec = PoolSpec {
        name: name.into(),
        network: NetworkId::DEFAULT,
        addresses: vec![],
        exclusions: vec![],
        gateway: None,
        prefix_len: None,
        subnet: None,
        ends: Ends {
            first: 0,
            last: 0,
            of: EndsOf::Prefix,
        },
        order: Order::Lowest,
        origin: Origin::Own,
        closed: false,
        quarantine: 0,
    };
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
    }
}
