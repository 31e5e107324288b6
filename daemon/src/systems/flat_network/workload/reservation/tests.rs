use std::sync::Arc;

use fipd_core::{
    Adopt, Answer, Handover, Op, PoolId, Refusal, Release, ReleaseScope, Timestamp, testing,
};

use super::*;

const WEB: &str = "flat-network/c/Deployment/ns/web";
const NOW: Timestamp = Timestamp(1_000);

fn holder(owner: &str) -> Holder {
    testing::holder(format!("flat-network/c/{owner}"), "u")
}

fn web() -> Identity {
    testing::holder(WEB, "d").identity
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A pool of 10.0.0.1 to 10.0.0.3.
fn book() -> (Ledger, Arc<Pool>) {
    let mut ledger = Ledger::new();
    let spec = testing::pool_spec("lab", &["10.0.0.1-10.0.0.3"]);
    done(&mut ledger, &testing::create_pool(spec));
    let pool = ledger.pool(PoolId(1)).cloned().expect("the pool");
    (ledger, pool)
}

fn done(ledger: &mut Ledger, request: &Request) -> Answer {
    let (answer, _) = testing::ask(ledger, request, NOW).expect("it is done");
    answer
}

/// What is to be done about Deployment `ns/web`, which names these addresses and has the pod `web-1`.
fn planned(ledger: &Ledger, pool: Option<&Pool>, named: &[u8]) -> ReservationPlan {
    let named: Vec<IpAddr> = named.iter().copied().map(address).collect();
    let is_own = |pod: &Identity| *pod.name == *"web-1";
    plan(ledger, &web(), (pool, &named), is_own)
}

fn reserve(ledger: &mut Ledger, pool: &Pool, plan: &ReservationPlan) {
    for place in &plan.reserve {
        let (holder, tenant) = (testing::holder(WEB, "d"), Tenant("lab/ns".into()));
        let wanted = (pool, place.address);
        done(ledger, &request(holder, tenant, wanted, "test".into()));
    }
}

fn auto(ledger: &mut Ledger, pod: &str) -> Result<IpAddr, Refusal> {
    let wants = [testing::want(PoolId(1), None)];
    let ask = testing::allocate(holder(&format!("FlatNetworkIP/ns/{pod}")), wants);
    let (answer, _) = testing::ask(ledger, &Request::Allocate(ask), NOW)?;
    let Answer::Granted { leases, .. } = answer else {
        panic!("{answer:?}");
    };
    Ok(leases[0].key.address)
}

fn hand_over(ledger: &mut Ledger, from: Holder, to: Holder, last: u8) {
    let handover = Handover {
        from,
        to,
        keys: vec![testing::key(address(last))],
        actor: "test".into(),
        reason: "".into(),
    };
    done(ledger, &Request::Handover(handover));
}

/// Defect g1-8.
#[test]
fn g1_8_an_auto_pod_does_not_get_a_reserved_address() {
    let (mut ledger, pool) = book();
    let first = planned(&ledger, Some(&pool), &[1, 2]);
    assert_eq!(first.reserve.len(), 2);
    reserve(&mut ledger, &pool, &first);
    let nothing = ReservationPlan::default();
    assert_eq!(planned(&ledger, Some(&pool), &[1, 2]), nothing);
    assert_eq!(auto(&mut ledger, "a"), Ok(address(3)));
    let next = auto(&mut ledger, "b");
    assert!(matches!(next, Err(Refusal::Exhausted { .. })), "{next:?}");
    // A pod of the workload takes it, and gives it back.
    let (own, pod) = (testing::holder(WEB, "d"), holder("FlatNetworkIP/ns/web-1"));
    hand_over(&mut ledger, own.clone(), pod.clone(), 1);
    assert_eq!(planned(&ledger, Some(&pool), &[1, 2]), nothing);
    hand_over(&mut ledger, pod, own, 1);
    assert_eq!(planned(&ledger, Some(&pool), &[1, 2]), nothing);
    let lease = ledger.lease(testing::key(address(1))).expect("a lease");
    let kept = kept_for(lease).map(|workload| workload.to_string());
    assert_eq!(kept.as_deref(), Some("Deployment/ns/web"));
    assert!(auto(&mut ledger, "b").is_err());
}

#[test]
fn a_reservation_takes_nothing_from_who_has_it() {
    let (mut ledger, pool) = book();
    assert_eq!(auto(&mut ledger, "other"), Ok(address(1)));
    assert_eq!(auto(&mut ledger, "web-1"), Ok(address(2)));
    let plan = planned(&ledger, Some(&pool), &[1, 2, 3, 9]);
    assert_eq!(plan.reserve, [testing::key(address(3))]);
    let taken: Vec<String> = plan
        .taken
        .iter()
        .map(|(address, owner)| format!("{address} {}", owner.name))
        .collect();
    assert_eq!(taken, ["10.0.0.1 other"], "its own pod keeps what it has");
    assert!(plan.release.is_empty());
}

#[test]
fn what_is_named_no_more_or_in_use_is_released() {
    let (mut ledger, pool) = book();
    let first = planned(&ledger, Some(&pool), &[1, 2]);
    reserve(&mut ledger, &pool, &first);
    let released = |ledger: &Ledger, pool: Option<&Pool>, named: &[u8]| -> Vec<IpAddr> {
        let plan = planned(ledger, pool, named);
        let keys = plan.release.into_values().flatten();
        keys.map(|key| key.address).collect()
    };
    assert!(released(&ledger, Some(&pool), &[1, 2]).is_empty());
    assert_eq!(released(&ledger, Some(&pool), &[2]), [address(1)]);
    assert_eq!(released(&ledger, None, &[1, 2]), [address(1), address(2)]);
    let mut closed = Pool::clone(&pool);
    closed.spec.closed = true;
    let all = [address(1), address(2)];
    assert_eq!(released(&ledger, Some(&closed), &[1, 2]), all);
    // Who is found using it gets it.
    let user = holder("FlatNetworkIP/ns/user");
    let adopt = Adopt {
        key: testing::key(address(2)),
        length: None,
        holder: user.clone(),
        tenant: None,
        since: NOW,
        actor: "test".into(),
    };
    done(&mut ledger, &Request::Adopt(adopt));
    let plan = planned(&ledger, Some(&pool), &[1, 2]);
    for (holder, keys) in plan.release {
        let release = Release {
            scope: ReleaseScope::HolderAddresses(holder, keys),
            actor: "test".into(),
            reason: "".into(),
        };
        done(&mut ledger, &Request::Release(release));
    }
    let lease = ledger.lease(testing::key(address(2))).expect("a lease");
    assert_eq!(lease.owner(), Some(&user));
    let plan = planned(&ledger, Some(&pool), &[1, 2]);
    assert!(plan.reserve.is_empty() && plan.release.is_empty());
    assert_eq!(plan.taken.len(), 1);
}

#[test]
fn what_was_kept_before_its_cluster_left_is_kept_again() {
    let (mut ledger, pool) = book();
    let key = testing::key(address(1));
    let lease = testing::lease(key, Some(PoolId(1)), [testing::holder(WEB, "old")]);
    ledger.apply(&Op::PutLease(Arc::new(Lease {
        state: LeaseState::Orphaned,
        ..lease
    })));
    let plan = planned(&ledger, Some(&pool), &[1]);
    assert_eq!((plan.revive, plan.reserve), (vec![key], vec![]));
    assert!(plan.release.is_empty());
}
