//! The rules of the address book, one test each.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::{net::IpAddr, sync::Arc};

use fipd_core::{
    Account, AccountEdit, Action, Adopt, Adoption, Allocate, Answer, ClusterId, ClusterRecord,
    Decision, Ends, Expectation, Family, Handover, Holder, KeyBytes, KeyId, Label, LeaseKey,
    LeaseState, Ledger, Mark, NameError, NetworkId, Op, Origin, Overlap, Planned, PoolEdit, PoolId,
    PoolSpec, Refusal, Release, ReleaseScope, Request, Reserve, Role, Scope, SigningKey, System,
    Tenant, Text, Ticket, Timestamp, Token, TokenId, Transfer, Want, count_rows, testing,
};

const WEB: &str = "rancher-fip/c1/Service/shop/web";
const API: &str = "rancher-fip/c1/Service/shop/api";
const DB: &str = "rancher-fip/c2/Service/shop/db";

fn address(text: &str) -> IpAddr {
    text.parse().expect(text)
}

fn key(text: &str) -> LeaseKey {
    testing::key(address(text))
}

fn holder(owner: &str, instance: &str) -> Holder {
    testing::holder(owner, instance)
}

fn spec(name: &str, addresses: &[&str]) -> PoolSpec {
    PoolSpec::own(
        name,
        addresses
            .iter()
            .map(|text| text.parse().expect(text))
            .collect(),
    )
}

fn mirror(name: &str, addresses: &[&str], object: &str) -> PoolSpec {
    let origin = Origin::Mirror {
        system: System::rancher_fip(),
        cluster: ClusterId("c1".into()),
        object: object.into(),
        uid: "u1".into(),
    };
    PoolSpec {
        origin,
        ..spec(name, addresses)
    }
}

fn allocate(owner: &str, pool: PoolId) -> Allocate {
    testing::allocate(holder(owner, "1"), [testing::want(pool, None)])
}

fn named(owner: &str, pool: PoolId, text: &str) -> Request {
    let wants = vec![testing::want(pool, Some(address(text)))];
    Request::Allocate(Allocate {
        wants,
        ..allocate(owner, pool)
    })
}

fn waiting(owner: &str, pool: PoolId, since: u64) -> Request {
    Request::Allocate(Allocate {
        waiting_since: Some(Timestamp(since)),
        ..allocate(owner, pool)
    })
}

fn release(owner: &str, instance: &str) -> Request {
    free(ReleaseScope::Holder(holder(owner, instance)))
}

fn free(scope: ReleaseScope) -> Request {
    Request::Release(Release {
        scope,
        actor: "test".into(),
        reason: "gone".into(),
    })
}

fn adopt(owner: &str, text: &str, since: u64) -> Request {
    Request::Adopt(Adopt {
        length: None,
        key: key(text),
        holder: holder(owner, "1"),
        tenant: None,
        since: Timestamp(since),
        actor: "test".into(),
    })
}

/// A ledger that is asked one thing at a time.
struct Book(Ledger);

impl Book {
    fn new() -> Self {
        Self(Ledger::new())
    }

    fn plan(&mut self, request: &Request) -> (Ticket, Decision, Answer) {
        match self.0.plan(request, Timestamp(100)) {
            Planned::Tentative {
                ticket,
                decision,
                answer,
            } => (ticket, decision, answer),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// A request that changes something; its answer and what the audit log says.
    fn done(&mut self, request: &Request) -> (Answer, Vec<Action>) {
        let (ticket, decision, answer) = self.plan(request);
        self.0.confirm(ticket);
        assert_eq!(self.0.check(), []);
        (
            answer,
            decision.audit.iter().map(|entry| entry.action).collect(),
        )
    }

    /// A request that changes nothing.
    fn answered(&mut self, request: &Request) -> Answer {
        match self.0.plan(request, Timestamp(100)) {
            Planned::Answer(answer) => answer,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn refused(&mut self, request: &Request) -> Refusal {
        match self.0.plan(request, Timestamp(100)) {
            Planned::Refused(refusal) => refusal,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn busy(&mut self, request: &Request) {
        assert_eq!(self.0.plan(request, Timestamp(100)), Planned::Busy);
    }

    fn pool(&mut self, spec: PoolSpec) -> PoolId {
        match self.done(&testing::create_pool(spec)).0 {
            Answer::Pool(pool) => pool.id,
            other => panic!("{other:?}"),
        }
    }

    fn gets(&mut self, request: &Request) -> Vec<String> {
        match self.done(request).0 {
            Answer::Granted { leases, .. } => leases
                .iter()
                .map(|lease| lease.key.address.to_string())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn owner(&self, text: &str) -> Option<String> {
        self.0
            .lease(key(text))?
            .owner()
            .map(|owner| owner.identity.to_string())
    }
}

#[test]
fn the_lowest_free_address_is_given_and_asking_again_changes_nothing() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8-10.0.0.11"]));
    assert_eq!(
        book.gets(&Request::Allocate(allocate(WEB, pool))),
        ["10.0.0.8"]
    );
    let again = book.answered(&Request::Allocate(allocate(WEB, pool)));
    assert!(
        matches!(again, Answer::Granted { fresh: false, .. }),
        "{again:?}"
    );
    assert_eq!(
        book.gets(&Request::Allocate(allocate(API, pool))),
        ["10.0.0.9"]
    );
    book.done(&release(WEB, "1"));
    assert_eq!(
        book.gets(&Request::Allocate(allocate(DB, pool))),
        ["10.0.0.8"]
    );
}

#[test]
fn several_addresses_and_both_families_come_all_or_not_at_all() {
    let mut book = Book::new();
    let four = book.pool(spec("four", &["10.0.0.0/30"]));
    let six = book.pool(spec("six", &["fd00::1"]));
    let wants = vec![
        Want {
            pool: four.into(),
            address: None,
            count: 3,
        },
        testing::want(six, None),
    ];
    let both = |owner| {
        Request::Allocate(Allocate {
            wants: wants.clone(),
            ..allocate(owner, four)
        })
    };
    assert_eq!(
        book.gets(&both(WEB)),
        ["10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::1"]
    );
    let refusal = book.refused(&both(API));
    assert!(
        matches!(
            refusal,
            Refusal::Exhausted {
                used: 3,
                size: 4,
                ..
            }
        ),
        "{refusal:?}"
    );
    assert_eq!(book.0.usage(four).map(|usage| usage.used), Some(3));
    let none = Request::Allocate(Allocate {
        wants: Vec::new(),
        ..allocate(WEB, four)
    });
    assert!(matches!(
        book.refused(&none),
        Refusal::Invalid { field: "wants", .. }
    ));
}

#[test]
fn a_new_instance_takes_the_lease_over_and_the_old_one_cannot_free_it() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let second = Allocate {
        holder: holder(WEB, "2"),
        ..allocate(WEB, pool)
    };
    let (answer, audit) = book.done(&Request::Allocate(second));
    assert!(matches!(answer, Answer::Granted { fresh: false, .. }));
    assert_eq!(audit, [Action::InstanceChanged]);
    for old in ["1", ""] {
        assert_eq!(
            book.answered(&release(WEB, old)),
            Answer::Released { leases: vec![] }
        );
    }
    assert_eq!(book.done(&release(WEB, "2")).1, [Action::Released]);
    assert_eq!(book.owner("10.0.0.8"), None);
}

#[test]
fn a_named_address_is_given_or_refused_with_the_reason() {
    let mut book = Book::new();
    let mut spec = spec("p", &["10.0.0.0/28"]);
    spec.ends = Ends::own_default(Family::V4);
    spec.gateway = Some(address("10.0.0.1"));
    spec.exclusions = vec!["10.0.0.4/31".parse().unwrap()];
    let pool = book.pool(spec);
    assert_eq!(
        book.gets(&named(WEB, pool, "::ffff:10.0.0.7")),
        ["10.0.0.7"]
    );
    let why = |book: &mut Book, text| match book.refused(&named(API, pool, text)) {
        Refusal::NotAssignable { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&mut book, "10.0.0.1"), "it is the gateway");
    assert_eq!(why(&mut book, "10.0.0.5"), "10.0.0.4/31 is excluded");
    assert_eq!(
        why(&mut book, "10.0.0.15"),
        "it is reserved at the end of its network"
    );
    assert_eq!(why(&mut book, "10.0.0.16"), "the pool does not list it");
    assert_eq!(why(&mut book, "fd00::1"), "the pool is IPv4");
    let taken = book.refused(&named(API, pool, "10.0.0.7"));
    assert_eq!(
        taken.to_string(),
        format!("10.0.0.7 is held by {WEB}; choose another address or release that lease")
    );
    assert_eq!(
        book.gets(&named(WEB, pool, "10.0.0.8")),
        ["10.0.0.8"],
        "beside the one it has, which it gives back when nobody uses it any more"
    );
}

#[test]
fn what_is_in_flight_is_free_for_nobody_and_an_abort_gives_it_back() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/31"]));
    let (web, _, _) = book.plan(&Request::Allocate(allocate(WEB, pool)));
    let (api, _, answer) = book.plan(&Request::Allocate(allocate(API, pool)));
    assert!(matches!(&answer, Answer::Granted { leases, .. } if leases[0].key == key("10.0.0.9")));
    assert_eq!(
        book.0.usage(pool).map(|usage| usage.used),
        Some(0),
        "readers see what is committed"
    );
    book.busy(&Request::Allocate(allocate(DB, pool)));
    book.busy(&Request::Allocate(allocate(WEB, pool)));
    book.busy(&named(DB, pool, "10.0.0.8"));
    book.0.abort(web);
    book.0.confirm(api);
    assert_eq!(
        book.gets(&Request::Allocate(allocate(DB, pool))),
        ["10.0.0.8"]
    );
}

#[test]
fn a_whole_batch_can_be_planned_from_one_pool() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.0/24"]));
    let owner = |n| format!("fipd/Host//h{n}");
    let tickets: Vec<Ticket> = (0..256)
        .map(|n| book.plan(&Request::Allocate(allocate(&owner(n), pool))).0)
        .collect();
    for ticket in tickets.into_iter().rev() {
        book.0.confirm(ticket);
    }
    assert_eq!(book.0.check(), []);
    assert_eq!(book.0.usage(pool).map(|usage| usage.free), Some(0));
}

#[test]
fn an_address_of_two_pools_is_free_in_both_or_in_none() {
    let mut book = Book::new();
    let wide = book.pool(spec("wide", &["10.0.0.0/24"]));
    let narrow = book.pool(spec("narrow", &["10.0.0.0/31"]));
    assert_eq!(
        book.gets(&Request::Allocate(allocate(WEB, narrow))),
        ["10.0.0.0"]
    );
    assert_eq!(
        book.gets(&Request::Allocate(allocate(API, wide))),
        ["10.0.0.1"]
    );
    assert!(matches!(
        book.refused(&Request::Allocate(allocate(DB, narrow))),
        Refusal::Exhausted { .. }
    ));
    assert_eq!(book.0.pool_leases(narrow, None, 9).len(), 1);
    assert_eq!(book.0.usage(narrow).map(|usage| usage.used), Some(2));
}

#[test]
fn who_finds_no_address_hears_what_is_in_quarantine() {
    let mut book = Book::new();
    let pool = book.pool(PoolSpec {
        quarantine: 60,
        ..spec("p", &["10.0.0.8/31"])
    });
    for owner in [WEB, API] {
        book.gets(&Request::Allocate(allocate(owner, pool)));
    }
    let says = |book: &mut Book| {
        let refusal = book.refused(&Request::Allocate(allocate(DB, pool)));
        refusal.to_string()
    };
    let full = says(&mut book);
    assert!(full.contains("available: 2 of 2 are in use; "), "{full}");
    for (owner, text) in [
        (WEB, "1 of 2 are in use and 1"),
        (API, "0 of 2 are in use and 2"),
    ] {
        book.done(&release(owner, "1"));
        let cools = says(&mut book);
        let text = format!("{text} in quarantine after a release, the first until about 1970-");
        assert!(cools.contains(&text), "{cools}");
    }
}

#[test]
fn the_oldest_waiter_is_served_first_and_nobody_jumps_the_queue() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    assert!(matches!(
        book.refused(&waiting(API, pool, 7)),
        Refusal::Exhausted { .. }
    ));
    assert!(matches!(
        book.refused(&waiting(DB, pool, 3)),
        Refusal::Exhausted { .. }
    ));
    assert!(book.0.ready_waiters(pool, 99).is_empty());
    book.done(&release(WEB, "1"));
    assert_eq!(book.0.ready_waiters(pool, 99), [DB.parse().unwrap()]);
    assert!(matches!(
        book.refused(&waiting(API, pool, 7)),
        Refusal::Exhausted { .. }
    ));
    assert!(matches!(
        book.refused(&Request::Allocate(allocate(WEB, pool))),
        Refusal::Exhausted { .. }
    ));
    let (ticket, _, _) = book.plan(&waiting(DB, pool, 3));
    book.0.abort(ticket);
    assert_eq!(book.0.waiters(pool, 9).len(), 2, "an abort keeps the place");
    assert_eq!(book.gets(&waiting(DB, pool, 3)), ["10.0.0.8"]);
    book.0.forget_waiter(&API.parse().unwrap());
    assert!(book.0.waiters(pool, 9).is_empty());
}

#[test]
fn a_waiter_that_is_released_leaves_the_queue() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    book.refused(&waiting(API, pool, 7));
    assert_eq!(
        book.answered(&release(API, "0")),
        Answer::Released { leases: vec![] }
    );
    assert_eq!(book.0.waiters(pool, 9).len(), 1, "another instance's place");
    let before = book.0.revision();
    assert_eq!(
        book.answered(&release(API, "1")),
        Answer::Released { leases: vec![] }
    );
    assert!(book.0.waiters(pool, 9).is_empty());
    let told = |book: &Book, since| {
        let changes = book.0.changes_page(since, usize::MAX).unwrap();
        let pools = changes.iter().flat_map(|change| change.pools.to_vec());
        pools.collect::<Vec<_>>()
    };
    assert_eq!(
        told(&book, before),
        [pool],
        "the next in the queue hears it"
    );
    book.refused(&waiting(API, pool, 7));
    let before = book.0.revision();
    book.0.forget_waiter(&API.parse().unwrap());
    assert_eq!(told(&book, before), [pool]);
    book.0.forget_waiter(&API.parse().unwrap());
    assert_eq!(book.0.revision(), before + 1, "nothing was left to forget");
}

#[test]
fn a_system_that_ends_leaves_the_queues_to_those_behind() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let (fip, claim) = ("rancher-fip/c1/Service/ns/a", "claims/c1/Claim/ns/a");
    for (since, owner) in [fip, claim, "rancher-fip/c2/Service/ns/a"]
        .iter()
        .enumerate()
    {
        book.refused(&waiting(owner, pool, since as u64));
    }
    let waiters = |book: &Book| {
        let all = book.0.waiters(pool, 9).into_iter();
        all.map(|(_, identity)| identity.to_string())
            .collect::<Vec<_>>()
    };
    let (cluster, system) = (ClusterId("c1".into()), System::rancher_fip());
    let before = book.0.revision();
    book.0.forget_waiters_of(&cluster, Some(&system));
    assert_eq!(waiters(&book), [claim, "rancher-fip/c2/Service/ns/a"]);
    let changes = book.0.changes_page(before, usize::MAX).unwrap();
    assert_eq!(changes[0].pools.as_slice(), [pool], "who is next hears it");
    book.0.forget_waiters_of(&cluster, None);
    assert_eq!(waiters(&book), ["rancher-fip/c2/Service/ns/a"]);
    let before = book.0.revision();
    book.0.forget_waiters_of(&cluster, None);
    assert_eq!(book.0.revision(), before, "nothing was left to forget");
}

#[test]
fn an_adopted_address_belongs_to_who_uses_it_and_reserved_ends_do_not_matter() {
    let mut book = Book::new();
    let mut wide = spec("wide", &["10.0.0.0/24"]);
    wide.ends = Ends::own_default(Family::V4);
    let wide = book.pool(wide);
    let narrow = book.pool(spec("narrow", &["10.0.0.0/30"]));
    assert_eq!(book.done(&adopt(WEB, "10.0.0.0", 1)).1, [Action::Adopted]);
    assert!(matches!(
        book.answered(&adopt(WEB, "10.0.0.0", 1)),
        Answer::Adopted { .. }
    ));
    assert_eq!(
        book.0.lease(key("10.0.0.0")).unwrap().pool,
        Some(narrow),
        "the smallest pool around it"
    );
    book.done(&adopt(API, "10.0.0.255", 1));
    let last = book.0.lease(key("10.0.0.255")).unwrap().clone();
    assert_eq!((last.pool, book.0.prefix_len(&last)), (Some(wide), 24));
    assert_eq!(book.0.marks(&last).as_slice(), [Mark::OutOfRange]);
    assert_eq!(book.0.usage(wide).map(|usage| usage.out_of_range), Some(1));
}

#[test]
fn who_uses_a_held_address_gets_it_next() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let (answer, audit) = book.done(&adopt(API, "10.0.0.8", 9));
    assert!(matches!(answer, Answer::Contended { .. }));
    assert_eq!(audit, [Action::Contended]);
    book.done(&adopt(DB, "10.0.0.8", 4));
    assert!(matches!(
        book.answered(&adopt(API, "10.0.0.8", 9)),
        Answer::Contended { .. }
    ));
    assert_eq!(book.0.contentions().count(), 1);
    assert_eq!(
        book.done(&free(ReleaseScope::Address(key("10.0.0.8")))).1,
        [Action::PassedOn]
    );
    assert_eq!(
        book.owner("10.0.0.8").as_deref(),
        Some(DB),
        "it has used it longer"
    );
    assert_eq!(book.done(&release(API, "1")).1, [Action::ContenderLeft]);
    assert_eq!(book.done(&release(DB, "1")).1, [Action::Released]);
    assert_eq!(book.owner("10.0.0.8"), None);
}

#[test]
fn leases_found_before_their_pool_are_attributed_when_it_comes() {
    let mut book = Book::new();
    book.done(&adopt(WEB, "10.0.0.8", 1));
    assert_eq!(book.0.lease(key("10.0.0.8")).unwrap().pool, None);
    let pool = book.pool(spec("p", &["10.0.0.0/24"]));
    assert_eq!(book.0.lease(key("10.0.0.8")).unwrap().pool, Some(pool));
    let again = book.answered(&Request::Allocate(allocate(WEB, pool)));
    assert!(matches!(again, Answer::Granted { fresh: false, .. }));
}

#[test]
fn a_network_gives_nothing_new_until_all_it_expects_is_adopted() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let expectation = |cluster: &str| Expectation {
        network: NetworkId::DEFAULT,
        cluster: cluster.into(),
        system: System::rancher_fip(),
    };
    book.0
        .set_expectations(vec![expectation("one"), expectation("two")]);
    assert!(matches!(
        book.answered(&Request::Allocate(allocate(WEB, pool))),
        Answer::Granted { .. }
    ));
    let refusal = book.refused(&Request::Allocate(allocate(API, pool)));
    assert!(
        matches!(&refusal, Refusal::NetworkHeld { waiting, .. } if waiting.len() == 2),
        "{refusal}"
    );
    book.done(&adopt(DB, "10.0.0.9", 1));
    let record = ClusterRecord {
        id: ClusterId("c1".into()),
        names: vec!["one".into()],
        discovered: false,
        first_seen: Timestamp(1),
        proof: None,
    };
    book.done(&Request::RecordCluster { record });
    assert_eq!(
        book.0.holds(NetworkId::DEFAULT)[0].id,
        Some(ClusterId("c1".into()))
    );
    let marker = |cluster: &str, skipped| Request::MarkAdopted {
        marker: Adoption {
            network: NetworkId::DEFAULT,
            cluster: cluster.into(),
            system: System::rancher_fip(),
            at: Timestamp(1),
            skipped,
        },
        actor: "test".into(),
    };
    assert_eq!(book.done(&marker("c1", false)).1, [Action::ClusterAdopted]);
    assert_eq!(book.answered(&marker("c1", true)), Answer::Done);
    assert_eq!(
        book.done(&marker("name:two", true)).1,
        [Action::AdoptionSkipped]
    );
    assert_eq!(
        book.gets(&Request::Allocate(allocate(API, pool))),
        ["10.0.0.10"]
    );
}

#[test]
fn a_cluster_that_left_keeps_its_addresses_until_it_is_forgotten() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/29"]));
    for owner in [WEB, API, DB] {
        book.gets(&Request::Allocate(allocate(owner, pool)));
    }
    let c1 = ClusterId("c1".into());
    let orphan = |most| Request::Orphan {
        cluster: c1.clone(),
        system: None,
        most,
        actor: "test".into(),
    };
    assert_eq!(
        book.done(&orphan(1)).0,
        Answer::Moved {
            leases: 1,
            more: true
        }
    );
    assert_eq!(
        book.done(&orphan(9)).0,
        Answer::Moved {
            leases: 1,
            more: false
        }
    );
    assert_eq!(
        book.0.lease(key("10.0.0.8")).unwrap().state,
        LeaseState::Orphaned
    );
    assert_eq!(book.0.cluster_lease_count(&c1, None), 2);
    let (answer, _) = book.done(&Request::Allocate(allocate(WEB, pool)));
    assert!(
        matches!(&answer, Answer::Granted { leases, fresh: true } if leases[0].key == key("10.0.0.8"))
    );
    let forget = Request::Forget {
        cluster: c1,
        most: 9,
        actor: "test".into(),
    };
    let (answer, audit) = book.done(&forget);
    assert_eq!(
        (answer, audit),
        (
            Answer::Moved {
                leases: 1,
                more: false
            },
            vec![Action::Forgotten]
        )
    );
    assert_eq!(book.owner("10.0.0.9"), None);
    assert!(matches!(book.refused(&forget), Refusal::UnknownCluster(_)));
}

#[test]
fn a_forgotten_cluster_leaves_no_contender_waiter_or_marker() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/31"]));
    let (c1, c2) = (ClusterId("c1".into()), ClusterId("c2".into()));
    for system in ["rancher-fip", "kube-fip"] {
        let marker = Adoption {
            network: NetworkId::DEFAULT,
            cluster: Arc::clone(&c1.0),
            system: system.parse().expect(system),
            at: Timestamp(1),
            skipped: false,
        };
        let actor = "test".into();
        book.done(&Request::MarkAdopted { marker, actor });
    }
    book.gets(&named(WEB, pool, "10.0.0.8"));
    book.gets(&named(DB, pool, "10.0.0.9"));
    book.done(&adopt(API, "10.0.0.8", 4));
    book.done(&adopt(DB, "10.0.0.8", 9));
    book.done(&adopt(API, "10.0.0.9", 4));
    book.refused(&waiting("rancher-fip/c1/Service/shop/new", pool, 1));
    book.refused(&waiting("rancher-fip/c2/Service/shop/new", pool, 2));
    book.done(&Request::Orphan {
        cluster: c1.clone(),
        system: None,
        most: 9,
        actor: "test".into(),
    });
    let forget = Request::Forget {
        cluster: c1.clone(),
        most: 1,
        actor: "test".into(),
    };
    let moved = |leases, more| Answer::Moved { leases, more };
    assert_eq!(
        book.done(&forget),
        (
            moved(1, true),
            vec![Action::ContenderLeft, Action::PassedOn]
        )
    );
    assert_eq!(book.owner("10.0.0.8").as_deref(), Some(DB), "not a ghost");
    assert_eq!(book.0.waiters(pool, 9).len(), 2, "not before the end");
    assert_eq!(
        book.done(&forget),
        (moved(0, false), vec![Action::ContenderLeft])
    );
    assert_eq!(book.0.contentions().count(), 0);
    assert_eq!(
        book.0.waiters(pool, 9),
        [(
            Timestamp(2),
            "rancher-fip/c2/Service/shop/new".parse().unwrap()
        )]
    );
    for system in ["rancher-fip", "kube-fip"] {
        let system = system.parse().expect(system);
        assert!(!book.0.adopted(NetworkId::DEFAULT, &c1, &system));
    }
    assert_eq!(book.0.cluster_lease_count(&c2, None), 2);
    assert!(matches!(book.refused(&forget), Refusal::UnknownCluster(_)));
}

#[test]
fn a_cluster_name_belongs_to_one_cluster() {
    let mut book = Book::new();
    let record = |id: &str, names: &[&str]| Request::RecordCluster {
        record: ClusterRecord {
            id: ClusterId(id.into()),
            names: names.iter().map(|name| Text::from(*name)).collect(),
            discovered: true,
            first_seen: Timestamp(1),
            proof: None,
        },
    };
    book.done(&record("c1", &["one"]));
    assert_eq!(book.answered(&record("c1", &["one"])), Answer::Done);
    book.done(&record("c1", &["uno"]));
    assert!(matches!(
        book.refused(&record("c2", &["one"])),
        Refusal::Invalid {
            field: "cluster",
            ..
        }
    ));
    assert_eq!(
        book.0
            .cluster_by_name("uno")
            .map(|record| record.names.len()),
        Some(2)
    );
}

#[test]
fn leases_change_hands_without_a_moment_in_between() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let hand = |instance| {
        Request::Handover(Handover {
            from: holder(WEB, instance),
            to: holder(API, "1"),
            keys: Vec::new(),
            actor: "test".into(),
            reason: "".into(),
        })
    };
    assert_eq!(
        book.answered(&hand("0")),
        Answer::HandedOver { leases: vec![] }
    );
    assert_eq!(book.done(&hand("1")).1, [Action::HandedOver]);
    assert_eq!(book.owner("10.0.0.8").as_deref(), Some(API));
    assert_eq!(
        book.answered(&hand("1")),
        Answer::HandedOver { leases: vec![] }
    );
}

/// A pool of an object that moves with its lease: the one that it leaves may go.
#[test]
fn a_lease_that_goes_to_another_cluster_is_counted_to_the_pool_there() {
    for contends in [false, true] {
        let mut book = Book::new();
        let here = book.pool(mirror("rancher-fip/c1/p", &["10.0.0.8/30"], "p"));
        let origin = Origin::Mirror {
            system: System::rancher_fip(),
            cluster: ClusterId("c2".into()),
            object: "p".into(),
            uid: "u2".into(),
        };
        let there = book.pool(PoolSpec {
            origin,
            ..spec("rancher-fip/c2/p", &["10.0.0.8/30"])
        });
        book.gets(&Request::Allocate(allocate(WEB, here)));
        let ask = match contends {
            true => {
                book.done(&adopt(DB, "10.0.0.8", 1));
                release(WEB, "1")
            }
            false => Request::Handover(Handover {
                from: holder(WEB, "1"),
                to: holder(DB, "1"),
                keys: Vec::new(),
                actor: "test".into(),
                reason: "".into(),
            }),
        };
        book.done(&ask);
        assert_eq!(book.owner("10.0.0.8").as_deref(), Some(DB));
        let lease = book.0.lease(key("10.0.0.8")).expect("a lease");
        assert_eq!(lease.pool, Some(there), "{contends}");
        book.done(&Request::DeletePool {
            pool: here,
            actor: "test".into(),
        });
    }
}

fn transfer(text: &str, from: Option<&str>, to: &str) -> Transfer {
    Transfer {
        key: key(text),
        from: from.map(|owner| holder(owner, "1")),
        to: holder(to, ""),
        tenant: None,
        force: false,
        actor: "user:ann".into(),
        reason: "it moved".into(),
    }
}

#[test]
fn an_admin_gives_a_lease_to_another_holder_without_a_moment_in_between() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let here = "10.0.0.8";
    let mut ask = transfer(here, Some(WEB), DB);
    ask.tenant = Some(Tenant("p-2".into()));
    let (ticket, decision, answer) = book.plan(&Request::Transfer(ask.clone()));
    // Nobody gets the address while it moves.
    let give = Request::Release(Release {
        scope: ReleaseScope::Address(key(here)),
        actor: "test".into(),
        reason: "".into(),
    });
    book.busy(&give);
    let Answer::Transferred { lease } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(lease.owner(), Some(&holder(DB, "")));
    assert_eq!(lease.tenant, Some(Tenant("p-2".into())));
    let said = &decision.audit[0];
    assert_eq!(said.action, Action::HandedOver);
    assert_eq!(&*said.actor, "user:ann");
    assert_eq!(said.identity, Some(holder(DB, "").identity));
    assert_eq!(
        *said.detail,
        *format!("from {WEB}, charged to p-2: it moved")
    );
    book.0.confirm(ticket);
    assert_eq!(book.owner(here).as_deref(), Some(DB));
    // The old holder can free nothing of it, and asking again changes nothing.
    assert_eq!(
        book.answered(&release(WEB, "1")),
        Answer::Released { leases: vec![] }
    );
    for again in [ask, transfer(here, None, DB)] {
        let answer = book.answered(&Request::Transfer(again));
        assert!(matches!(answer, Answer::Transferred { .. }), "{answer:?}");
    }
}

fn label(address: &str, set: &[(&str, &str)], remove: &[&str]) -> Request {
    let set = set
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    Request::Label(Label {
        key: key(address),
        set: set.collect(),
        remove: remove.iter().map(|key| (*key).into()).collect(),
        actor: "user:ann".into(),
    })
}

#[test]
fn labels_stay_with_a_lease_until_nobody_holds_it() {
    let mut book = Book::new();
    let pool = book.pool(PoolSpec {
        quarantine: 60,
        ..spec("p", &["10.0.0.8/30"])
    });
    let here = "10.0.0.8";
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let first = label(here, &[("app", "web"), ("team", "red")], &["none"]);
    let (ticket, decision, _) = book.plan(&first);
    assert_eq!(decision.audit[0].action, Action::Labelled);
    assert_eq!(&*decision.audit[0].detail, "app=web team=red");
    assert_eq!(&*decision.audit[0].actor, "user:ann");
    book.0.confirm(ticket);
    let Answer::Labelled { .. } = book.answered(&first) else {
        panic!("asking again is free");
    };
    book.done(&label(here, &[("app", "db")], &["team"]));
    book.done(&Request::Transfer(transfer(here, None, DB)));
    let labels = |book: &Book| {
        book.0
            .lease(key(here))
            .map(|lease| lease.labels.to_string())
    };
    assert_eq!(labels(&book).as_deref(), Some("app=db"));
    let filter = |wanted: &[(&str, Option<&str>)]| fipd_core::LeaseFilter {
        labels: (wanted.iter())
            .map(|(key, value)| ((*key).into(), value.map(Into::into)))
            .collect(),
        ..fipd_core::LeaseFilter::default()
    };
    for (wanted, found) in [
        (&[("app", None)][..], 1),
        (&[("app", Some("db"))], 1),
        (&[("app", Some("web"))], 0),
        (&[("app", None), ("team", None)], 0),
    ] {
        let page = book.0.leases(&filter(wanted), None, 9);
        assert_eq!(page.leases.len(), found, "{wanted:?}");
    }
    book.done(&release(DB, ""));
    assert_eq!(labels(&book).as_deref(), Some(""), "it cools");
    for address in [here, "10.0.0.9"] {
        let refusal = book.refused(&label(address, &[("app", "web")], &[]));
        assert_eq!(refusal, Refusal::NotHeld(self::address(address)));
    }
}

#[test]
fn labels_that_are_no_labels_are_refused() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    for (key, value) in [("a=b", "x"), ("a", "x;y"), ("", "x")] {
        let refusal = book.refused(&label("10.0.0.8", &[(key, value)], &[]));
        assert!(
            matches!(
                refusal,
                Refusal::Invalid {
                    field: "labels",
                    ..
                }
            ),
            "{refusal}"
        );
    }
}

#[test]
fn what_changed_hands_or_is_held_by_nobody_is_not_transferred() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let refusal = book.refused(&Request::Transfer(transfer("10.0.0.8", Some(API), DB)));
    assert!(
        matches!(&refusal, Refusal::ChangedHands { owner, .. } if owner == WEB),
        "{refusal}"
    );
    let refusal = book.refused(&Request::Transfer(transfer("10.0.0.9", None, DB)));
    assert_eq!(refusal, Refusal::NotHeld(address("10.0.0.9")));
    let lease = book.0.lease(key("10.0.0.8")).expect("leased");
    let mut cooling = fipd_core::Lease::clone(lease);
    (cooling.state, cooling.until) = (LeaseState::Quarantined, Some(Timestamp(900)));
    cooling.members.clear();
    book.0.apply(&Op::PutLease(Arc::new(cooling)));
    let refusal = book.refused(&Request::Transfer(transfer("10.0.0.8", None, DB)));
    assert!(refusal.to_string().contains("in quarantine"), "{refusal}");
}

#[test]
fn a_contended_address_is_transferred_to_a_contender_and_to_no_third() {
    let mut book = Book::new();
    book.done(&adopt(WEB, "10.0.0.9", 1));
    book.done(&adopt(API, "10.0.0.9", 2));
    let refusal = book.refused(&Request::Transfer(transfer("10.0.0.9", None, DB)));
    assert!(refusal.to_string().contains(API), "{refusal}");
    let (_, said) = book.done(&Request::Transfer(transfer("10.0.0.9", None, API)));
    assert_eq!(said, [Action::HandedOver]);
    let lease = book.0.lease(key("10.0.0.9")).expect("leased");
    assert_eq!(lease.owner(), Some(&holder(API, "")));
    assert!(lease.contenders.is_empty());
}

#[test]
fn contended_leases_are_listed_in_pages_and_without_the_others() {
    let mut book = Book::new();
    let contended: Vec<_> = (2..7).map(|n| format!("10.0.{n}.9")).collect();
    for address in &contended {
        book.done(&adopt(WEB, address, 1));
        book.done(&adopt(API, address, 2));
    }
    book.done(&adopt(WEB, "10.0.3.8", 1));
    let filter = fipd_core::LeaseFilter {
        contended: true,
        ..Default::default()
    };
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = book.0.leases(&filter, after, 2);
        seen.extend(
            page.leases
                .iter()
                .map(|lease| lease.key.address.to_string()),
        );
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, contended);
    let within = fipd_core::LeaseFilter {
        within: Some(
            "10.0.3.0/24"
                .parse::<fipd_core::AddressSpec>()
                .unwrap()
                .span(),
        ),
        ..filter
    };
    assert_eq!(book.0.leases(&within, None, 9).leases.len(), 1);
}

#[test]
fn an_edit_that_leaves_leases_out_of_range_is_refused_unless_forced() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let edit = |addresses: &[&str], force, if_generation| {
        let spec = spec("p", addresses);
        Request::UpdatePool(PoolEdit {
            pool,
            spec,
            if_generation,
            force,
            actor: "test".into(),
            reason: "".into(),
        })
    };
    let refusal = book.refused(&edit(&["10.0.0.10/31"], false, None));
    assert!(
        matches!(&refusal, Refusal::WouldOrphan { count: 1, .. }),
        "{refusal}"
    );
    assert!(matches!(
        book.refused(&edit(&["10.0.0.8/29"], false, Some(7))),
        Refusal::Stale { .. }
    ));
    book.done(&edit(&["10.0.0.10/31"], true, Some(1)));
    let lease = book.0.lease(key("10.0.0.8")).unwrap().clone();
    assert_eq!(
        (lease.pool, book.0.marks(&lease).as_slice()),
        (Some(pool), [Mark::OutOfRange].as_slice())
    );
    assert_eq!(
        book.0
            .usage(pool)
            .map(|usage| (usage.used, usage.out_of_range)),
        Some((0, 1))
    );
    assert!(matches!(
        book.refused(&edit(&["fd00::/126"], true, None)),
        Refusal::Invalid {
            field: "addresses",
            ..
        }
    ));
    let delete = Request::DeletePool {
        pool,
        actor: "test".into(),
    };
    assert!(matches!(
        book.refused(&delete),
        Refusal::PoolInUse { leases: 1, .. }
    ));
    book.done(&release(WEB, "1"));
    assert_eq!(book.done(&delete).1, [Action::PoolDeleted]);
    assert_eq!(
        book.pool(spec("p", &["10.0.0.8/30"])),
        PoolId(2),
        "numbers are not used again"
    );
}

#[test]
fn the_network_of_a_pool_is_fixed_while_it_has_leases() {
    let mut book = Book::new();
    let (blue, _) = book.done(&Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    });
    let Answer::Network(blue) = blue else {
        panic!("{blue:?}")
    };
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    let mut there = spec("p", &["10.0.0.8/30"]);
    there.network = blue.id;
    let edit = Request::UpdatePool(PoolEdit {
        pool,
        spec: there.clone(),
        if_generation: None,
        force: true,
        actor: "test".into(),
        reason: "".into(),
    });
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    assert!(matches!(
        book.refused(&edit),
        Refusal::Invalid {
            field: "network",
            ..
        }
    ));
    book.done(&release(WEB, "1"));
    book.done(&edit);
    there.name = "q".into();
    there.network = NetworkId::DEFAULT;
    let other = book.pool(there);
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    assert_eq!(
        book.gets(&Request::Allocate(allocate(API, other))),
        ["10.0.0.8"],
        "networks are apart"
    );
    let bad = Request::CreateNetwork {
        name: "Blue".into(),
        actor: "test".into(),
    };
    assert!(matches!(
        book.refused(&bad),
        Refusal::Invalid {
            field: "network",
            ..
        }
    ));
}

#[test]
fn pools_are_found_by_full_or_unique_short_name() {
    let mut book = Book::new();
    let own = book.pool(spec("web", &["10.0.0.0/30"]));
    let first = book.pool(mirror("rancher-fip/one/lan", &["10.0.1.0/30"], "lan"));
    book.pool(mirror("rancher-fip/two/web", &["10.0.2.0/30"], "web"));
    let found = |name: &str| book.0.find_pool(name).map(|pool| pool.id);
    assert_eq!(found("web"), Ok(own), "a full name wins");
    assert_eq!(found("lan"), Ok(first));
    assert_eq!(found("rancher-fip/one/lan"), Ok(first));
    assert_eq!(found("nope"), Err(NameError::Unknown("nope".into())));
    let twin = mirror("rancher-fip/three/lan", &["10.0.3.0/30"], "lan");
    let create = Request::CreatePool {
        spec: twin,
        actor: "test".into(),
    };
    assert!(
        matches!(book.refused(&create), Refusal::PoolExists(_)),
        "one mirror an object"
    );
    book.pool(mirror("rancher-fip/three/lan", &["10.0.3.0/30"], "lan3"));
    assert!(
        matches!(book.0.find_pool("lan"), Err(NameError::Ambiguous { candidates, more: false, .. }) if candidates.len() == 2)
    );
    let scope = Scope {
        pools: [first].into(),
        ..Scope::default()
    };
    let scoped = |name: &str| book.0.find_pool_in(name, &scope).map(|pool| pool.id);
    assert_eq!(scoped("lan"), Ok(first), "the only one in scope");
    assert_eq!(scoped("web"), Err(NameError::Unknown("web".into())));
}

#[test]
fn of_many_pools_with_a_short_name_some_are_named() {
    let mut book = Book::new();
    let pools: Vec<PoolId> = (0..=Ledger::SCAN)
        .map(|cluster| {
            let addresses = format!("10.{}.{}.0/30", cluster / 250, cluster % 250);
            let name = format!("rancher-fip/c{cluster}/lan");
            book.pool(mirror(&name, &[&addresses], &format!("{cluster}/lan")))
        })
        .collect();
    let (found, looked_at) = count_rows(|| book.0.find_pool("lan").cloned());
    let error = found.expect_err("all have that name");
    let most = Ledger::SCAN / Allocate::MAX_WANTS;
    assert!(
        looked_at <= most,
        "{looked_at} rows for one of the names of a request"
    );
    let text = error.to_string();
    assert!(text.contains("rancher-fip/c0/lan"), "{text}");
    assert!(text.ends_with(" or another full name"), "{text}");
    assert!(text.len() < 1_000, "{text}");
    let scope = Scope {
        pools: pools.last().copied().into_iter().collect(),
        ..Scope::default()
    };
    let found = book.0.find_pool_in("lan", &scope).map(|pool| Some(pool.id));
    assert_eq!(found, Ok(pools.last().copied()), "a scope names its pools");
    let elsewhere = Scope {
        networks: [NetworkId(7)].into(),
        ..Scope::default()
    };
    assert_eq!(
        book.0.find_pool_in("lan", &elsewhere),
        Err(NameError::Unknown("lan".into())),
        "what is out of scope is not there"
    );
    let blue = Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    };
    let Answer::Network(blue) = book.done(&blue).0 else {
        panic!("no network")
    };
    let addresses = ["10.99.0.0/30"];
    let alone = book.pool(PoolSpec {
        network: blue.id,
        ..mirror("rancher-fip/blue/lan", &addresses, "blue/lan")
    });
    let scope = Scope {
        networks: [blue.id].into(),
        ..Scope::default()
    };
    let found = book.0.find_pool_in("lan", &scope).map(|pool| pool.id);
    assert_eq!(found, Ok(alone), "the only one of its network");
}

#[test]
fn a_closed_pool_gives_nothing_more_and_keeps_its_leases() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let closed = PoolSpec {
        closed: true,
        ..spec("p", &["10.0.0.8/30"])
    };
    book.done(&Request::UpdatePool(PoolEdit {
        pool,
        spec: closed,
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    }));
    assert!(matches!(
        book.refused(&Request::Allocate(allocate(API, pool))),
        Refusal::PoolClosed(_)
    ));
    assert!(matches!(
        book.answered(&Request::Allocate(allocate(WEB, pool))),
        Answer::Granted { .. }
    ));
}

#[test]
fn accounts_and_tokens_come_and_go_once() {
    let mut book = Book::new();
    let account = Account {
        name: "eve".into(),
        role: Role::Viewer,
        password_hash: "x".into(),
        created: Timestamp(1),
        disabled: false,
    };
    let token = Token {
        id: TokenId(5),
        name: "ci".into(),
        role: Role::Operator,
        hash: [7; 32],
        created: Timestamp(1),
        expires: None,
        scope: Scope::default(),
        from: Vec::new(),
    };
    let puts = [
        Request::CreateAccount {
            account,
            actor: "test".into(),
        },
        Request::PutToken {
            token,
            actor: "test".into(),
        },
    ];
    for request in &puts {
        book.done(request);
        assert_eq!(book.answered(request), Answer::Done);
    }
    assert_eq!((book.0.accounts().count(), book.0.tokens().count()), (1, 1));
    let deletes = [
        Request::DeleteAccount {
            name: "eve".into(),
            actor: "test".into(),
        },
        Request::DeleteToken {
            id: TokenId(5),
            actor: "test".into(),
        },
    ];
    for request in &deletes {
        book.done(request);
        assert_eq!(book.answered(request), Answer::Done);
    }
    assert_eq!((book.0.accounts().count(), book.0.tokens().count()), (0, 0));
}

#[test]
fn a_living_token_keeps_its_name_to_itself() {
    let mut book = Book::new();
    let put = |id, expires: Option<u64>| Request::PutToken {
        token: Token {
            id: TokenId(id),
            name: "ci".into(),
            role: Role::Operator,
            hash: [7; 32],
            created: Timestamp(1),
            expires: expires.map(Timestamp),
            scope: Scope::default(),
            from: Vec::new(),
        },
        actor: "test".into(),
    };
    book.done(&put(1, Some(1)));
    book.done(&put(2, None));
    let taken = Refusal::TokenNameTaken("ci".into());
    assert_eq!(book.refused(&put(3, None)), taken);
    let (id, actor) = (TokenId(2), "test".into());
    book.done(&Request::DeleteToken { id, actor });
    book.done(&put(3, None));
}

#[test]
fn a_key_counts_for_a_while_after_another_signs() {
    let mut book = Book::new();
    let rotate = |byte, after: Option<u64>| Request::RotateKey {
        bytes: KeyBytes(Arc::from([byte])),
        after: after.map(KeyId),
        actor: "test".into(),
    };
    book.done(&rotate(1, None));
    assert_eq!(
        book.answered(&rotate(2, None)),
        Answer::Done,
        "another was first"
    );
    book.done(&rotate(3, Some(1)));
    let keys: Vec<_> = book.0.keys().cloned().collect();
    let [old, new] = keys.as_slice() else {
        panic!("{keys:?}");
    };
    assert_eq!(
        (old.id, &*old.bytes.0, new.id, &*new.bytes.0),
        (KeyId(1), &[1][..], KeyId(2), &[3][..])
    );
    assert_eq!(new.until, None);
    let until = old.until.unwrap();
    assert_eq!(until.0, new.created.0 + SigningKey::OVERLAP);
    let planned = book.0.plan(&rotate(4, Some(2)), until);
    let Planned::Tentative { decision, .. } = planned else {
        panic!("{planned:?}");
    };
    assert!(decision.ops.contains(&Op::DeleteKey(KeyId(1))));
}

#[test]
fn a_key_of_another_program_counts_for_a_while_and_never_signs() {
    let mut book = Book::new();
    let import = |byte| Request::ImportKey {
        bytes: KeyBytes(Arc::from([byte])),
        actor: "test".into(),
    };
    let rotate = |byte, after: Option<u64>| Request::RotateKey {
        bytes: KeyBytes(Arc::from([byte])),
        after: after.map(KeyId),
        actor: "test".into(),
    };
    book.done(&import(9));
    assert_eq!(book.0.signing_key(), None);
    assert_eq!(book.answered(&import(9)), Answer::Done, "it is known");
    book.done(&rotate(1, None));
    book.done(&import(8));
    let signs = |book: &Book| book.0.signing_key().map(|key| key.id);
    assert_eq!(signs(&book), Some(KeyId(2)), "not the last one");
    let imported = book.0.keys().find(|key| key.id == KeyId(3)).cloned();
    let imported = imported.expect("it is there");
    let until = imported.until.expect("an end");
    assert_eq!(until.0, imported.created.0 + SigningKey::OVERLAP);
    book.done(&rotate(2, Some(2)));
    assert_eq!(signs(&book), Some(KeyId(4)));
}

#[test]
fn what_becomes_of_things_beside_the_address_book_is_only_audited() {
    let mut book = Book::new();
    for action in [Action::TakenOver, Action::RulesChanged] {
        let request = Request::Note {
            action,
            what: "a thing".into(),
            actor: "test".into(),
        };
        let planned = book.0.plan(&request, Timestamp(1));
        let Planned::Tentative { decision, .. } = planned else {
            panic!("{planned:?}");
        };
        assert!(decision.ops.is_empty());
        let said = &decision.audit[0];
        assert_eq!((said.action, &*said.detail), (action, "a thing"));
    }
}

#[test]
fn the_last_admin_stays_and_names_are_taken_once() {
    let mut book = Book::new();
    let account = |name: &str, role| Account {
        name: name.into(),
        role,
        password_hash: "x".into(),
        created: Timestamp(1),
        disabled: false,
    };
    let create = |name, role| Request::CreateAccount {
        account: account(name, role),
        actor: "test".into(),
    };
    let edit = |name: &str, role| {
        Request::EditAccount(AccountEdit {
            name: name.into(),
            role,
            password_hash: None,
            disabled: None,
            actor: "test".into(),
        })
    };
    let delete = |name: &str| Request::DeleteAccount {
        name: name.into(),
        actor: "test".into(),
    };
    book.done(&create("ann", Role::Admin));
    book.done(&create("bob", Role::Operator));
    let taken = book.refused(&create("bob", Role::Admin));
    assert_eq!(taken, Refusal::AccountExists("bob".into()));
    let last = Refusal::LastAdmin("ann".into());
    assert_eq!(book.refused(&edit("ann", Some(Role::Viewer))), last);
    assert_eq!(book.refused(&delete("ann")), last);
    assert_eq!(
        book.refused(&edit("eve", None)),
        Refusal::UnknownAccount("eve".into())
    );
    assert_eq!(book.answered(&edit("ann", Some(Role::Admin))), Answer::Done);
    let (ticket, decision, _) = book.plan(&edit("bob", Some(Role::Admin)));
    // Whether ann is the last one is being decided.
    book.busy(&delete("ann"));
    assert_eq!(&*decision.audit[0].detail, "bob: operator to admin");
    book.0.confirm(ticket);
    book.done(&edit("ann", Some(Role::Viewer)));
    assert_eq!(
        book.refused(&delete("bob")),
        Refusal::LastAdmin("bob".into())
    );
    book.done(&delete("ann"));
    // A password alone keeps the role, and is said nowhere.
    let secret = AccountEdit {
        name: "bob".into(),
        role: None,
        password_hash: Some("secret".into()),
        disabled: None,
        actor: "test".into(),
    };
    assert!(!format!("{secret:?}").contains("secret"));
    let (ticket, decision, _) = book.plan(&Request::EditAccount(secret));
    assert_eq!(&*decision.audit[0].detail, "bob: another password");
    book.0.confirm(ticket);
    let bob = book.0.account("bob").expect("there");
    assert_eq!((bob.role, &*bob.password_hash), (Role::Admin, "secret"));
}

#[test]
fn an_admin_who_may_sign_in_stays() {
    let mut book = Book::new();
    let create = |name: &str| Request::CreateAccount {
        account: Account {
            name: name.into(),
            role: Role::Admin,
            password_hash: "x".into(),
            created: Timestamp(1),
            disabled: false,
        },
        actor: "test".into(),
    };
    let disable = |name: &str, disabled| {
        Request::EditAccount(AccountEdit {
            name: name.into(),
            role: None,
            password_hash: None,
            disabled: Some(disabled),
            actor: "test".into(),
        })
    };
    book.done(&create("ann"));
    let last = |name: &str| Refusal::LastAdmin(name.into());
    assert_eq!(book.refused(&disable("ann", true)), last("ann"));
    book.done(&create("bob"));
    let (ticket, decision, _) = book.plan(&disable("bob", true));
    assert_eq!(&*decision.audit[0].detail, "bob: disabled");
    book.0.confirm(ticket);
    assert_eq!(book.answered(&disable("bob", true)), Answer::Done);
    // An admin who may not sign in is none to fall back on, and may go.
    assert_eq!(book.refused(&disable("ann", true)), last("ann"));
    let delete = |name: &str| Request::DeleteAccount {
        name: name.into(),
        actor: "test".into(),
    };
    assert_eq!(book.refused(&delete("ann")), last("ann"));
    book.done(&disable("bob", false));
    book.done(&disable("ann", true));
    book.done(&delete("ann"));
    assert_eq!(book.refused(&delete("bob")), last("bob"));
}

#[test]
fn leases_of_some_addresses_cost_a_range_and_not_a_walk() {
    let mut book = Book::new();
    let four = book.pool(spec("four", &["10.0.0.0/16"]));
    let six = book.pool(spec("six", &["fd00::/64"]));
    for (number, pool) in [four, four, six].into_iter().enumerate() {
        for part in 0..2 {
            let mut ask = allocate(&format!("fipd/Host/{part}/h{number}"), pool);
            ask.wants[0].count = 1_024;
            ask.tenant = (part == 1).then(|| Tenant("t".into()));
            book.gets(&Request::Allocate(ask));
        }
    }
    let filter = |pool, text: &str| fipd_core::LeaseFilter {
        pool,
        within: Some(text.parse::<fipd_core::AddressSpec>().expect(text).span()),
        ..Default::default()
    };
    // One call looks at 1,000 rows, and these are behind 3,000 others.
    for (pool, text, count) in [
        (None, "10.0.12.0/25", 128),
        (Some(four), "10.0.12.0/25", 128),
        (Some(six), "10.0.12.0/25", 0),
        (None, "fd00::7f0/124", 16),
        (Some(six), "fd00::7f0/124", 16),
        (None, "10.0.0.0-10.0.0.2", 3),
        (Some(four), "10.0.0.0/30", 4),
        (None, "10.0.200.0/24", 0),
    ] {
        let filter = filter(pool, text);
        let page = book.0.leases(&filter, None, 500);
        assert_eq!((page.leases.len(), page.next), (count, None), "{text}");
        // The same in pages.
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = book.0.leases(&filter, after, 3);
            seen.extend(page.leases);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, book.0.leases(&filter, None, 500).leases, "{text}");
    }
    let mut charged = filter(Some(four), "10.0.4.0/24");
    charged.tenant = Some(Tenant("t".into()));
    assert_eq!(book.0.leases(&charged, None, 500).leases.len(), 256);
    charged.tenant = Some(Tenant("other".into()));
    assert_eq!(book.0.leases(&charged, None, 500).leases.len(), 0);
}

#[test]
fn readers_follow_the_changes() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    let from = book.0.revision();
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    book.done(&release(WEB, "1"));
    let changes = book.0.changes_page(from, usize::MAX).expect("recent");
    assert_eq!(changes.len(), 2);
    for change in &changes {
        assert_eq!(change.pools.as_slice(), [pool]);
        assert_eq!(change.leases.as_slice(), [key("10.0.0.8").whole()]);
        assert_eq!(change.identities.as_slice(), [WEB.parse().unwrap()]);
        assert!(!change.other);
    }
    let ledger = Ledger::load(book.0.dump(), 1_000).expect("valid rows");
    assert!(
        ledger.changes_page(999, usize::MAX).is_err(),
        "what was before the start is not known"
    );
    assert_eq!(ledger.changes_page(1_000, usize::MAX), Ok(vec![]));
}

#[test]
fn rows_that_contradict_each_other_are_named() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    let without_pool = book.0.dump().filter(|op| !matches!(op, Op::PutPool(_)));
    let violations = Ledger::load(without_pool, 0).expect_err("a lease of no pool");
    assert_eq!(
        violations[0].to_string(),
        "lease 10.0.0.8 of network 0: its pool 1 does not exist"
    );
    let second = book.0.dump().map(|op| match op {
        Op::PutLease(lease) => {
            let mut lease = fipd_core::Lease::clone(&lease);
            lease.members.push(lease.members[0].clone());
            Op::PutLease(lease.into())
        }
        other => other,
    });
    assert_eq!(Ledger::load(second, 0).expect_err("two members").len(), 2);
}

#[test]
fn a_pool_moves_to_another_network_only_when_nothing_is_decided_in_either() {
    let mut book = Book::new();
    let blue = Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    };
    let Answer::Network(blue) = book.done(&blue).0 else {
        panic!("no network")
    };
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    let edit = Request::UpdatePool(PoolEdit {
        pool,
        spec: PoolSpec {
            network: blue.id,
            ..spec("p", &["10.0.0.8/30"])
        },
        if_generation: None,
        force: true,
        actor: "test".into(),
        reason: "".into(),
    });
    let give = Request::Allocate(allocate(WEB, pool));
    let (given, ..) = book.plan(&give);
    book.busy(&edit);
    book.0.abort(given);
    let (moving, ..) = book.plan(&edit);
    book.busy(&give);
    book.busy(&adopt(API, "10.0.0.9", 1));
    book.0.confirm(moving);
    assert_eq!(book.0.check(), []);
    assert_eq!(book.gets(&give), ["10.0.0.8"]);
}

#[test]
fn a_forgotten_cluster_leaves_no_reservation_behind() {
    let mut book = Book::new();
    let mut spec = spec("p", &["10.0.0.1-10.0.0.9"]);
    spec.quarantine = 60;
    let pool = book.pool(spec);
    let cluster = ClusterId("c1".into());
    book.done(&Request::RecordCluster {
        record: ClusterRecord {
            id: cluster.clone(),
            names: vec!["east".into()],
            discovered: false,
            first_seen: Timestamp(1),
            proof: None,
        },
    });
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    for owner in [API, DB] {
        let ask = allocate(owner, pool);
        book.gets(&Request::Reserve(Reserve { ask, until: None }));
    }
    let actor: Text = "test".into();
    book.done(&Request::Orphan {
        cluster: cluster.clone(),
        system: None,
        most: 9,
        actor: actor.clone(),
    });
    let (answer, actions) = book.done(&Request::Forget {
        cluster: cluster.clone(),
        most: 9,
        actor,
    });
    assert_eq!(
        answer,
        Answer::Moved {
            leases: 2,
            more: false
        }
    );
    assert_eq!(actions, [Action::Forgotten, Action::Forgotten]);
    assert!(book.0.cluster(&cluster).is_none());
    // Nobody has used it, so it does not cool; what is reserved for another cluster stays.
    assert_eq!(book.0.lease(key("10.0.0.2")), None);
    assert_eq!(book.owner("10.0.0.3").as_deref(), Some(DB));
}

#[test]
fn pools_of_one_network_that_overlap_are_named() {
    let mut book = Book::new();
    book.done(&Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    });
    let all = book.pool(spec("all", &["10.0.0.0/28"]));
    let some = book.pool(spec("some", &["10.0.0.4-10.0.0.7"]));
    let mut cut = spec("more", &["10.0.0.6-10.0.0.20"]);
    cut.exclusions
        .push("10.0.0.12".parse().expect("an address"));
    let more = book.pool(cut);
    let mut elsewhere = spec("elsewhere", &["10.0.0.0/24"]);
    elsewhere.network = NetworkId(1);
    let elsewhere = book.pool(elsewhere);
    let overlap = |pool, first: &str, last: &str| Overlap {
        pool,
        first: address(first),
        last: address(last),
    };
    let expected = [
        overlap(some, "10.0.0.4", "10.0.0.7"),
        overlap(more, "10.0.0.6", "10.0.0.11"),
        overlap(more, "10.0.0.13", "10.0.0.15"),
    ];
    assert_eq!(book.0.overlaps(all, 9), expected);
    assert_eq!(book.0.overlaps(all, 1), expected.get(..1).expect("one"));
    assert_eq!(book.0.overlaps(elsewhere, 9), []);
}

#[test]
fn what_was_kept_is_not_used_while_another_uses_it() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    let ask = allocate(WEB, pool);
    book.gets(&Request::Reserve(Reserve { ask, until: None }));
    book.done(&adopt(API, "10.0.0.8", 1));
    let refusal = book.refused(&Request::Allocate(allocate(WEB, pool)));
    assert_eq!(
        refusal,
        Refusal::AddressTaken {
            address: key("10.0.0.8").whole(),
            owner: API.to_owned()
        }
    );
    book.done(&release(WEB, "1"));
    let lease = book.0.lease(key("10.0.0.8")).expect("leased");
    assert_eq!(lease.owner(), Some(&holder(API, "1")), "who uses it");
}

#[test]
fn what_was_kept_waits_for_the_clusters_that_may_use_it() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    let ask = allocate(WEB, pool);
    book.gets(&Request::Reserve(Reserve { ask, until: None }));
    book.0.set_expectations(vec![Expectation {
        network: NetworkId::DEFAULT,
        cluster: "one".into(),
        system: System::rancher_fip(),
    }]);
    let refusal = book.refused(&Request::Allocate(allocate(WEB, pool)));
    assert!(matches!(refusal, Refusal::NetworkHeld { .. }), "{refusal}");
}

#[test]
fn what_cools_goes_on_cooling_when_another_pool_may_give_it() {
    let mut book = Book::new();
    let quarantine = 60;
    let wide = spec("wide", &["10.0.0.8/29"]);
    let wide = book.pool(PoolSpec { quarantine, ..wide });
    let narrow = spec("narrow", &["10.0.0.8/31"]);
    let narrow = book.pool(PoolSpec {
        quarantine,
        ..narrow
    });
    for text in ["10.0.0.8", "10.0.0.12"] {
        book.done(&named(WEB, wide, text));
    }
    book.done(&release(WEB, "1"));
    let (pool, actor) = (wide, "test".into());
    book.done(&Request::DeletePool { pool, actor });
    let lease = book.0.lease(key("10.0.0.8")).expect("it cools");
    assert_eq!(
        (lease.state, lease.pool),
        (LeaseState::Quarantined, Some(narrow))
    );
    assert!(book.0.lease(key("10.0.0.12")).is_none());
    assert_eq!(book.0.usage(narrow).map(|usage| usage.quarantined), Some(1));
}

#[test]
fn a_closed_pool_has_its_leases_in_range() {
    let mut book = Book::new();
    let pool = book.pool(spec("p", &["10.0.0.8/30"]));
    book.gets(&Request::Allocate(allocate(WEB, pool)));
    book.done(&Request::UpdatePool(PoolEdit {
        pool,
        spec: PoolSpec {
            closed: true,
            ..spec("p", &["10.0.0.8/30"])
        },
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    }));
    let lease = book.0.lease(key("10.0.0.8")).expect("leased");
    assert!(book.0.marks(lease).is_empty());
}
