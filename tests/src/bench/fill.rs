//! A store with many leases, written by the store itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fipd::clock;
use fipd::store::{Store, StoreOptions};
use fipd_core::{
    Action, AuditEntry, Authority as _, Decision, Ends, Family, Holder, Hour, Lease, LeaseKey,
    LeaseState, Member, NetworkId, Op, Outcome, Pool, PoolId, PoolSpec, Quota, Rollup, Tenant,
    Timestamp,
};

use crate::testbed::{Fipd, FipdOptions};

pub const CLUSTER: &str = "0d1f4f9e-7c5e-4f0b-9d59-3f6f5a1e2b3c";
pub const UID: &str = "7a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const CHUNK: u32 = 20_000;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Pools of a store. Lease number N is in pool N modulo their number, each pool filled from its second address on.
#[derive(Debug, Clone)]
pub struct Pools(Vec<(PoolId, ipnet::Ipv4Net)>);

impl Pools {
    /// One pool of the CIDR.
    pub fn one(cidr: &str) -> Result<Self> {
        Ok(Self(vec![(PoolId(1), cidr.parse()?)]))
    }

    /// 256 pools, each a /16 of 10.0.0.0/8.
    pub fn many() -> Result<Self> {
        let net = |n: u8| {
            let net = ipnet::Ipv4Net::new(Ipv4Addr::new(10, n, 0, 0), 16)?;
            Ok((PoolId(u32::from(n) + 1), net))
        };
        Ok(Self((0..=u8::MAX).map(net).collect::<Result<_>>()?))
    }

    /// Where lease `number` is.
    pub fn place(&self, number: u64) -> Result<(PoolId, Ipv4Addr)> {
        let pools = self.0.len() as u64;
        let index = usize::try_from(number % pools)?;
        let (pool, net) = self.0.get(index).context("no pool")?;
        let host = u32::try_from(number / pools)? + 1;
        Ok((*pool, Ipv4Addr::from(u32::from(net.network()) + host)))
    }
}

/// fipd with so many leases in the pool `bench`.
pub async fn daemon(cidr: &str, leases: u32) -> Result<Fipd> {
    let pools = Pools::one(cidr)?;
    let filled = move |store: &Path| fill(store, &pools, leases, u64::from(leases));
    daemon_on(FipdOptions::default(), filled).await
}

/// fipd on a store that is written before it starts.
pub async fn daemon_on(
    options: FipdOptions,
    write: impl FnOnce(&Path) -> Result<()> + Send + 'static,
) -> Result<Fipd> {
    let mut fipd = Fipd::prepare(options).await?;
    let store = fipd.data_dir().join("fipd.redb");
    std::fs::create_dir_all(fipd.data_dir())?;
    tokio::task::spawn_blocking(move || write(&store)).await??;
    fipd.restart().await?;
    fipd.wait_ready(READY_WITHIN).await?;
    Ok(fipd)
}

/// Makes a store with so many pools of 16 addresses each, none of which is given, but some were in the last week.
pub fn pools(path: &Path, many: u32) -> Result<()> {
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    let put = |number: u32| -> Result<Op> {
        let net = ipnet::Ipv4Net::new(Ipv4Addr::from(first + number * 16), 28)?;
        let pool = pool(PoolId(number + 1), &format!("pool-{number}"), net)?;
        Ok(Op::PutPool(Arc::new(pool)))
    };
    let last = Hour::of(clock::now()).before(2);
    let weeks = (1..=many).flat_map(|id| week(PoolId(id), last));
    rows(path, (0..many).map(put).chain(weeks.map(Ok)))
}

/// A row a day: each of two pools in three was fuller every day, and is empty at last.
fn week(pool: PoolId, last: Hour) -> impl Iterator<Item = Op> {
    let day = move |ago: u32| {
        let used = if ago == 0 {
            0
        } else {
            (7 - ago) * (pool.0 % 3)
        };
        Op::PutRollup(Rollup {
            pool,
            hour: last.before(ago * 24),
            // Of 16, without the first and the last.
            size: 14,
            used: used.into(),
            quarantined: 0,
            highest: used.into(),
            given: used.into(),
            released: 0,
            refused: 0,
        })
    };
    (0..7).rev().map(day)
}

/// Makes a store with one pool, of which each of so many tenants may have another number of addresses.
pub fn tenants(path: &Path, many: u32) -> Result<()> {
    let bench = pool(PoolId(1), "bench", "10.0.0.0/8".parse()?)?;
    let quota = |number: u32| {
        Ok(Op::PutQuota(Quota {
            pool: PoolId(1),
            tenant: Tenant(format!("tenant-{number}").as_str().into()),
            limit: u64::from(number),
        }))
    };
    let bench = std::iter::once(Ok(Op::PutPool(Arc::new(bench))));
    rows(path, bench.chain((0..many).map(quota)))
}

fn rows(path: &Path, ops: impl Iterator<Item = Result<Op>>) -> Result<()> {
    let (mut store, _) = Store::open(path, StoreOptions::default())?;
    let ops: Vec<Op> = ops.collect::<Result<_>>()?;
    let decision = |ops: &[Op]| Decision {
        ops: ops.to_vec(),
        audit: Vec::new(),
    };
    let chunks = ops.chunks(CHUNK as usize);
    chunks
        .map(decision)
        .try_for_each(|one| commit(&mut store, vec![one]))
}

/// Makes a store with `leases` leases in the pools and `audit` audit entries.
pub fn fill(path: &Path, pools: &Pools, leases: u32, audit: u64) -> Result<()> {
    let (mut store, _) = Store::open(path, StoreOptions::default())?;
    let put = |(id, net): &(PoolId, ipnet::Ipv4Net)| {
        let name = match pools.0.len() {
            1 => "bench".to_owned(),
            _ => format!("bench-{}", id.0),
        };
        Ok(Decision {
            ops: vec![Op::PutPool(Arc::new(pool(*id, &name, *net)?))],
            audit: Vec::new(),
        })
    };
    commit(&mut store, pools.0.iter().map(put).collect::<Result<_>>()?)?;
    let mut written = 0;
    while written < u64::from(leases).max(audit) {
        let rows = (written..written + u64::from(CHUNK))
            .map(|number| decision(pools, number, leases, audit));
        commit(&mut store, rows.collect::<Result<Vec<_>>>()?)?;
        written += u64::from(CHUNK);
    }
    Ok(())
}

/// Pools of a family and length each: what they give, and from where.
type MorePools = [(u8, &'static str); 4];

/// Pools of prefixes of several lengths.
pub const PREFIXES: MorePools = [
    (64, "2001:db8::/32"),
    (60, "3fff::/20"),
    (56, "fd00::/16"),
    (30, "172.16.0.0/12"),
];

/// Pools of addresses in their place.
pub const ADDRESSES: MorePools = [
    (128, "2001:db8::/32"),
    (128, "3fff::/20"),
    (128, "fd00::/16"),
    (32, "172.16.0.0/12"),
];

/// Adds these pools, and so many leases of theirs, to a store with at most 256 pools.
pub fn add(path: &Path, added: &MorePools, leases: u32) -> Result<()> {
    let pools = added.iter().zip(257..).map(|((length, from), id)| {
        let from: ipnet::IpNet = from.parse()?;
        let spec = PoolSpec {
            allocation_length: Some(*length).filter(|length| *length < from.max_prefix_len()),
            ..PoolSpec::own(format!("more-{id}"), vec![from.to_string().parse()?])
        };
        Ok(Op::PutPool(Arc::new(Pool {
            id: PoolId(id),
            spec,
            created: Timestamp(0),
            generation: 1,
        })))
    });
    let puts = (0..leases).map(|number| {
        let many = u32::try_from(added.len())?;
        let (at, id) = (number % many, PoolId(257 + number % many));
        let (length, from) = added.get(at as usize).context("no pool")?;
        let from: ipnet::IpNet = from.parse()?;
        let address = match from.addr() {
            IpAddr::V4(first) => {
                let step = (number / many) << (32 - length);
                Ipv4Addr::from_bits(first.to_bits() + step).into()
            }
            IpAddr::V6(first) => {
                let step = u128::from(number / many) << (128 - length);
                Ipv6Addr::from_bits(first.to_bits() + step).into()
            }
        };
        let lease = Lease {
            length: *length,
            ..lease(number.into(), id, address)?
        };
        Ok(Op::PutLease(Arc::new(lease)))
    });
    rows(path, pools.chain(puts))
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

fn decision(pools: &Pools, number: u64, leases: u32, audit: u64) -> Result<Decision> {
    let mut decision = Decision::default();
    let (pool, address) = pools.place(number)?;
    if number < u64::from(leases) {
        let lease = lease(number, pool, address.into())?;
        decision.ops.push(Op::PutLease(Arc::new(lease)));
    }
    if number < audit {
        decision.audit.push(entry(number, pool, address.into())?);
    }
    Ok(decision)
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

fn lease(number: u64, pool: PoolId, address: IpAddr) -> Result<Lease> {
    Ok(Lease {
        length: 32,
        key: LeaseKey {
            network: NetworkId::DEFAULT,
            address,
        },
        pool: Some(pool),
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
        labels: Default::default(),
    })
}

fn entry(number: u64, pool: PoolId, address: IpAddr) -> Result<AuditEntry> {
    Ok(AuditEntry {
        length: None,
        at: Timestamp(1_700_000_000_000),
        actor: "controller:rancher-fip/bench".into(),
        action: Action::Allocated,
        network: Some(NetworkId::DEFAULT),
        address: Some(address),
        pool: Some(pool),
        identity: Some(holder(number)?.identity),
        detail: "".into(),
    })
}

fn pool(id: PoolId, name: &str, net: ipnet::Ipv4Net) -> Result<Pool> {
    let spec = PoolSpec {
        ends: Ends::own_default(Family::V4),
        ..PoolSpec::own(name, vec![net.to_string().parse()?])
    };
    Ok(Pool {
        id,
        spec,
        created: Timestamp(0),
        generation: 1,
    })
}
