//! The rules of selection among pools, one test each.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::net::IpAddr;

use fipd_core::{
    Allocate, Answer, Asker, Choice, ClusterId, ClusterRecord, Expectation, Family, Ledger,
    NetworkId, Planned, PoolEdit, PoolId, PoolScope, PoolSpec, Quota, Refusal, Request, Selection,
    System, Tenant, Text, Timestamp, Want, testing,
};

const NOW: Timestamp = Timestamp(100);

fn address(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn pool(name: &str, cidr: &str, priority: u16, scopes: &[PoolScope]) -> PoolSpec {
    PoolSpec {
        priority,
        scopes: scopes.to_vec(),
        ..testing::pool_spec(name, &[cidr])
    }
}

fn anybody() -> PoolScope {
    PoolScope::default()
}

fn of_cluster(name: &str) -> PoolScope {
    PoolScope {
        cluster: Some(name.into()),
        ..PoolScope::default()
    }
}

fn of_namespace(name: &str) -> PoolScope {
    PoolScope {
        namespaces: vec![name.into()],
        ..PoolScope::default()
    }
}

/// Of namespace `shop` in cluster `c1`.
fn v4() -> Selection {
    Selection {
        length: None,
        network: None,
        family: Family::V4,
        asker: Asker {
            cluster: Some(ClusterId("c1".into())),
            namespace: Some("shop".into()),
            ..Asker::default()
        },
    }
}

fn any(selection: Selection) -> Want {
    testing::want(selection, None)
}

fn this(text: &str) -> Want {
    Want {
        address: Some(address(text)),
        ..any(v4())
    }
}

fn ask(name: &str, wants: &[Want]) -> Allocate {
    Allocate {
        tenant: Some(Tenant("p-shop".into())),
        waiting_since: Some(Timestamp(1)),
        ..testing::allocate(
            testing::holder(format!("rancher-fip/c1/Service/shop/{name}"), "1"),
            wants,
        )
    }
}

struct Book(Ledger);

impl Book {
    fn of(pools: Vec<PoolSpec>) -> Self {
        let mut book = Self(Ledger::new());
        for spec in pools {
            book.done(&testing::create_pool(spec));
        }
        book
    }

    fn done(&mut self, request: &Request) -> Answer {
        match self.0.plan(request, NOW) {
            Planned::Tentative { ticket, answer, .. } => {
                self.0.confirm(ticket);
                assert_eq!(self.0.check(), []);
                answer
            }
            Planned::Answer(answer) => answer,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn gets(&mut self, ask: Allocate) -> Vec<String> {
        match self.done(&Request::Allocate(ask)) {
            Answer::Granted { leases, .. } => leases
                .iter()
                .map(|lease| lease.key.address.to_string())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn one(&mut self, name: &str) -> String {
        self.gets(ask(name, &[any(v4())])).concat()
    }

    fn refused(&mut self, ask: Allocate) -> Refusal {
        match self.0.plan(&Request::Allocate(ask), NOW) {
            Planned::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, name: &str) {
        self.done(&testing::release(ask(name, &[]).holder));
    }

    fn id(&self, name: &str) -> PoolId {
        self.0.find_pool(name).expect(name).id
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut PoolSpec)) {
        let pool = self.0.find_pool(name).expect(name);
        let (pool, mut spec) = (pool.id, pool.spec.clone());
        change(&mut spec);
        self.done(&Request::UpdatePool(PoolEdit {
            pool,
            spec,
            if_generation: None,
            force: false,
            reason: "".into(),
            actor: "test".into(),
        }));
    }

    fn ready(&self, name: &str) -> Vec<String> {
        let ready = self.0.ready_waiters(self.id(name), 99);
        ready
            .iter()
            .map(|identity| identity.name.to_string())
            .collect()
    }
}

#[test]
fn the_highest_priority_is_asked_first_and_equal_ones_by_name() {
    let mut book = Book::of(vec![
        pool("b", "10.0.2.0/31", 5, &[anybody()]),
        pool("a", "10.0.1.0/31", 5, &[anybody()]),
        pool("z", "10.0.9.0/32", 9, &[anybody()]),
    ]);
    assert_eq!(book.one("1"), "10.0.9.0");
    assert_eq!(book.one("2"), "10.0.1.0");
    assert_eq!(book.one("3"), "10.0.1.1");
    assert_eq!(book.one("4"), "10.0.2.0");
    // Asking again is free, wherever the address is from.
    assert_eq!(book.one("2"), "10.0.1.0");
    // What is given up in a better pool is given next.
    book.release("1");
    assert_eq!(book.one("2"), "10.0.1.0");
    assert_eq!(book.one("5"), "10.0.9.0");
}

#[test]
fn a_pool_is_there_for_those_its_scopes_fit_and_without_one_only_by_name() {
    let mut book = Book::of(vec![
        pool("named", "10.0.0.0/24", 9, &[]),
        pool(
            "other",
            "10.0.1.0/24",
            9,
            &[of_cluster("c2"), of_namespace("bank")],
        ),
        pool("mine", "10.0.2.0/24", 0, &[of_cluster("east")]),
    ]);
    let none = book.refused(ask("1", &[any(v4())]));
    assert!(matches!(none, Refusal::NoPool { .. }), "{none}");
    // The cluster becomes known by a name.
    book.done(&Request::RecordCluster {
        record: ClusterRecord {
            id: ClusterId("c1".into()),
            names: vec!["east".into()],
            discovered: false,
            first_seen: NOW,
            proof: None,
        },
    });
    assert_eq!(book.one("1"), "10.0.2.0");
    let bank = Selection {
        asker: Asker {
            namespace: Some("bank".into()),
            ..v4().asker
        },
        ..v4()
    };
    assert_eq!(book.gets(ask("2", &[any(bank)])), ["10.0.1.0"]);
    let six = Selection {
        family: Family::V6,
        ..v4()
    };
    assert!(matches!(
        book.refused(ask("1", &[any(six)])),
        Refusal::NoPool { .. }
    ));
}

#[test]
fn a_pool_that_is_full_closed_over_quota_or_held_is_passed_over() {
    let mut book = Book::of(vec![
        pool("full", "10.0.1.0/32", 5, &[anybody()]),
        pool("closed", "10.0.2.0/24", 4, &[anybody()]),
        pool("quota", "10.0.3.0/24", 3, &[anybody()]),
    ]);
    book.done(&Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    });
    let spec = PoolSpec {
        network: NetworkId(1),
        ..pool("held", "10.0.4.0/24", 2, &[anybody()])
    };
    let actor: Text = "test".into();
    book.done(&Request::CreatePool {
        spec,
        actor: actor.clone(),
    });
    let spec = pool("last", "10.0.5.0/32", 1, &[anybody()]);
    book.done(&Request::CreatePool {
        spec,
        actor: actor.clone(),
    });
    book.edit("closed", |spec| spec.closed = true);
    let quota = Quota {
        pool: book.id("quota"),
        tenant: Tenant("p-shop".into()),
        limit: 0,
    };
    book.done(&Request::SetQuota { quota, actor });
    book.0.set_expectations(vec![Expectation {
        network: NetworkId(1),
        cluster: "west".into(),
        system: System::rancher_fip(),
    }]);
    assert_eq!(book.one("1"), "10.0.1.0");
    assert_eq!(book.one("2"), "10.0.5.0");
    let refusal = book.refused(ask("3", &[any(v4())]));
    let text = refusal.to_string();
    for part in [
        "none of the 5 pools",
        "pool full has no address available",
        "closed",
        "quota exceeded",
        "blue",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // It waits where it is full and nowhere else.
    for (name, waits) in [
        ("full", 1),
        ("closed", 0),
        ("quota", 0),
        ("held", 0),
        ("last", 1),
    ] {
        assert_eq!(book.0.waiters(book.id(name), 9).len(), waits, "{name}");
    }
    book.release("2");
    assert_eq!(book.ready("last"), ["3"]);
    assert_eq!(book.one("3"), "10.0.5.0");
    assert_eq!(book.0.waiters(book.id("full"), 9), []);
}

#[test]
fn the_first_freed_address_serves_who_waits_and_the_other_places_go_to_those_behind() {
    let mut book = Book::of(vec![
        pool("a", "10.0.1.0/32", 2, &[anybody()]),
        pool("b", "10.0.2.0/32", 1, &[anybody()]),
    ]);
    assert_eq!(book.one("1"), "10.0.1.0");
    assert_eq!(book.one("2"), "10.0.2.0");
    book.refused(ask("3", &[any(v4())]));
    book.refused(Allocate {
        waiting_since: Some(Timestamp(2)),
        ..ask("4", &[any(v4())])
    });
    book.release("1");
    book.release("2");
    assert_eq!(
        (book.ready("a"), book.ready("b")),
        (vec!["3".to_owned()], vec!["3".to_owned()])
    );
    let revision = book.0.revision();
    assert_eq!(book.one("3"), "10.0.1.0");
    // Who waited behind it in the other queue hears of it.
    let changes = book.0.changes_page(revision, usize::MAX).expect("kept");
    let b = book.id("b");
    assert!(changes.iter().any(|change| change.pools.contains(&b)));
    assert_eq!(book.ready("b"), ["4"]);
    assert_eq!(book.one("4"), "10.0.2.0");
}

#[test]
fn who_asks_again_gives_up_places_in_pools_that_are_not_for_it_any_more() {
    let mut book = Book::of(vec![
        pool("a", "10.0.1.0/32", 2, &[anybody()]),
        pool("b", "10.0.2.0/32", 1, &[anybody()]),
    ]);
    book.one("1");
    book.one("2");
    book.refused(ask("3", &[any(v4())]));
    book.edit("a", |spec| spec.scopes = vec![of_cluster("c9")]);
    book.refused(ask("3", &[any(v4())]));
    assert_eq!(book.0.waiters(book.id("a"), 9), []);
    assert_eq!(book.0.waiters(book.id("b"), 9).len(), 1);
}

#[test]
fn who_has_an_address_keeps_it_whatever_the_scopes_say_by_then() {
    let shop = of_namespace("shop");
    let mut book = Book::of(vec![
        pool("a", "10.1.0.0/24", 2, &[shop]),
        pool("b", "10.2.0.0/24", 1, &[anybody()]),
    ]);
    assert_eq!(book.one("web"), "10.1.0.0");
    book.edit("a", |spec| spec.scopes = vec![of_namespace("bank")]);
    assert_eq!(book.one("web"), "10.1.0.0", "not another one of b");
    book.edit("b", |spec| spec.scopes.clear());
    assert_eq!(book.one("web"), "10.1.0.0", "where no pool is left for it");
    assert_eq!(book.gets(ask("web", &[this("10.1.0.0")])), ["10.1.0.0"]);
    for more in [vec![this("10.1.0.2")], vec![any(v4()), any(v4())]] {
        let refusal = book.refused(ask("web", &more));
        assert!(matches!(refusal, Refusal::NoPool { .. }), "{refusal}");
    }
    let refusal = book.refused(ask("other", &[any(v4())]));
    assert!(matches!(refusal, Refusal::NoPool { .. }), "{refusal}");
}

#[test]
fn a_named_address_is_given_by_the_pool_that_has_it() {
    let mut book = Book::of(vec![
        pool("a", "10.0.1.0/24", 2, &[anybody()]),
        pool("b", "10.0.2.0/24", 1, &[anybody()]),
        pool("named", "10.0.3.0/24", 1, &[]),
    ]);
    assert_eq!(book.gets(ask("1", &[this("10.0.2.7")])), ["10.0.2.7"]);
    assert_eq!(book.gets(ask("1", &[this("10.0.2.7")])), ["10.0.2.7"]);
    assert!(matches!(
        book.refused(ask("2", &[this("10.0.3.7")])),
        Refusal::NoPool { .. }
    ));
    let taken = book.refused(ask("2", &[this("10.0.2.7")]));
    assert!(taken.to_string().contains("is held by"), "{taken}");
}

#[test]
fn both_families_come_all_or_not_at_all() {
    let mut book = Book::of(vec![
        pool("four", "10.0.1.0/31", 0, &[anybody()]),
        pool("six", "fd00::1/128", 0, &[anybody()]),
    ]);
    let six = Selection {
        family: Family::V6,
        ..v4()
    };
    let both = [any(v4()), any(six)];
    assert_eq!(book.gets(ask("1", &both)), ["10.0.1.0", "fd00::1"]);
    let refusal = book.refused(ask("2", &both));
    assert!(refusal.to_string().contains("pool six"), "{refusal}");
    assert_eq!(book.0.waiters(book.id("four"), 9), []);
    assert_eq!(book.one("3"), "10.0.1.1");
}

#[test]
fn two_wants_of_one_request_do_not_count_on_the_same_room() {
    let mut book = Book::of(vec![
        pool("a", "10.0.1.0/31", 2, &[anybody()]),
        pool("b", "10.0.2.0/31", 1, &[anybody()]),
    ]);
    let two = Want {
        count: 2,
        ..any(v4())
    };
    let named = Want {
        pool: Choice::Pool(book.id("a")),
        ..any(v4())
    };
    assert_eq!(
        book.gets(ask("1", &[two, named])),
        ["10.0.2.0", "10.0.2.1", "10.0.1.0"]
    );
}

#[test]
fn an_address_in_flight_is_waited_for_before_a_pool_is_passed_over() {
    let mut book = Book::of(vec![
        pool("a", "10.0.1.0/32", 2, &[anybody()]),
        pool("b", "10.0.2.0/32", 1, &[anybody()]),
    ]);
    let first = Request::Allocate(ask("1", &[any(v4())]));
    let second = Request::Allocate(ask("2", &[any(v4())]));
    let Planned::Tentative { ticket, .. } = book.0.plan(&first, NOW) else {
        panic!("planned");
    };
    assert_eq!(book.0.plan(&second, NOW), Planned::Busy);
    book.0.abort(ticket);
    assert_eq!(book.one("2"), "10.0.1.0");
}

#[test]
fn a_refusal_tells_a_few_reasons_only() {
    let pools = (0..40).map(|n| {
        let mut spec = pool(
            &format!("p{n:02}"),
            &format!("10.0.{n}.0/24"),
            0,
            &[anybody()],
        );
        spec.closed = true;
        spec
    });
    let mut book = Book::of(pools.collect());
    let Refusal::NoneGives {
        reasons,
        more,
        full,
    } = book.refused(ask("1", &[any(v4())]))
    else {
        panic!("none gives");
    };
    assert_eq!((reasons.len(), more, full), (5, 35, false));
}
