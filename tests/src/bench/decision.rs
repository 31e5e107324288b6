//! The allocation decision in memory: what plan and confirm cost, and that it does not matter how much is in use.

use std::{
    io::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use fipd_core::{
    Actor, AddressSpec, Allocate, ClusterId, Ends, Family, Holder, Identity, Lease, LeaseKey,
    LeaseState, Ledger, Member, NetworkId, Op, Planned, Pool, PoolId, PoolSpec, Release,
    ReleaseScope, Request, System, Timestamp, Want,
};

use super::{Figure, percentile};

const FEW: u128 = 1_000;
const MANY: u128 = 1_000_000;
/// Decisions timed together; few beside `FEW`, so that the number in use stays what it is called.
const ROUND: usize = 200;
const ROUNDS: usize = 60;
/// Peers of PERFORMANCE figures: go-ipam at 31k in use.
const PEER: &str = "go-ipam 2831 us at 31k";

/// A pool and the pattern in which it is used.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    cidr: &'static str,
    step: u128,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "v4 /12 contiguous",
        cidr: "10.0.0.0/12",
        step: 1,
    },
    Shape {
        name: "v4 /12 every second",
        cidr: "10.0.0.0/11",
        step: 2,
    },
    Shape {
        name: "v6 /64 contiguous",
        cidr: "2001:db8::/64",
        step: 1,
    },
    Shape {
        name: "v6 /64 every second",
        cidr: "2001:db8::/64",
        step: 2,
    },
];

/// Two figures a shape: the cost at a million in use, and its ratio to the cost at a thousand.
pub fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for shape in SHAPES {
        let mut few = filled(shape, FEW)?;
        let mut many = filled(shape, MANY)?;
        let (mut at_few, mut at_many) = (Vec::new(), Vec::new());
        // Alternately, so that whatever else the machine does meets both.
        for _ in 0..ROUNDS {
            at_few.push(round(&mut few)?);
            at_many.push(round(&mut many)?);
        }
        let micros = |samples: &[Duration]| {
            percentile(samples, 0.5).map(|time| time.as_secs_f64() * 1e6 / ROUND as f64)
        };
        let (at_few, at_many) = micros(&at_few)
            .zip(micros(&at_many))
            .context("no samples")?;
        let name = |what: &str| format!("decision {} {what}", shape.name);
        figures.push(Figure::at_most(&name("at 1M"), "us", at_many, PEER, 2.0));
        figures.push(Figure::cost_ratio(
            &name("1M to 1k"),
            "us",
            at_many,
            at_few,
            2.0,
        ));
    }
    Ok(figures)
}

/// A ledger with `used` leases in the shape's pool, each as a Service's would be.
fn filled(shape: Shape, used: u128) -> Result<Ledger> {
    let cidr: AddressSpec = shape.cidr.parse()?;
    let spec = PoolSpec {
        ends: Ends::own_default(Family::V4),
        ..PoolSpec::own("bench", vec![cidr])
    };
    let pool = Pool {
        id: PoolId(1),
        spec,
        created: Timestamp(0),
        generation: 1,
    };
    let span = cidr.span();
    let leases = (0..used).map(|n| {
        Op::PutLease(Arc::new(Lease {
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address: span.family.address(span.first + 1 + n * shape.step),
            },
            pool: Some(PoolId(1)),
            state: LeaseState::Allocated,
            members: std::iter::once(Member {
                holder: holder(n),
                ports: Vec::new(),
            })
            .collect(),
            contenders: Vec::new(),
            tenant: None,
            group: None,
            since: Timestamp(0),
            until: None,
        }))
    });
    let pools = [Op::PutPool(Arc::new(pool)), Op::PutNextPool(PoolId(2))];
    Ledger::load(pools.into_iter().chain(leases), 0)
        .map_err(|violations| Error::other(format!("{:?}", violations.first())).into())
}

/// The owner number `n`: one of a thousand namespaces of a cluster.
fn holder(n: u128) -> Holder {
    Holder {
        identity: Identity {
            system: System::rancher_fip(),
            cluster: Some(ClusterId("5f0c1a52-7f1e-4b9a-9a55-0d8a3f3c0d11".into())),
            kind: "Service".into(),
            namespace: format!("team-{}", n % 1_000).into(),
            name: format!("web-{n}").into(),
            interface: "".into(),
        },
        instance: format!("{n:08x}-0d8a-4b9a-9a55-0d8a3f3c0d11").into(),
    }
}

/// Times the decisions of one round and gives the addresses back.
fn round(ledger: &mut Ledger) -> Result<Duration> {
    let actor: Actor = "bench".into();
    let holders: Vec<Holder> = (0..ROUND as u128).map(|n| holder(MANY * 2 + n)).collect();
    let requests: Vec<Request> = holders
        .iter()
        .map(|holder| {
            Request::Allocate(Allocate {
                holder: holder.clone(),
                tenant: None,
                wants: vec![Want {
                    pool: PoolId(1).into(),
                    address: None,
                    count: 1,
                }],
                waiting_since: None,
                by_admin: false,
                share: None,
                probe: false,
                actor: actor.clone(),
            })
        })
        .collect();
    let start = Instant::now();
    for request in &requests {
        decide(ledger, request)?;
    }
    let time = start.elapsed();
    for holder in holders {
        let scope = ReleaseScope::Holder(holder);
        decide(
            ledger,
            &Request::Release(Release {
                scope,
                actor: actor.clone(),
                reason: "".into(),
            }),
        )?;
    }
    Ok(time)
}

fn decide(ledger: &mut Ledger, request: &Request) -> Result<()> {
    match ledger.plan(request, Timestamp(1)) {
        Planned::Tentative {
            ticket,
            decision: _,
            answer: _,
        } => {
            ledger.confirm(ticket);
            Ok(())
        }
        other @ (Planned::Answer(_) | Planned::Busy | Planned::Refused(_)) => {
            bail!("a decision was expected, not {other:?}")
        }
    }
}
