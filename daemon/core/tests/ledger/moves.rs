//! Pools that go to another network with all that they have.
#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use fipd_core::{
    Action, Adopt, Allocate, Answer, AuditEntry, Epoch, Expectation, Holder, Lease, LeaseKey,
    LeaseState, Ledger, NetworkId, Op, Planned, PoolEdit, PoolId, PoolSpec, Quota, Refusal,
    Request, RestoreHold, Sticky, System, Tenant, Ticket, Timestamp, TooOld, testing,
};

const POOL: PoolId = PoolId(1);
const BLUE: NetworkId = NetworkId(1);

fn holder(owner: &str) -> Holder {
    testing::holder(format!("rancher-fip/c1/Service/shop/{owner}"), "1")
}

fn key(network: NetworkId, last: u8) -> LeaseKey {
    LeaseKey {
        network,
        address: [10, 0, 0, last].into(),
    }
}

struct Book(Ledger, u64);

impl Book {
    /// A pool of 10.0.0.0 to 10.0.0.3 in the default network, and a network blue.
    fn new(change: impl FnOnce(&mut PoolSpec)) -> Self {
        let mut book = Self(Ledger::new(), 0);
        let mut spec = testing::pool_spec("lab", &["10.0.0.0/30"]);
        change(&mut spec);
        book.makes(spec);
        let (name, actor) = ("blue".into(), "test".into());
        book.done(&Request::CreateNetwork { name, actor });
        book
    }

    fn makes(&mut self, spec: PoolSpec) {
        self.done(&testing::create_pool(spec));
    }

    fn planned(&mut self, request: &Request) -> (Ticket, Vec<AuditEntry>, Answer) {
        self.1 += 1_000;
        match self.0.plan(request, Timestamp(self.1)) {
            Planned::Tentative {
                ticket,
                decision,
                answer,
            } => (ticket, decision.audit, answer),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn done(&mut self, request: &Request) -> (Vec<AuditEntry>, Answer) {
        let (ticket, audit, answer) = self.planned(request);
        self.0.confirm(ticket);
        assert_eq!(self.0.check(), []);
        (audit, answer)
    }

    fn refused(&mut self, request: &Request) -> Refusal {
        match self.0.plan(request, Timestamp(self.1)) {
            Planned::Refused(refusal) => refusal,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn gets(&mut self, owner: &str) -> LeaseKey {
        let leases = match self.0.plan(&allocate(owner, POOL), Timestamp(self.1)) {
            Planned::Answer(Answer::Granted { leases, .. }) => leases,
            Planned::Tentative {
                ticket,
                answer: Answer::Granted { leases, .. },
                ..
            } => {
                self.0.confirm(ticket);
                leases
            }
            other => panic!("{owner}: {other:?}"),
        };
        leases[0].key
    }

    fn rows(&self) -> Vec<Op> {
        self.0.dump().collect()
    }
}

fn allocate(owner: &str, pool: PoolId) -> Request {
    Request::Allocate(Allocate {
        tenant: Some(Tenant("p-1".into())),
        waiting_since: Some(Timestamp(1)),
        ..testing::allocate(holder(owner), [testing::want(pool, None)])
    })
}

fn release(owner: &str) -> Request {
    testing::release(holder(owner))
}

fn adopt(owner: &str, key: LeaseKey) -> Request {
    Request::Adopt(Adopt {
        length: None,
        key,
        holder: holder(owner),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    })
}

fn moves(network: NetworkId) -> Request {
    Request::MoveNetwork {
        pool: POOL,
        network,
        actor: "user:ann".into(),
    }
}

fn week(spec: &mut PoolSpec) {
    spec.sticky = Sticky {
        lasts: 7 * 24 * 3_600,
        most: 9,
    };
}

#[test]
fn everything_of_the_pool_goes_along_and_nothing_of_another() {
    let mut book = Book::new(|spec| {
        week(spec);
        spec.quarantine = 60;
    });
    book.makes(testing::pool_spec("other", &["10.0.0.0/29"]));
    for owner in ["a", "b", "c", "d"] {
        book.gets(owner);
    }
    book.done(&allocate("e", PoolId(2)));
    book.done(&release("b"));
    book.done(&adopt("x", key(NetworkId::DEFAULT, 0)));
    let quota = Quota {
        pool: POOL,
        tenant: Tenant("p-1".into()),
        limit: 3,
    };
    let actor = "test".into();
    book.done(&Request::SetQuota { quota, actor });
    assert!(matches!(
        book.refused(&allocate("f", POOL)),
        Refusal::QuotaExceeded { used: 3, .. }
    ));

    let (audit, answer) = book.done(&moves(BLUE));
    let Answer::Pool(pool) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((pool.spec.network, pool.generation), (BLUE, 2));
    let [entry] = &*audit else {
        panic!("{audit:?}");
    };
    assert_eq!(
        (entry.action, entry.network),
        (Action::PoolMoved, Some(BLUE))
    );
    assert_eq!(&*entry.detail, "lab: from default to blue with 4 leases");
    for last in 0..4 {
        assert_eq!(book.0.lease(key(NetworkId::DEFAULT, last)), None);
        let lease = book.0.lease(key(BLUE, last)).expect("moved");
        assert_eq!(lease.pool, Some(POOL));
    }
    let first = book.0.lease(key(BLUE, 0)).expect("moved");
    assert_eq!(first.contenders[0].holder, holder("x"));
    let second = book.0.lease(key(BLUE, 1)).expect("moved");
    assert_eq!(second.state, LeaseState::Quarantined);
    assert_eq!(book.gets("a"), key(BLUE, 0), "asking again is free");
    assert_eq!(book.gets("c"), key(BLUE, 2));
    assert_eq!(book.0.charged(POOL, &Tenant("p-1".into())), 3);
    assert!(
        book.0.lease(key(NetworkId::DEFAULT, 4)).is_some(),
        "e stays"
    );
    // The pool that stays gives what it shared, for it is another address.
    let (_, answer) = book.done(&allocate("g", PoolId(2)));
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(leases[0].key, key(NetworkId::DEFAULT, 0));
    book.done(&release("d"));
    assert_eq!(book.gets("b"), key(BLUE, 1), "it had that one before");
}

#[test]
fn who_waits_goes_on_waiting() {
    let mut book = Book::new(|_| {});
    for owner in ["a", "b", "c", "d"] {
        book.gets(owner);
    }
    assert!(matches!(
        book.refused(&allocate("late", POOL)),
        Refusal::Exhausted { .. }
    ));
    book.done(&moves(BLUE));
    assert_eq!(book.0.waiters(POOL, 9).len(), 1);
    book.done(&release("c"));
    assert_eq!(book.0.ready_waiters(POOL, 99), [holder("late").identity]);
    assert_eq!(book.gets("late"), key(BLUE, 2));
}

#[test]
fn what_somebody_has_there_is_listed_and_nothing_moves() {
    let mut book = Book::new(|_| {});
    book.gets("a");
    book.gets("b");
    book.done(&adopt("there", key(BLUE, 1)));
    let before = book.rows();
    let refusal = book.refused(&moves(BLUE));
    let Refusal::Collisions { count, first, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert_eq!((*count, first.len()), (1, 1));
    let text = refusal.to_string();
    for part in [
        "lab",
        "blue",
        "10.0.0.1 (rancher-fip/c1/Service/shop/there)",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(book.rows(), before);
    let page = book.0.preview_move(POOL, BLUE, None).expect("a preview");
    assert_eq!((page.leases, page.collisions.as_slice()), (2, &**first));
    assert_eq!(page.next, None);

    book.done(&release("b"));
    book.done(&moves(BLUE));
    let found = book.0.lease(key(BLUE, 1)).expect("found before");
    assert_eq!(found.pool, Some(POOL), "the pool lists it");
}

#[test]
fn a_long_list_is_cut_and_counts_all() {
    let mut book = Book::new(|spec| spec.addresses = vec!["10.0.0.0/24".parse().expect("a CIDR")]);
    for last in 0..=150 {
        book.done(&adopt(
            &format!("here-{last}"),
            key(NetworkId::DEFAULT, last),
        ));
        book.done(&adopt(&format!("there-{last}"), key(BLUE, last)));
    }
    let refusal = book.refused(&moves(BLUE));
    let Refusal::Collisions { count, first, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert_eq!((*count, first.len()), (151, 100));
    assert!(refusal.to_string().contains(", ...; "), "{refusal}");
}

#[test]
fn no_hold_ends_by_a_move() {
    let mut book = Book::new(|_| {});
    book.gets("a");
    for held in [NetworkId::DEFAULT, BLUE] {
        book.0.set_expectations(vec![Expectation {
            network: held,
            cluster: "east".into(),
            system: System::rancher_fip(),
        }]);
        let refusal = book.refused(&moves(BLUE));
        assert!(matches!(refusal, Refusal::NetworkHeld { .. }), "{refusal}");
        let preview = book.0.preview_move(POOL, BLUE, None);
        assert_eq!(preview, Err(refusal));
    }
    book.0.set_expectations(Vec::new());
    let until = Timestamp(900_000);
    book.0.apply(&Op::PutEpoch(Epoch {
        number: 1,
        began: Timestamp(0),
        hold: Some(RestoreHold {
            left: 60_000,
            until,
        }),
    }));
    assert_eq!(book.refused(&moves(BLUE)), Refusal::RestoreHeld { until });
}

#[test]
fn there_already_unknown_and_the_way_by_an_edit() {
    let mut book = Book::new(|_| {});
    book.gets("a");
    let pool = Arc::clone(book.0.pool(POOL).expect("the pool"));
    assert_eq!(
        book.0.plan(&moves(NetworkId::DEFAULT), Timestamp(9_000)),
        Planned::Answer(Answer::Pool(Arc::clone(&pool)))
    );
    let nowhere = NetworkId(9);
    assert_eq!(
        book.refused(&moves(nowhere)),
        Refusal::UnknownNetwork(nowhere)
    );
    let unknown = Request::MoveNetwork {
        pool: PoolId(7),
        network: BLUE,
        actor: "test".into(),
    };
    assert_eq!(book.refused(&unknown), Refusal::UnknownPool(PoolId(7)));
    let edit = Request::UpdatePool(PoolEdit {
        pool: POOL,
        spec: PoolSpec {
            network: BLUE,
            ..pool.spec.clone()
        },
        if_generation: None,
        force: true,
        actor: "test".into(),
        reason: "".into(),
    });
    let refusal = book.refused(&edit).to_string();
    assert!(refusal.contains("fipd pool move-network"), "{refusal}");
}

#[test]
fn a_pool_stays_where_its_addresses_are_in_use_by_another_pool_of_the_same() {
    let mut book = Book::new(|_| {});
    let twin = testing::pool_spec("twin", &["10.0.0.0/30"]);
    book.makes(twin.clone());
    book.gets("a");
    let edit = |spec: PoolSpec| {
        Request::UpdatePool(PoolEdit {
            pool: PoolId(2),
            spec: PoolSpec {
                network: BLUE,
                ..spec
            },
            if_generation: None,
            force: true,
            actor: "test".into(),
            reason: "".into(),
        })
    };
    let refusal = book.refused(&edit(twin.clone())).to_string();
    assert!(refusal.contains("is in use there"), "{refusal}");
    book.done(&release("a"));
    book.done(&edit(twin));
    assert_eq!(book.0.pool(PoolId(2)).expect("the pool").spec.network, BLUE);
}

#[test]
fn neither_network_gives_anything_while_the_move_is_in_flight() {
    let mut book = Book::new(|_| {});
    book.gets("a");
    let spec = PoolSpec {
        network: BLUE,
        ..testing::pool_spec("there", &["10.0.0.0/30"])
    };
    book.makes(spec);
    let before = book.rows();
    let (ticket, ..) = book.planned(&moves(BLUE));
    let now = Timestamp(book.1);
    for request in [
        allocate("b", POOL),
        allocate("b", PoolId(2)),
        adopt("b", key(BLUE, 0)),
        release("a"),
        moves(BLUE),
    ] {
        assert_eq!(book.0.plan(&request, now), Planned::Busy, "{request:?}");
    }
    book.0.abort(ticket);
    assert_eq!(book.rows(), before);
    let (_, answer) = book.done(&allocate("b", PoolId(2)));
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(leases[0].key, key(BLUE, 0));
    assert!(matches!(
        book.refused(&moves(BLUE)),
        Refusal::Collisions { count: 1, .. }
    ));
}

#[test]
fn a_pool_of_very_many_leases_is_not_told_lease_by_lease() {
    let mut book = Book::new(|spec| spec.addresses = vec!["10.0.0.0/19".parse().expect("a CIDR")]);
    let first = book.gets("a");
    let first = Arc::clone(book.0.lease(first).expect("its lease"));
    for number in 1..6_000_u32 {
        let address = (u32::from(std::net::Ipv4Addr::new(10, 0, 0, 0)) + number).to_be_bytes();
        let lease = Lease {
            key: testing::key(address),
            ..Lease::clone(&first)
        };
        book.0.apply(&Op::PutLease(Arc::new(lease)));
    }
    let before = book.0.revision();
    book.done(&moves(BLUE));
    let oldest = before + 1;
    assert_eq!(
        book.0.changes_page(before, usize::MAX),
        Err(TooOld { oldest })
    );
    assert_eq!(book.0.changes_page(oldest, usize::MAX), Ok(Vec::new()));
    book.done(&release("a"));
    assert_eq!(book.0.usage(POOL).map(|usage| usage.used), Some(0));
    assert_eq!(
        book.0.changes_page(oldest, usize::MAX).map(|all| all.len()),
        Ok(1)
    );
}
