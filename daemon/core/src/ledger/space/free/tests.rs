use super::*;
use crate::{PastLease, PoolSpec, Tenant, ledger::space::dice::Dice, testing};

const POOL: PoolId = PoolId(1);

fn key(text: &str) -> LeaseKey {
    testing::key_of(text)
}

fn whole(text: &str) -> LeasePrefix {
    key(text).whole()
}

fn layout(cidr: &str) -> Arc<Layout> {
    let spec = testing::pool_spec("p", &[cidr]);
    Arc::new(Layout::new(&spec).unwrap())
}

fn leases(addresses: &[&str]) -> Leases {
    let lease = |text: &&str| Lease {
        key: key(text),
        length: 32,
        pool: Some(POOL),
        state: crate::LeaseState::Allocated,
        members: SmallVec::new(),
        contenders: Vec::new(),
        tenant: None::<Tenant>,
        group: None,
        since: crate::Timestamp(1),
        until: None,
        labels: Default::default(),
    };
    let rows = addresses.iter().map(lease);
    rows.map(|lease| (lease.key, Arc::new(lease))).collect()
}

fn lowest(free: &Free) -> Option<LeaseKey> {
    free.choose(POOL, |choice| choice.lowest())
}

#[test]
fn a_pool_that_stays_where_it_is_is_not_counted_again() {
    let rows = leases(&["10.0.0.0", "10.0.0.1"]);
    let mut free = Free::of_sorted(&rows.values().cloned().collect::<Vec<_>>());
    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/29"), &rows);
    free.take(whole("10.0.0.2"));
    let counts = |free: &Free| {
        let room = free.room(POOL).unwrap();
        (room.used, room.own, room.taken)
    };
    assert_eq!(counts(&free), (2, 2, 1));

    // Looking at these rows would give other numbers.
    let none = Leases::new();
    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/29"), &none);
    assert_eq!(counts(&free), (2, 2, 1));
    assert_eq!(lowest(&free), Some(key("10.0.0.3")));
    assert!(free.consistent(&rows, true));

    free.set_pool(POOL, NetworkId::DEFAULT, layout("10.0.0.0/31"), &rows);
    assert_eq!(counts(&free), (2, 2, 0));
    assert_eq!(lowest(&free), None);

    free.set_pool(POOL, NetworkId(1), layout("10.0.0.0/31"), &rows);
    assert_eq!(counts(&free), (0, 0, 0), "equal spans of another network");
}

/// A pool in three pieces, with a neighbour that takes a part of one of them.
fn pieces() -> Free {
    let none = Leases::new();
    let mut free = Free::default();
    let entries = ["10.0.0.0/26", "10.0.1.0-10.0.1.9", "10.0.9.7"];
    let spec = PoolSpec::own("p", entries.map(|text| text.parse().unwrap()).to_vec());
    let layout_of_pieces = Arc::new(Layout::new(&spec).unwrap());
    free.set_pool(POOL, NetworkId::DEFAULT, layout_of_pieces, &none);
    free.set_pool(PoolId(2), NetworkId::DEFAULT, layout("10.0.0.32/28"), &none);
    free
}

#[test]
fn chance_takes_every_address_and_each_once() {
    let mut free = pieces();
    let mut dice = Dice::new(7);
    let mut drawn = BTreeSet::new();
    while let Some(key) = free.choose(POOL, |choice| choice.random(&mut dice)) {
        assert!(free.is_free(key.whole()) && drawn.insert(key), "{key:?}");
        free.take(key.whole());
    }
    assert_eq!(drawn.len(), 64 + 10 + 1);
    let sorted: Vec<LeaseKey> = drawn.iter().copied().collect();
    assert!(
        sorted
            .iter()
            .all(|key| free.stab(key.whole()).iter().any(|part| part.pool == POOL))
    );
}

#[test]
fn chance_favours_none_of_a_few_that_are_left() {
    let mut free = pieces();
    let left = ["10.0.0.3", "10.0.0.33", "10.0.0.34", "10.0.1.4", "10.0.9.7"].map(key);
    while let Some(key) = free.choose(POOL, |choice| choice.lowest()) {
        free.take(key.whole());
    }
    for key in left {
        free.give_back(key);
    }
    let mut dice = Dice::new(3);
    let mut times = BTreeMap::new();
    for _ in 0..5_000 {
        let key = free
            .choose(POOL, |choice| choice.random(&mut dice))
            .unwrap();
        *times.entry(key).or_insert(0_u32) += 1;
    }
    assert!(left.iter().all(|key| times[key] > 300), "{times:?}");
}

fn past(last: u8) -> Arc<PastLease> {
    Arc::new(PastLease {
        key: key(&format!("10.0.0.{last}")),
        pool: POOL,
        identity: "fipd/vm/lab/a".parse().unwrap(),
        released: crate::Timestamp(u64::from(last)),
        own: true,
    })
}

/// Else each choice would walk past all that a pool of another network may mean.
#[test]
fn what_is_withheld_is_not_among_what_was_not_used_for_longest() {
    let none = Leases::new();
    let whole = layout("10.0.0.0/26");
    let mut free = Free::default();
    free.set_pool(POOL, NetworkId::DEFAULT, Arc::clone(&whole), &none);
    free.shun(NetworkId::DEFAULT, Family::V4, 32);
    (0..32).for_each(|last| free.remember(past(last)));
    let withheld = "10.0.0.0-10.0.0.39".parse::<crate::AddressSpec>().unwrap();
    let rest = Arc::new(whole.without(&[withheld.span()]));
    free.set_pool(POOL, NetworkId::DEFAULT, rest, &none);
    (32..64).for_each(|last| free.remember(past(last)));
    for taken in ["10.0.0.1", "10.0.0.39", "10.0.0.40", "10.0.0.41"].map(key) {
        free.take(taken.whole());
    }
    for given_back in ["10.0.0.39", "10.0.0.41"].map(key) {
        free.give_back(given_back);
    }
    let idle: Vec<_> = free.memory().idle(POOL).collect();
    let expected = (41..64).map(|last| past(last).key);
    assert_eq!(idle, expected.collect::<Vec<_>>());
    assert_eq!(free.oldest_idle(POOL), Some(key("10.0.0.41")));
    assert!(free.consistent(&none, true));

    free.set_pool(POOL, NetworkId::DEFAULT, whole, &none);
    assert_eq!(free.memory().idle(POOL).count(), 62);
    assert_eq!(free.oldest_idle(POOL), Some(key("10.0.0.0")));
    free.drop_pool(POOL);
    assert_eq!(free.oldest_idle(POOL), None);
}
