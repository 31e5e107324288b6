use super::*;
use crate::{PoolSpec, Tenant};

const POOL: PoolId = PoolId(1);

fn key(text: &str) -> LeaseKey {
    LeaseKey {
        network: NetworkId::DEFAULT,
        address: text.parse().unwrap(),
    }
}

fn layout(cidr: &str) -> Arc<Layout> {
    let spec = PoolSpec::own("p", vec![cidr.parse().unwrap()]);
    Arc::new(Layout::new(&spec).unwrap())
}

fn leases(addresses: &[&str]) -> Leases {
    let lease = |text: &&str| Lease {
        key: key(text),
        pool: Some(POOL),
        state: crate::LeaseState::Allocated,
        members: SmallVec::new(),
        contenders: Vec::new(),
        tenant: None::<Tenant>,
        group: None,
        since: crate::Timestamp(1),
        until: None,
    };
    let rows = addresses.iter().map(lease);
    rows.map(|lease| (lease.key, Arc::new(lease))).collect()
}

#[test]
fn a_pool_that_stays_where_it_is_is_not_counted_again() {
    let rows = leases(&["10.0.0.0", "10.0.0.1"]);
    let mut free = Free::of_sorted(&rows.values().cloned().collect::<Vec<_>>());
    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/29"), &rows);
    free.take(key("10.0.0.2"));
    let counts = |free: &Free| {
        let room = free.room(POOL).unwrap();
        (room.used, room.own, room.taken)
    };
    assert_eq!(counts(&free), (2, 2, 1));

    // Looking at these rows would give other numbers.
    let none = Leases::new();
    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/29"), &none);
    assert_eq!(counts(&free), (2, 2, 1));
    assert_eq!(free.lowest(POOL), Some(key("10.0.0.3")));
    assert!(free.consistent(&rows, true));

    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/31"), &rows);
    assert_eq!(counts(&free), (2, 2, 0));
    assert_eq!(free.lowest(POOL), None);

    free.set_pool(POOL, NetworkId(1), layout("10.0.0.0/31"), &rows);
    assert_eq!(counts(&free), (0, 0, 0), "equal spans of another network");
}
