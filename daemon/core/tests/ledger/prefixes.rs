//! Pools that give prefixes, one rule each.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, net::IpAddr};

use fipd_core::{
    Adopt, Allocate, Answer, Contender, Holder, Import, ImportRow, ImportedLease, ImportedPool,
    Lease, LeaseKey, LeasePrefix, LeaseState, Ledger, Mark, NetworkId, Op, Order, PoolEdit, PoolId,
    PoolSize, PoolSpec, ProbeVerdict, Probed, Quota, QuotaUnit, Refusal, Release, ReleaseScope,
    Request, Reserve, RowFate, Selection, Sticky, Tenant, Text, Timestamp, Transfer, Violation,
    testing,
};

const POOL: PoolId = PoolId(1);
const OTHER: PoolId = PoolId(2);
const BLUE: NetworkId = NetworkId(1);

fn spec(length: u8, addresses: &[&str]) -> PoolSpec {
    PoolSpec {
        allocation_length: Some(length),
        ..testing::pool_spec("prefixes", addresses)
    }
}

/// A pool of single addresses beside the other one.
fn singles(addresses: &[&str]) -> PoolSpec {
    testing::pool_spec("addresses", addresses)
}

fn edit(spec: PoolSpec, force: bool) -> Request {
    Request::UpdatePool(PoolEdit {
        pool: POOL,
        spec,
        if_generation: None,
        force,
        actor: "test".into(),
        reason: "".into(),
    })
}

fn holder(owner: &str) -> Holder {
    testing::holder(format!("fipd/vm/lab/{owner}"), "1")
}

fn tenant() -> Tenant {
    Tenant("shop".into())
}

fn ip(address: &str) -> IpAddr {
    address.parse().expect("an address")
}

/// The prefix of the default network.
fn prefix(text: &str) -> LeasePrefix {
    let (address, length) = text.split_once('/').expect("a prefix");
    LeasePrefix {
        key: testing::key_of(address),
        length: length.parse().expect("a length"),
    }
}

fn asks(owner: &str, pool: PoolId, address: Option<&str>) -> Allocate {
    let wants = [testing::want(pool, address.map(ip))];
    Allocate {
        tenant: Some(tenant()),
        ..testing::allocate(holder(owner), wants)
    }
}

fn adopts(owner: &str, found: &str) -> Request {
    let LeasePrefix { key, length } = prefix(found);
    Request::Adopt(Adopt {
        key,
        length: Some(length),
        holder: holder(owner),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    })
}

fn releases(scope: ReleaseScope) -> Request {
    let (actor, reason) = ("test".into(), "".into());
    Request::Release(Release {
        scope,
        actor,
        reason,
    })
}

/// Each request is a second later than the one before.
struct Book {
    ledger: Ledger,
    now: u64,
}

impl Book {
    fn new(pools: impl IntoIterator<Item = PoolSpec>) -> Self {
        let mut book = Self {
            ledger: Ledger::new(),
            now: 0,
        };
        for spec in pools {
            book.done(&testing::create_pool(spec));
        }
        book
    }

    fn plan(&mut self, request: &Request) -> Result<Answer, Refusal> {
        self.now += 1_000;
        let asked = testing::ask(&mut self.ledger, request, Timestamp(self.now));
        asked.map(|(answer, _)| answer)
    }

    fn done(&mut self, request: &Request) -> Answer {
        self.plan(request).expect("an answer")
    }

    fn refused(&mut self, request: &Request) -> Refusal {
        self.plan(request).expect_err("a refusal")
    }

    fn leases(&mut self, ask: Allocate) -> Vec<String> {
        let Answer::Granted { leases, .. } = self.done(&Request::Allocate(ask)) else {
            panic!("not granted");
        };
        leases.iter().map(|lease| text(lease)).collect()
    }

    /// What the owner gets of the prefixes.
    fn gets(&mut self, owner: &str) -> String {
        self.leases(asks(owner, POOL, None)).remove(0)
    }

    /// What the owner gets of the other pool.
    fn gets_of_other(&mut self, owner: &str) -> String {
        self.leases(asks(owner, OTHER, None)).remove(0)
    }

    fn names(&mut self, owner: &str, pool: PoolId, address: &str) -> Result<Answer, Refusal> {
        self.plan(&Request::Allocate(asks(owner, pool, Some(address))))
    }

    fn is_exhausted(&mut self, owner: &str) {
        let refusal = self.refused(&Request::Allocate(asks(owner, POOL, None)));
        assert!(matches!(refusal, Refusal::Exhausted { .. }), "{refusal:?}");
    }

    fn gives_back(&mut self, owner: &str) {
        self.done(&testing::release(holder(owner)));
    }

    /// How many the pool gives, and how many of them are used.
    fn counts(&self, pool: PoolId) -> (u128, u128) {
        let usage = self.ledger.usage(pool).expect("the pool");
        assert_eq!(usage.free, usage.size - usage.used);
        (usage.size, usage.used)
    }

    fn over(&self, text: &str) -> &Lease {
        self.ledger.lease_over(prefix(text)).expect("a lease")
    }

    fn imports(&mut self, leases: &[&str]) -> Vec<RowFate> {
        let rows = leases.iter().map(|one| {
            let LeasePrefix { key, length } = prefix(one);
            ImportRow::Lease(Box::new(ImportedLease {
                network: "default".into(),
                pool: None,
                since: None,
                lease: Lease {
                    length,
                    ..testing::lease(key, None, [holder(one)])
                },
            }))
        });
        let (rows, actor, force) = (rows.collect(), "test".into(), false);
        match self.done(&Request::Import(Import { rows, force, actor })) {
            Answer::Imported { rows, .. } => rows,
            other => panic!("{other:?}"),
        }
    }
}

fn text(lease: &Lease) -> String {
    lease.prefix().net().to_string()
}

fn size(spec: &PoolSpec) -> PoolSize {
    spec.size().expect("a valid pool")
}

/// The field that is wrong.
fn wrong(spec: &PoolSpec) -> &'static str {
    spec.validate().expect_err("not valid").field
}

#[test]
fn the_lowest_prefixes_come_first() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    assert_eq!(book.gets("a"), "fd00::/64");
    assert_eq!(book.gets("b"), "fd00:0:0:1::/64");
    assert_eq!(book.counts(POOL), (4, 2));
}

#[test]
fn one_aggregate_follows_the_other() {
    let mut book = Book::new([spec(64, &["fd00:0:0:1::/64", "fd10::/48"])]);
    assert_eq!(book.gets("a"), "fd00:0:0:1::/64");
    assert_eq!(book.gets("b"), "fd10::/64");
    assert_eq!(book.gets("c"), "fd10:0:0:1::/64");
}

#[test]
fn who_finds_nothing_free_waits_for_the_next_prefix() {
    let mut book = Book::new([spec(64, &["fd00::/64"])]);
    assert_eq!(book.gets("a"), "fd00::/64");
    let waits = Allocate {
        waiting_since: Some(Timestamp(5)),
        ..asks("b", POOL, None)
    };
    let refusal = book.refused(&Request::Allocate(waits));
    let expected = Refusal::Exhausted {
        pool: "prefixes".into(),
        used: 1,
        size: 1,
        of_prefixes: true,
        cooling: None,
    };
    assert_eq!(refusal, expected);
    assert_eq!(book.ledger.ready_waiters(POOL, 9), []);
    book.gives_back("a");
    let ready = book.ledger.ready_waiters(POOL, 9);
    assert_eq!(ready, [holder("b").identity]);
    assert_eq!(book.gets("b"), "fd00::/64");
}

#[test]
fn a_pool_of_prefixes_has_cidrs_that_are_large_enough() {
    assert_eq!(wrong(&spec(64, &["fd00::1"])), "addresses");
    assert_eq!(wrong(&spec(64, &["fd00::-fd00:0:0:3::"])), "addresses");
    assert_eq!(wrong(&spec(64, &["fd00::/62", "fd00::/65"])), "addresses");
    assert_eq!(wrong(&spec(64, &["fd00::/62", "10.0.0.0/8"])), "addresses");
    assert_eq!(wrong(&spec(64, &[])), "addresses");
    assert_eq!(wrong(&spec(128, &["fd00::1"])), "addresses");
    assert_eq!(size(&spec(64, &["fd00::/64"])).assignable, 1);
}

#[test]
fn the_length_is_one_that_the_family_has() {
    for (length, cidr) in [
        (0, "::/0"),
        (129, "::/0"),
        (0, "0.0.0.0/0"),
        (33, "10.0.0.0/8"),
    ] {
        assert_eq!(wrong(&spec(length, &[cidr])), "allocation_length");
    }
    assert_eq!(size(&spec(1, &["::/0"])).listed, 2);
}

#[test]
fn gateway_and_exclusions_are_of_the_family_of_the_pool() {
    let mut gateway = spec(64, &["fd00::/62"]);
    gateway.gateway = Some(ip("10.0.0.1"));
    assert_eq!(wrong(&gateway), "gateway");
    let mut exclusion = spec(64, &["fd00::/62"]);
    exclusion.exclusions = testing::pool_spec("", &["10.0.0.1"]).addresses;
    assert_eq!(wrong(&exclusion), "exclusions");
}

#[test]
fn a_pool_of_prefixes_has_neither_reserved_ends_nor_a_subnet() {
    let mut ends = spec(64, &["fd00::/62"]);
    ends.ends.first = 1;
    assert_eq!(wrong(&ends), "ends");
    let mut subnet = spec(64, &["fd00::/62"]);
    subnet.subnet = Some("fd00::/48".parse().expect("a subnet"));
    assert_eq!(wrong(&subnet), "subnet");
    let mut length = spec(64, &["fd00::/62"]);
    length.prefix_len = Some(62);
    assert_eq!(wrong(&length), "prefix");
    length.prefix_len = Some(64);
    assert_eq!(length.validate(), Ok(()));
}

#[test]
fn aggregates_that_overlap_count_once() {
    let spec = spec(
        64,
        &["fd00::/62", "fd00::/63", "fd00:0:0:2::/63", "fd00::/62"],
    );
    assert_eq!(size(&spec).listed, 4);
    let mut book = Book::new([spec]);
    let given: BTreeSet<String> = ["a", "b", "c", "d"].map(|owner| book.gets(owner)).into();
    assert_eq!(given.len(), 4);
    book.is_exhausted("e");
}

#[test]
fn a_gateway_inside_takes_no_prefix_away() {
    let mut spec = spec(64, &["fd00::/63"]);
    spec.gateway = Some(ip("fd00::1"));
    assert_eq!((size(&spec).assignable, size(&spec).reserved), (2, 0));
    let mut book = Book::new([spec]);
    assert_eq!(book.gets("a"), "fd00::/64");
}

#[test]
fn an_exclusion_takes_away_each_prefix_that_it_touches() {
    let mut spec = spec(64, &["fd00::/62"]);
    spec.exclusions = testing::pool_spec("", &["fd00::7", "fd00:0:0:2::1"]).addresses;
    assert_eq!((size(&spec).excluded, size(&spec).assignable), (2, 2));
    let mut book = Book::new([spec]);
    assert_eq!(book.gets("a"), "fd00:0:0:1::/64");
    assert_eq!(book.gets("b"), "fd00:0:0:3::/64");
    book.is_exhausted("c");
    let refusal = book.names("c", POOL, "fd00::").expect_err("excluded");
    assert!(matches!(refusal, Refusal::NotAssignable { .. }));
}

#[test]
fn large_pools_are_counted_exactly() {
    for (length, cidr, many) in [(64, "fd00::/16", 1_u128 << 48), (128, "2000::/3", 1 << 125)] {
        let mut book = Book::new([spec(length, &[cidr])]);
        for owner in ["a", "b", "c"] {
            book.gets(owner);
        }
        assert_eq!(book.counts(POOL), (many, 3));
        book.gives_back("b");
        assert_eq!(book.counts(POOL), (many, 2));
    }
}

#[test]
fn all_of_ipv6_is_as_many_addresses_as_fit() {
    let mut book = Book::new([spec(128, &["::/0"])]);
    assert_eq!(book.gets("a"), "::/128");
    let usage = book.ledger.usage(POOL).expect("the pool");
    assert_eq!((usage.used, usage.free), (1, usage.size - 1));
    assert!(usage.size > u128::MAX - (1 << 33), "{}", usage.size);
    let highest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    assert!(book.names("b", POOL, highest).is_ok());
    book.gives_back("a");
    book.gives_back("b");
    assert_eq!(book.counts(POOL).1, 0);
}

#[test]
fn an_address_makes_the_prefix_around_it_unavailable() {
    let mut book = Book::new([spec(64, &["fd00::/62"]), singles(&["fd00::7", "fd00::9"])]);
    assert_eq!(book.gets_of_other("vm"), "fd00::7/128");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (2, 1)));
    assert_eq!(book.gets_of_other("vm2"), "fd00::9/128");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (2, 2)));
    assert_eq!(book.gets("a"), "fd00:0:0:1::/64");
    book.gives_back("vm");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 2), (2, 1)));
    book.gives_back("vm2");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (2, 0)));
    assert_eq!(book.gets("b"), "fd00::/64");
}

#[test]
fn a_prefix_makes_the_addresses_in_it_unavailable() {
    let mut book = Book::new([
        spec(64, &["fd00::/62"]),
        singles(&["fd00::7", "fd00::9", "fd00:0:0:1::1"]),
    ]);
    assert_eq!(book.gets("a"), "fd00::/64");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (3, 2)));
    assert_eq!(book.gets_of_other("vm"), "fd00:0:0:1::1/128");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 2), (3, 3)));
    book.gives_back("a");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (3, 1)));
    assert_eq!(book.gets_of_other("vm2"), "fd00::7/128");
}

#[test]
fn a_named_address_is_the_first_of_a_prefix() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    let refusal = book.names("a", POOL, "fd00::1").expect_err("in a prefix");
    let Refusal::NotAssignable { why, .. } = refusal else {
        panic!("{refusal:?}");
    };
    assert!(why.contains("fd00::/64"), "{why}");
    assert!(book.names("a", POOL, "fd00:0:0:2::").is_ok());
    assert_eq!(text(book.over("fd00:0:0:2::/64")), "fd00:0:0:2::/64");
    let refusal = book.names("b", POOL, "fd00:0:0:2::").expect_err("taken");
    assert!(matches!(refusal, Refusal::AddressTaken { .. }));
}

#[test]
fn a_named_prefix_with_a_lease_of_another_length_in_it_is_refused() {
    let mut book = Book::new([spec(64, &["fd00::/62"]), singles(&["fd00::7-fd00::8"])]);
    book.gets_of_other("vm");
    book.gets_of_other("vm2");
    let refusal = book.names("a", POOL, "fd00::").expect_err("an overlap");
    let overlap = Refusal::PrefixTaken {
        prefix: "fd00::/64".parse().expect("a prefix"),
        held: "fd00::7/128".parse().expect("an address"),
        owner: holder("vm").identity.to_string(),
    };
    assert_eq!(refusal, overlap);
    book.gives_back("vm");
    book.gives_back("vm2");
    book.gets("a");
    let refusal = book.names("vm", OTHER, "fd00::8").expect_err("an overlap");
    assert!(
        matches!(refusal, Refusal::PrefixTaken { .. }),
        "{refusal:?}"
    );
}

#[test]
fn two_named_wants_of_a_request_do_not_overlap() {
    let mut book = Book::new([spec(64, &["fd00::/62"]), singles(&["fd00::7"])]);
    let wants = [
        testing::want(POOL, Some(ip("fd00::"))),
        testing::want(OTHER, Some(ip("fd00::7"))),
    ];
    let request = Request::Allocate(testing::allocate(holder("a"), wants));
    let refusal = book.refused(&request);
    assert!(matches!(
        refusal,
        Refusal::Invalid {
            field: "address",
            ..
        }
    ));
}

#[test]
fn what_is_remembered_around_a_named_address_is_not_given_again() {
    let mut memory = spec(64, &["fd00::/62"]);
    memory.sticky = Sticky { lasts: 60, most: 9 };
    let mut book = Book::new([memory, singles(&["fd00::7"])]);
    assert_eq!(book.gets("a"), "fd00::/64");
    book.gives_back("a");
    let wants = [
        testing::want(POOL, None),
        testing::want(OTHER, Some(ip("fd00::7"))),
    ];
    let given = book.leases(testing::allocate(holder("a"), wants));
    assert_eq!(given, ["fd00:0:0:1::/64", "fd00::7/128"]);
}

#[test]
fn a_selection_says_how_long_prefixes_it_wants() {
    let open = |spec: PoolSpec| PoolSpec {
        scopes: vec![Default::default()],
        ..spec
    };
    let mut book = Book::new([open(spec(64, &["fd00::/62"])), open(singles(&["fd10::7"]))]);
    let selects = |owner: &str, length| {
        let selection = Selection {
            network: None,
            family: fipd_core::Family::V6,
            length,
            asker: Default::default(),
        };
        testing::allocate(holder(owner), [testing::want(selection, None)])
    };
    assert_eq!(book.leases(selects("a", Some(64))), ["fd00::/64"]);
    assert_eq!(book.leases(selects("b", None)), ["fd10::7/128"]);
    let refusal = book.refused(&Request::Allocate(selects("c", Some(63))));
    assert!(matches!(refusal, Refusal::NoPool { .. }), "{refusal:?}");
    let refusal = book.refused(&Request::Allocate(selects("c", Some(129))));
    let expected = "select.length";
    assert!(matches!(refusal, Refusal::Invalid { field, .. } if field == expected));
}

#[test]
fn the_length_of_a_pool_stays() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    for length in [None, Some(63)] {
        let next = PoolSpec {
            allocation_length: length,
            ..spec(64, &["fd00::/62"])
        };
        let refusal = book.refused(&edit(next, true));
        let expected = "allocation_length";
        assert!(matches!(refusal, Refusal::Invalid { field, .. } if field == expected));
    }
}

#[test]
fn a_prefix_cools_after_a_release() {
    let mut cooling = spec(64, &["fd00::/63"]);
    cooling.quarantine = 60;
    let mut book = Book::new([cooling]);
    assert_eq!(book.gets("a"), "fd00::/64");
    book.gives_back("a");
    assert_eq!(book.over("fd00::7/128").state, LeaseState::Quarantined);
    assert_eq!(text(book.over("fd00::7/128")), "fd00::/64");
    assert_eq!(book.counts(POOL), (2, 1));
    assert_eq!(book.gets("b"), "fd00:0:0:1::/64");
    book.now += 60_000;
    book.done(&Request::Expire {
        most: 9,
        actor: "test".into(),
    });
    assert_eq!(book.gets("c"), "fd00::/64");
}

#[test]
fn who_comes_back_gets_the_same_prefix() {
    let mut sticky = spec(64, &["fd00::/62"]);
    sticky.sticky = Sticky { lasts: 60, most: 9 };
    let mut book = Book::new([sticky]);
    assert_eq!(book.gets("a"), "fd00::/64");
    assert_eq!(book.gets("b"), "fd00:0:0:1::/64");
    book.gives_back("a");
    book.gives_back("b");
    assert_eq!(book.gets("c"), "fd00:0:0:2::/64");
    book.ledger = Ledger::load(book.ledger.dump(), 0).expect("its own rows");
    assert_eq!(book.gets("b"), "fd00:0:0:1::/64");
    assert_eq!(book.gets("a"), "fd00::/64");
}

#[test]
fn a_prefix_is_reserved_until_its_time() {
    let mut book = Book::new([spec(64, &["fd00::/63"])]);
    let (ask, until) = (asks("a", POOL, None), Some(Timestamp(60_000)));
    book.done(&Request::Reserve(Reserve { ask, until }));
    let lease = book.over("fd00::/64");
    assert_eq!(
        (lease.state, text(lease)),
        (LeaseState::Reserved, "fd00::/64".into())
    );
    assert_eq!(book.gets("a"), "fd00::/64");
    assert_eq!(book.over("fd00::/64").state, LeaseState::Allocated);
}

#[test]
fn a_prefix_changes_hands_as_it_is() {
    let mut book = Book::new([spec(64, &["fd00::/63"])]);
    book.gets("a");
    book.done(&Request::Transfer(Transfer {
        key: testing::key_of("fd00::"),
        from: Some(holder("a")),
        to: holder("b"),
        tenant: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    }));
    assert_eq!(book.gets("b"), "fd00::/64");
    assert_eq!(book.counts(POOL), (2, 1));
}

#[test]
fn a_pool_stays_where_its_prefixes_overlap_leases_of_the_other_network() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    let (name, actor) = ("blue".into(), "test".into());
    book.done(&Request::CreateNetwork { name, actor });
    book.done(&testing::create_pool(PoolSpec {
        network: BLUE,
        ..singles(&["fd00::7"])
    }));
    book.gets("a");
    book.gets_of_other("vm");
    let moves = Request::MoveNetwork {
        pool: POOL,
        network: BLUE,
        actor: "test".into(),
    };
    let Refusal::Collisions {
        count: 1, first, ..
    } = book.refused(&moves)
    else {
        panic!("it does not collide");
    };
    assert_eq!(first[0].address, ip("fd00::"));
    assert_eq!(first[0].owner, holder("vm").identity.to_string());
    book.gives_back("vm");
    book.done(&moves);
    let key = LeaseKey {
        network: BLUE,
        address: ip("fd00::7"),
    };
    let lease = book.ledger.lease_around(key).expect("a lease");
    assert_eq!(text(lease), "fd00::/64");
    assert_eq!((book.counts(POOL), book.counts(OTHER)), ((4, 1), (1, 1)));
}

#[test]
fn a_pool_does_not_leave_a_network_where_a_larger_prefix_is_in_use() {
    let mut book = Book::new([spec(64, &["fd00:0:0:1::/64"])]);
    let (name, actor) = ("blue".into(), "test".into());
    book.done(&Request::CreateNetwork { name, actor });
    book.done(&adopts("router", "fd00::/62"));
    let next = PoolSpec {
        network: BLUE,
        ..spec(64, &["fd00:0:0:1::/64"])
    };
    let refusal = book.refused(&edit(next, false));
    assert!(matches!(
        refusal,
        Refusal::Invalid {
            field: "network",
            ..
        }
    ));
}

#[test]
fn who_uses_an_address_of_a_prefix_contends_for_that_and_gets_it_next() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let contended = book.done(&adopts("b", "fd00::7/128"));
    assert!(
        matches!(contended, Answer::Contended { .. }),
        "{contended:?}"
    );
    let lease = book.over("fd00::/64");
    assert_eq!(lease.contenders[0].holder, holder("b"));
    assert!(book.ledger.marks(lease).contains(&Mark::Contended));
    book.gives_back("a");
    let lease = book.over("fd00::/64");
    assert_eq!(
        (text(lease), lease.contenders.len()),
        ("fd00::7/128".into(), 0)
    );
    assert!(lease.held_by(&holder("b").identity));
    assert_eq!(book.counts(POOL), (4, 1), "the prefix is not whole");
    book.gives_back("b");
    assert_eq!(book.counts(POOL), (4, 0));
}

/// What each lease in the prefix is of, who has it and who contends for it.
fn shares(book: &Book, around: &str) -> Vec<(String, Vec<String>)> {
    let span = prefix(around).span();
    let leases = book.ledger.pool_range(POOL, span, 99).into_iter();
    let name = |one: &Holder| one.identity.name.to_string();
    leases
        .map(|lease| {
            let members = lease.members.iter().map(|one| name(&one.holder));
            let contenders = lease.contenders.iter().map(|one| name(&one.holder));
            (text(&lease), members.chain(contenders).collect())
        })
        .collect()
}

fn share(lease: &str, owners: &[&str]) -> (String, Vec<String>) {
    let owners = owners.iter().map(|one| (*one).to_owned()).collect();
    (lease.to_owned(), owners)
}

#[test]
fn each_of_those_who_use_parts_of_a_prefix_gets_its_own() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    for (owner, found) in [
        ("b", "fd00::7/128"),
        ("c", "fd00::7/128"),
        ("b", "fd00::9/128"),
        ("d", "fd00::8/125"),
        ("b", "fd00::/128"),
    ] {
        book.done(&adopts(owner, found));
    }
    let uses = &book.over("fd00::/64").contenders[0].uses;
    let uses: Vec<String> = uses.iter().map(ToString::to_string).collect();
    assert_eq!(uses, ["fd00::/128", "fd00::7/128", "fd00::9/128"]);
    book.gives_back("a");
    let parts = [
        share("fd00::/128", &["b"]),
        share("fd00::7/128", &["b", "c"]),
        share("fd00::8/125", &["d", "b"]),
    ];
    assert_eq!(shares(&book, "fd00::/64"), parts, "d uses more");
    book.gives_back("d");
    assert_eq!(shares(&book, "fd00::8/125"), [share("fd00::9/128", &["b"])]);
    book.gives_back("b");
    assert_eq!(shares(&book, "fd00::/64"), [share("fd00::7/128", &["c"])]);
    assert_eq!(book.counts(POOL), (4, 1));
}

#[test]
fn who_uses_all_of_a_prefix_goes_before_those_who_use_some() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    book.done(&adopts("b", "fd00::7/128"));
    book.done(&adopts("x", "fd00::/63"));
    book.gives_back("a");
    let lease = book.over("fd00::/64");
    assert_eq!(lease.owner(), Some(&holder("x")));
    assert_eq!(
        (lease.contenders.len(), text(lease)),
        (1, "fd00::/64".into())
    );
    book.gives_back("x");
    assert_eq!(text(book.over("fd00::7/128")), "fd00::7/128");
}

#[test]
fn a_prefix_cools_before_what_others_use_of_it_is_theirs() {
    let mut cooling = spec(64, &["fd00::/63"]);
    cooling.quarantine = 60;
    let mut book = Book::new([cooling]);
    book.gets("a");
    book.done(&adopts("b", "fd00::7/128"));
    book.gives_back("a");
    let lease = book.over("fd00::/64");
    assert_eq!(lease.state, LeaseState::Quarantined);
    assert_eq!(lease.contenders[0].holder, holder("b"));
    book.now += 60_000;
    book.done(&Request::Expire {
        most: 9,
        actor: "test".into(),
    });
    assert_eq!(shares(&book, "fd00::/64"), [share("fd00::7/128", &["b"])]);
}

#[test]
fn one_use_of_a_prefix_ends_without_the_others() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    for found in ["fd00::7/128", "fd00::/128", "fd00::9/128"] {
        book.done(&adopts("b", found));
    }
    let mut ends = |keys: &[&str]| {
        let keys = keys.iter().map(|key| prefix(key).key).collect();
        book.done(&releases(ReleaseScope::HolderAddresses(holder("b"), keys)));
        let contenders = book.over("fd00::/64").contenders.iter();
        contenders.map(|one| one.uses.len()).collect::<Vec<_>>()
    };
    assert_eq!(ends(&["fd00::7/128"]), [2]);
    assert_eq!(ends(&["fd00::7/128"]), [2], "that has ended already");
    assert_eq!(ends(&["fd00::/128"]), [1], "the first address");
    assert_eq!(ends(&["fd00::/128"]), [1], "and nothing else of the lease");
    assert_eq!(ends(&["fd00::9/128"]), [0_usize; 0]);
    assert_eq!(book.over("fd00::/64").owner(), Some(&holder("a")));
}

#[test]
fn a_prefix_is_not_transferred_to_who_uses_some_of_it() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    book.done(&adopts("b", "fd00::7/128"));
    for to in ["b", "c"] {
        let refusal = book.refused(&Request::Transfer(Transfer {
            key: prefix("fd00::/64").key,
            from: None,
            to: holder(to),
            tenant: None,
            force: false,
            actor: "test".into(),
            reason: Text::default(),
        }));
        let text = refusal.to_string();
        assert!(text.contains("using fd00::7 of it"), "{text}");
    }
}

#[test]
fn a_lease_is_used_in_parts_up_to_a_limit() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    for at in 1..=Contender::MAX_USES + 1 {
        book.done(&adopts("b", &format!("fd00::{at:x}/128")));
    }
    let uses = &book.over("fd00::/64").contenders[0].uses;
    assert_eq!(uses.len(), Contender::MAX_USES);
    let merged = uses.iter().find(|one| one.prefix_len() < 128);
    assert_eq!(
        merged.map(ToString::to_string).as_deref(),
        Some("fd00::40/127")
    );
    for at in 0..Lease::MAX_USES - Contender::MAX_USES {
        book.done(&adopts(&format!("s{at}"), "fd00::7/128"));
    }
    let refusal = book.refused(&adopts("z", "fd00::7/128"));
    let text = refusal.to_string();
    assert!(text.contains("at most 1000 uses"), "{text}");
    book.done(&adopts("b", "fd00::7/128"));
    book.gives_back("s1");
    book.done(&adopts("z", "fd00::7/128"));
}

#[test]
fn what_foreign_services_use_keeps_out_no_others() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let by = |owner: &str| {
        let Request::Adopt(ask) = adopts("b", "fd00::7/128") else {
            panic!("not that");
        };
        Request::Adopt(Adopt {
            holder: testing::holder(owner, "1"),
            ..ask
        })
    };
    for at in 0..Lease::MAX_USES {
        book.done(&by(&format!("foreign/east/Service/apps/s{at}")));
    }
    let text = book.refused(&by("foreign/west/Service/apps/z")).to_string();
    assert!(text.contains("at most 1000 uses"), "{text}");
    book.done(&by("rancher-fip/east/Service/apps/web"));
}

#[test]
fn a_prefix_that_cools_for_who_uses_some_of_it_outlives_its_pool() {
    let mut cooling = spec(64, &["fd00::/63"]);
    cooling.quarantine = 60;
    let mut book = Book::new([cooling, singles(&["fd00::/63"])]);
    book.gets("a");
    book.done(&adopts("b", "fd00::7/128"));
    book.gives_back("a");
    book.done(&Request::DeletePool {
        pool: POOL,
        actor: "test".into(),
    });
    let lease = book.over("fd00::/64");
    assert_eq!((lease.state, lease.pool), (LeaseState::Quarantined, None));
    book.names("c", OTHER, "fd00::7").expect_err("b uses it");
    book.now += 60_000;
    book.done(&Request::Expire {
        most: 9,
        actor: "test".into(),
    });
    assert_eq!(book.over("fd00::7/128").owner(), Some(&holder("b")));
}

#[test]
fn a_prefix_that_an_unknown_one_answers_for_cools_before_its_parts_pass() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    let mut ask = asks("a", POOL, None);
    ask.probe = true;
    book.done(&Request::Allocate(ask));
    book.done(&adopts("b", "fd00::7/128"));
    let by = "00:11:22:33:44:55".into();
    book.done(&Request::Probed(Probed {
        key: prefix("fd00::/64").key,
        identity: holder("a").identity,
        verdict: ProbeVerdict::Taken { by },
        actor: "test".into(),
    }));
    let lease = book.over("fd00::/64");
    assert_eq!(
        (lease.state, lease.contenders.len()),
        (LeaseState::Quarantined, 1)
    );
    assert_eq!(book.gets("c"), "fd00:0:0:1::/64");
}

#[test]
fn who_uses_an_address_of_its_own_prefix_has_it_already() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let adopted = book.done(&adopts("a", "fd00::7/128"));
    let Answer::Adopted { lease } = adopted else {
        panic!("{adopted:?}");
    };
    assert_eq!(text(&lease), "fd00::/64");
    assert_eq!(book.counts(POOL), (4, 1));
}

#[test]
fn who_uses_a_prefix_around_leases_of_others_contends_for_each_and_gets_all_at_last() {
    let mut book = Book::new([spec(64, &["fd00::/62"]), singles(&["fd00::/62"])]);
    let parts = ["fd00::1/128", "fd00::2/128", "fd00::3/128"];
    for (part, owner) in parts.into_iter().zip(["a", "b", "x"]) {
        book.done(&adopts(owner, part));
    }
    let (found, by_x) = ("fd00::/64", adopts("x", "fd00::/64"));
    let answer = book.done(&by_x);
    assert!(matches!(answer, Answer::Contended { .. }), "{answer:?}");
    for part in &parts[..2] {
        let lease = book.over(part);
        assert_eq!(lease.contenders[0].holder, holder("x"), "{part}");
    }
    assert_eq!(
        text(book.over(parts[2])),
        "fd00::3/128",
        "between those of b and what is left"
    );
    // What is free around them is its own, too.
    let refusal = book.names("c", OTHER, "fd00::ff").expect_err("it is used");
    assert!(refusal.to_string().contains("/x"), "{refusal}");
    let own = book.ledger.leases_of(&holder("x").identity);
    assert_eq!(own.len(), 2 + 62);
    // Asking again changes nothing.
    let answer = book.done(&by_x);
    assert!(matches!(answer, Answer::Contended { .. }), "{answer:?}");

    for owner in ["a", "b"] {
        book.done(&releases(ReleaseScope::Holder(holder(owner))));
    }
    let answer = book.done(&by_x);
    assert!(matches!(answer, Answer::Adopted { .. }), "{answer:?}");
    let lease = book.over(found);
    assert_eq!((text(lease).as_str(), lease.pool), (found, Some(POOL)));
    assert_eq!(lease.owner(), Some(&holder("x")));
    assert_eq!(book.counts(POOL), (4, 1));
    let mut keys = book.ledger.leases_of(&holder("x").identity).into_iter();
    assert_eq!(
        (keys.next().map(|one| text(&one)).as_deref(), keys.next()),
        (Some(found), None)
    );
}

#[test]
fn what_cools_gives_way_to_who_uses_all_of_it_and_more() {
    let mut cooling = singles(&["fd00::/64"]);
    cooling.quarantine = 60;
    let mut book = Book::new([spec(64, &["fd00::/62"]), cooling]);
    book.done(&adopts("a", "fd00::7/128"));
    book.done(&releases(ReleaseScope::Holder(holder("a"))));
    assert_eq!(book.over("fd00::7/128").state, LeaseState::Quarantined);
    book.done(&adopts("x", "fd00::/64"));
    let lease = book.over("fd00::/64");
    assert_eq!(
        (text(lease).as_str(), lease.state),
        ("fd00::/64", LeaseState::Allocated)
    );
}

#[test]
fn a_prefix_found_in_use_is_of_a_pool_that_gives_such() {
    let mut book = Book::new([spec(64, &["fd00::/62"]), singles(&["fd00::/62"])]);
    for (found, pool) in [
        ("fd00::/64", Some(POOL)),
        ("fd00:0:0:1::7/128", Some(OTHER)),
        ("fd00:0:0:2::/63", None),
    ] {
        book.done(&adopts(found, found));
        let lease = book.over(found);
        assert_eq!((text(lease), lease.pool), (found.to_owned(), pool));
        let marked = book.ledger.marks(lease).contains(&Mark::OutOfRange);
        assert_eq!(marked, pool.is_none());
    }
    assert_eq!(book.counts(POOL), (4, 4));
    let refusal = book.refused(&adopts("a", "fd00::1/64"));
    assert!(matches!(
        refusal,
        Refusal::Invalid {
            field: "address",
            ..
        }
    ));
}

#[test]
fn rows_that_overlap_are_not_loaded() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let address = testing::lease(testing::key_of("fd00::7"), None, [holder("b")]);
    let rows = book.ledger.dump().chain([Op::PutLease(address.into())]);
    let violations = Ledger::load(rows, 0).expect_err("a violation");
    let overlap = Violation::Overlap {
        lease: testing::key_of("fd00::7"),
        other: prefix("fd00::/64"),
    };
    assert_eq!(violations, [overlap]);
}

#[test]
fn an_import_that_overlaps_writes_nothing() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let before: Vec<Op> = book.ledger.dump().collect();
    let refused = |fate: &RowFate| matches!(fate, RowFate::Refused(Refusal::PrefixTaken { .. }));
    let fates = book.imports(&["fd00:0:0:1::/64", "fd00::7/128", "fd00::/60"]);
    assert_eq!(
        fates.iter().map(refused).collect::<Vec<_>>(),
        [false, true, true]
    );
    let fates = book.imports(&["fd00:0:0:2::/64", "fd00:0:0:2::7/128"]);
    assert_eq!(fates.iter().map(refused).collect::<Vec<_>>(), [false, true]);
    assert!(book.ledger.dump().eq(before));
    assert_eq!(book.imports(&["fd00:0:0:1::/64"]), [RowFate::Created]);
    assert_eq!(book.over("fd00:0:0:1::/64").pool, Some(POOL));
}

#[test]
fn a_quota_counts_leases_or_addresses() {
    for (quota_unit, limit, used) in [
        (QuotaUnit::Lease, 2, 2),
        (QuotaUnit::Address, 9, 8),
        (QuotaUnit::Address, 8, 8),
    ] {
        let mut book = Book::new([PoolSpec {
            quota_unit,
            ..spec(30, &["10.0.0.0/28"])
        }]);
        let quota = Quota {
            pool: POOL,
            tenant: tenant(),
            limit,
        };
        let actor = "test".into();
        book.done(&Request::SetQuota { quota, actor });
        book.gets("a");
        book.gets("b");
        let exceeded = Refusal::QuotaExceeded {
            tenant: tenant(),
            pool: "prefixes".into(),
            used,
            limit,
        };
        let request = Request::Allocate(asks("c", POOL, None));
        assert_eq!(book.refused(&request), exceeded);
        assert_eq!(book.ledger.charged(POOL, &tenant()), used);
    }
}

#[test]
fn a_quota_by_addresses_is_never_more_than_fits() {
    let mut book = Book::new([PoolSpec {
        quota_unit: QuotaUnit::Address,
        ..spec(48, &["fd00::/16"])
    }]);
    book.gets("a");
    book.gets("b");
    assert_eq!(book.ledger.charged(POOL, &tenant()), u64::MAX);
}

#[test]
fn whoever_may_have_more_by_another_unit_is_named() {
    let by = |quota_unit| PoolSpec {
        quota_unit,
        ..spec(30, &["10.0.0.0/28"])
    };
    let mut book = Book::new([by(QuotaUnit::Address)]);
    let quota = Quota {
        pool: POOL,
        tenant: tenant(),
        limit: 4,
    };
    let actor = "test".into();
    book.done(&Request::SetQuota { quota, actor });
    book.gets("a");
    let before = book.ledger.revision();
    book.done(&edit(by(QuotaUnit::Lease), false));
    let changes = book.ledger.changes_page(before, 9).expect("changes");
    assert_eq!(changes[0].tenants, [tenant()]);
    assert_eq!(book.gets("b"), "10.0.0.4/30");
}

#[test]
fn pools_of_several_lengths_that_overlap_are_told_in_order() {
    let book = Book::new([
        testing::pool_spec("all", &["10.0.0.0/29"]),
        singles(&["10.0.0.3-10.0.0.4"]),
        spec(30, &["10.0.0.0/28"]),
    ]);
    let overlaps = book.ledger.overlaps(POOL, 9);
    let told = overlaps.iter().map(|one| (one.pool.0, one.first, one.last));
    let expected = [
        (3, ip("10.0.0.0"), ip("10.0.0.7")),
        (2, ip("10.0.0.3"), ip("10.0.0.4")),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn an_import_says_what_is_wrong_with_a_pool_that_is_there() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    let row = ImportRow::Pool(Box::new(ImportedPool {
        network: None,
        network_by_default: None,
        spec: spec(64, &["fd00::/65"]),
        id: None,
        created: None,
        generation: None,
    }));
    let (rows, actor, force) = (vec![row], "test".into(), false);
    let Answer::Imported { rows, .. } = book.done(&Request::Import(Import { rows, force, actor }))
    else {
        panic!("no import");
    };
    assert!(
        matches!(&rows[..], [RowFate::Refused(Refusal::Pool(error))] if error.field == "addresses")
    );
}

#[test]
fn each_order_gives_each_prefix_once() {
    for order in [Order::Lowest, Order::Random, Order::LeastRecentlyUsed] {
        let mut book = Book::new([PoolSpec {
            order,
            ..spec(64, &["fd00::/61"])
        }]);
        for _ in 0..2 {
            let owners: Vec<String> = (0..8).map(|owner| owner.to_string()).collect();
            let given: BTreeSet<String> = owners.iter().map(|owner| book.gets(owner)).collect();
            assert_eq!((given.len(), book.counts(POOL)), (8, (8, 8)), "{order:?}");
            book.is_exhausted("more");
            owners.iter().for_each(|owner| book.gives_back(owner));
        }
    }
}

#[test]
fn the_prefix_released_longest_ago_comes_last_but_for_others() {
    let mut book = Book::new([PoolSpec {
        order: Order::LeastRecentlyUsed,
        ..spec(64, &["fd00::/63"])
    }]);
    assert_eq!(book.gets("a"), "fd00::/64");
    book.gives_back("a");
    assert_eq!(book.gets("b"), "fd00:0:0:1::/64");
    book.gives_back("b");
    assert_eq!(book.gets("c"), "fd00::/64");
    assert_eq!(book.gets("d"), "fd00:0:0:1::/64");
}

#[test]
fn a_pool_gives_prefixes_of_ipv4() {
    let mut book = Book::new([spec(29, &["10.0.0.0/24"])]);
    assert_eq!(book.counts(POOL), (32, 0));
    assert_eq!(book.gets("a"), "10.0.0.0/29");
    assert_eq!(book.gets("b"), "10.0.0.8/29");
    assert!(book.names("c", POOL, "10.0.0.248").is_ok());
    let lease = book.over("10.0.0.255/32").clone();
    assert_eq!(book.ledger.prefix_len(&lease), 29);
    assert_eq!(book.counts(POOL), (32, 3));
}

#[test]
fn a_released_prefix_is_found_by_its_first_address() {
    let mut book = Book::new([spec(64, &["fd00::/62"])]);
    book.gets("a");
    let inside = testing::key_of("fd00::7");
    book.done(&releases(ReleaseScope::Address(inside)));
    assert_eq!(book.counts(POOL), (4, 1));
    book.done(&releases(ReleaseScope::Address(testing::key_of("fd00::"))));
    assert_eq!(book.counts(POOL), (4, 0));
}
