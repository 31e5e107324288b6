//! What time does to leases: reservations that end, and addresses that cool after a release.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::net::IpAddr;

use fipd_core::{
    Action, Adopt, Allocate, Answer, Ends, Holder, LeaseKey, LeaseState, Ledger, NetworkId, Order,
    Origin, Planned, PoolId, PoolSpec, Refusal, Release, ReleaseScope, Request, Reserve, Sticky,
    Tenant, Timestamp, Transfer, testing,
};

const WEB: &str = "fipd/vm/lab/web";
const API: &str = "fipd/vm/lab/api";
const POOL: PoolId = PoolId(1);

/// A ledger with one pool of two addresses, asked one thing at a time.
struct Book {
    ledger: Ledger,
    now: u64,
}

fn key(text: &str) -> LeaseKey {
    let address: IpAddr = text.parse().unwrap();
    testing::key(address)
}

fn holder(owner: &str) -> Holder {
    testing::holder(owner, "")
}

fn ask(owner: &str, tenant: &str, address: Option<&str>) -> Allocate {
    Allocate {
        tenant: (!tenant.is_empty()).then(|| Tenant(tenant.into())),
        ..testing::allocate(
            holder(owner),
            [testing::want(
                POOL,
                address.map(|text| text.parse().unwrap()),
            )],
        )
    }
}

fn reserve(ask: Allocate, until: u64) -> Request {
    let until = Some(Timestamp(until));
    Request::Reserve(Reserve { ask, until })
}

fn release(scope: ReleaseScope) -> Request {
    let (actor, reason) = ("test".into(), "gone".into());
    Request::Release(Release {
        scope,
        actor,
        reason,
    })
}

fn expire() -> Request {
    let actor = "test".into();
    Request::Expire { most: 100, actor }
}

fn spec(quarantine: u32) -> PoolSpec {
    PoolSpec {
        allocation_length: None,
        quota_unit: Default::default(),
        network_by_default: false,
        name: "p".into(),
        network: NetworkId::DEFAULT,
        addresses: vec!["10.0.0.1-10.0.0.2".parse().unwrap()],
        exclusions: Vec::new(),
        gateway: None,
        prefix_len: None,
        subnet: None,
        ends: Ends::NONE,
        order: Order::Lowest,
        origin: Origin::Own,
        closed: false,
        quarantine,
        sticky: Sticky::OFF,
        priority: 0,
        scopes: Vec::new(),
        share_across_clusters: false,
        quota_required: false,
    }
}

impl Book {
    fn new(quarantine: u32) -> Self {
        Self::of(spec(quarantine))
    }

    fn of(spec: PoolSpec) -> Self {
        let ledger = Ledger::new();
        let mut book = Self { ledger, now: 1_000 };
        book.done(&testing::create_pool(spec));
        book
    }

    fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    fn done(&mut self, request: &Request) -> (Answer, Vec<Action>) {
        match self.ledger.plan(request, Timestamp(self.now)) {
            Planned::Tentative {
                ticket,
                decision,
                answer,
            } => {
                self.ledger.confirm(ticket);
                assert_eq!(self.ledger.check(), []);
                let actions = decision.audit.iter().map(|entry| entry.action);
                (answer, actions.collect())
            }
            Planned::Answer(answer) => (answer, Vec::new()),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn refused(&mut self, request: &Request) -> Refusal {
        match self.ledger.plan(request, Timestamp(self.now)) {
            Planned::Refused(refusal) => refusal,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn state(&self, text: &str) -> Option<LeaseState> {
        self.ledger.lease(key(text)).map(|lease| lease.state)
    }

    /// Web gets 10.0.0.1 for tenant blue and gives it back at 2,000.
    fn cooled(&mut self) {
        self.done(&Request::Allocate(ask(WEB, "blue", None)));
        let gone = release(ReleaseScope::Holder(holder(WEB)));
        assert_eq!(self.at(2_000).done(&gone).1, [Action::Released]);
        assert_eq!(self.state("10.0.0.1"), Some(LeaseState::Quarantined));
    }
}

#[test]
fn an_address_cools_and_is_free_when_that_is_over() {
    let mut book = Book::new(60);
    book.cooled();
    let usage = book.ledger.usage(POOL).unwrap();
    assert_eq!((usage.used, usage.free, usage.quarantined), (1, 1, 1));
    assert_eq!(book.ledger.next_expiry(), Some(Timestamp(62_000)));
    // Not even the last free address breaks it.
    book.done(&Request::Allocate(ask(API, "", None)));
    let again = Request::Allocate(ask(WEB, "blue", None));
    assert!(matches!(book.refused(&again), Refusal::Exhausted { .. }));
    assert_eq!(book.at(61_999).done(&expire()).1, []);
    let (answer, actions) = book.at(62_000).done(&expire());
    assert_eq!(actions, [Action::Expired]);
    let (leases, more) = (1, false);
    assert_eq!(answer, Answer::Moved { leases, more });
    assert_eq!(book.state("10.0.0.1"), None);
    assert_eq!(book.ledger.next_expiry(), None);
    book.done(&again);
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));
}

#[test]
fn what_cools_goes_back_only_to_its_tenant_or_by_an_admin() {
    let named = |tenant| ask(API, tenant, Some("10.0.0.1"));
    let mut book = Book::new(60);
    book.cooled();
    for other in ["", "red"] {
        let refusal = book.refused(&Request::Allocate(named(other)));
        assert!(matches!(refusal, Refusal::Quarantined { .. }), "{refusal}");
    }
    book.done(&Request::Allocate(named("blue")));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));

    // Nor does it need a free place in the pool.
    let mut book = Book::new(60);
    book.cooled();
    book.done(&Request::Allocate(ask("fipd/vm/lab/db", "", None)));
    let by_admin = true;
    book.done(&Request::Allocate(Allocate {
        by_admin,
        ..named("")
    }));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));
}

#[test]
fn an_address_in_use_is_adopted_out_of_quarantine_and_an_admin_may_end_it() {
    let mut book = Book::new(60);
    book.cooled();
    let again = release(ReleaseScope::Address(key("10.0.0.1")));
    assert_eq!(book.done(&again).1, [], "asking again ends no quarantine");
    let early = release(ReleaseScope::Quarantine(key("10.0.0.1")));
    assert_eq!(book.done(&early).1, [Action::Released]);
    assert_eq!(book.state("10.0.0.1"), None);
    book.done(&Request::Allocate(ask(WEB, "", None)));
    assert_eq!(book.done(&early).1, [], "it is in use");
    book.done(&again);
    book.done(&early);

    book.cooled();
    book.done(&Request::Adopt(Adopt {
        length: None,
        key: key("10.0.0.1"),
        holder: holder(API),
        tenant: None,
        since: Timestamp(5),
        actor: "test".into(),
    }));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));
    assert_eq!(book.ledger.next_expiry(), None);
}

#[test]
fn what_cools_is_kept_for_nobody() {
    let mut book = Book::new(60);
    book.cooled();
    for (tenant, by_admin) in [("red", false), ("blue", false), ("blue", true)] {
        let named = Allocate {
            by_admin,
            ..ask(API, tenant, Some("10.0.0.1"))
        };
        let refusal = book.refused(&reserve(named, 10_000));
        let text = refusal.to_string();
        assert!(
            text.contains("until about 1970-01-01") && text.contains("end the quarantine first"),
            "{text}"
        );
    }
    // Who had it and has it again by itself keeps another one meanwhile.
    let (lasts, most) = (600, 10);
    let mut book = Book::of(PoolSpec {
        sticky: Sticky { lasts, most },
        ..spec(60)
    });
    book.cooled();
    book.done(&reserve(ask(WEB, "blue", None), 10_000));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Quarantined));
    assert_eq!(book.state("10.0.0.2"), Some(LeaseState::Reserved));
}

#[test]
fn a_pool_goes_with_what_cools_in_it() {
    let mut book = Book::new(60);
    book.cooled();
    let actor = "test".into();
    book.done(&Request::DeletePool { pool: POOL, actor });
    assert_eq!(book.state("10.0.0.1"), None);
    let long = spec(PoolSpec::MAX_QUARANTINE + 1).validate().unwrap_err();
    assert_eq!(long.field, "quarantine");
    assert_eq!(spec(PoolSpec::MAX_QUARANTINE).validate(), Ok(()));
}

#[test]
fn a_reservation_waits_for_its_holder_and_ends() {
    let mut book = Book::new(60);
    let past = book.refused(&reserve(ask(WEB, "", None), 1_000));
    let until = |refusal| matches!(refusal, Refusal::Invalid { field: "until", .. });
    assert!(until(past));
    let (_, actions) = book.done(&reserve(ask(WEB, "", None), 5_000));
    assert_eq!(actions, [Action::Reserved]);
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Reserved));
    let taken = Request::Allocate(ask(API, "", Some("10.0.0.1")));
    assert!(matches!(book.refused(&taken), Refusal::AddressTaken { .. }));
    // Again, for longer.
    book.done(&reserve(ask(WEB, "", None), 9_000));
    assert_eq!(book.ledger.next_expiry(), Some(Timestamp(9_000)));
    assert_eq!(book.done(&reserve(ask(WEB, "", None), 9_000)).1, []);
    // It was never in use, so it does not cool.
    assert_eq!(book.at(9_000).done(&expire()).1, [Action::Expired]);
    assert_eq!(book.state("10.0.0.1"), None);

    book.done(&reserve(ask(WEB, "", None), 10_000));
    book.done(&Request::Allocate(ask(WEB, "", None)));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));
    assert_eq!(book.at(20_000).done(&expire()).1, []);
    // What is in use stays so.
    assert_eq!(book.done(&reserve(ask(WEB, "", None), 30_000)).1, []);
}

#[test]
fn who_uses_a_reserved_address_has_it_when_the_reservation_ends() {
    let mut book = Book::new(0);
    book.done(&reserve(ask(WEB, "", None), 5_000));
    book.done(&Request::Adopt(Adopt {
        length: None,
        key: key("10.0.0.1"),
        holder: holder(API),
        tenant: None,
        since: Timestamp(5),
        actor: "test".into(),
    }));
    assert_eq!(book.at(5_000).done(&expire()).1, [Action::PassedOn]);
    let lease = book.ledger.lease(key("10.0.0.1")).unwrap();
    assert_eq!(lease.owner(), Some(&holder(API)));
    assert_eq!((lease.state, lease.until), (LeaseState::Allocated, None));
}

#[test]
fn asking_again_gives_what_is_in_use_before_what_is_reserved() {
    let mut book = Book::new(0);
    book.done(&Request::Allocate(ask(WEB, "", Some("10.0.0.2"))));
    book.done(&reserve(ask(WEB, "", Some("10.0.0.1")), 9_000));
    let (answer, actions) = book.done(&Request::Allocate(ask(WEB, "", None)));
    let Answer::Granted { leases, fresh } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((leases[0].key, fresh), (key("10.0.0.2"), false));
    assert_eq!(actions, []);
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Reserved));
}

#[test]
fn a_reservation_given_to_who_uses_the_address_does_not_end_under_it() {
    let mut book = Book::new(0);
    book.done(&reserve(ask(WEB, "", Some("10.0.0.1")), 9_000));
    book.done(&Request::Adopt(Adopt {
        length: None,
        key: key("10.0.0.1"),
        holder: holder(API),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    }));
    book.done(&Request::Transfer(Transfer {
        key: key("10.0.0.1"),
        from: None,
        to: holder(API),
        tenant: None,
        force: false,
        reason: "it uses it".into(),
        actor: "test".into(),
    }));
    assert_eq!(book.state("10.0.0.1"), Some(LeaseState::Allocated));
    assert_eq!(book.ledger.next_expiry(), None);
}
