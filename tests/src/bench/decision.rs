//! The allocation decision in memory: what plan and confirm cost, and that it does not matter how much is in use.

use std::{
    collections::{BTreeMap, HashMap},
    io::Error,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use fipd_core::{
    Actor, AddressSpec, Allocate, Asker, Choice, ClusterId, Ends, Family, Holder, Identity, Lease,
    LeaseKey, LeaseState, Ledger, Member, NetworkId, Op, Order, Planned, Pool, PoolId, PoolScope,
    PoolSpec, Quota, Release, ReleaseScope, Request, Selection, Share, Sticky, System, Tenant,
    Timestamp, Want,
};

use super::{Figure, percentile};

const CLUSTER: &str = "5f0c1a52-7f1e-4b9a-9a55-0d8a3f3c0d11";
const FEW: u128 = 1_000;
const MANY: u128 = 1_000_000;
/// Decisions timed together; few beside `FEW`, so that the number in use stays what it is called.
const ROUND: usize = 200;
const ROUNDS: usize = 60;
/// Peers of PERFORMANCE figures: go-ipam at 31k in use.
const PEER: &str = "go-ipam 2831 us at 31k";

/// Pools of other clusters that a selection must not look at one by one.
const OTHERS: u32 = 1_000;

/// Pools of other lengths beside one of prefixes.
const BESIDE_PREFIXES: [(&str, &str, Option<u8>); 3] = [
    ("blocks", "2001:db9::/32", Some(56)),
    ("nodes", "2001:dba::/32", Some(76)),
    ("addresses", "2001:dbb::/64", None),
];

/// How addresses are asked for, and of what pool.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// Whoever asks had the address before.
    Sticky,
    Random,
    LeastRecentlyUsed,
    /// Every second one joins the group of the one before.
    Shared,
    /// By who asks, among a thousand pools of others.
    Selected,
    /// Within a quota of the tenant.
    Charged,
    /// A prefix of 64 bits, with as many leases of other lengths in the same network.
    Prefix,
}

impl Kind {
    /// What the cost at a million in use is compared with, and how much more it may be than at a thousand. Pools that remember and groups write a second
    /// row; a random address lies in memory that no cache has.
    const fn budget(self) -> (Budget, f64) {
        match self {
            Self::Plain => (Budget::Floor(3.0), 2.0),
            Self::Selected | Self::Charged => (Budget::Micros(2.0), 2.0),
            // What one of an address costs in the same run, and half as much again.
            Self::Prefix => (Budget::Address(1.5), 2.0),
            Self::Sticky | Self::LeastRecentlyUsed => (Budget::Micros(4.0), 2.0),
            Self::Shared => (Budget::Micros(5.0), 2.0),
            Self::Random => (Budget::Micros(10.0), 6.0),
        }
    }
}

/// What one decision may cost.
#[derive(Clone, Copy)]
enum Budget {
    /// So many times what [`Floor`] costs in the same run.
    Floor(f64),
    /// So many times what one costs for an address, as much in use.
    Address(f64),
    Micros(f64),
}

/// A pool and the pattern in which it is used.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    cidr: &'static str,
    step: u128,
    kind: Kind,
}

impl Shape {
    const fn plain(name: &'static str, cidr: &'static str, step: u128) -> Self {
        let kind = Kind::Plain;
        Self {
            name,
            cidr,
            step,
            kind,
        }
    }

    /// Of 64 bits each.
    const fn prefixes(name: &'static str, step: u128) -> Self {
        Self {
            kind: Kind::Prefix,
            ..Self::plain(name, "2001:db8::/32", step)
        }
    }

    /// The address that the lease with the number begins with.
    fn address(&self, first: u128, number: u128) -> u128 {
        let size = if self.kind == Kind::Prefix {
            1 << 64
        } else {
            1
        };
        first + (1 + number * self.step) * size
    }

    const fn of(name: &'static str, kind: Kind) -> Self {
        Self {
            kind,
            ..Self::plain(name, "10.0.0.0/11", 2)
        }
    }
}

const ADDRESSES: Shape = Shape::plain("v6 /64 contiguous", "2001:db8::/64", 1);

const SHAPES: [Shape; 12] = [
    Shape::plain("v4 /12 contiguous", "10.0.0.0/12", 1),
    Shape::plain("v4 /12 every second", "10.0.0.0/11", 2),
    ADDRESSES,
    Shape::prefixes("v6 /64s contiguous", 1),
    Shape::prefixes("v6 /64s every second", 2),
    Shape::plain("v6 /64 every second", "2001:db8::/64", 2),
    Shape::of("sticky", Kind::Sticky),
    Shape::of("random", Kind::Random),
    Shape::of("least recently used", Kind::LeastRecentlyUsed),
    Shape::of("shared", Kind::Shared),
    Shape::of("selected of 1,001", Kind::Selected),
    Shape::of("within a quota", Kind::Charged),
];

/// Two figures a shape: the cost at a million in use, and its ratio to the cost at a thousand.
pub fn run() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for shape in SHAPES {
        let mut few = filled(shape, FEW)?;
        let mut many = filled(shape, MANY)?;
        let (most, ratio) = shape.kind.budget();
        let mut floor = match most {
            Budget::Address(_) => Beside::Addresses(Box::new(filled(ADDRESSES, MANY)?)),
            Budget::Floor(_) | Budget::Micros(_) => Beside::Floor(Floor::filled(shape)?),
        };
        let (mut at_few, mut at_many) = (Vec::new(), Vec::new());
        let mut at_floor = Vec::new();
        // Alternately, so that whatever else the machine does meets both.
        for _ in 0..ROUNDS {
            at_few.push(round(shape.kind, &mut few)?);
            at_many.push(round(shape.kind, &mut many)?);
            at_floor.push(floor.round()?);
        }
        let micros = |samples: &[Duration]| {
            percentile(samples, 0.5).map(|time| time.as_secs_f64() * 1e6 / ROUND as f64)
        };
        let (at_few, at_many) = micros(&at_few)
            .zip(micros(&at_many))
            .context("no samples")?;
        let name = |what: &str| format!("decision {} {what}", shape.name);
        figures.push(match most {
            Budget::Floor(times) | Budget::Address(times) => {
                let floor = micros(&at_floor).context("no samples")?;
                Figure::cost_ratio(&name("at 1M"), "us", at_many, floor, times)
            }
            Budget::Micros(most) => Figure::at_most(&name("at 1M"), "us", at_many, PEER, most),
        });
        let name = name("1M to 1k");
        figures.push(Figure::cost_ratio(&name, "us", at_many, at_few, ratio));
    }
    Ok(figures)
}

/// What a decision is held against.
enum Beside {
    Floor(Floor),
    Addresses(Box<Ledger>),
}

impl Beside {
    fn round(&mut self) -> Result<Duration> {
        match self {
            Self::Floor(floor) => Ok(floor.round()),
            Self::Addresses(ledger) => round(Kind::Plain, ledger),
        }
    }
}

/// The least that remembering a decision takes: an insert into one ordered map and into two hash maps, of the same keys among
/// a million. Without a plan, a check or a row.
struct Floor {
    ordered: BTreeMap<LeaseKey, u128>,
    by_identity: HashMap<Identity, LeaseKey>,
    by_address: HashMap<LeaseKey, u128>,
    next: Vec<(LeaseKey, Identity)>,
}

impl Floor {
    fn filled(shape: Shape) -> Result<Self> {
        let span = shape.cidr.parse::<AddressSpec>()?.span();
        let entry = |n: u128, owner: u128| {
            let key = LeaseKey {
                network: NetworkId::DEFAULT,
                address: span.family.address(shape.address(span.first, n)),
            };
            (key, holder(owner).identity)
        };
        // A ledger gives the lowest free addresses: those between, where there are some.
        let next = (0..ROUND as u128).map(|n| match shape.step {
            1 => entry(MANY + n, MANY * 2 + n),
            _ => {
                let (mut key, identity) = entry(n, MANY * 2 + n);
                key.address = span.family.address(span.first + 2 + n * shape.step);
                (key, identity)
            }
        });
        let mut floor = Self {
            ordered: BTreeMap::new(),
            by_identity: HashMap::new(),
            by_address: HashMap::new(),
            next: next.collect(),
        };
        for n in 0..MANY {
            let (key, identity) = entry(n, n);
            floor.insert(key, identity, n);
        }
        Ok(floor)
    }

    fn insert(&mut self, key: LeaseKey, identity: Identity, n: u128) {
        self.ordered.insert(key, n);
        self.by_identity.insert(identity, key);
        self.by_address.insert(key, n);
    }

    /// Times the inserts of one round and takes them back.
    fn round(&mut self) -> Duration {
        let entries = self.next.clone();
        let start = Instant::now();
        for (key, identity) in entries {
            self.insert(key, identity, MANY);
        }
        let time = start.elapsed();
        for (key, identity) in &self.next {
            self.ordered.remove(key);
            self.by_identity.remove(identity);
            self.by_address.remove(key);
        }
        time
    }
}

/// A ledger with `used` leases in the shape's pool, each as a Service's would be.
fn filled(shape: Shape, used: u128) -> Result<Ledger> {
    let cidr: AddressSpec = shape.cidr.parse()?;
    let span = cidr.span();
    let lease = |pool, n, address: IpAddr, length| {
        Op::PutLease(Arc::new(Lease {
            length,
            key: LeaseKey {
                network: NetworkId::DEFAULT,
                address,
            },
            pool: Some(pool),
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
            labels: Default::default(),
        }))
    };
    let is_prefix = shape.kind == Kind::Prefix;
    let length = if is_prefix { 64 } else { span.family.bits() };
    let leases = (0..used).map(|n| {
        let address = span.family.address(shape.address(span.first, n));
        lease(PoolId(1), n, address, length)
    });
    // Of other lengths: half of them addresses, a quarter each of two lengths.
    let others = if is_prefix { used } else { 0 };
    let others = (0..others).map(|n| {
        let (pool, address, length) = match n % 4 {
            0 => (PoolId(2), 0x2001_0db9 << 96 | n << 72, 56),
            1 => (PoolId(3), 0x2001_0dba << 96 | n << 52, 76),
            _ => (PoolId(4), 0x2001_0dbb << 96 | n, 128),
        };
        lease(pool, used + n, Family::V6.address(address), length)
    });
    let quota = Quota {
        pool: PoolId(1),
        tenant: tenant(),
        limit: u64::MAX,
    };
    let quota = (shape.kind == Kind::Charged).then_some(Op::PutQuota(quota));
    let rows = pools(shape.kind, cidr)?.into_iter().chain(quota);
    Ledger::load(rows.chain(leases).chain(others), 0)
        .map_err(|violations| Error::other(format!("{:?}", violations.first())).into())
}

/// The pool, and where it is one of many, the others.
fn pools(kind: Kind, cidr: AddressSpec) -> Result<Vec<Op>> {
    let mut spec = PoolSpec {
        ends: Ends::own_default(Family::V4),
        ..PoolSpec::own("bench", vec![cidr])
    };
    match kind {
        Kind::Plain | Kind::Shared | Kind::Charged => {}
        Kind::Prefix => {
            spec.allocation_length = Some(64);
            spec.ends = Ends::NONE;
        }
        Kind::Sticky => spec.sticky = Sticky::OWN_DEFAULT,
        Kind::Random => spec.order = Order::Random,
        Kind::LeastRecentlyUsed => spec.order = Order::LeastRecentlyUsed,
        Kind::Selected => spec.scopes = vec![scope(CLUSTER)],
    }
    let others = if kind == Kind::Selected { OTHERS } else { 0 };
    let mut specs = vec![spec];
    if kind == Kind::Prefix {
        for (name, cidr, length) in BESIDE_PREFIXES {
            specs.push(PoolSpec {
                allocation_length: length,
                ..PoolSpec::own(name, vec![cidr.parse()?])
            });
        }
    }
    for n in 0..others {
        let cidr = format!("172.{}.{}.0/24", 16 + n / 256, n % 256);
        specs.push(PoolSpec {
            priority: 1,
            scopes: vec![scope(&format!("other-{n}"))],
            ..PoolSpec::own(format!("other-{n}"), vec![cidr.parse()?])
        });
    }
    let pool = |(id, spec)| Pool {
        id: PoolId(id),
        spec,
        created: Timestamp(0),
        generation: 1,
    };
    let next = u32::try_from(specs.len())?.saturating_add(1);
    let mut rows = vec![Op::PutNextPool(PoolId(next))];
    rows.extend((1..).zip(specs).map(|one| Op::PutPool(Arc::new(pool(one)))));
    Ok(rows)
}

fn scope(cluster: &str) -> PoolScope {
    PoolScope {
        cluster: Some(cluster.into()),
        ..PoolScope::default()
    }
}

fn tenant() -> Tenant {
    Tenant("p-1".into())
}

/// The owner number `n`: one of a thousand namespaces of a cluster.
fn holder(n: u128) -> Holder {
    Holder {
        identity: Identity {
            system: System::rancher_fip(),
            cluster: Some(ClusterId(CLUSTER.into())),
            kind: "Service".into(),
            namespace: format!("team-{}", n % 1_000).into(),
            name: format!("web-{n}").into(),
            interface: "".into(),
        },
        instance: format!("{n:08x}-0d8a-4b9a-9a55-0d8a3f3c0d11").into(),
    }
}

/// What owner number `n` of a round asks.
fn request(kind: Kind, n: usize, holder: Holder) -> Result<Request> {
    let port = ["TCP/80", "TCP/443"].get(n % 2).context("a port")?;
    let share = Share {
        key: format!("group-{}", n / 2).into(),
        ports: vec![port.parse()?],
    };
    let selection = Selection {
        length: None,
        network: None,
        family: Family::V4,
        asker: Asker {
            cluster: holder.identity.cluster.clone(),
            namespace: Some(Arc::clone(&holder.identity.namespace)),
            ..Asker::default()
        },
    };
    let pool = match kind {
        Kind::Selected => Choice::from(selection),
        Kind::Plain
        | Kind::Sticky
        | Kind::Random
        | Kind::Prefix
        | Kind::LeastRecentlyUsed
        | Kind::Shared
        | Kind::Charged => PoolId(1).into(),
    };
    Ok(Request::Allocate(Allocate {
        holder,
        tenant: matches!(kind, Kind::Shared | Kind::Charged).then(tenant),
        wants: vec![Want {
            pool,
            address: None,
            count: 1,
        }],
        waiting_since: None,
        by_admin: false,
        share: (kind == Kind::Shared).then_some(share),
        probe: false,
        actor: "bench".into(),
    }))
}

/// Times the decisions of one round and gives the addresses back.
fn round(kind: Kind, ledger: &mut Ledger) -> Result<Duration> {
    let actor: Actor = "bench".into();
    let holders: Vec<Holder> = (0..ROUND as u128).map(|n| holder(MANY * 2 + n)).collect();
    let requests = holders.iter().cloned().enumerate();
    let requests = requests.map(|(n, holder)| request(kind, n, holder));
    let requests = requests.collect::<Result<Vec<_>>>()?;
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
