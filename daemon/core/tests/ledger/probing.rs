//! Addresses that are checked on the wire before they are used.
#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use fipd_core::{
    Action, Adopt, Allocate, Answer, AuditEntry, Holder, Lease, LeaseKey, LeaseState, Ledger,
    Planned, PoolId, ProbeVerdict, Probed, Quota, Refusal, Request, Reserve, Share, Sticky, Tenant,
    Timestamp, Transfer, testing,
};

const POOL: PoolId = PoolId(1);
const MAC: &str = "02:00:00:00:00:07";

fn holder(owner: &str) -> Holder {
    testing::holder(format!("fipd/vm/lab/{owner}"), "")
}

fn key(last: u8) -> LeaseKey {
    testing::key([10, 0, 0, last])
}

fn tenant() -> Tenant {
    Tenant("p-1".into())
}

/// A pool of 10.0.0.0 to 10.0.0.3 that remembers who had an address; each decision is a second later.
struct Book(Ledger, u64);

impl Book {
    fn new() -> Self {
        let mut book = Self(Ledger::new(), 0);
        let mut spec = testing::pool_spec("lab", &["10.0.0.0/30"]);
        spec.sticky = Sticky {
            lasts: 7 * 24 * 3_600,
            most: 9,
        };
        book.done(&testing::create_pool(spec));
        book
    }

    fn done(&mut self, request: &Request) -> (Vec<AuditEntry>, Answer) {
        self.1 += 1_000;
        match self.0.plan(request, Timestamp(self.1)) {
            Planned::Tentative {
                ticket,
                decision,
                answer,
            } => {
                self.0.confirm(ticket);
                assert_eq!(self.0.check(), []);
                (decision.audit, answer)
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn refused(&mut self, request: &Request) -> Refusal {
        match self.0.plan(request, Timestamp(self.1)) {
            Planned::Refused(refusal) => refusal,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// What the owner is given, to be checked.
    fn checks(&mut self, owner: &str) -> Lease {
        let (audit, answer) = self.done(&Request::Allocate(allocate(owner)));
        assert_eq!(audit[0].action, Action::Probing);
        let Answer::Granted { leases, fresh } = answer else {
            panic!("{answer:?}");
        };
        assert!(fresh && leases[0].state == LeaseState::Probing);
        Lease::clone(&leases[0])
    }

    fn lease(&self, last: u8) -> Option<&Lease> {
        self.0.lease(key(last)).map(|lease| &**lease)
    }
}

fn allocate(owner: &str) -> Allocate {
    Allocate {
        tenant: Some(tenant()),
        probe: true,
        ..testing::allocate(holder(owner), [testing::want(POOL, None)])
    }
}

fn named(owner: &str, last: u8) -> Allocate {
    let mut ask = allocate(owner);
    ask.wants[0].address = Some(key(last).address);
    ask
}

fn probed(owner: &str, last: u8, verdict: ProbeVerdict) -> Request {
    Request::Probed(Probed {
        key: key(last),
        identity: holder(owner).identity,
        verdict,
        actor: "edge".into(),
    })
}

/// Another uses the first address.
fn found() -> Request {
    Request::Adopt(Adopt {
        length: None,
        key: key(0),
        holder: holder("found"),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    })
}

fn taken() -> ProbeVerdict {
    ProbeVerdict::Taken { by: MAC.into() }
}

fn release(owner: &str) -> Request {
    testing::release(holder(owner))
}

#[test]
fn what_nobody_answers_for_is_in_use_from_then_on() {
    let mut book = Book::new();
    let lease = book.checks("a");
    let until = Timestamp(book.1 + Allocate::PROBE_TIME);
    assert_eq!((lease.key, lease.until), (key(0), Some(until)));
    let again = book
        .0
        .plan(&Request::Allocate(allocate("a")), Timestamp(book.1 + 9));
    let leases = vec![lease.into()];
    assert_eq!(
        again,
        Planned::Answer(Answer::Granted {
            leases,
            fresh: false
        }),
        "still being checked, for as long as before"
    );
    let (audit, _) = book.done(&probed("a", 0, ProbeVerdict::Free));
    assert_eq!(audit[0].action, Action::Allocated);
    let lease = book.lease(0).expect("in use");
    assert_eq!((lease.state, lease.until), (LeaseState::Allocated, None));
    let again = book
        .0
        .plan(&probed("a", 0, ProbeVerdict::Free), Timestamp(book.1));
    assert!(matches!(
        again,
        Planned::Answer(Answer::Granted { fresh: false, .. })
    ));
    let late = book.refused(&probed("a", 0, taken())).to_string();
    assert!(late.contains("in use already"), "{late}");
}

#[test]
fn what_somebody_answers_for_cools_and_the_asker_gets_another() {
    let mut book = Book::new();
    book.checks("a");
    let (audit, answer) = book.done(&probed("a", 0, taken()));
    assert_eq!(audit[0].action, Action::FoundInUse);
    assert!(audit[0].detail.contains(MAC), "{audit:?}");
    assert_eq!(audit[0].identity, Some(holder("a").identity));
    let leases = vec![key(0).whole()];
    assert_eq!(answer, Answer::Released { leases });
    let until = Timestamp(book.1 + 1_000 * u64::from(Probed::TAKEN));
    let lease = book.lease(0).expect("cooling");
    assert_eq!(
        (lease.state, lease.until),
        (LeaseState::Quarantined, Some(until))
    );
    let again = book.0.plan(&probed("a", 0, taken()), Timestamp(book.1));
    let leases = vec![];
    assert_eq!(again, Planned::Answer(Answer::Released { leases }));
    assert_eq!(book.checks("a").key, key(1), "not the same again");
    let named = Allocate {
        probe: false,
        ..named("b", 0)
    };
    let refusal = book.refused(&Request::Allocate(named));
    assert!(
        matches!(refusal, Refusal::Quarantined { .. }),
        "its tenant cannot end that: {refusal}"
    );
    let expire = Request::Expire {
        most: 9,
        actor: "fipd".into(),
    };
    book.1 = until.0;
    book.done(&expire);
    assert_eq!(book.lease(0), None, "an hour is over");
}

#[test]
fn a_pool_may_cool_it_for_longer() {
    let mut book = Book::new();
    let mut spec = book.0.pool(POOL).expect("the pool").spec.clone();
    spec.quarantine = 2 * Probed::TAKEN;
    book.done(&Request::UpdatePool(fipd_core::PoolEdit {
        pool: POOL,
        spec,
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    }));
    book.checks("a");
    book.done(&probed("a", 0, taken()));
    let until = Timestamp(book.1 + 2_000 * u64::from(Probed::TAKEN));
    assert_eq!(book.lease(0).expect("cooling").until, Some(until));
}

#[test]
fn a_contender_gets_what_it_was_found_using() {
    let mut book = Book::new();
    book.checks("a");
    book.done(&found());
    let (audit, _) = book.done(&probed("a", 0, taken()));
    assert_eq!(audit[0].action, Action::PassedOn);
    assert!(audit[0].detail.contains(MAC), "{audit:?}");
    let lease = book.lease(0).expect("passed on");
    assert_eq!(lease.owner(), Some(&holder("found")));
}

#[test]
fn nobody_has_confirmed_what_another_was_found_using() {
    let mut book = Book::new();
    book.checks("a");
    book.done(&found());
    let unchecked = book.refused(&Request::Allocate(Allocate {
        probe: false,
        ..allocate("a")
    }));
    assert!(
        matches!(unchecked, Refusal::AddressTaken { .. }),
        "{unchecked}"
    );
    let (audit, _) = book.done(&probed("a", 0, ProbeVerdict::Free));
    assert_eq!(audit[0].action, Action::PassedOn);
    let lease = book.lease(0).expect("passed on");
    assert_eq!(lease.owner(), Some(&holder("found")));
}

#[test]
fn only_what_the_owner_checks_is_reported() {
    let mut book = Book::new();
    book.checks("a");
    for verdict in [ProbeVerdict::Free, taken()] {
        for (owner, last) in [("b", 0), ("a", 1)] {
            let refusal = book.refused(&probed(owner, last, verdict.clone()));
            assert!(matches!(refusal, Refusal::NotProbed { .. }), "{refusal}");
        }
    }
    book.done(&probed("a", 0, taken()));
    let refusal = book
        .refused(&probed("a", 0, ProbeVerdict::Free))
        .to_string();
    assert!(refusal.contains("in quarantine"), "{refusal}");
}

#[test]
fn it_counts_against_the_quota_until_it_is_given_up() {
    let mut book = Book::new();
    let quota = Quota {
        pool: POOL,
        tenant: tenant(),
        limit: 1,
    };
    let actor = "test".into();
    book.done(&Request::SetQuota { quota, actor });
    book.checks("a");
    let refusal = book.refused(&Request::Allocate(allocate("b")));
    assert!(
        matches!(refusal, Refusal::QuotaExceeded { .. }),
        "{refusal}"
    );
    book.done(&probed("a", 0, taken()));
    assert_eq!(book.checks("b").key, key(1));
    book.done(&release("b"));
    assert_eq!(book.lease(1), None, "nobody has used it");
}

#[test]
fn what_was_kept_is_checked_when_it_is_to_be_used_and_what_cools_is_not() {
    let mut book = Book::new();
    let plain = |ask: Allocate| Allocate {
        probe: false,
        ..ask
    };
    book.done(&Request::Reserve(Reserve {
        ask: plain(named("a", 2)),
        until: None,
    }));
    assert_eq!(book.checks("a").key, key(2));
    book.done(&probed("a", 2, ProbeVerdict::Free));
    book.checks("b");
    book.done(&probed("b", 0, taken()));
    let by_admin = Request::Allocate(Allocate {
        by_admin: true,
        ..named("b", 0)
    });
    let refusal = book.refused(&by_admin);
    assert!(
        matches!(refusal, Refusal::Quarantined { .. }),
        "a check would end the quarantine: {refusal}"
    );
    let reserve = Request::Reserve(Reserve {
        ask: allocate("b"),
        until: None,
    });
    let share = Share {
        key: "web".into(),
        ports: vec!["TCP/80".parse().expect("a port")],
    };
    let shared = Request::Allocate(Allocate {
        share: Some(share),
        ..allocate("b")
    });
    for request in [reserve, shared] {
        let refusal = book.refused(&request);
        assert!(
            matches!(refusal, Refusal::Invalid { field: "probe", .. }),
            "{refusal}"
        );
    }
}

#[test]
fn who_uses_it_unchecked_does_not_lose_it_when_the_time_of_the_check_is_over() {
    let mut book = Book::new();
    let lease = book.checks("a");
    let unchecked = Allocate {
        probe: false,
        ..allocate("a")
    };
    let (_, answer) = book.done(&Request::Allocate(unchecked));
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(leases[0].key, lease.key);
    assert_eq!(
        (leases[0].state, leases[0].until),
        (LeaseState::Allocated, None)
    );

    let lease = book.checks("b");
    let transfer = Transfer {
        key: lease.key,
        from: None,
        to: holder("c"),
        tenant: None,
        force: false,
        actor: "admin".into(),
        reason: "moved".into(),
    };
    let (_, answer) = book.done(&Request::Transfer(transfer));
    let Answer::Transferred { lease } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((lease.state, lease.until), (LeaseState::Allocated, None));
    assert_eq!(book.0.next_expiry(), None);
}
