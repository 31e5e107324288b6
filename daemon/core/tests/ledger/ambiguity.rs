//! Pools of networks that nobody chose give nothing that two of them may mean, until an admin says what is what.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use fipd_core::{
    AddressSpec, Adopt, Allocate, Answer, Holder, LeaseKey, Ledger, Mark, Network, NetworkId, Op,
    Planned, Pool, PoolEdit, PoolId, PoolSpec, Refusal, Request, Timestamp, testing,
};

const NOW: Timestamp = Timestamp(1_000);
const ONE: PoolId = PoolId(1);
const TWO: PoolId = PoolId(2);

fn done(ledger: &mut Ledger, request: Request) -> Answer {
    match ledger.plan(&request, NOW) {
        Planned::Tentative { ticket, answer, .. } => {
            ledger.confirm(ticket);
            answer
        }
        Planned::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn refused(ledger: &mut Ledger, request: Request) -> Refusal {
    match ledger.plan(&request, NOW) {
        Planned::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn spec(name: &str, network: u32, cidr: &str, network_by_default: bool) -> PoolSpec {
    PoolSpec {
        network: NetworkId(network),
        network_by_default,
        ..testing::pool_spec(name, &[cidr])
    }
}

fn create(ledger: &mut Ledger, spec: PoolSpec) {
    done(ledger, testing::create_pool(spec));
}

fn holder(owner: &str) -> Holder {
    testing::holder(format!("fipd/Host/lab/{owner}"), "1")
}

fn ask(owner: &str, pool: PoolId, address: Option<&str>) -> Request {
    Request::Allocate(Allocate {
        by_admin: true,
        ..testing::allocate(
            holder(owner),
            [testing::want(
                pool,
                address.map(|text| text.parse().expect(text)),
            )],
        )
    })
}

fn separate(apart: bool) -> Request {
    Request::Separate {
        networks: (NetworkId(1), NetworkId(0)),
        apart,
        actor: "test".into(),
    }
}

fn given(ledger: &mut Ledger, owner: &str, pool: PoolId) -> String {
    match done(ledger, ask(owner, pool, None)) {
        Answer::Granted { leases, .. } => leases[0].key.address.to_string(),
        other => panic!("{other:?}"),
    }
}

/// 10.0.0.0/29 in `default`, 10.0.0.4/30 in `vlan-7`.
fn site(one: bool, two: bool) -> Ledger {
    let mut ledger = Ledger::default();
    let (name, actor) = ("vlan-7".into(), "test".into());
    done(&mut ledger, Request::CreateNetwork { name, actor });
    create(&mut ledger, spec("one", 0, "10.0.0.0/29", one));
    create(&mut ledger, spec("two", 1, "10.0.0.4/30", two));
    assert_eq!(ledger.check(), []);
    ledger
}

#[test]
fn neither_gives_what_both_may_mean() {
    let mut ledger = site(true, true);
    let usage = |ledger: &Ledger, pool| {
        let usage = ledger.usage(pool).expect("a pool");
        (usage.size, usage.free, usage.withheld)
    };
    assert_eq!(usage(&ledger, ONE), (4, 4, 4));
    assert_eq!(usage(&ledger, TWO), (0, 0, 4));
    for number in 0..4 {
        let owner = format!("h{number}");
        assert_eq!(given(&mut ledger, &owner, ONE), format!("10.0.0.{number}"));
    }
    let full = refused(&mut ledger, ask("late", ONE, None));
    assert!(
        matches!(full, Refusal::Exhausted { size: 4, .. }),
        "{full:?}"
    );
    let named = refused(&mut ledger, ask("late", ONE, Some("10.0.0.5")));
    let text = named.to_string();
    assert!(matches!(named, Refusal::NetworkAmbiguous { .. }), "{text}");
    for part in [
        "one",
        "default",
        "two",
        "vlan-7",
        "fipd network separate",
        "move-network",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let said = ledger.ambiguity(TWO).expect("it withholds");
    assert!(
        said.starts_with("4 addresses") && said.contains("10.0.0.4-10.0.0.7"),
        "{said}"
    );
}

#[test]
fn two_networks_give_both_and_it_can_be_taken_back() {
    let mut ledger = site(true, true);
    done(&mut ledger, separate(true));
    assert_eq!(given(&mut ledger, "a", TWO), "10.0.0.4");
    done(&mut ledger, ask("b", ONE, Some("10.0.0.4")));
    let before = ledger.revision();
    done(&mut ledger, separate(false));
    let changes = ledger
        .changes_page(before, usize::MAX)
        .expect("a recent revision");
    assert!(changes[0].pools.contains(&ONE) && changes[0].pools.contains(&TWO));
    // What is held stays, in range, and asking again is free.
    assert_eq!(given(&mut ledger, "a", TWO), "10.0.0.4");
    for (network, owner) in [(0, "b"), (1, "a")] {
        let address = "10.0.0.4".parse().expect("an address");
        let network = NetworkId(network);
        let lease = ledger.lease(LeaseKey { network, address }).expect(owner);
        assert!(!ledger.marks(lease).contains(&Mark::OutOfRange));
    }
    let refusal = refused(&mut ledger, ask("c", TWO, Some("10.0.0.6")));
    assert!(
        matches!(refusal, Refusal::NetworkAmbiguous { .. }),
        "{refusal:?}"
    );
    let usage = ledger.usage(ONE).expect("a pool");
    assert_eq!((usage.out_of_range, usage.used, usage.withheld), (0, 0, 4));
    // A lease on a withheld address is a use of the pool as any other.
    assert_eq!((usage.withheld_in_use, usage.leased()), (1, 1));
    assert!(usage.in_use());
}

#[test]
fn a_chosen_network_is_another_one() {
    for (one, two) in [(true, false), (false, true), (false, false)] {
        let mut ledger = site(one, two);
        assert_eq!(ledger.ambiguity(ONE), None);
        assert_eq!(given(&mut ledger, "a", TWO), "10.0.0.4");
    }
}

#[test]
fn a_pool_taken_to_the_other_network_gives_again() {
    let mut ledger = site(true, true);
    let (network, actor) = (NetworkId(0), "test".into());
    done(
        &mut ledger,
        Request::MoveNetwork {
            pool: TWO,
            network,
            actor,
        },
    );
    assert_eq!(ledger.ambiguity(ONE), None);
    assert_eq!(given(&mut ledger, "a", TWO), "10.0.0.4");
}

#[test]
fn edits_and_ends_of_the_other_pool_give_the_addresses_back() {
    let mut ledger = site(true, true);
    let edit = PoolEdit {
        pool: TWO,
        spec: spec("two", 1, "10.0.0.6/31", true),
        if_generation: None,
        force: false,
        actor: "test".into(),
        reason: "".into(),
    };
    done(&mut ledger, Request::UpdatePool(edit));
    assert_eq!(ledger.usage(ONE).expect("a pool").withheld, 2);
    let within = |text: &str| text.parse::<AddressSpec>().expect(text).span();
    let spans = ledger.pool_spans(ONE, within("10.0.0.0/24"));
    assert_eq!(spans.expect("a pool").withheld, [within("10.0.0.6/31")]);
    let spans = ledger.pool_spans(ONE, within("10.0.0.7/32"));
    assert_eq!(spans.expect("a pool").withheld, [within("10.0.0.7/32")]);
    let (pool, actor) = (TWO, "test".into());
    done(&mut ledger, Request::DeletePool { pool, actor });
    assert_eq!(ledger.usage(ONE).expect("a pool").withheld, 0);
    assert_eq!(ledger.check(), []);
}

#[test]
fn what_is_found_in_use_is_adopted_all_the_same() {
    let mut ledger = site(true, true);
    let adopt = Adopt {
        length: None,
        key: LeaseKey {
            network: NetworkId(1),
            address: "10.0.0.5".parse().expect("an address"),
        },
        holder: holder("vm"),
        tenant: None,
        since: NOW,
        actor: "test".into(),
    };
    let answer = done(&mut ledger, Request::Adopt(adopt));
    assert!(matches!(answer, Answer::Adopted { .. }), "{answer:?}");
    let again = Ledger::load(ledger.dump(), 0).expect("its own rows");
    assert_eq!(again.usage(TWO), ledger.usage(TWO));
    assert_eq!(again.check(), []);
}

#[test]
fn a_network_is_not_two() {
    let mut ledger = site(true, true);
    let networks = (NetworkId(0), NetworkId(0));
    let (apart, actor) = (true, "test".into());
    let refusal = refused(
        &mut ledger,
        Request::Separate {
            networks,
            apart,
            actor,
        },
    );
    assert!(
        matches!(
            refusal,
            Refusal::Invalid {
                field: "network",
                ..
            }
        ),
        "{refusal:?}"
    );
}

/// Fitting each of them to all before it would take minutes.
#[test]
fn thousands_of_pools_that_may_mean_the_same_are_loaded_at_once() {
    let pools = (1..=2_000_u32).map(|id| {
        let name = format!("p{id}");
        Op::PutPool(Arc::new(Pool {
            id: PoolId(id),
            spec: spec(&name, id % 2, "10.0.0.0/24", true),
            created: NOW,
            generation: 1,
        }))
    });
    let network = Op::PutNetwork(Network {
        id: NetworkId(1),
        name: "vlan-7".into(),
        hold: None,
    });
    let mut ledger = Ledger::load(pools.chain([network]), 0).expect("good rows");
    let given = |ledger: &Ledger, id| ledger.usage(PoolId(id)).map(|usage| usage.size);
    assert_eq!([1, 2, 2_000].map(|id| given(&ledger, id)), [Some(0); 3]);
    done(&mut ledger, separate(true));
    assert_eq!([1, 2, 2_000].map(|id| given(&ledger, id)), [Some(256); 3]);
}
