//! A store with many leases, written by the store itself.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use fipd::store::{Options, Store};
use fipd_core::{
    Action, AuditEntry, Authority as _, Decision, Ends, Family, Holder, Lease, LeaseKey,
    LeaseState, Member, NetworkId, Op, Order, Origin, Outcome, Pool, PoolId, PoolSpec, Timestamp,
};

pub const CLUSTER: &str = "0d1f4f9e-7c5e-4f0b-9d59-3f6f5a1e2b3c";
pub const UID: &str = "7a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const CHUNK: u32 = 20_000;
const POOL: PoolId = PoolId(1);

/// Makes a store with a pool of `cidr`, which begins at 10.0.0.0, with leases on 10.0.0.1 and the `leases` - 1 addresses
/// above, and with `audit` audit entries.
pub fn fill(path: &Path, cidr: &str, leases: u32, audit: u64) -> Result<PoolId> {
    let (mut store, _) = Store::open(path, Options::default())?;
    let put_pool = Decision {
        ops: vec![Op::PutPool(Arc::new(pool(cidr)?))],
        audit: Vec::new(),
    };
    commit(&mut store, vec![put_pool])?;
    let mut written = 0;
    while written < u64::from(leases).max(audit) {
        let rows =
            (written..written + u64::from(CHUNK)).map(|number| decision(number, leases, audit));
        commit(&mut store, rows.collect::<Result<Vec<_>>>()?)?;
        written += u64::from(CHUNK);
    }
    Ok(POOL)
}

fn commit(store: &mut Store, decisions: Vec<Decision>) -> Result<()> {
    match store
        .commit(&decisions)
        .into_iter()
        .find(|outcome| *outcome != Outcome::Committed)
    {
        None => Ok(()),
        Some(outcome) => bail!("not committed: {outcome:?}"),
    }
}

fn decision(number: u64, leases: u32, audit: u64) -> Result<Decision> {
    let mut decision = Decision::default();
    if number < u64::from(leases) {
        decision.ops.push(Op::PutLease(Arc::new(lease(number)?)));
    }
    if number < audit {
        decision.audit.push(entry(number)?);
    }
    Ok(decision)
}

fn address(number: u64) -> Result<std::net::IpAddr> {
    let base = u32::from(Ipv4Addr::new(10, 0, 0, 1));
    Ok(Ipv4Addr::from(base + u32::try_from(number)?).into())
}

fn holder(number: u64) -> Result<Holder> {
    let identity = format!(
        "rancher-fip/{CLUSTER}/Service/team-{}/service-{number}",
        number % 100
    );
    Ok(Holder {
        identity: identity.parse()?,
        instance: UID.into(),
    })
}

fn lease(number: u64) -> Result<Lease> {
    Ok(Lease {
        key: LeaseKey {
            network: NetworkId::DEFAULT,
            address: address(number)?,
        },
        pool: Some(POOL),
        state: LeaseState::Allocated,
        members: [Member {
            holder: holder(number)?,
            ports: Vec::new(),
        }]
        .into(),
        contenders: Vec::new(),
        tenant: None,
        group: None,
        since: Timestamp(1_700_000_000_000 + number),
        until: None,
    })
}

fn entry(number: u64) -> Result<AuditEntry> {
    Ok(AuditEntry {
        at: Timestamp(1_700_000_000_000),
        actor: "controller:rancher-fip/bench".into(),
        action: Action::Allocated,
        network: Some(NetworkId::DEFAULT),
        address: Some(address(number)?),
        pool: Some(POOL),
        identity: Some(holder(number)?.identity),
        detail: "".into(),
    })
}

fn pool(cidr: &str) -> Result<Pool> {
    let spec = PoolSpec {
        name: "bench".into(),
        network: NetworkId::DEFAULT,
        addresses: vec![cidr.parse()?],
        exclusions: Vec::new(),
        gateway: None,
        prefix_len: None,
        subnet: None,
        ends: Ends::own_default(Family::V4),
        order: Order::Lowest,
        origin: Origin::Own,
        closed: false,
    };
    Ok(Pool {
        id: POOL,
        spec,
        created: Timestamp(0),
        generation: 1,
    })
}
