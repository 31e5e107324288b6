use fipd_core::{
    AddressSpec, ClusterId, Contender, Member, NetworkId, Op, PoolId, PoolSpec, System, testing,
};

use super::*;
use crate::controller::{conditions::CONFLICT, store::Key, waiters::Cause};

fn asker(name: &str, uid: &str) -> AddressAsker {
    let identity = Key::new("ns", name).identity(System::claims(), &ClusterId("c".into()), "Kind");
    AddressAsker {
        holder: Holder {
            identity,
            instance: uid.into(),
        },
        created: Timestamp(7),
        actor: "test".into(),
    }
}

const POLICY: AddressPolicy = AddressPolicy {
    inherits: Inheritance::Anything,
    moves: false,
    prefixes: false,
    probes: false,
    charge_reason: "moved",
};

const MOVES: AddressPolicy = AddressPolicy {
    moves: true,
    ..POLICY
};

fn pool() -> Arc<Pool> {
    let addresses: AddressSpec = "10.0.0.0/24".parse().expect("addresses");
    Arc::new(Pool {
        id: PoolId(1),
        spec: PoolSpec {
            gateway: "10.0.0.1".parse().ok(),
            ..PoolSpec::own("lab", vec![addresses])
        },
        created: Timestamp(0),
        generation: 1,
    })
}

fn key(last: u8) -> LeaseKey {
    testing::key([10, 0, 0, last])
}

fn tenant(name: &str) -> Tenant {
    Tenant(name.into())
}

fn lease(last: u8, holder: &Holder, contender: Option<&Holder>) -> Lease {
    let member = |holder: &Holder| Member {
        holder: holder.clone(),
        ports: vec![],
    };
    let contender = contender.map(|holder| Contender {
        holder: holder.clone(),
        tenant: None,
        since: Timestamp(1),
        uses: Vec::new(),
    });
    Lease {
        members: [member(holder)].into_iter().collect(),
        contenders: contender.into_iter().collect(),
        tenant: Some(tenant("t")),
        since: Timestamp(1_000),
        ..testing::lease(key(last), Some(PoolId(1)), None)
    }
}

fn ledger(leases: impl IntoIterator<Item = Lease>) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.apply(&Op::PutPool(pool()));
    for lease in leases {
        ledger.apply(&Op::PutLease(Arc::new(lease)));
    }
    ledger
}

fn wish() -> AddressWish {
    AddressWish::new(tenant("t"), pool(), None)
}

/// What is planned in a word.
fn plan(ledger: &Ledger, asker: &AddressAsker, wish: &AddressWish) -> String {
    word(settle(ledger, POLICY, asker, &Ok(wish.clone())))
}

fn word(plan: AddressPlan) -> String {
    match plan {
        AddressPlan::Show(shown) => format!("show {}", shown.address()),
        AddressPlan::Charge(shown, request) => {
            let Request::Transfer(Transfer { tenant, force, .. }) = *request else {
                panic!("{request:?}");
            };
            let tenant = tenant.map(|tenant| tenant.0);
            format!("charge {} to {tenant:?} {force}", shown.address())
        }
        AddressPlan::Unserved(problem) => problem.reason.to_owned(),
        AddressPlan::Ask(request) => asked(&request),
        AddressPlan::Move(shown, request) => {
            format!("{} from {}", asked(&request), shown.address())
        }
        AddressPlan::Probe(lease) => format!("probe {}", lease.key.address),
    }
}

fn asked(request: &Request) -> String {
    if let Request::Allocate(ask) = request {
        let probed = if ask.probe { "probed " } else { "" };
        return format!("allocate {probed}{:?}", ask.wants[0].address);
    }
    if let Request::Adopt(ask) = request {
        return format!("adopt {} for {:?}", ask.key.address, ask.tenant);
    }
    let Request::Handover(ask) = request else {
        panic!("{request:?}");
    };
    format!("take {} from {}", ask.keys.len(), ask.from.identity)
}

#[test]
fn what_it_has_goes_before_what_it_asks_for() {
    let (one, two) = (asker("one", "u"), asker("two", "u"));
    let gone = || {
        let problem = Unserved::new("PoolNotFound", "", Some(Cause::Pools));
        move |ledger: &Ledger, asker: &AddressAsker| {
            word(settle(ledger, POLICY, asker, &Err(problem.clone())))
        }
    };
    let empty = ledger([]);
    assert_eq!(plan(&empty, &one, &wish()), "allocate None");
    assert_eq!(gone()(&empty, &one), "PoolNotFound");
    let AddressPlan::Ask(request) = settle(&empty, POLICY, &one, &Ok(wish())) else {
        panic!("it has none");
    };
    let Request::Allocate(ask) = *request else {
        panic!("{request:?}");
    };
    assert_eq!(
        ask.waiting_since,
        Some(Timestamp(7)),
        "it waits since it was made"
    );

    let held = lease(9, &one.holder, Some(&two.holder));
    let ledger = ledger([held.clone()]);
    let AddressPlan::Show(shown) = settle(&ledger, POLICY, &one, &Ok(wish())) else {
        panic!("it has an address");
    };
    assert_eq!((shown.prefix_len, shown.contenders.len()), (24, 1));
    assert_eq!(shown.gateway, Some([10, 0, 0, 1].into()));
    assert_eq!(gone()(&ledger, &one), "show 10.0.0.9");
    assert_eq!(plan(&ledger, &two, &wish()), CONFLICT);
    let mut other = wish();
    other.address = Some([10, 0, 0, 8].into());
    assert_eq!(plan(&ledger, &one, &other), "show 10.0.0.9");
}

#[test]
fn what_an_earlier_object_left_is_inherited_or_asked_for_anew() {
    let (next, one) = (asker("one", "next"), asker("one", "u"));
    let left = lease(9, &one.holder, None);
    let orphan = Lease {
        state: LeaseState::Orphaned,
        ..left.clone()
    };
    for (asker, ledger) in [(&next, ledger([left.clone()])), (&one, ledger([orphan]))] {
        let adopts = r#"adopt 10.0.0.9 for Some(Tenant("t"))"#;
        assert_eq!(plan(&ledger, asker, &wish()), adopts);
    }
    let anew = AddressPolicy {
        inherits: Inheritance::Nothing,
        ..POLICY
    };
    let plan = settle(&ledger([left]), anew, &next, &Ok(wish()));
    assert_eq!(word(plan), "allocate None");
}

/// Another program may have allocated it while fipd was away.
#[test]
fn what_an_earlier_object_left_is_not_inherited_where_another_address_is_shown() {
    let (earlier, now) = (asker("one", "earlier"), asker("one", "now"));
    let policy = AddressPolicy {
        inherits: Inheritance::Wished,
        ..POLICY
    };
    let ledger = ledger([lease(5, &earlier.holder, None)]);
    let planned = |recorded: Option<u8>, asker: &AddressAsker| {
        let recorded = recorded.map(|last| key(last).address);
        let wish = AddressWish { recorded, ..wish() };
        word(settle(&ledger, policy, asker, &Ok(wish)))
    };
    assert!(planned(None, &now).starts_with("adopt 10.0.0.5"));
    assert!(planned(Some(5), &now).starts_with("adopt 10.0.0.5"));
    assert!(planned(Some(9), &now).starts_with("adopt 10.0.0.9"));
    assert_eq!(planned(Some(9), &earlier), "show 10.0.0.5", "it is its own");
}

/// Nobody else keeps it from others while the object is not served.
#[test]
fn what_is_shown_is_taken_in_whatever_an_earlier_object_of_the_name_left() {
    let (earlier, now) = (asker("one", "earlier"), asker("one", "now"));
    let ledger = ledger([lease(5, &earlier.holder, None)]);
    let shows = |recorded: Option<u8>| AddressWish {
        recorded: recorded.map(|last| key(last).address),
        ..wish()
    };
    let taken = |asker: &AddressAsker, wish: &AddressWish| {
        to_take_in(&ledger, asker, wish).map(|request| asked(&request))
    };
    for last in [5, 9] {
        let adopts = format!(r#"adopt 10.0.0.{last} for Some(Tenant("t"))"#);
        assert_eq!(taken(&now, &shows(Some(last))), Some(adopts));
        let known = taken(&earlier, &shows(Some(last)));
        assert_eq!(known, None, "the ledger knows what it has");
    }
    assert_eq!(taken(&now, &shows(None)), None);
    let keeper = asker("keeper", "").holder;
    let kept = AddressWish {
        kept: Some(KeptLease {
            from: keeper.clone(),
            key: key(9),
            reason: "it is back",
        }),
        ..shows(Some(9))
    };
    let takes = format!("take 1 from {}", keeper.identity);
    assert_eq!(taken(&now, &kept), Some(takes));
}

#[test]
fn what_an_earlier_object_left_of_another_pool_is_not_inherited() {
    let (next, one) = (asker("one", "next"), asker("one", "u"));
    let policy = AddressPolicy {
        inherits: Inheritance::Wished,
        ..POLICY
    };
    let plan = |held: &[Lease], wish: &AddressWish| {
        let ledger = ledger(held.iter().cloned());
        settle(&ledger, policy, &next, &Ok(wish.clone()))
    };
    let left = lease(9, &one.holder, None);
    let elsewhere = Lease {
        pool: Some(PoolId(2)),
        key: testing::key([10, 0, 1, 9]),
        ..left.clone()
    };
    let adopts = r#"adopt 10.0.0.9 for Some(Tenant("t"))"#;
    assert_eq!(word(plan(std::slice::from_ref(&left), &wish())), adopts);
    let named = AddressWish {
        address: Some([10, 0, 0, 8].into()),
        ..wish()
    };
    let anew = "allocate Some(10.0.0.8)";
    assert_eq!(word(plan(&[left], &named)), anew);
    let held = std::slice::from_ref(&elsewhere);
    assert_eq!(word(plan(held, &wish())), "allocate None");
    let own = lease(7, &next.holder, None);
    let AddressPlan::Show(shown) = plan(&[elsewhere.clone(), own], &wish()) else {
        panic!("it has an address");
    };
    assert_eq!(shown.surplus, [elsewhere.key], "nobody else would free it");
}

#[test]
fn where_pools_of_prefixes_serve_an_object_shows_a_prefix_of_its_pool() {
    let one = asker("one", "u");
    let addresses: AddressSpec = "2001:db8::/48".parse().expect("addresses");
    let spec = PoolSpec {
        allocation_length: Some(64),
        ..PoolSpec::own("prefixes", vec![addresses])
    };
    let pool = Arc::new(Pool {
        spec,
        ..(*pool()).clone()
    });
    let wish = AddressWish::new(tenant("t"), pool, None);
    let key = testing::key_of("2001:db8::");
    let held = |length| Lease {
        length,
        key,
        ..lease(9, &one.holder, None)
    };
    let policy = AddressPolicy {
        prefixes: true,
        ..POLICY
    };
    let planned = |policy, wish: &AddressWish, held: Lease| {
        word(settle(&ledger([held]), policy, &one, &Ok(wish.clone())))
    };
    assert_eq!(planned(policy, &wish, held(64)), "show 2001:db8::");
    assert_eq!(planned(POLICY, &wish, held(64)), "allocate None");
    assert_eq!(planned(policy, &wish, held(56)), "allocate None");
    let recorded = AddressWish {
        recorded: Some(key.address),
        ..wish
    };
    let plan = settle(&ledger([]), policy, &one, &Ok(recorded));
    let AddressPlan::Ask(request) = plan else {
        panic!("{plan:?}");
    };
    let Request::Adopt(adopt) = *request else {
        panic!("{request:?}");
    };
    assert_eq!((adopt.key, adopt.length), (key, Some(64)));
}

#[test]
fn another_tenant_is_charged() {
    let one = asker("one", "u");
    let held = lease(9, &one.holder, None);
    let other = AddressWish::new(tenant("other"), pool(), None);
    let charged = r#"charge 10.0.0.9 to Some("other") false"#;
    assert_eq!(plan(&ledger([held.clone()]), &one, &other), charged);
    assert_eq!(
        plan(&ledger([held.clone()]), &one, &wish()),
        "show 10.0.0.9"
    );
    let mut shared = held;
    let member = shared.members.first().cloned().expect("a member");
    shared.members = [
        member.clone(),
        Member {
            holder: asker("two", "u").holder,
            ..member
        },
    ]
    .into_iter()
    .collect();
    assert_eq!(plan(&ledger([shared]), &one, &other), "show 10.0.0.9");
}

#[test]
fn a_recorded_address_is_adopted_unless_another_has_it() {
    let (one, two) = (asker("one", "u"), asker("two", "u"));
    let mut shows = wish();
    shows.recorded = Some([10, 0, 0, 5].into());
    let adopts = r#"adopt 10.0.0.5 for Some(Tenant("t"))"#;
    assert_eq!(plan(&ledger([]), &one, &shows), adopts);
    let taken = ledger([lease(5, &two.holder, None)]);
    assert_eq!(plan(&taken, &one, &shows), adopts, "it becomes a contender");
    let contended = ledger([lease(5, &two.holder, Some(&one.holder))]);
    assert_eq!(plan(&contended, &one, &shows), CONFLICT);
    let elsewhere = ledger([lease(6, &two.holder, Some(&one.holder))]);
    assert_eq!(plan(&elsewhere, &one, &shows), adopts);
}

#[test]
fn what_is_kept_for_an_object_is_taken() {
    let (one, keeper) = (asker("one", "u"), asker("keeper", ""));
    let mut back = wish();
    back.kept = Some(KeptLease {
        from: keeper.holder.clone(),
        key: key(5),
        reason: "it is back",
    });
    let ledger = ledger([lease(5, &keeper.holder, None)]);
    let taken = format!("take 1 from {}", keeper.holder.identity);
    assert_eq!(plan(&ledger, &one, &back), taken);
}

#[test]
fn one_that_moves_keeps_what_it_has_until_it_has_the_other() {
    let (one, two) = (asker("one", "u"), asker("two", "u"));
    let at = |last: u8| AddressWish {
        address: Some([10, 0, 0, last].into()),
        ..wish()
    };
    let plan =
        |ledger: &Ledger, wish: &AddressWish| word(settle(ledger, MOVES, &one, &Ok(wish.clone())));
    let held = lease(9, &one.holder, None);
    let has_it = ledger([held.clone()]);
    for same in [wish(), at(9)] {
        assert_eq!(plan(&has_it, &same), "show 10.0.0.9");
    }
    let moved = "allocate Some(10.0.0.8) from 10.0.0.9";
    assert_eq!(plan(&has_it, &at(8)), moved);
    let mut elsewhere = wish();
    let other = Arc::make_mut(&mut elsewhere.pool);
    other.id = PoolId(2);
    other.spec.addresses = vec!["10.0.1.0/24".parse().expect("addresses")];
    assert_eq!(plan(&has_it, &elsewhere), "allocate None from 10.0.0.9");
    Arc::make_mut(&mut elsewhere.pool).spec.addresses = pool().spec.addresses.clone();
    assert_eq!(
        plan(&has_it, &elsewhere),
        "show 10.0.0.9",
        "that has it too"
    );

    // What is not the wish's goes once the other is shown.
    let both = ledger([held.clone(), lease(8, &one.holder, None)]);
    for (last, other) in [(8, 9), (9, 8)] {
        let AddressPlan::Show(shown) = settle(&both, MOVES, &one, &Ok(at(last))) else {
            panic!("it has both");
        };
        assert_eq!((shown.key, shown.surplus), (key(last), vec![key(other)]));
    }
    let contends = ledger([held, lease(8, &two.holder, Some(&one.holder))]);
    let AddressPlan::Show(shown) = settle(&contends, MOVES, &one, &Ok(at(9))) else {
        panic!("it has one");
    };
    assert_eq!(shown.surplus, [key(8)], "it contends no longer");
    let problem = Unserved::new("PoolNotFound", "", Some(Cause::Pools));
    let AddressPlan::Show(shown) = settle(&both, MOVES, &one, &Err(problem)) else {
        panic!("it has both");
    };
    assert_eq!(shown.surplus, [], "what it asks for is not known");
}

#[test]
fn one_that_moves_waits_for_the_address_that_it_names_alone() {
    let (one, two) = (asker("one", "u"), asker("two", "u"));
    let contends = ledger([lease(8, &two.holder, Some(&one.holder))]);
    let plan = |address: Option<u8>| {
        let address = address.map(|last| [10, 0, 0, last].into());
        let wish = AddressWish { address, ..wish() };
        word(settle(&contends, MOVES, &one, &Ok(wish)))
    };
    assert_eq!(plan(Some(8)), CONFLICT);
    assert_eq!(plan(None), CONFLICT);
    assert_eq!(plan(Some(7)), "allocate Some(10.0.0.7)");
    let next = asker("one", "next");
    let left = ledger([lease(9, &one.holder, None)]);
    let plan = |wish: AddressWish| word(settle(&left, MOVES, &next, &Ok(wish)));
    assert!(plan(wish()).starts_with("adopt 10.0.0.9"));
    let other = AddressWish {
        address: Some([10, 0, 0, 7].into()),
        ..wish()
    };
    assert_eq!(plan(other), "allocate Some(10.0.0.7)");
}

#[test]
fn a_prefix_that_somebody_gave_the_object_is_no_address_of_it() {
    let asker = asker("one", "u");
    let prefix = Lease {
        length: 30,
        ..lease(4, &asker.holder, None)
    };
    let ledger = ledger([prefix]);
    assert_eq!(plan(&ledger, &asker, &wish()), "allocate None");
}

#[test]
fn only_the_address_that_it_uses_of_a_prefix_of_others_is_waited_for() {
    let (asker, other) = (asker("one", "u"), testing::holder("fipd/vm/lab/a", "1"));
    let mut prefix = lease(4, &other, Some(&asker.holder));
    prefix.length = 30;
    prefix.contenders[0].uses = vec!["10.0.0.5/32".parse().unwrap()];
    let ledger = ledger([prefix]);
    let recorded = |address: &str| AddressWish {
        recorded: Some(address.parse().unwrap()),
        ..wish()
    };
    let waits = plan(&ledger, &asker, &recorded("10.0.0.5"));
    assert_eq!(waits, CONFLICT);
    let beside = plan(&ledger, &asker, &recorded("10.0.0.6"));
    assert!(beside.starts_with("adopt 10.0.0.6"), "{beside}");
}

#[test]
fn a_new_address_is_shown_once_its_check_on_the_wire_has_ended() {
    let policy = AddressPolicy {
        probes: true,
        ..POLICY
    };
    let one = asker("one", "u");
    let planned = |ledger: &Ledger, wished: &Wished| word(settle(ledger, policy, &one, wished));
    assert_eq!(planned(&ledger([]), &Ok(wish())), "allocate probed None");
    let mut of_prefixes = wish();
    Arc::make_mut(&mut of_prefixes.pool).spec.allocation_length = Some(28);
    let prefixes = planned(&ledger([]), &Ok(of_prefixes));
    assert_eq!(prefixes, "allocate None", "a prefix has no MAC");

    let probing = || {
        ledger([Lease {
            state: LeaseState::Probing,
            until: Some(Timestamp(9_000)),
            ..lease(5, &one.holder, None)
        }])
    };
    let gone = Err(Unserved::new("PoolNotFound", "", Some(Cause::Pools)));
    for wished in [Ok(wish()), gone] {
        assert_eq!(planned(&probing(), &wished), "probe 10.0.0.5");
    }
    let again = asker("one", "v");
    let another = word(settle(&probing(), policy, &again, &Ok(wish())));
    assert_eq!(
        another, "probe 10.0.0.5",
        "of an earlier object of its name"
    );
    assert_eq!(
        plan(&probing(), &one, &wish()),
        r#"adopt 10.0.0.5 for Some(Tenant("t"))"#,
        "nobody checks it any more"
    );
    let reserved = ledger([Lease {
        state: LeaseState::Reserved,
        ..lease(5, &one.holder, None)
    }]);
    assert_eq!(planned(&reserved, &Ok(wish())), "allocate probed None");
    let in_use = ledger([lease(5, &one.holder, None)]);
    assert_eq!(planned(&in_use, &Ok(wish())), "show 10.0.0.5");
    let recorded = AddressWish {
        recorded: "10.0.0.7".parse().ok(),
        ..wish()
    };
    let recorded = planned(&ledger([]), &Ok(recorded));
    assert_eq!(
        recorded, r#"adopt 10.0.0.7 for Some(Tenant("t"))"#,
        "it is in use"
    );
}

#[test]
fn what_it_holds_in_another_network_stays_its_own_after_an_edit() {
    let policy = AddressPolicy {
        inherits: Inheritance::Wished,
        ..POLICY
    };
    let one = asker("one", "u");
    let mut held = lease(9, &one.holder, None);
    held.key.network = NetworkId(7);
    held.pool = Some(PoolId(2));
    let AddressPlan::Show(shown) = settle(&ledger([held]), policy, &one, &Ok(wish())) else {
        panic!("it has an address");
    };
    assert_eq!(shown.surplus, [], "it uses that address");
}
