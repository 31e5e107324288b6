//! What pools remember: who had an address, and which one was released longest ago.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use fipd_core::{
    Allocate, Answer, Holder, LeaseKey, LeaseState, Ledger, Op, Order, PoolEdit, PoolId, PoolSpec,
    Refusal, Release, ReleaseScope, Request, Sticky, Tenant, Timestamp, testing,
};

const POOL: PoolId = PoolId(1);
const WEEK: Sticky = Sticky {
    lasts: 7 * 24 * 3_600,
    most: 100,
};

fn holder(owner: &str) -> Holder {
    testing::holder(format!("fipd/vm/lab/{owner}"), "")
}

fn key(last: u8) -> LeaseKey {
    testing::key([10, 0, 0, last])
}

/// A ledger with a pool of 10.0.0.1 to 10.0.0.4; each request is a second later than the one before.
struct Book {
    ledger: Ledger,
    now: u64,
    /// The rows of the last decision.
    ops: Vec<Op>,
}

impl Book {
    fn new(change: impl FnOnce(&mut PoolSpec)) -> Self {
        let mut book = Self {
            ledger: Ledger::new(),
            now: 0,
            ops: Vec::new(),
        };
        let mut spec = testing::pool_spec("p", &["10.0.0.1-10.0.0.4"]);
        change(&mut spec);
        book.done(&testing::create_pool(spec));
        book
    }

    fn sticky(sticky: Sticky) -> Self {
        Self::new(|spec| spec.sticky = sticky)
    }

    fn plan(&mut self, request: &Request) -> Result<Answer, Refusal> {
        self.now += 1_000;
        let (answer, decision) = testing::ask(&mut self.ledger, request, Timestamp(self.now))?;
        if let Some(decision) = decision {
            self.ops = decision.ops;
        }
        Ok(answer)
    }

    fn done(&mut self, request: &Request) -> Answer {
        self.plan(request).expect("an answer")
    }

    fn edit(&mut self, change: impl FnOnce(&mut PoolSpec)) {
        let mut spec = self.ledger.pool(POOL).expect("the pool").spec.clone();
        change(&mut spec);
        self.done(&Request::UpdatePool(PoolEdit {
            pool: POOL,
            spec,
            if_generation: None,
            force: false,
            actor: "test".into(),
            reason: "".into(),
        }));
    }

    /// The last byte of the address that the owner gets.
    fn gets(&mut self, owner: &str) -> u8 {
        self.given(owner, None).expect("an address")
    }

    fn given(&mut self, owner: &str, address: Option<u8>) -> Result<u8, Refusal> {
        self.charged(owner, None, address)
    }

    fn charged(
        &mut self,
        owner: &str,
        tenant: Option<&str>,
        address: Option<u8>,
    ) -> Result<u8, Refusal> {
        let answer = self.plan(&Request::Allocate(Allocate {
            tenant: tenant.map(|tenant| Tenant(tenant.into())),
            ..testing::allocate(
                holder(owner),
                [testing::want(POOL, address.map(|last| key(last).address))],
            )
        }))?;
        let Answer::Granted { leases, .. } = answer else {
            panic!("{answer:?}");
        };
        let found = (1..=4).find(|last| key(*last) == leases[0].key);
        Ok(found.expect("an address of the pool"))
    }

    fn gives_back(&mut self, owner: &str) {
        self.release(ReleaseScope::Holder(holder(owner)));
    }

    fn release(&mut self, scope: ReleaseScope) {
        self.done(&Request::Release(Release {
            scope,
            actor: "test".into(),
            reason: "".into(),
        }));
    }

    /// The addresses that are remembered.
    fn past(&self) -> Vec<u8> {
        let past = self.ledger.dump().filter_map(|op| match op {
            Op::PutPast(past) => (1..=4).find(|last| key(*last) == past.key),
            _ => None,
        });
        past.collect()
    }

    fn reloaded(mut self) -> Self {
        self.ledger = Ledger::load(self.ledger.dump(), 0).expect("its own rows");
        assert_eq!(self.ledger.check(), []);
        self
    }
}

#[test]
fn who_had_an_address_gets_it_again() {
    let mut book = Book::sticky(WEEK);
    assert_eq!((book.gets("a"), book.gets("b")), (1, 2));
    book.gives_back("a");
    assert_eq!(book.gets("c"), 3, "others avoid what is remembered");
    let mut book = book.reloaded();
    assert_eq!(book.gets("a"), 1);
    assert_eq!(book.past(), [0; 0], "it is past no more");
}

#[test]
fn memory_is_no_reservation() {
    let mut book = Book::sticky(WEEK);
    for owner in ["a", "b", "c"] {
        book.gets(owner);
        book.gives_back(owner);
    }
    assert_eq!(book.past(), [1, 2, 3]);
    assert_eq!(book.given("x", Some(2)), Ok(2), "by name");
    assert_eq!(book.gets("d"), 4);
    assert_eq!(book.gets("e"), 1, "where there is no other, the oldest");
    assert_eq!(book.gets("a"), 3);
    assert!(matches!(
        book.given("f", None),
        Err(Refusal::Exhausted { .. })
    ));
}

#[test]
fn memory_ends() {
    let (lasts, most) = (10, 2);
    let mut book = Book::sticky(Sticky { lasts, most });
    for owner in ["a", "b", "c"] {
        book.gets(owner);
    }
    for owner in ["b", "a", "c"] {
        book.gives_back(owner);
    }
    assert_eq!(book.past(), [1, 3], "b's release was the oldest");
    assert_eq!(book.gets("b"), 2, "it is as free as any");
    book.now += 9_000;
    assert_eq!(book.gets("c"), 4, "too late");
    book.gives_back("b");
    assert_eq!(book.past(), [2], "a release forgets what is too old");
}

#[test]
fn the_latest_comes_first() {
    let mut book = Book::sticky(WEEK);
    assert_eq!(book.given("a", Some(3)), Ok(3));
    book.gives_back("a");
    assert_eq!(book.given("a", Some(2)), Ok(2));
    book.gives_back("a");
    assert_eq!(book.gets("a"), 2);
}

#[test]
fn a_quarantine_ends_for_who_gave_the_address_back() {
    let change = |spec: &mut PoolSpec| {
        spec.sticky = WEEK;
        spec.quarantine = 3_600;
    };
    let mut book = Book::new(change);
    book.gets("a");
    book.gives_back("a");
    let cooling = book.ledger.lease(key(1)).map(|lease| lease.state);
    assert_eq!(cooling, Some(LeaseState::Quarantined));
    assert_eq!(book.gets("b"), 2);
    assert_eq!(book.gets("a"), 1);

    book.release(ReleaseScope::Address(key(1)));
    assert_eq!(book.gets("a"), 3, "an admin took it away");
    let actor = "test".into();
    book.now += 3_600_000;
    book.done(&Request::Expire { most: 9, actor });
    book.gives_back("b");
    book.gives_back("a");
    assert_eq!(book.gets("c"), 4);
    assert_eq!(book.past(), [1, 2, 3]);
}

#[test]
fn a_quarantine_does_not_end_for_another_tenant_under_the_same_name() {
    let change = |spec: &mut PoolSpec| {
        spec.sticky = WEEK;
        spec.quarantine = 3_600;
    };
    let mut book = Book::new(change);
    assert_eq!(book.charged("a", Some("red"), None), Ok(1));
    book.gives_back("a");
    assert_eq!(book.charged("a", Some("blue"), None), Ok(2));
    book.gives_back("a");
    assert_eq!(book.charged("a", Some("red"), None), Ok(1));
}

#[test]
fn what_was_not_used_for_longest_comes_first() {
    let mut book = Book::new(|spec| spec.order = Order::LeastRecentlyUsed);
    for owner in ["a", "b", "c"] {
        book.gets(owner);
    }
    for owner in ["b", "c", "a"] {
        book.gives_back(owner);
    }
    let mut book = book.reloaded();
    let given = ["a", "b", "c", "d"].map(|owner| book.gets(owner));
    assert_eq!(given, [4, 2, 3, 1]);
}

#[test]
fn a_pool_that_changes_forgets_what_it_does_not_give() {
    let mut book = Book::sticky(WEEK);
    for owner in ["a", "b", "c"] {
        book.gets(owner);
    }
    for owner in ["b", "a", "c"] {
        book.gives_back(owner);
    }
    book.edit(|spec| spec.exclusions = vec!["10.0.0.3".parse().expect("an address")]);
    assert_eq!(book.past(), [1, 2]);
    book.edit(|spec| spec.sticky.most = 1);
    assert_eq!(book.past(), [1], "the oldest goes first");
    book.edit(|spec| spec.sticky = Sticky::OFF);
    assert_eq!(book.past(), [0; 0]);
    assert_eq!(book.gets("d"), 1);

    let mut book = Book::sticky(WEEK);
    book.gets("a");
    book.gives_back("a");
    let actor = "test".into();
    book.done(&Request::DeletePool { pool: POOL, actor });
    assert_eq!(book.past(), [0; 0]);
}

#[test]
fn a_pool_that_remembers_nothing_writes_no_more_than_the_lease() {
    let mut book = Book::sticky(Sticky::OFF);
    book.gets("a");
    assert_eq!(book.ops.len(), 1);
    book.gives_back("a");
    assert_eq!(book.ops, [Op::DeleteLease(key(1))]);
    assert_eq!(book.gets("b"), 1);
}

#[test]
fn a_reservation_that_nobody_used_is_not_remembered() {
    let mut book = Book::sticky(WEEK);
    let wants = vec![testing::want(POOL, None)];
    let ask = testing::allocate(holder("a"), wants);
    let until = None;
    book.done(&Request::Reserve(fipd_core::Reserve { ask, until }));
    book.gives_back("a");
    assert_eq!(book.past(), [0; 0]);
}

#[test]
fn sizes_are_limited() {
    for (sticky, field) in [
        (
            Sticky {
                lasts: u32::MAX,
                most: 1,
            },
            "sticky_for",
        ),
        (Sticky { lasts: 1, most: 0 }, "sticky_most"),
        (
            Sticky {
                lasts: 1,
                most: 65_537,
            },
            "sticky_most",
        ),
    ] {
        let mut spec = testing::pool_spec("p", &["10.0.0.1"]);
        spec.sticky = sticky;
        assert_eq!(spec.validate().expect_err(field).field, field);
    }
}
