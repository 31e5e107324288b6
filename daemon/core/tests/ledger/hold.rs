//! The rules after a restore: free addresses are held, and everything else goes on.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use fipd_core::{
    Action, Adopt, Allocate, Answer, Contender, Decision, Epoch, Holder, Lease, LeaseKey,
    LeaseState, Ledger, NetworkId, Op, Planned, Pool, PoolId, PoolSpec, Refusal, Request, Reserve,
    RestoreHold, Share, Tenant, Timestamp, testing,
};

const WEB: &str = "rancher-fip/c1/Service/shop/web";
const API: &str = "rancher-fip/c1/Service/shop/api";
const POOL: PoolId = PoolId(1);
const START: Timestamp = Timestamp(1_000_000);

fn holder(owner: &str) -> Holder {
    testing::holder(owner, "1")
}

fn key(text: &str) -> LeaseKey {
    testing::key_of(text)
}

fn allocate(owner: &str, address: Option<&str>) -> Allocate {
    Allocate {
        tenant: Some(Tenant("p-1".into())),
        by_admin: true,
        ..testing::allocate(
            holder(owner),
            [testing::want(
                POOL,
                address.map(|text| text.parse().expect(text)),
            )],
        )
    }
}

/// WEB holds 10.0.0.8, which the file knows; 10.0.0.9 cools.
fn restored() -> Ledger {
    let addresses = vec!["10.0.0.8/29".parse().expect("a CIDR")];
    let lease = |address, state: LeaseState| {
        let holder = holder(WEB);
        let member = fipd_core::Member {
            holder,
            ports: Vec::new(),
        };
        let cools = state == LeaseState::Quarantined;
        Op::PutLease(Arc::new(Lease {
            members: (!cools).then_some(member).into_iter().collect(),
            state,
            contenders: Vec::<Contender>::new(),
            tenant: Some(Tenant("p-1".into())),
            until: cools.then_some(Timestamp(u64::MAX)),
            ..testing::lease(key(address), Some(POOL), None)
        }))
    };
    let rows = [
        Op::PutPool(Arc::new(Pool {
            id: POOL,
            spec: PoolSpec::own("p", addresses),
            created: Timestamp(1),
            generation: 1,
        })),
        lease("10.0.0.8", LeaseState::Allocated),
        lease("10.0.0.9", LeaseState::Quarantined),
        Op::PutEpoch(Epoch {
            number: 1,
            began: START,
            hold: Some(RestoreHold::starting(START)),
        }),
    ];
    Ledger::load(rows.into_iter(), 0).expect("the rows are in order")
}

fn done(ledger: &mut Ledger, request: &Request, now: Timestamp) -> (Answer, Decision) {
    let (answer, decision) = testing::ask(ledger, request, now).expect("it is not refused");
    (answer, decision.expect("something is decided"))
}

fn held(ledger: &mut Ledger, request: &Request, now: Timestamp) -> String {
    match ledger.plan(request, now) {
        Planned::Refused(refusal @ Refusal::RestoreHeld { .. }) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

fn pass(ledger: &mut Ledger, elapsed: u64, now: Timestamp) -> Decision {
    let request = Request::PassHold {
        elapsed,
        actor: "fipd".into(),
    };
    done(ledger, &request, now).1
}

fn lift(reason: &str) -> Request {
    Request::LiftHold {
        reason: reason.into(),
        actor: "user:root".into(),
    }
}

#[test]
fn what_is_free_or_cools_is_given_to_nobody_new_while_it_is_held() {
    let mut ledger = restored();
    let reserve = Request::Reserve(Reserve {
        ask: allocate(API, None),
        until: None,
    });
    for request in [
        Request::Allocate(allocate(API, None)),
        Request::Allocate(allocate(API, Some("10.0.0.12"))),
        // It may have been given to somebody after the file was written.
        Request::Allocate(allocate(API, Some("10.0.0.9"))),
        reserve,
    ] {
        let text = held(&mut ledger, &request, START);
        assert!(text.contains("until about 1970-01-02T00:16Z"), "{text}");
        assert!(text.contains("fipd hold lift"), "{text}");
    }
}

#[test]
fn what_the_file_knows_and_what_is_found_in_use_goes_on_while_it_is_held() {
    let mut ledger = restored();
    let again = ledger.plan(&Request::Allocate(allocate(WEB, None)), START);
    assert!(matches!(again, Planned::Answer(Answer::Granted { .. })));
    let adopt = Request::Adopt(Adopt {
        length: None,
        key: key("10.0.0.11"),
        holder: holder(API),
        tenant: None,
        since: Timestamp(1),
        actor: "test".into(),
    });
    assert!(matches!(
        done(&mut ledger, &adopt, START).0,
        Answer::Adopted { .. }
    ));
    let release = testing::release(holder(WEB));
    done(&mut ledger, &release, START);
    // What is freed meanwhile is as free as the rest.
    held(
        &mut ledger,
        &Request::Allocate(allocate(WEB, Some("10.0.0.8"))),
        START,
    );
}

#[test]
fn it_ends_when_fipd_has_run_for_its_time_whatever_the_clock_does() {
    let mut ledger = restored();
    let ask = Request::Allocate(allocate(API, None));
    let year = Timestamp(START.0 + 365 * Epoch::HOLD);
    held(&mut ledger, &ask, year);
    let decision = pass(&mut ledger, Epoch::HOLD - 1, year);
    assert_eq!(decision.audit, []);
    let until = ledger.restore_hold().map(|hold| hold.until);
    assert_eq!(until, Some(Timestamp(year.0 + 1)));
    held(&mut ledger, &ask, year);
    let decision = pass(&mut ledger, 1, year);
    assert_eq!(decision.audit[0].action, Action::RestoreHoldEnded);
    assert_eq!(ledger.restore_hold(), None);
    done(&mut ledger, &ask, year);
    let more = Request::PassHold {
        elapsed: 1,
        actor: "fipd".into(),
    };
    assert!(matches!(
        ledger.plan(&more, year),
        Planned::Answer(Answer::Done)
    ));
    assert_eq!(ledger.epoch().map(|epoch| epoch.number), Some(1));
}

#[test]
fn what_is_told_of_its_end_stays_while_it_is_about_right() {
    let mut ledger = restored();
    let first = ledger.restore_hold().map(|hold| hold.until);
    let revision = ledger.revision();
    pass(&mut ledger, 60_000, Timestamp(START.0 + 61_000));
    assert_eq!(ledger.restore_hold().map(|hold| hold.until), first);
    let changes = ledger
        .changes_page(revision, usize::MAX)
        .expect("a recent revision");
    assert!(changes.iter().all(|change| !change.other));
}

#[test]
fn an_admin_lifts_it_with_a_reason() {
    let mut ledger = restored();
    for reason in ["", "  "] {
        let refused = ledger.plan(&lift(reason), START);
        assert!(
            matches!(&refused, Planned::Refused(Refusal::Invalid { field, .. }) if *field == "reason"),
            "{refused:?}"
        );
    }
    let (_, decision) = done(&mut ledger, &lift("nothing was given since"), START);
    let entry = &decision.audit[0];
    assert_eq!(
        (entry.action, &*entry.detail, &*entry.actor),
        (
            Action::RestoreHoldEnded,
            "nothing was given since",
            "user:root"
        )
    );
    done(&mut ledger, &Request::Allocate(allocate(API, None)), START);
    let again = ledger.plan(&lift("once more"), START);
    assert!(matches!(again, Planned::Answer(Answer::Done)));
}

#[test]
fn a_port_that_looks_free_is_given_to_nobody_new_while_it_is_held() {
    let mut ledger = restored();
    let share = |owner, port: &str| {
        Request::Allocate(Allocate {
            share: Some(Share {
                key: "k".into(),
                ports: vec![port.parse().expect(port)],
            }),
            ..allocate(owner, None)
        })
    };
    held(&mut ledger, &share(WEB, "TCP/80"), START);
    done(&mut ledger, &lift("all ports are known"), START);
    done(&mut ledger, &share(WEB, "TCP/80"), START);
    let mut rows: Vec<Op> = ledger.dump().collect();
    for row in &mut rows {
        if let Op::PutEpoch(epoch) = row {
            epoch.hold = Some(RestoreHold::starting(START));
        }
    }
    let mut ledger = Ledger::load(rows.into_iter(), 0).expect("the rows are in order");
    held(&mut ledger, &share(API, "TCP/443"), START);
    held(&mut ledger, &share(WEB, "TCP/443"), START);
    // Asking again is free.
    let again = ledger.plan(&share(WEB, "TCP/80"), START);
    assert!(matches!(again, Planned::Answer(_)), "{again:?}");
    done(&mut ledger, &lift("all ports are known"), START);
    let (answer, _) = done(&mut ledger, &share(API, "TCP/443"), START);
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(leases.first().map(|lease| lease.key), Some(key("10.0.0.8")));
}

#[test]
fn a_network_whose_cluster_knows_more_is_held_alone() {
    let mut ledger = restored();
    done(&mut ledger, &lift("only one network is to be held"), START);
    let blue = Request::CreateNetwork {
        name: "blue".into(),
        actor: "test".into(),
    };
    let Answer::Network(blue) = done(&mut ledger, &blue, START).0 else {
        panic!("no network");
    };
    let addresses = vec!["10.9.0.8/29".parse().expect("a CIDR")];
    let spec = PoolSpec {
        network: blue.id,
        ..PoolSpec::own("blue", addresses)
    };
    let Answer::Pool(pool) = done(&mut ledger, &testing::create_pool(spec), START).0 else {
        panic!("no pool");
    };
    let hold = |networks: &[NetworkId]| Request::HoldNetworks {
        networks: networks.to_vec(),
        reason: "cluster c1 knows more".into(),
        actor: "fipd".into(),
    };
    let marker = |network| fipd_core::Adoption {
        network,
        cluster: "c1".into(),
        system: fipd_core::System::claims(),
        at: START,
        skipped: false,
    };
    for network in [NetworkId::DEFAULT, blue.id] {
        let request = Request::MarkAdopted {
            marker: marker(network),
            actor: "fipd".into(),
        };
        done(&mut ledger, &request, START);
    }
    let (_, decision) = done(&mut ledger, &hold(&[blue.id]), START);
    let adopted = |network| {
        ledger.adopted(
            network,
            &fipd_core::ClusterId("c1".into()),
            &fipd_core::System::claims(),
        )
    };
    assert_eq!(
        [NetworkId::DEFAULT, blue.id].map(adopted),
        [true, false],
        "what it uses is looked at again"
    );
    let entry = &decision.audit[0];
    assert_eq!(
        (entry.action, entry.network, &*entry.detail),
        (
            Action::NetworkHeld,
            Some(blue.id),
            "blue: cluster c1 knows more"
        )
    );
    let names = |ledger: &Ledger| -> Vec<String> {
        let held = ledger.networks_held();
        held.map(|network| network.name.to_string()).collect()
    };
    assert_eq!(names(&ledger), ["blue"]);
    let mut ask = allocate(API, None);
    done(&mut ledger, &Request::Allocate(ask.clone()), START);
    ask.wants[0].pool = pool.id.into();
    let ask = Request::Allocate(ask);
    held(&mut ledger, &ask, START);
    pass(&mut ledger, Epoch::HOLD - 1, START);
    held(&mut ledger, &ask, START);
    // A second word begins it anew.
    done(&mut ledger, &hold(&[blue.id]), START);
    pass(&mut ledger, 1, START);
    held(&mut ledger, &ask, START);
    let decision = pass(&mut ledger, Epoch::HOLD, START);
    assert_eq!(decision.audit[0].action, Action::RestoreHoldEnded);
    assert_eq!(names(&ledger), [""; 0]);
    done(&mut ledger, &ask, START);
    let unknown = ledger.plan(&hold(&[NetworkId(9)]), START);
    assert!(matches!(
        unknown,
        Planned::Refused(Refusal::UnknownNetwork(NetworkId(9)))
    ));
}
