//! Random histories, with several decisions in flight that end in any order, against a naive model: the same
//! answers, the same rows, the same readings, and every invariant after each step.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

mod model;
#[path = "histories/week.rs"]
mod week;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use fipd_core::{
    Action, Adopt, Adoption, Allocate, Answer, Asker, AuditEntry, Change, Choice, ClusterId,
    ClusterRecord, Contender, Ends, EndsOf, Epoch, Expectation, Family, Handover, Holder, Hour,
    Identity, Import, ImportRow, ImportedLease, ImportedPool, Label, Labels, Lease, LeaseFilter,
    LeaseKey, LeasePrefix, LeaseState, Ledger, Mark, NetworkId, Op, Order, Origin, PastLease,
    Planned, PoolEdit, PoolId, PoolScope, PoolSpec, PoolUsage, PortClaim, ProbeVerdict, Probed,
    Protocol, Quota, QuotaUnit, QuotaUsage, Refusal, Release, ReleaseScope, Request, Reserve,
    RestoreHold, RowFate, Selection, Share, Sticky, System, Tenant, Text, Ticket, Timestamp,
    Transfer, Want, testing,
};
use model::{Model, Verdict, new_lease};
use proptest::{prelude::*, sample::select, test_runner::Config};

const ACTOR: &str = "test";
/// A pool that there is not.
const NOWHERE: PoolId = PoolId(99);

#[derive(Clone, Debug)]
enum Step {
    Ask(Box<Request>),
    /// Of the decisions in flight, by index modulo their number.
    Confirm(usize),
    Abort(usize),
    Expect(Vec<Expectation>),
    ForgetWaiter(Identity),
    ForgetWaitersOf(ClusterId, Option<System>),
    /// The hour of all pools is over.
    RollUp,
    /// About one of the leases that are being checked, by index modulo their number.
    Probe(usize, ProbeVerdict),
}

fn identity() -> impl Strategy<Value = Identity> {
    select(vec![
        "rancher-fip/c1/Service/a/x",
        "rancher-fip/c1/Service/a/y",
        "rancher-fip/c1/Service/b/x",
        "kube-fip/c1/FloatingIP/a/x",
        "rancher-fip/c2/Service/a/x",
        "kube-fip/c2/FloatingIP//z",
        "fipd/Host//h1",
        "foreign/c1/Service/a/x",
        "foreign/c1/Service/b/z",
    ])
    .prop_map(|text| text.parse().unwrap())
}

fn holder() -> impl Strategy<Value = Holder> {
    let instance = prop_oneof![8 => Just("i1"), 1 => Just("i2"), 1 => Just("")];
    (identity(), instance).prop_map(|(identity, instance)| Holder {
        identity,
        instance: instance.into(),
    })
}

fn tenant() -> impl Strategy<Value = Option<Tenant>> {
    select(vec![
        None,
        Some(Tenant("p-1".into())),
        Some(Tenant("p-2".into())),
    ])
}

fn some_tenant() -> impl Strategy<Value = Tenant> {
    select(vec!["p-1", "p-2"]).prop_map(|name| Tenant(name.into()))
}

fn network() -> impl Strategy<Value = NetworkId> {
    prop_oneof![6 => Just(NetworkId(0)), 2 => Just(NetworkId(1)), 1 => Just(NetworkId(7))]
}

fn address() -> impl Strategy<Value = IpAddr> {
    let family = prop_oneof![2 => Just(Family::V4), 1 => Just(Family::V6)];
    // The lowest are given first, so more happens to them.
    let at = prop_oneof![2 => 0..8_usize, 1 => 0..20_usize];
    (family, at).prop_map(|(family, at)| model::world(family)[at])
}

fn key() -> impl Strategy<Value = LeaseKey> {
    (network(), address()).prop_map(|(network, address)| LeaseKey { network, address })
}

/// Mostly of a length that pools have, and mostly without host bits.
fn prefix() -> impl Strategy<Value = LeasePrefix> {
    let behind = prop_oneof![
        6 => Just(0),
        6 => select(vec![1_u8, 1, 2, 2, 3, 4]),
        1 => select(vec![5_u8, 6, 8, 24]),
    ];
    (key(), behind, prop::bool::weighted(0.9)).prop_map(|(key, behind, cut)| {
        let length = key.bits() - behind;
        let address = match cut {
            true => model::first(key.address, length),
            false => key.address,
        };
        let key = LeaseKey { address, ..key };
        LeasePrefix { key, length }
    })
}

fn pool() -> impl Strategy<Value = PoolId> {
    prop_oneof![12 => (1..6_u32).prop_map(PoolId), 1 => Just(NOWHERE)]
}

fn cluster() -> impl Strategy<Value = ClusterId> {
    select(vec!["c1", "c2"]).prop_map(|id| ClusterId(id.into()))
}

fn spec() -> impl Strategy<Value = PoolSpec> {
    prop_oneof![3 => any_spec(), 2 => (any_spec(), prefixes()).prop_map(of_prefixes)]
}

/// CIDRs, exclusions that touch part of a prefix, and a length.
fn prefixes() -> impl Strategy<Value = (Vec<&'static str>, Vec<&'static str>, u8)> {
    let v4 = vec![
        "10.0.0.0/29",
        "10.0.0.0/28",
        "10.0.0.4/30",
        "10.0.0.8/29",
        "10.0.0.16/28",
        "10.0.0.8/31",
    ];
    let v6 = vec!["fd00::/124", "fd00::/125", "fd00::8/126", "fd00::10/125"];
    let out4 = vec![
        "10.0.0.3",
        "10.0.0.4/31",
        "10.0.0.5-10.0.0.6",
        "10.0.0.13",
        "192.0.2.0/24",
    ];
    let out6 = vec!["fd00::3", "fd00::4/127", "fd00::5-fd00::6", "fd00::9"];
    let odd = prop::bool::weighted(0.03);
    let of = |cidrs: Vec<&'static str>, out, lengths, wrong: Vec<&'static str>| {
        let right = prop::collection::vec(select(cidrs.clone()), 1..3);
        let wrong = prop::collection::vec(select(wrong), 1..2);
        let cidrs = prop_oneof![30 => right, 1 => wrong];
        (
            cidrs,
            prop::collection::vec(select(out), 0..2),
            select(lengths),
        )
    };
    let (lengths4, lengths6) = (
        vec![30, 30, 30, 31, 31, 32],
        vec![126, 126, 126, 127, 127, 128],
    );
    let wrong4 = vec!["10.0.0.12", "10.0.0.2-10.0.0.5", "10.0.0.0/31"];
    let wrong6 = vec!["fd00::c", "fd00::2-fd00::9"];
    let v4 = of(v4, out4, lengths4, wrong4);
    let v6 = of(v6, out6, lengths6, wrong6);
    (
        prop_oneof![3 => v4, 2 => v6],
        odd,
        select(vec![0, 29, 33, 125, 129]),
    )
        .prop_map(|((cidrs, out, length), odd, other)| {
            (cidrs, out, if odd { other } else { length })
        })
}

fn of_prefixes(
    (spec, (cidrs, out, length)): (PoolSpec, (Vec<&'static str>, Vec<&'static str>, u8)),
) -> PoolSpec {
    let parsed = |texts: Vec<&str>| -> Vec<fipd_core::AddressSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let addresses = parsed(cidrs);
    // Now and then one that is refused.
    let keeps_ends = spec.ends.first == 1 && spec.priority == 2 && spec.closed;
    PoolSpec {
        allocation_length: Some(length),
        exclusions: parsed(out),
        gateway: spec.gateway.map(|_| addresses[0].span().first_address()),
        ends: if keeps_ends {
            spec.ends
        } else {
            Ends {
                first: 0,
                last: 0,
                ..spec.ends
            }
        },
        addresses,
        ..spec
    }
}

fn any_spec() -> impl Strategy<Value = PoolSpec> {
    let v4 = vec![
        "10.0.0.0/29",
        "10.0.0.4/30",
        "10.0.0.8/31",
        "10.0.0.12",
        "10.0.0.0/28",
        "10.0.0.2-10.0.0.5",
        "10.0.0.16/30",
    ];
    let v6 = vec![
        "fd00::/125",
        "fd00::8/126",
        "fd00::4/127",
        "fd00::c",
        "fd00::2-fd00::9",
    ];
    let out4 = vec![
        "10.0.0.3",
        "10.0.0.4/31",
        "10.0.0.2-10.0.0.6",
        "192.0.2.0/24",
    ];
    let out6 = vec!["fd00::3", "fd00::4/127", "fd00::2-fd00::6"];
    let family = |cidrs: Vec<&'static str>, out: Vec<&'static str>| {
        (
            prop::collection::vec(select(cidrs), 1..3),
            prop::collection::vec(select(out), 0..2),
        )
    };
    let entries = prop_oneof![3 => family(v4, out4), 2 => family(v6, out6)];
    let ends = (0..2_u32, 0..2_u32).prop_map(|(first, last)| Ends {
        first,
        last,
        of: EndsOf::EachCidr,
    });
    let name = select(vec!["p1", "p2", "p3", "p4", "p5", "p6"]);
    let gateway = prop::bool::weighted(0.2);
    let closed = prop::bool::weighted(0.1);
    let quarantine = select(vec![0, 0, 1, 5]);
    let order = select(vec![
        Order::Lowest,
        Order::Lowest,
        Order::Random,
        Order::LeastRecentlyUsed,
    ]);
    let sticky = select(vec![(0, 0), (1, 1), (2, 2), (60, 1), (60, 3)]);
    let sticky = sticky.prop_map(|(lasts, most)| Sticky { lasts, most });
    let scopes = prop::collection::vec(pool_scope(), 0..3);
    let asked = (
        closed,
        quarantine,
        order,
        sticky,
        0..3_u16,
        (
            scopes,
            any::<bool>(),
            any::<bool>(),
            prop::bool::weighted(0.2),
            select(vec![QuotaUnit::Lease, QuotaUnit::Address]),
        ),
    );
    (name, network(), entries, ends, gateway, asked).prop_map(
        |(name, network, (addresses, exclusions), ends, gateway, asked)| {
            let (closed, quarantine, order, sticky, priority, scopes) = asked;
            let (scopes, share_across_clusters, network_by_default, quota_required, quota_unit) =
                scopes;
            let addresses: Vec<fipd_core::AddressSpec> =
                addresses.iter().map(|text| text.parse().unwrap()).collect();
            let gateway = gateway.then(|| addresses[0].span().first_address());
            PoolSpec {
                allocation_length: None,
                quota_unit,
                name: name.into(),
                network,
                network_by_default,
                exclusions: exclusions
                    .iter()
                    .map(|text| text.parse().unwrap())
                    .collect(),
                gateway,
                prefix_len: None,
                subnet: None,
                ends,
                order,
                origin: Origin::Own,
                closed,
                quarantine,
                sticky,
                priority,
                scopes,
                share_across_clusters,
                quota_required,
                addresses,
            }
        },
    )
}

fn labels() -> impl Strategy<Value = BTreeMap<Text, Text>> {
    let value = select(vec!["web", "db"]).prop_map(|value| [("tier".into(), value.into())].into());
    prop_oneof![2 => Just(BTreeMap::new()), 1 => value]
}

fn pool_scope() -> impl Strategy<Value = PoolScope> {
    let cluster = prop::option::weighted(0.4, select(vec!["c1", "c2", "one", "two"]));
    let project = prop::option::weighted(0.2, select(vec!["p-1", "p-2"]));
    let namespaces = prop::collection::vec(select(vec!["a", "b"]), 0..2);
    (cluster, project, namespaces, labels()).prop_map(|(cluster, project, namespaces, labels)| {
        PoolScope {
            cluster: cluster.map(Into::into),
            project: project.map(Into::into),
            namespaces: namespaces.into_iter().map(Into::into).collect(),
            labels,
        }
    })
}

fn selection() -> impl Strategy<Value = Choice> {
    let asker = (
        prop::option::weighted(0.9, cluster()),
        prop::option::of(select(vec!["p-1", "p-2"])),
        prop::option::of(select(vec!["a", "b"])),
        labels(),
    );
    let family = prop_oneof![3 => Just(Family::V4), 1 => Just(Family::V6)];
    let network = prop::option::weighted(0.2, network());
    let behind = prop::option::weighted(0.5, select(vec![0, 1, 1, 2, 2, 2, 3]));
    let of = (network, family, behind, prop::bool::weighted(0.02));
    (of, asker).prop_map(|(of, (cluster, project, namespace, labels))| {
        let (network, family, behind, odd) = of;
        let length = behind.map(|behind| if odd { 0 } else { family.bits() - behind });
        let (project, namespace) = (project.map(Into::into), namespace.map(Into::into));
        let asker = Asker {
            cluster,
            project,
            namespace,
            labels,
        };
        Choice::from(Selection {
            length,
            network,
            family,
            asker,
        })
    })
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![3 => pool().prop_map(Choice::from), 2 => selection()]
}

fn want() -> impl Strategy<Value = Want> {
    prop_oneof![
        4 => (choice(), 1..4_u32).prop_map(|(pool, count)| Want { pool, address: None, count }),
        2 => (choice(), address()).prop_map(|(pool, address)| Want { pool, address: Some(address), count: 1 }),
    ]
}

fn allocate() -> impl Strategy<Value = Allocate> {
    let waiting = prop::option::of((0..50_u64).prop_map(Timestamp));
    (
        holder(),
        tenant(),
        prop::collection::vec(want(), 1..3),
        waiting,
        (
            prop::bool::weighted(0.4),
            prop::option::weighted(0.4, share()),
            prop::bool::weighted(0.2),
        ),
    )
        .prop_map(
            |(holder, tenant, mut wants, waiting_since, (by_admin, share, probe))| {
                // Now and then one that is refused.
                let single = share.is_some() && waiting_since != Some(Timestamp(1));
                for want in wants.iter_mut().filter(|_| single) {
                    want.count = 1;
                }
                Allocate {
                    tenant,
                    waiting_since,
                    by_admin,
                    share,
                    probe,
                    actor: ACTOR.into(),
                    ..testing::allocate(holder, wants)
                }
            },
        )
}

fn share() -> impl Strategy<Value = Share> {
    let key = prop_oneof![20 => Just("g"), 10 => Just("h"), 1 => Just("")];
    let port = select(vec!["TCP/80", "TCP/443", "UDP/80", "SCTP/1"]);
    let port = port.prop_map(|text| text.parse().unwrap());
    let zero = PortClaim {
        protocol: Protocol::Tcp,
        port: 0,
    };
    let port = prop_oneof![40 => port, 1 => Just(zero)];
    (key, prop::collection::vec(port, 0..3)).prop_map(|(key, ports)| Share {
        key: key.into(),
        ports,
    })
}

fn reserve() -> impl Strategy<Value = Request> {
    let until = prop::option::weighted(0.8, moment(60));
    (allocate(), until).prop_map(|(ask, until)| {
        // Now and then one that is refused.
        let probe = ask.probe && ask.by_admin;
        let ask = Allocate {
            share: None,
            probe,
            ..ask
        };
        Request::Reserve(Reserve { ask, until })
    })
}

/// Few, so that things happen at the same time.
fn moment(most: u64) -> impl Strategy<Value = Timestamp> {
    (1..most).prop_map(|halves| Timestamp(halves * 500))
}

fn expire() -> impl Strategy<Value = Request> {
    let actor = || ACTOR.into();
    (1..4_usize).prop_map(move |most| Request::Expire {
        most,
        actor: actor(),
    })
}

fn verdict() -> impl Strategy<Value = ProbeVerdict> {
    let by = "02:00:00:00:00:07".into();
    select(vec![ProbeVerdict::Free, ProbeVerdict::Taken { by }])
}

fn probed((key, identity, verdict): (LeaseKey, Identity, ProbeVerdict)) -> Request {
    Request::Probed(Probed {
        key,
        identity,
        verdict,
        actor: ACTOR.into(),
    })
}

fn release() -> impl Strategy<Value = Request> {
    let scope = prop_oneof![
        5 => holder().prop_map(ReleaseScope::Holder),
        2 => (holder(), prop::collection::vec(key(), 1..3)).prop_map(|(holder, keys)| ReleaseScope::HolderAddresses(holder, keys)),
        1 => (holder(), key(), prop::option::of(identity())).prop_map(|(contender, key, beside)| ReleaseScope::Contention { contender, key, beside }),
        2 => key().prop_map(ReleaseScope::Address),
        1 => key().prop_map(ReleaseScope::Quarantine),
    ];
    scope.prop_map(|scope| {
        Request::Release(Release {
            scope,
            actor: ACTOR.into(),
            reason: "".into(),
        })
    })
}

fn adopt() -> impl Strategy<Value = Request> {
    let of = (prefix(), any::<bool>());
    (of, holder(), tenant(), 0..50_u64).prop_map(|((prefix, says), holder, tenant, since)| {
        let LeasePrefix { key, length } = prefix;
        let says = says || length < key.bits();
        Request::Adopt(Adopt {
            length: says.then_some(length),
            key,
            holder,
            tenant,
            since: Timestamp(since),
            actor: ACTOR.into(),
        })
    })
}

fn handover() -> impl Strategy<Value = Request> {
    (holder(), holder(), prop::collection::vec(key(), 0..2)).prop_map(|(from, to, keys)| {
        Request::Handover(Handover {
            from,
            to,
            keys,
            actor: ACTOR.into(),
            reason: "".into(),
        })
    })
}

fn asks(request: Request) -> Step {
    Step::Ask(Box::new(request))
}

fn transfer() -> impl Strategy<Value = Request> {
    let from = prop::option::of(holder());
    (key(), from, holder(), tenant(), any::<bool>()).prop_map(|(key, from, to, tenant, force)| {
        Request::Transfer(Transfer {
            key,
            from,
            to,
            tenant,
            force,
            actor: ACTOR.into(),
            reason: "".into(),
        })
    })
}

fn lease_labels(
    keys: Vec<&'static str>,
    most: usize,
) -> impl Strategy<Value = BTreeMap<Text, Text>> {
    let pair = (select(keys), select(vec!["web", "db"]));
    prop::collection::vec(pair, 0..most).prop_map(|pairs| {
        pairs
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    })
}

fn label() -> impl Strategy<Value = Request> {
    let set = lease_labels(vec!["app", "app", "team", "team", "a=b"], 3);
    let remove = prop::collection::vec(select(vec!["app", "team", "none"]), 0..2);
    (key(), set, remove).prop_map(|(key, set, remove)| {
        Request::Label(Label {
            key,
            set,
            remove: remove.into_iter().map(Into::into).collect(),
            actor: ACTOR.into(),
        })
    })
}

fn marker() -> impl Strategy<Value = Adoption> {
    let cluster = select(vec!["c1", "c2", "name:one", "name:two"]);
    (network(), cluster, system(), any::<bool>()).prop_map(|(network, cluster, system, skipped)| {
        Adoption {
            network,
            cluster: cluster.into(),
            system: system.parse().unwrap(),
            at: Timestamp(1),
            skipped,
        }
    })
}

fn system() -> impl Strategy<Value = &'static str> {
    select(vec!["rancher-fip", "kube-fip"])
}

fn admin() -> impl Strategy<Value = Request> {
    let actor = || ACTOR.into();
    let edit = (
        pool(),
        spec(),
        prop::option::weighted(0.2, 1..3_u64),
        any::<bool>(),
    );
    let names = prop::collection::vec(select(vec!["one", "two", "three"]), 1..3);
    prop_oneof![
        1 => select(vec!["blue", "default"]).prop_map(move |name| Request::CreateNetwork { name: name.into(), actor: actor() }),
        6 => spec().prop_map(move |spec| Request::CreatePool { spec, actor: actor() }),
        4 => edit.prop_map(move |(pool, spec, if_generation, force)| {
            Request::UpdatePool(PoolEdit { pool, spec, if_generation, force, actor: actor(), reason: "".into() })
        }),
        2 => pool().prop_map(move |pool| Request::DeletePool { pool, actor: actor() }),
        3 => (pool(), network()).prop_map(move |(pool, network)| Request::MoveNetwork { pool, network, actor: actor() }),
        4 => (pool(), some_tenant(), 0..5_u64).prop_map(move |(pool, tenant, limit)| {
            Request::SetQuota { quota: Quota { pool, tenant, limit }, actor: actor() }
        }),
        2 => (network(), network(), prop::bool::weighted(0.7)).prop_map(move |(one, other, apart)| {
            Request::Separate { networks: (one, other), apart, actor: actor() }
        }),
        1 => (pool(), some_tenant()).prop_map(move |(pool, tenant)| {
            Request::DeleteQuota { pool, tenant, actor: actor() }
        }),
        1 => (cluster(), names, any::<bool>()).prop_map(|(id, names, discovered)| {
            let mut names: Vec<_> = names.into_iter().map(Into::into).collect();
            names.dedup();
            Request::RecordCluster { record: ClusterRecord { id, names, discovered, first_seen: Timestamp(3), proof: None } }
        }),
        2 => marker().prop_map(move |marker| Request::MarkAdopted { marker, actor: actor() }),
        1 => (cluster(), prop::option::of(system()), 1..4_usize).prop_map(move |(cluster, system, most)| {
            Request::Orphan { cluster, system: system.map(|name| name.parse().unwrap()), most, actor: actor() }
        }),
        1 => (cluster(), 1..4_usize).prop_map(move |(cluster, most)| Request::Forget { cluster, most, actor: actor() }),
    ]
}

/// Mostly nothing; or a restore whose hold still lasts.
fn epoch() -> impl Strategy<Value = Option<Epoch>> {
    let hold = (1..3_000_u64).prop_map(|left| RestoreHold {
        left,
        until: Timestamp(left + 500),
    });
    let held = prop::option::weighted(0.8, hold).prop_map(|hold| Epoch {
        number: 1,
        began: Timestamp(0),
        hold,
    });
    prop::option::weighted(0.2, held)
}

fn hold() -> impl Strategy<Value = Request> {
    prop_oneof![
        6 => (0..2_000_u64).prop_map(|elapsed| Request::PassHold { elapsed, actor: ACTOR.into() }),
        1 => select(vec!["", "all is known"]).prop_map(|reason| Request::LiftHold {
            reason: reason.into(),
            actor: ACTOR.into(),
        }),
    ]
}

fn import() -> impl Strategy<Value = Request> {
    let name = || select(vec!["default", "default", "default", "blue", "none"]);
    let pool_name = || select(vec!["p1", "p2", "p3", "p4", "p5", "p9"]);
    let ids = prop::option::of(1..9_u32);
    let choice = prop::option::of(any::<bool>());
    let pool = (prop::option::of(name()), choice, spec(), ids);
    let pool = pool.prop_map(|(network, network_by_default, spec, id)| {
        ImportRow::Pool(Box::new(ImportedPool {
            network: network.map(Into::into),
            network_by_default,
            spec,
            id: id.map(PoolId),
            created: id.map(|_| Timestamp(77)),
            generation: id.map(u64::from),
        }))
    });
    let lease = (
        name(),
        prop::option::of(pool_name()),
        lease(),
        any::<bool>(),
    )
        .prop_map(|(network, pool, lease, dated)| {
            ImportRow::Lease(Box::new(ImportedLease {
                network: network.into(),
                pool: pool.map(Into::into),
                since: dated.then_some(Timestamp(3)),
                lease,
            }))
        });
    let quota =
        (pool_name(), some_tenant(), 0..5_u64).prop_map(|(pool, tenant, limit)| ImportRow::Quota {
            pool: pool.into(),
            tenant,
            limit,
        });
    let network = name().prop_map(|name| ImportRow::Network(name.into()));
    let two = (name(), name());
    let separation = two.prop_map(|(one, two)| ImportRow::Separation(one.into(), two.into()));
    let row = prop_oneof![1 => network, 1 => separation, 3 => pool, 2 => quota, 8 => lease];
    (prop::collection::vec(row, 0..6), any::<bool>()).prop_map(|(rows, force)| {
        Request::Import(Import {
            rows,
            force,
            actor: ACTOR.into(),
        })
    })
}

fn step() -> impl Strategy<Value = Step> {
    let expectation =
        (network(), select(vec!["one", "two"]), system()).prop_map(|(network, cluster, system)| {
            Expectation {
                network,
                cluster: cluster.into(),
                system: system.parse().unwrap(),
            }
        });
    prop_oneof![
        12 => allocate().prop_map(Request::Allocate).prop_map(asks),
        3 => reserve().prop_map(asks),
        3 => expire().prop_map(asks),
        5 => release().prop_map(asks),
        4 => adopt().prop_map(asks),
        1 => handover().prop_map(asks),
        2 => transfer().prop_map(asks),
        3 => label().prop_map(asks),
        5 => admin().prop_map(asks),
        1 => hold().prop_map(asks),
        2 => import().prop_map(asks),
        12 => (0..4_usize).prop_map(Step::Confirm),
        3 => (0..4_usize).prop_map(Step::Abort),
        1 => prop::collection::vec(expectation, 0..2).prop_map(Step::Expect),
        1 => identity().prop_map(Step::ForgetWaiter),
        1 => (cluster(), prop::option::of(system())).prop_map(|(cluster, system)| {
            Step::ForgetWaitersOf(cluster, system.map(|name| name.parse().unwrap()))
        }),
        1 => (key(), identity(), verdict()).prop_map(probed).prop_map(asks),
        3 => (0..4_usize, verdict()).prop_map(|(at, verdict)| Step::Probe(at, verdict)),
        2 => Just(Step::RollUp),
    ]
}

/// A lease in any state.
fn lease() -> impl Strategy<Value = Lease> {
    let state = select(vec![
        LeaseState::Allocated,
        LeaseState::Reserved,
        LeaseState::Probing,
        LeaseState::Quarantined,
        LeaseState::Orphaned,
    ]);
    let lease = (
        prefix(),
        holder(),
        holder(),
        tenant(),
        state,
        any::<bool>(),
        any::<bool>(),
        moment(9),
        prop::option::weighted(0.3, lease_labels(vec!["app", "team"], 2)),
        prop::option::weighted(0.4, prop::option::of(prefix())),
    );
    lease.prop_map(
        |(prefix, holder, other, tenant, state, shared, contended, until, labels, used)| {
            let used = used.map(|used| used.unwrap_or_else(|| prefix.key.whole()).net());
            let contender = |holder| Contender {
                holder,
                tenant: None,
                since: Timestamp(5),
                uses: used.into_iter().collect(),
            };
            let mut lease = new_lease(prefix, None, &holder, &tenant, Timestamp(0));
            lease.labels = labels.unwrap_or_default().into();
            lease.state = state;
            let ends = match state {
                LeaseState::Probing | LeaseState::Quarantined => true,
                LeaseState::Reserved => shared,
                LeaseState::Allocated | LeaseState::Orphaned => false,
            };
            lease.until = ends.then_some(until);
            if state == LeaseState::Quarantined {
                lease.members.clear();
                lease.labels = Labels::default();
                if contended {
                    lease.contenders.push(contender(other));
                }
            } else if holder.identity != other.identity && shared && state != LeaseState::Orphaned {
                lease.group = Some("g".into());
                lease.members.push(testing::member(other));
            } else if holder.identity != other.identity && contended {
                lease.contenders.push(contender(other));
            }
            lease
        },
    )
}

/// Leases in all states.
fn found() -> impl Strategy<Value = Vec<Lease>> {
    prop::collection::vec(lease(), 0..4).prop_map(|leases| {
        let mut known: BTreeMap<LeaseKey, Lease> = BTreeMap::new();
        for mut lease in leases {
            let prefix = lease.prefix();
            let part = |used: &LeasePrefix| model::aligned(*used) && model::touch(*used, prefix);
            for one in &mut lease.contenders {
                let uses = model::uses(one, prefix);
                if !uses.iter().all(part) || model::said_uses(&uses, prefix) != one.uses {
                    one.uses.clear();
                }
            }
            let apart = |other: &Lease| !model::touch(other.prefix(), lease.prefix());
            let fine = lease.key.network == NetworkId(0) && model::aligned(lease.prefix());
            if fine && known.values().all(apart) {
                known.insert(lease.key, lease);
            }
        }
        known.into_values().collect()
    })
}

/// Names the refusal; texts are for people and not compared.
fn plain(mut refusal: Refusal) -> Refusal {
    match &mut refusal {
        Refusal::NoneGives { reasons, .. } => {
            *reasons = reasons.drain(..).map(plain).collect();
        }
        Refusal::AddressTaken { owner, .. }
        | Refusal::PrefixTaken { owner, .. }
        | Refusal::ChangedHands { owner, .. } => owner.clear(),
        Refusal::Pool(error) => {
            error.value.clear();
            error.allowed.clear();
        }
        Refusal::NotAssignable { why, .. }
        | Refusal::NotTransferable { why, .. }
        | Refusal::NotShareable { why, .. }
        | Refusal::NotProbed { why, .. } => why.clear(),
        Refusal::Invalid { value, allowed, .. } => {
            value.clear();
            allowed.clear();
        }
        _ => {}
    }
    refusal
}

fn plain_answer(mut answer: Answer) -> Answer {
    if let Answer::Imported { rows, .. } = &mut answer {
        for row in rows {
            if let RowFate::Refused(refusal) = row {
                *refusal = plain(refusal.clone());
            }
        }
    }
    answer
}

fn said(audit: &[AuditEntry]) -> Vec<(Action, Option<IpAddr>, Option<Identity>)> {
    audit
        .iter()
        .map(|entry| (entry.action, entry.address, entry.identity.clone()))
        .collect()
}

struct History {
    ledger: Ledger,
    model: Model,
    flights: Vec<(Ticket, usize)>,
    /// What a store would hold.
    stored: BTreeMap<String, Op>,
    decisions: BTreeMap<usize, Vec<Op>>,
    /// Hours pass only with roll-ups, beside the time of the other requests.
    hour: Hour,
}

impl History {
    fn new(leases: Vec<Lease>, epoch: Option<Epoch>) -> Self {
        let rows: Vec<Op> = leases
            .iter()
            .cloned()
            .map(Arc::new)
            .map(Op::PutLease)
            .chain(epoch.map(Op::PutEpoch))
            .collect();
        let ledger = Ledger::load(rows.iter().cloned(), 0).unwrap();
        let mut model = Model::new();
        model.leases = leases;
        model.epoch = epoch;
        let mut history = Self {
            ledger,
            model,
            flights: Vec::new(),
            stored: BTreeMap::new(),
            decisions: BTreeMap::new(),
            hour: Hour(0),
        };
        history.store(&rows);
        history
    }

    fn store(&mut self, ops: &[Op]) {
        for op in ops {
            let row = match op {
                Op::PutNetwork(network) => format!("network {}", network.id.0),
                Op::PutPool(pool) => format!("pool {}", pool.id.0),
                Op::DeletePool(id) => format!("pool {}", id.0),
                Op::PutNextPool(_) => "next".to_owned(),
                Op::PutEpoch(_) => "epoch".to_owned(),
                Op::PutClock(_) => "clock".to_owned(),
                Op::PutQuota(Quota { pool, tenant, .. }) | Op::DeleteQuota { pool, tenant } => {
                    format!("quota {} {}", pool.0, tenant.0)
                }
                Op::PutSeparation(pair) | Op::DeleteSeparation(pair) => {
                    format!("separation {pair:?}")
                }
                Op::PutLease(lease) => format!("lease {:?}", lease.key),
                Op::DeleteLease(key) => format!("lease {key:?}"),
                Op::PutPast(past) => format!("past {:?}", past.key),
                Op::DeletePast(key) => format!("past {key:?}"),
                Op::PutCluster(record) => format!("cluster {}", record.id),
                Op::DeleteCluster(id) => format!("cluster {id}"),
                Op::PutAdoption(a) => {
                    format!("adoption {} {} {}", a.network.0, a.cluster, a.system)
                }
                Op::DeleteAdoption {
                    network,
                    cluster,
                    system,
                } => format!("adoption {} {cluster} {system}", network.0),
                Op::PutRollup(row) => format!("rollup {} {}", row.pool.0, row.hour.0),
                Op::PutAccount(_)
                | Op::DeleteAccount(_)
                | Op::PutToken(_)
                | Op::DeleteToken(_)
                | Op::PutKey(_)
                | Op::DeleteKey(_) => unreachable!(),
            };
            match op {
                Op::DeletePool(id) => {
                    let rollup = format!("rollup {} ", id.0);
                    self.stored
                        .retain(|known, _| *known != row && !known.starts_with(&rollup));
                }
                Op::DeleteQuota { .. }
                | Op::DeleteSeparation(_)
                | Op::DeleteLease(_)
                | Op::DeletePast(_)
                | Op::DeleteCluster(_)
                | Op::DeleteAdoption { .. } => {
                    self.stored.remove(&row);
                }
                _ => {
                    self.stored.insert(row, op.clone());
                }
            }
        }
    }

    fn step(&mut self, step: &Step, now: Timestamp) {
        match step {
            Step::Ask(request) => self.ask(request, now),
            Step::Confirm(at) if !self.flights.is_empty() => {
                let (ticket, number) = self.flights.remove(at % self.flights.len());
                let before = (self.ledger.revision(), self.model.room());
                let usages = self.usages();
                let change = self.ledger.confirm(ticket);
                self.named_where_use_changed(&change, &usages);
                assert_eq!(change.revision, before.0 + 1);
                self.model.confirm(number);
                self.named_where_room_grew(&change, before.1);
                let ops = self.decisions.remove(&number).unwrap();
                self.store(&ops);
            }
            Step::Abort(at) if !self.flights.is_empty() => {
                let (ticket, number) = self.flights.remove(at % self.flights.len());
                self.ledger.abort(ticket);
                self.model.abort(number);
            }
            Step::Confirm(_) | Step::Abort(_) => {}
            Step::Probe(at, verdict) => {
                let mut checked = self.model.leases.clone();
                checked.retain(|lease| lease.state == LeaseState::Probing);
                if !checked.is_empty() {
                    let lease = &checked[at % checked.len()];
                    let owner = lease.owner().unwrap().identity.clone();
                    self.ask(&probed((lease.key, owner, verdict.clone())), now);
                }
            }
            Step::RollUp => self.roll_up(),
            Step::Expect(expectations) => {
                self.ledger.set_expectations(expectations.clone());
                self.model.expectations.clone_from(expectations);
            }
            Step::ForgetWaiter(identity) => {
                self.ledger.forget_waiter(identity);
                self.model.forget_waiter(identity);
            }
            Step::ForgetWaitersOf(cluster, system) => {
                self.ledger.forget_waiters_of(cluster, system.as_ref());
                self.model.forget_waiters_of(cluster, system.as_ref());
            }
        }
        self.compare();
    }

    /// The rows of the hour say what the model counted in it.
    fn roll_up(&mut self) {
        let request = Request::RollUp {
            after: None,
            most: 99,
            actor: ACTOR.into(),
        };
        let ops = match self.ledger.plan(&request, self.hour.end()) {
            Planned::Busy => {
                assert!(self.model.locks_pools());
                return;
            }
            Planned::Tentative {
                ticket, decision, ..
            } => {
                self.ledger.confirm(ticket);
                decision.ops
            }
            Planned::Answer(Answer::RolledUp { rows: 0, .. }) => Vec::new(),
            other => panic!("{other:?}"),
        };
        self.store(&ops);
        let mut counts = std::mem::take(&mut self.model.counts);
        for op in ops {
            let Op::PutRollup(row) = op else {
                panic!("{op:?}");
            };
            let counted = counts.remove(&row.pool).unwrap_or_default();
            assert_eq!(
                (row.hour, row.given, row.released),
                (self.hour, counted.0, counted.1)
            );
        }
        assert!(counts.is_empty(), "not in the rows: {counts:?}");
        self.hour.0 += 1;
    }

    fn ask(&mut self, request: &Request, now: Timestamp) {
        let planned = self.ledger.plan(request, now);
        self.model.given = match &planned {
            Planned::Tentative { decision, .. } => self.free_before(&decision.ops),
            Planned::Answer(_) | Planned::Busy | Planned::Refused(_) => Vec::new(),
        };
        let verdict = self.model.plan(request, now);
        match (planned, verdict) {
            (Planned::Answer(ours), Verdict::Answer(model)) => {
                assert_eq!(plain_answer(ours), plain_answer(model), "{request:?}");
            }
            (Planned::Busy, Verdict::Busy) => {}
            (
                Planned::Busy | Planned::Refused(Refusal::Exhausted { .. }),
                Verdict::Busy | Verdict::Refused(Refusal::Exhausted { .. }),
            ) if self.takes_by_chance(request) => {}
            (
                Planned::Busy | Planned::Refused(Refusal::Exhausted { .. }),
                Verdict::Tentative { number, .. },
            ) if self.takes_by_chance(request) => self.model.abort(number),
            (Planned::Refused(ours), Verdict::Refused(model)) => {
                assert_eq!(plain(ours), plain(model))
            }
            (
                Planned::Tentative {
                    ticket,
                    decision,
                    answer,
                },
                Verdict::Tentative {
                    number,
                    ops,
                    audit,
                    answer: expected,
                },
            ) => {
                assert_eq!(answer, expected);
                assert_eq!(decision.ops, ops);
                assert_eq!(said(&decision.audit), audit);
                assert!(decision.audit.iter().all(|entry| entry.at == now));
                self.tells_lengths(&decision.audit, &ops);
                self.decisions.insert(number, ops);
                self.flights.push((ticket, number));
            }
            (ours, model) => panic!("{request:?}\nours {ours:?}\nmodel {model:?}"),
        }
    }

    /// Whether one want may take by chance what another needs.
    fn takes_by_chance(&self, request: &Request) -> bool {
        let (Request::Allocate(ask) | Request::Reserve(Reserve { ask, .. })) = request else {
            return false;
        };
        let by_chance = |pool: &Arc<fipd_core::Pool>| pool.spec.order == Order::Random;
        let may = |want: &Want| match &want.pool {
            Choice::Pool(id) => self.model.pool(*id).is_some_and(by_chance),
            Choice::Any(_) => self.model.pools.iter().any(by_chance),
        };
        ask.wants.len() > 1 && ask.wants.iter().any(may)
    }

    /// The addresses of leases in `ops` that nobody has.
    fn free_before(&self, ops: &[Op]) -> Vec<LeaseKey> {
        let put = ops.iter().filter_map(|op| match op {
            Op::PutLease(lease) => Some(lease.prefix()),
            _ => None,
        });
        let free = put.filter(|prefix| self.model.is_free(*prefix));
        free.map(|prefix| prefix.key).collect()
    }

    /// The audit entries say how long prefixes are, and nothing of single addresses.
    fn tells_lengths(&self, audit: &[AuditEntry], ops: &[Op]) {
        for entry in audit {
            let (Some(network), Some(address)) = (entry.network, entry.address) else {
                assert_eq!(entry.length, None);
                continue;
            };
            let key = LeaseKey { network, address };
            let put = ops.iter().filter_map(|op| match op {
                Op::PutLease(lease) if lease.key == key => Some(lease.length),
                _ => None,
            });
            // What goes may have been of another length than what comes to its place.
            let deleted = |op: &Op| matches!(op, Op::DeleteLease(gone) if *gone == key);
            let known = self.model.lease(key).map(|lease| lease.length);
            let known = known.filter(|_| put.clone().next().is_none() || ops.iter().any(deleted));
            let told = |length| entry.length == (length < key.bits()).then_some(length);
            assert!(put.chain(known).any(told), "{entry:?}");
        }
    }

    fn usages(&self) -> Vec<(PoolId, PoolUsage)> {
        let ids = self.model.pools.iter().map(|pool| pool.id);
        ids.map(|id| (id, self.ledger.usage(id).unwrap())).collect()
    }

    /// The change names every pool that is more or less full than before.
    fn named_where_use_changed(&self, change: &Change, before: &[(PoolId, PoolUsage)]) {
        for (pool, usage) in before {
            let same = self.ledger.usage(*pool) == Some(*usage);
            assert!(same || change.pools.contains(pool), "{pool:?} {change:?}");
        }
    }

    /// The change names every tenant that may have more than before.
    fn named_where_room_grew(&self, change: &Change, before: Vec<((PoolId, Tenant), i64)>) {
        let after: BTreeMap<_, _> = self.model.room().into_iter().collect();
        for ((pool, tenant), room) in before {
            let now = after.get(&(pool, tenant.clone()));
            if now.is_none_or(|now| *now > room) {
                assert!(change.tenants.contains(&tenant), "{pool:?} {change:?}");
                assert!(change.pools.contains(&pool), "{pool:?} {change:?}");
            }
        }
    }

    /// All readings and all invariants.
    fn compare(&self) {
        assert_eq!(self.ledger.check(), []);
        assert_eq!(self.ledger.check_page(None).violations, []);
        assert_eq!(self.ledger.check_queues_page(None).0, []);
        let page = self
            .ledger
            .leases(&LeaseFilter::default(), None, usize::MAX);
        assert!(
            page.leases
                .iter()
                .map(|lease| &**lease)
                .eq(&self.model.leases)
        );
        for pool in &self.model.pools {
            let usage = self.ledger.usage(pool.id).unwrap();
            let all = self.model.assignable(pool);
            let over = |key: &&LeaseKey| {
                let prefix = model::around(&pool.spec, key.address);
                self.model.lease_over(prefix).is_some()
            };
            let used = all.iter().filter(over).count() as u128;
            let mine = self
                .model
                .leases
                .iter()
                .filter(|lease| lease.pool == Some(pool.id));
            let gives = |key: &LeaseKey| {
                let spec = &pool.spec;
                key.network == spec.network && model::assignable(spec, key.address)
            };
            let out = mine.clone().filter(|lease| !gives(&lease.key)).count() as u128;
            let aside = mine
                .clone()
                .filter(|lease| gives(&lease.key) && self.model.withheld(pool, lease.key.address));
            assert_eq!(usage.withheld_in_use, aside.count() as u128, "{pool:?}");
            let attributed = mine.clone().count() as u128;
            assert_eq!(usage.attributed, attributed, "{pool:?}");
            assert_eq!(
                (usage.size, usage.used, usage.out_of_range),
                (all.len() as u128, used, out)
            );
            assert_eq!(usage.free, usage.size - usage.used);
            assert_eq!(usage.withheld, self.model.withheld_count(pool));
            let away = self.model.taken_away(pool);
            assert_eq!((usage.excluded, usage.reserved), away, "{pool:?}");
            let cooling = mine
                .clone()
                .filter(|lease| lease.state == LeaseState::Quarantined);
            assert_eq!(usage.quarantined, cooling.count() as u128);
            let held = mine.clone().filter(|lease| lease.owner().is_some());
            assert_eq!(usage.held(), held.count() as u128, "{pool:?}");
            assert!(
                self.ledger
                    .pool_leases(pool.id, None, 99)
                    .iter()
                    .map(|lease| &**lease)
                    .eq(mine)
            );
            assert_eq!(
                self.ledger.overlaps(pool.id, 99),
                self.model.overlaps(pool),
                "{pool:?}"
            );
            self.compare_queue(pool.id, usage.free);
        }
        assert!(self.ledger.pools().eq(&self.model.pools));
        self.compare_standings();
        let pasts = self.ledger.dump().filter_map(|op| match op {
            Op::PutPast(past) => Some(PastLease::clone(&past)),
            _ => None,
        });
        assert!(pasts.eq(self.model.pasts.iter().cloned()));
        let ends = self.model.leases.iter().filter_map(|lease| lease.until);
        assert_eq!(self.ledger.next_expiry(), ends.min());
        self.compare_leases_over();
        self.compare_quotas();
        self.compare_networks();
        assert_eq!(self.ledger.epoch(), self.model.epoch.as_ref());
        for network in &self.model.networks {
            assert_eq!(self.ledger.holds(network.id), self.model.holds(network.id));
        }
        for lease in &self.model.leases {
            let in_range = self.model.pools.iter().any(|pool| {
                pool.spec.network == lease.key.network
                    && model::fits(lease, &pool.spec)
                    && model::assignable(&pool.spec, lease.key.address)
            });
            let marks = self.ledger.marks(lease);
            assert_eq!(marks.contains(&Mark::OutOfRange), !in_range);
            assert_eq!(
                marks.contains(&Mark::Contended),
                !lease.contenders.is_empty()
            );
        }
    }

    /// What is over each address and each prefix around it.
    fn compare_leases_over(&self) {
        let networks = self.model.networks.iter().map(|network| network.id);
        let families = [Family::V4, Family::V6];
        let all = networks.flat_map(|network| families.map(|family| (network, family)));
        for (network, family) in all {
            for address in model::world(family) {
                let key = LeaseKey { network, address };
                for length in family.bits() - 6..=family.bits() {
                    if model::first(address, length) != address {
                        continue;
                    }
                    let prefix = LeasePrefix { key, length };
                    let over = self.ledger.lease_over(prefix).map(|lease| &**lease);
                    assert_eq!(over, self.model.lease_over(prefix), "{prefix:?}");
                }
                let around = self.ledger.lease_around(key).map(|lease| &**lease);
                assert_eq!(around, self.model.lease_over(key.whole()));
                let mut pools = self.ledger.pools_at(key);
                pools.sort();
                assert_eq!(pools, self.model.pools_at(key));
            }
        }
    }

    /// What is listed of each address and each prefix around it, of all pools and of one, on one page and on many.
    fn compare_lists(&self) {
        for family in [Family::V4, Family::V6] {
            for address in model::world(family) {
                for length in family.bits() - 6..=family.bits() {
                    let first = model::first(address, length);
                    let net = ipnet::IpNet::new(first, length).unwrap();
                    let span = fipd_core::AddressSpec::Cidr(net).span();
                    let inside = |other: IpAddr| net.contains(&other);
                    let around = |lease: &Lease| lease.prefix().net().contains(&net);
                    let within =
                        |lease: &Lease| inside(lease.key.address) && lease.length >= length;
                    for pool in [None, Some(PoolId(1))] {
                        let all = LeaseFilter {
                            pool,
                            ..LeaseFilter::default()
                        };
                        let containing = LeaseFilter {
                            containing: Some(span),
                            ..all.clone()
                        };
                        self.compare_list(&containing, &around);
                        let whole = LeaseFilter {
                            within: Some(span),
                            ..all
                        };
                        self.compare_list(&whole, &within);
                    }
                }
            }
        }
    }

    fn compare_list(&self, filter: &LeaseFilter, shown: &dyn Fn(&Lease) -> bool) {
        let mine = |lease: &&Lease| filter.pool.is_none() || filter.pool == lease.pool;
        let wanted = || {
            self.model
                .leases
                .iter()
                .filter(mine)
                .filter(|lease| shown(lease))
        };
        for most in [1, 99] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = self.ledger.leases(filter, after, most);
                assert!(page.leases.len() <= most);
                found.extend(page.leases);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert!(
                found.iter().map(|lease| &**lease).eq(wanted()),
                "{filter:?}: {found:?}"
            );
        }
    }

    /// Pools read along with others are as each by itself, wherever the reading begins.
    fn compare_standings(&self) {
        let now = self.hour.end();
        let ids = self.ledger.pools().map(|pool| Some(pool.id));
        for after in std::iter::once(None).chain(ids) {
            let read = self.ledger.standings_after(after).map(|one| {
                let forecast = one.forecast(now);
                (one.pool, one.usage(), forecast)
            });
            let each = self.ledger.pools_after(after).map(|pool| {
                let forecast = self.ledger.forecast(pool.id, now);
                (pool, self.ledger.usage(pool.id), forecast)
            });
            assert!(read.eq(each), "after {after:?}");
        }
    }

    fn compare_networks(&self) {
        for network in &self.model.networks {
            let pools = self.model.pools.iter();
            let mine = pools.filter(|pool| pool.spec.network == network.id);
            assert_eq!(self.ledger.pool_count(network.id), mine.count());
        }
    }

    fn compare_quotas(&self) {
        let expected: Vec<QuotaUsage> = self
            .model
            .quotas
            .iter()
            .map(|quota| QuotaUsage {
                quota: quota.clone(),
                used: self.model.used(quota.pool, &quota.tenant),
            })
            .collect();
        assert_eq!(self.ledger.quotas(None, None, None, 99), expected);
        let mut tenancies = self.model.tenancies();
        assert_eq!(self.ledger.tenancies(None, None, 99), tenancies);
        for tenant in tenancies.iter().map(|one| &one.tenant) {
            let limits = expected.iter().filter(|one| one.quota.tenant == *tenant);
            let limits: Vec<_> = limits.cloned().collect();
            assert_eq!(self.ledger.quotas(Some(tenant), None, None, 99), limits);
            let mine = tenancies.iter().filter(|one| one.tenant == *tenant);
            let mine: Vec<_> = mine.cloned().collect();
            assert_eq!(self.ledger.tenancies(Some(tenant), None, 99), mine);
            for (at, after) in mine.iter().enumerate() {
                let after = Some((after.pool, after.tenant.clone()));
                let next = self.ledger.tenancies(Some(tenant), after, 1);
                assert_eq!(next.first(), mine.get(at + 1));
            }
        }
        let half = tenancies.split_off(tenancies.len() / 2);
        let last = tenancies
            .last()
            .map(|last| (last.pool, last.tenant.clone()));
        assert_eq!(self.ledger.tenancies(None, last, 99), half);
        for (pool, tenant) in (1..6).flat_map(|id| ["p-1", "p-2"].map(|name| (PoolId(id), name))) {
            let tenant = Tenant(tenant.into());
            assert_eq!(
                self.ledger.charged(pool, &tenant),
                self.model.used(pool, &tenant)
            );
            let limit = self.ledger.quota(pool, &tenant);
            assert_eq!(
                limit.map(|usage| usage.quota.limit),
                self.model.limit(pool, &tenant)
            );
        }
    }

    fn compare_queue(&self, pool: PoolId, mut free: u128) {
        let mut queue: Vec<_> = self
            .model
            .waiters
            .iter()
            .filter(|waiter| waiter.pool == pool)
            .collect();
        queue.sort_by_key(|waiter| (waiter.since, waiter.identity.clone()));
        let places = self.ledger.waiters(pool, 99);
        assert!(
            places.iter().eq(queue
                .iter()
                .map(|waiter| (waiter.since, waiter.identity.clone()))
                .collect::<Vec<_>>()
                .iter())
        );
        let mut ready = Vec::new();
        for waiter in queue {
            if waiter.need > free {
                break;
            }
            free -= waiter.need;
            ready.push(waiter.identity.clone());
        }
        assert_eq!(self.ledger.ready_waiters(pool, 99), ready);
    }

    /// Ends what is in flight; a ledger loaded from the rows is the same as the one that lived.
    fn end(mut self) {
        for (ticket, number) in std::mem::take(&mut self.flights) {
            self.ledger.abort(ticket);
            self.model.abort(number);
        }
        self.roll_up();
        self.compare();
        self.compare_lists();
        let rows: Vec<Op> = self.ledger.dump().collect();
        let loaded = Ledger::load(rows.iter().rev().cloned(), self.ledger.revision()).unwrap();
        assert_eq!(loaded.check(), []);
        assert!(loaded.dump().eq(rows.iter().cloned()));
        let stored = Ledger::load(self.stored.into_values(), 0).unwrap();
        assert!(stored.dump().eq(rows));
        for pool in self.ledger.pools() {
            assert_eq!(loaded.usage(pool.id), self.ledger.usage(pool.id));
        }
    }
}

/// Many short histories; `PROPTEST_CASES` asks for another number of them.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000)
}

/// Uses of 10.0.0.0/28 and its parts, which somebody had before all of them.
fn use_of_block() -> impl Strategy<Value = Step> {
    let inside = (0..16_usize, 0..5_u8).prop_map(|(at, behind)| {
        let (network, length) = (NetworkId(0), 32 - behind);
        let address = model::first(model::world(Family::V4)[at], length);
        LeasePrefix {
            key: LeaseKey { network, address },
            length,
        }
    });
    let adopts = (inside.clone(), holder(), tenant(), 0..50_u64).prop_map(
        |(used, holder, tenant, since)| {
            Request::Adopt(Adopt {
                length: Some(used.length),
                key: used.key,
                holder,
                tenant,
                since: Timestamp(since),
                actor: ACTOR.into(),
            })
        },
    );
    let keys = prop::collection::vec(inside.prop_map(|used| used.key), 1..4);
    let ends = (holder(), keys).prop_map(|(holder, keys)| {
        Request::Release(Release {
            scope: ReleaseScope::HolderAddresses(holder, keys),
            actor: ACTOR.into(),
            reason: "".into(),
        })
    });
    prop_oneof![
        8 => adopts.prop_map(asks),
        1 => ends.prop_map(asks),
        3 => holder().prop_map(testing::release).prop_map(asks),
        1 => Just(Request::Expire { most: 9, actor: ACTOR.into() }).prop_map(asks),
        12 => Just(Step::Confirm(0)),
        1 => Just(Step::Abort(0)),
    ]
}

proptest! {
    #![proptest_config(Config { cases: cases(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn parts_of_a_prefix_pass_as_in_the_model(
        owner in holder(),
        quarantine in select(vec![0, 1]),
        steps in prop::collection::vec((use_of_block(), select(vec![0, 500])), 1..60),
    ) {
        let whole = LeaseKey { network: NetworkId(0), address: model::world(Family::V4)[0] };
        let block = Lease { length: 28, ..new_lease(whole.whole(), None, &owner, &None, Timestamp(0)) };
        let mut history = History::new(vec![block], None);
        let blocks = testing::pool_spec("blocks", &["10.0.0.0/28"]);
        let ends = Ends::own_default_of(Family::V4, Some(28));
        let spec = PoolSpec { allocation_length: Some(28), quarantine, ends, ..blocks };
        history.step(&asks(Request::CreatePool { spec, actor: ACTOR.into() }), Timestamp(0));
        history.step(&Step::Confirm(0), Timestamp(0));
        let mut now = 500;
        for (step, passes) in &steps {
            now += passes;
            history.step(step, Timestamp(now));
        }
        history.end();
    }

    #[test]
    fn the_ledger_answers_as_the_model(
        pools in prop::collection::vec(spec(), 1..5),
        found in found(),
        epoch in epoch(),
        steps in prop::collection::vec((step(), select(vec![0, 0, 0, 500, 500, 1_500])), 1..80),
    ) {
        let mut history = History::new(found, epoch);
        for spec in pools {
            let request = Request::CreatePool { spec, actor: ACTOR.into() };
            history.step(&asks(request), Timestamp(0));
            history.step(&Step::Confirm(0), Timestamp(0));
        }
        let mut now = 500;
        for (step, passes) in &steps {
            now += passes;
            let mut step = step.clone();
            if let Step::Ask(request) = &mut step {
                let pools: Vec<PoolId> = history.model.pools.iter().map(|pool| pool.id).collect();
                week::of_these(request, &pools);
            }
            history.step(&step, Timestamp(now));
        }
        history.end();
    }
}
