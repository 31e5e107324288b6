//! Set-up that the tests of all crates share. Fields that a test cares about are set by struct update.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, such as on a text that is none"
)]

use std::net::IpAddr;

use crate::{
    Allocate, Answer, Choice, Decision, Holder, Lease, LeaseKey, LeaseState, Ledger, Member,
    NetworkId, Planned, Pool, PoolId, PoolSpec, Refusal, Release, ReleaseScope, Request, Timestamp,
    Want,
};

/// Asks when nothing else is in flight, and confirms what was decided; the ledger is sound then.
///
/// # Errors
/// The refusal.
pub fn ask(
    ledger: &mut Ledger,
    request: &Request,
    now: Timestamp,
) -> Result<(Answer, Option<Decision>), Refusal> {
    match ledger.plan(request, now) {
        Planned::Tentative {
            ticket,
            decision,
            answer,
        } => {
            ledger.confirm(ticket);
            assert_eq!(ledger.check(), []);
            Ok((answer, Some(decision)))
        }
        Planned::Answer(answer) => Ok((answer, None)),
        Planned::Refused(refusal) => Err(refusal),
        Planned::Busy => panic!("busy: {request:?}"),
    }
}

/// `SYSTEM/CLUSTER/KIND/NAMESPACE/NAME` and the UID of the object.
pub fn holder(owner: impl AsRef<str>, instance: &str) -> Holder {
    Holder {
        identity: owner.as_ref().parse().expect("an owner"),
        instance: instance.into(),
    }
}

/// An address of the default network.
pub fn key(address: impl Into<IpAddr>) -> LeaseKey {
    LeaseKey {
        network: NetworkId::DEFAULT,
        address: address.into(),
    }
}

/// An address of the default network, as text.
pub fn key_of(address: impl AsRef<str>) -> LeaseKey {
    key(address.as_ref().parse::<IpAddr>().expect("an address"))
}

/// A pool of fipd's own, of addresses, ranges and CIDRs.
pub fn pool_spec(name: &str, addresses: &[&str]) -> PoolSpec {
    let parsed = addresses.iter().map(|text| text.parse());
    let parsed: Result<_, _> = parsed.collect();
    PoolSpec::own(name, parsed.expect("addresses"))
}

/// The first pool of a ledger, as it was made.
pub fn pool(spec: PoolSpec) -> Pool {
    Pool {
        id: PoolId(1),
        spec,
        created: Timestamp(0),
        generation: 1,
    }
}

/// One address of the pool, or this one.
pub fn want(pool: impl Into<Choice>, address: Option<IpAddr>) -> Want {
    Want {
        pool: pool.into(),
        address,
        count: 1,
    }
}

/// Without tenant, sharing, probe or queue.
pub fn allocate(holder: Holder, wants: impl Into<Vec<Want>>) -> Allocate {
    Allocate {
        holder,
        tenant: None,
        wants: wants.into(),
        waiting_since: None,
        by_admin: false,
        share: None,
        probe: false,
        actor: "test".into(),
    }
}

/// All that the holder has.
pub fn release(holder: Holder) -> Request {
    Request::Release(Release {
        scope: ReleaseScope::Holder(holder),
        actor: "test".into(),
        reason: "".into(),
    })
}

pub fn create_pool(spec: PoolSpec) -> Request {
    let actor = "test".into();
    Request::CreatePool { spec, actor }
}

/// Without ports.
pub fn member(holder: Holder) -> Member {
    let ports = Vec::new();
    Member { holder, ports }
}

/// Allocated at 1 ms, without tenant and contenders.
pub fn lease(
    key: LeaseKey,
    pool: Option<PoolId>,
    holders: impl IntoIterator<Item = Holder>,
) -> Lease {
    Lease {
        key,
        length: key.bits(),
        pool,
        state: LeaseState::Allocated,
        members: holders.into_iter().map(member).collect(),
        contenders: Vec::new(),
        tenant: None,
        group: None,
        since: Timestamp(1),
        until: None,
        labels: Default::default(),
    }
}
