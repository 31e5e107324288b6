//! The rules of quotas, one test each.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use fipd_core::{
    Adopt, Allocate, Answer, Change, Handover, Holder, Identity, Ledger, Op, Planned, PoolEdit,
    PoolId, PoolSpec, Quota, Refusal, Request, Tenant, Ticket, Timestamp, Transfer, Violation,
    Want, testing,
};

const SHOP: &str = "p-shop";
const NOW: Timestamp = Timestamp(100);

fn tenant(name: &str) -> Tenant {
    Tenant(name.into())
}

fn identity(n: usize) -> Identity {
    format!("rancher-fip/c1/Service/shop/web-{n}")
        .parse()
        .expect("an identity")
}

fn holder(n: usize) -> Holder {
    Holder {
        identity: identity(n),
        instance: "1".into(),
    }
}

fn want(pool: PoolId, count: u32) -> Want {
    Want {
        pool: pool.into(),
        address: None,
        count,
    }
}

fn ask(n: usize, wants: &[Want]) -> Request {
    Request::Allocate(Allocate {
        tenant: Some(tenant(SHOP)),
        waiting_since: Some(Timestamp(n as u64)),
        ..testing::allocate(holder(n), wants)
    })
}

fn one(n: usize, pool: PoolId) -> Request {
    ask(n, &[want(pool, 1)])
}

fn release(n: usize) -> Request {
    testing::release(holder(n))
}

fn limit(pool: PoolId, limit: u64) -> Request {
    let tenant = tenant(SHOP);
    Request::SetQuota {
        quota: Quota {
            pool,
            tenant,
            limit,
        },
        actor: "test".into(),
    }
}

/// To another tenant.
fn transfer(last: u8, to: &str, force: bool) -> Request {
    Request::Transfer(Transfer {
        key: testing::key([10, 0, 0, last]),
        from: None,
        to: holder(9),
        tenant: Some(tenant(to)),
        force,
        actor: "user:ann".into(),
        reason: "it moved".into(),
    })
}

/// A ledger with two pools.
struct Book(Ledger);

impl Book {
    fn new() -> (Self, PoolId, PoolId) {
        let mut book = Self(Ledger::new());
        let mut pool = |name: &str, addresses: &str| {
            let spec = testing::pool_spec(name, &[addresses]);
            book.done(&testing::create_pool(spec));
        };
        pool("four", "10.0.0.0/24");
        pool("six", "fd00::/120");
        (book, PoolId(1), PoolId(2))
    }

    fn flies(&mut self, request: &Request) -> Ticket {
        match self.0.plan(request, NOW) {
            Planned::Tentative { ticket, .. } => ticket,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn done(&mut self, request: &Request) -> Arc<Change> {
        let ticket = self.flies(request);
        let change = self.0.confirm(ticket);
        assert_eq!(self.0.check(), []);
        change
    }

    fn edit(&mut self, pool: PoolId, quota_required: bool) {
        let spec = PoolSpec {
            quota_required,
            ..PoolSpec::clone(&self.0.pool(pool).expect("a pool").spec)
        };
        self.done(&Request::UpdatePool(PoolEdit {
            pool,
            spec,
            if_generation: None,
            force: false,
            actor: "test".into(),
            reason: "".into(),
        }));
    }

    fn refused(&mut self, request: &Request) -> (u64, u64) {
        match self.0.plan(request, NOW) {
            Planned::Refused(Refusal::QuotaExceeded { used, limit, .. }) => (used, limit),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn busy(&mut self, request: &Request) {
        assert_eq!(self.0.plan(request, NOW), Planned::Busy);
    }

    fn used(&self, pool: PoolId) -> u64 {
        self.0.charged(pool, &tenant(SHOP))
    }
}

#[test]
fn sixty_four_plans_beside_each_other_get_what_the_quota_allows_and_no_more() {
    let (mut book, pool, _) = Book::new();
    book.done(&limit(pool, 10));
    let mut flights = Vec::new();
    for n in 0..64 {
        match book.0.plan(&one(n, pool), NOW) {
            Planned::Tentative { ticket, .. } => flights.push((n, ticket)),
            Planned::Busy => assert_eq!(flights.len(), 10, "plan {n}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(flights.len(), 10);
    let (_, first) = flights.remove(0);
    book.0.abort(first);
    let late = book.flies(&one(63, pool));
    book.busy(&one(0, pool));
    for (_, ticket) in flights.drain(..).rev() {
        book.0.confirm(ticket);
    }
    book.busy(&one(0, pool));
    book.0.confirm(late);
    assert_eq!(book.refused(&one(0, pool)), (10, 10));
    assert_eq!(book.used(pool), 10);
    assert_eq!(book.0.check(), []);
}

#[test]
fn a_quota_that_becomes_one_counts_what_is_in_flight() {
    let (mut book, pool, _) = Book::new();
    let first = book.flies(&one(0, pool));
    book.done(&limit(pool, 1));
    book.busy(&one(1, pool));
    book.0.confirm(first);
    assert_eq!(book.refused(&one(1, pool)), (1, 1));
    let quota = book.flies(&limit(pool, 2));
    book.busy(&one(1, pool));
    book.busy(&limit(pool, 3));
    book.0.abort(quota);
    assert_eq!(book.refused(&one(1, pool)), (1, 1));
}

#[test]
fn a_pool_that_requires_a_quota_gives_who_has_none_nothing() {
    let (mut book, pool, six) = Book::new();
    book.done(&one(0, pool));
    book.edit(pool, true);
    assert_eq!(book.refused(&one(1, pool)), (1, 0));
    assert_eq!(
        book.refused(&ask(1, &[want(six, 1), want(pool, 1)])),
        (1, 0)
    );
    book.done(&one(1, six));
    let again = book.0.plan(&one(0, pool), NOW);
    assert!(matches!(again, Planned::Answer(_)), "{again:?}");
    let other = tenant("p-other");
    assert_eq!(book.0.tenancies(Some(&other), None, 9), []);
    let mine = book.0.tenancies(Some(&tenant(SHOP)), None, 9);
    let limits: Vec<_> = mine.iter().map(|one| (one.pool, one.limit)).collect();
    assert_eq!(limits, [(pool, Some(0)), (six, None)]);

    let nobody = Request::Allocate(Allocate {
        tenant: None,
        ..match one(2, pool) {
            Request::Allocate(ask) => ask,
            other => panic!("{other:?}"),
        }
    });
    book.done(&nobody);
    let told = book.done(&limit(pool, 2));
    assert_eq!(told.tenants, [tenant(SHOP)]);
    book.done(&one(3, pool));
    assert_eq!(book.refused(&one(4, pool)), (2, 2));
    let gone = Request::DeleteQuota {
        pool,
        tenant: tenant(SHOP),
        actor: "test".into(),
    };
    book.done(&gone);
    assert_eq!(book.refused(&one(4, pool)), (2, 0));
    book.edit(pool, false);
    book.done(&one(4, pool));
}

#[test]
fn a_lease_is_transferred_to_who_has_no_required_quota_only_by_force() {
    let (mut book, pool, _) = Book::new();
    book.done(&one(0, pool));
    book.edit(pool, true);
    assert_eq!(book.refused(&transfer(0, "p-other", false)), (0, 0));
    book.done(&transfer(0, "p-other", true));
}

#[test]
fn asking_again_is_free_and_both_families_are_charged_or_none() {
    let (mut book, four, six) = Book::new();
    book.done(&limit(four, 2));
    book.done(&limit(six, 1));
    let both = [want(four, 1), want(six, 1)];
    book.done(&ask(0, &both));
    assert_eq!((book.used(four), book.used(six)), (1, 1));
    assert_eq!(book.refused(&ask(1, &both)), (1, 1));
    assert_eq!((book.used(four), book.used(six)), (1, 1));
    book.done(&limit(four, 0));
    let again = book.0.plan(&ask(0, &both), NOW);
    assert!(
        matches!(again, Planned::Answer(Answer::Granted { fresh: false, .. })),
        "{again:?}"
    );
    let other = Request::Allocate(testing::allocate(holder(2), [want(four, 1)]));
    book.done(&other);
    assert_eq!(book.used(four), 1, "nobody is charged without a tenant");
}

#[test]
fn what_is_found_in_use_is_adopted_above_the_limit() {
    let (mut book, pool, _) = Book::new();
    book.done(&limit(pool, 1));
    for n in 0..3_u8 {
        let key = testing::key([10, 0, 0, n]);
        book.done(&Request::Adopt(Adopt {
            length: None,
            key,
            holder: holder(n.into()),
            tenant: Some(tenant(SHOP)),
            since: NOW,
            actor: "test".into(),
        }));
    }
    let usage = book.0.quota(pool, &tenant(SHOP)).expect("a quota");
    assert_eq!((usage.used, usage.quota.limit), (3, 1));
    assert_eq!(book.refused(&one(7, pool)), (3, 1));
    book.done(&Request::Handover(Handover {
        from: holder(0),
        to: holder(8),
        keys: Vec::new(),
        actor: "test".into(),
        reason: "".into(),
    }));
    assert_eq!(book.used(pool), 3, "the lease stays the tenant's");
}

#[test]
fn a_lease_is_transferred_beyond_a_quota_only_by_force() {
    let (mut book, pool, _) = Book::new();
    book.done(&one(0, pool));
    book.done(&one(1, pool));
    let other = tenant("p-other");
    book.done(&Request::SetQuota {
        quota: Quota {
            pool,
            tenant: other.clone(),
            limit: 1,
        },
        actor: "test".into(),
    });
    let give = |last: u8, force| transfer(last, "p-other", force);
    let ticket = book.flies(&give(0, false));
    book.busy(&give(1, false));
    book.0.confirm(ticket);
    assert_eq!(book.refused(&give(1, false)), (1, 1));
    let Planned::Tentative {
        ticket, decision, ..
    } = book.0.plan(&give(1, true), NOW)
    else {
        panic!("an admin's word counts");
    };
    let said = &decision.audit[0].detail;
    assert!(
        said.contains("p-other beyond its quota: it moved"),
        "{said}"
    );
    book.0.confirm(ticket);
    assert_eq!(book.0.charged(pool, &other), 2);
    assert_eq!(book.used(pool), 0);
}

#[test]
fn the_tenant_is_named_when_it_may_have_more() {
    let (mut book, pool, _) = Book::new();
    let named = |change: Arc<Change>| {
        assert!(change.pools.contains(&PoolId(1)), "{change:?}");
        change
            .tenants
            .iter()
            .map(|tenant| tenant.0.to_string())
            .collect::<Vec<_>>()
    };
    assert!(
        named(book.done(&limit(pool, 2))).is_empty(),
        "it is less than before"
    );
    for n in 0..2 {
        assert!(named(book.done(&one(n, pool))).is_empty());
    }
    assert_eq!(named(book.done(&release(0))), [SHOP]);
    assert!(named(book.done(&limit(pool, 1))).is_empty());
    assert_eq!(named(book.done(&limit(pool, 5))), [SHOP]);
    let gone = Request::DeleteQuota {
        pool,
        tenant: tenant(SHOP),
        actor: "test".into(),
    };
    assert_eq!(named(book.done(&gone)), [SHOP]);
    assert!(named(book.done(&release(1))).is_empty(), "it has no quota");
}

#[test]
fn who_is_refused_for_quota_keeps_no_place_in_the_queue() {
    let (mut book, _, _) = Book::new();
    let spec = PoolSpec {
        name: "small".into(),
        addresses: vec!["192.0.2.1".parse().expect("an address")],
        ..PoolSpec::clone(&book.0.pool(PoolId(1)).expect("a pool").spec)
    };
    book.done(&testing::create_pool(spec));
    let pool = PoolId(3);
    book.done(&one(0, pool));
    for n in [1, 2] {
        let full = book.0.plan(&one(n, pool), NOW);
        assert!(
            matches!(full, Planned::Refused(Refusal::Exhausted { .. })),
            "{full:?}"
        );
    }
    book.done(&limit(pool, 1));
    assert_eq!(book.refused(&one(1, pool)), (1, 1));
    let waiting = book.0.waiters(pool, 9);
    assert_eq!(waiting, [(Timestamp(2), identity(2))]);
    let told = book
        .0
        .changes_page(book.0.revision() - 1, usize::MAX)
        .expect("the last change");
    assert!(
        told.iter().any(|change| change.pools.contains(&pool)),
        "{told:?}"
    );
}

#[test]
fn a_deleted_pool_takes_its_quotas_with_it() {
    let (mut book, four, six) = Book::new();
    for pool in [four, six] {
        book.done(&limit(pool, 3));
    }
    let actor = || "test".into();
    let delete = Request::DeletePool {
        pool: four,
        actor: actor(),
    };
    let quota = book.flies(&limit(four, 4));
    book.busy(&delete);
    book.0.abort(quota);
    let deleting = book.flies(&delete);
    book.busy(&limit(four, 4));
    book.0.confirm(deleting);
    let left = book.0.quotas(None, None, None, 9);
    assert_eq!(
        left.iter()
            .map(|usage| usage.quota.pool)
            .collect::<Vec<_>>(),
        [six]
    );
    assert_eq!(
        book.0.plan(&limit(four, 4), NOW),
        Planned::Refused(Refusal::UnknownPool(four))
    );
    let orphan = Op::PutQuota(Quota {
        pool: four,
        tenant: tenant(SHOP),
        limit: 1,
    });
    let violations = Ledger::load(book.0.dump().chain([orphan]), 0).expect_err("a violation");
    assert_eq!(
        violations,
        [Violation::QuotaOfUnknownPool {
            pool: four,
            tenant: tenant(SHOP)
        }]
    );
}

#[test]
fn quotas_are_listed_by_pool_and_tenant() {
    let (mut book, four, six) = Book::new();
    for (pool, name) in [(six, "b"), (four, "b"), (four, "a"), (six, "c")] {
        let quota = Quota {
            pool,
            tenant: tenant(name),
            limit: 1,
        };
        book.done(&Request::SetQuota {
            quota,
            actor: "test".into(),
        });
    }
    let list = |tenant: Option<&Tenant>, pool, after, limit| -> Vec<(u32, String)> {
        let rows = book.0.quotas(tenant, pool, after, limit);
        let name =
            |usage: &fipd_core::QuotaUsage| (usage.quota.pool.0, usage.quota.tenant.0.to_string());
        rows.iter().map(name).collect()
    };
    let row = |pool: u32, name: &str| (pool, name.to_owned());
    let all = [row(1, "a"), row(1, "b"), row(2, "b"), row(2, "c")];
    assert_eq!(list(None, None, None, 9), all);
    assert_eq!(list(None, None, Some((four, tenant("a"))), 2), all[1..3]);
    assert_eq!(list(None, Some(six), None, 9), all[2..]);
    assert_eq!(
        list(None, Some(six), Some((four, tenant("b"))), 9),
        all[2..]
    );
    assert_eq!(list(None, Some(six), Some((six, tenant("b"))), 9), all[3..]);
    let b = tenant("b");
    assert_eq!(list(Some(&b), None, None, 9), all[1..3]);
    assert_eq!(
        list(Some(&b), None, Some((four, tenant("b"))), 9),
        all[2..3]
    );
    assert_eq!(list(Some(&b), Some(four), None, 9), all[1..2]);
}
