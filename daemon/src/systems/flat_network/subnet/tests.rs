use fipd_core::{ClusterId, LeaseKey, Network, NetworkId, Op, PoolId, testing};
use fipd_crds::flat_network::FlatNetworkIP;

use super::*;
use crate::systems::flat_network::names::FAILED;

/// A subnet of 10.1.2.FIRST to 10.1.2.LAST in this phase.
fn subnet((first, last): (u8, u8), phase: &str) -> SubnetView {
    let object = json!({
        "metadata": { "name": "lab", "uid": "u" },
        "spec": {
            "flatMode": "macvlan", "master": "eth0", "vlan": 10, "cidr": "10.1.2.0/24",
            "ranges": [{ "from": format!("10.1.2.{first}"), "to": format!("10.1.2.{last}") }],
        },
        "status": { "phase": phase },
    });
    let object: FlatNetworkSubnet = serde_json::from_value(object).expect("a subnet");
    SubnetView::of(object)
}

#[test]
fn a_new_or_wider_subnet_is_refused_by_pools_of_any_system() {
    let mut ledger = Ledger::new();
    for (id, name, addresses) in [
        (1, "mine", "10.1.2.1-10.1.2.60"),
        (2, "theirs", "10.1.2.50-10.1.2.99"),
    ] {
        let mut pool = testing::pool(testing::pool_spec(name, &[addresses]));
        pool.id = PoolId(id);
        ledger.apply(&Op::PutPool(pool.into()));
    }
    let mine = ledger.pool(PoolId(1)).cloned();
    let (here, there) = (NetworkId::DEFAULT, NetworkId(7));
    let refused = |mirror: Option<&Pool>, network, range, phase| {
        let subnet = subnet(range, phase);
        let wanted = PoolSpec {
            network,
            ..subnet.read().expect("a subnet").pool()
        };
        let served = || subnet.status.phase == ACTIVE;
        overlap(&ledger, mirror, &wanted, &subnet, served).is_some()
    };
    assert!(refused(None, here, (90, 120), ""), "it is new");
    assert!(refused(None, here, (90, 120), FAILED), "it was refused");
    assert!(!refused(None, here, (100, 120), ""));
    assert!(!refused(None, here, (90, 120), ACTIVE), "it was served");
    assert!(!refused(None, there, (90, 120), ""));
    let mirror = mine.as_deref();
    assert!(!refused(mirror, here, (1, 60), ACTIVE), "it is as it was");
    assert!(!refused(mirror, here, (40, 60), ACTIVE), "it is narrower");
    assert!(refused(mirror, here, (1, 70), ACTIVE), "it is wider");
    let mut moved = mine.as_deref().cloned().expect("a pool");
    moved.spec.network = there;
    assert!(refused(Some(&moved), here, (1, 60), ACTIVE), "it moves");
}

/// Defect 9 of g.1: the original calls a subnet failed that has served pods.
#[test]
fn a_subnet_whose_pods_have_addresses_was_served_whatever_its_phase_says() {
    let source = source();
    let failed = subnet((1, 60), FAILED);
    assert!(source.was_served(&subnet((1, 60), ACTIVE)));
    for (name, of, address, served) in [
        ("a", "lab", "", false),
        ("b", "other", "10.1.2.7", false),
        ("c", "lab", "10.1.2.7", true),
    ] {
        let ip = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name },
            "spec": { "subnet": of, "podId": "p" }, "status": { "addr": address },
        });
        let ip: FlatNetworkIP = serde_json::from_value(ip).expect("an address");
        source.ips.set(&Key::new("ns", name), FlatIpView::of(ip));
        assert_eq!(source.was_served(&failed), served, "{name}");
    }
}

/// The pool moves before the status says that the edit was accepted: fipd may be killed in between, and pods come after that.
/// The labels are written in between.
#[test]
fn an_edit_that_the_pool_has_followed_was_accepted() {
    let none = SubnetLabels::default;
    let labels = |master: &str, vlan: u16| SubnetLabels {
        master: Some(master.to_owned()),
        vlan: Some(vlan.to_string()),
        flat_mode: Some("macvlan".to_owned()),
        mode: Some("bridge".to_owned()),
    };
    for (to, labels, pool, refused) in [
        (("eth0", 20), none(), (8, true), None),
        (("eth0", 0), none(), (0, true), None),
        (("eth0", 20), none(), (7, true), Some("spec.vlan")),
        (("eth0", 20), none(), (8, false), Some("spec.vlan")),
        (("eth0", 20), none(), (0, true), Some("spec.vlan")),
        (("eth0", 0), none(), (7, true), Some("spec.vlan")),
        (("eth1", 20), labels("eth1", 20), (8, true), None),
        // The master was edited after the VLAN was accepted, or nobody knows.
        (
            ("eth1", 20),
            labels("eth0", 20),
            (8, true),
            Some("spec.master"),
        ),
        (("eth1", 20), none(), (8, true), Some("spec.master")),
        // Labels say nothing where the pool has not moved.
        (
            ("eth1", 20),
            labels("eth1", 20),
            (7, true),
            Some("spec.master"),
        ),
        (
            ("eth1", 10),
            labels("eth1", 10),
            (7, true),
            Some("spec.master"),
        ),
    ] {
        let case = format!("{to:?} {labels:?} {pool:?}");
        let why = judged_in_use(to, labels, pool);
        let field = why.as_deref().and_then(|why| why.split(' ').next());
        assert_eq!(field, refused, "{case}");
    }
}

/// A subnet of the name was deleted while pods had addresses of it, or an older address book was put back.
#[test]
fn a_subnet_in_use_stays_in_the_network_of_its_vlan_whatever_is_known_of_it() {
    for (uid, vlan, pool, refused) in [
        ("new", 20, (7, true), true),
        ("new", 10, (7, true), false),
        ("new", 20, (8, true), false),
        ("new", 20, (7, false), false),
        ("u", 20, (7, true), true),
    ] {
        let mut made = subnet((1, 60), "");
        made.meta.uid = uid.into();
        made.spec.vlan = vlan;
        made.status.accepted = (uid == "u").then(|| made.spec.clone());
        let why = judged(&source(), &made, pool);
        let says = |why: &String| why.contains("spec.vlan") && why.contains("vlan-10");
        assert_eq!(
            why.as_ref().is_some_and(says),
            refused,
            "{uid} {vlan} {pool:?}: {why:?}"
        );
        assert_eq!(why.is_some(), refused, "{uid} {vlan} {pool:?}: {why:?}");
    }
}

/// What was served is another object of the name.
#[test]
fn a_subnet_made_anew_must_not_clash_with_others() {
    let source = source();
    let mut other = subnet((50, 99), ACTIVE);
    other.meta.uid = "other".into();
    other.meta.name = "other".into();
    source
        .subnets
        .set(&Key::new("cattle-flat-network", "other"), other);
    let mut made = subnet((1, 60), ACTIVE);
    assert_eq!(judged(&source, &made, (7, true)), None, "it was served");
    made.meta.uid = "new".into();
    let why = judged(&source, &made, (7, true));
    assert!(why.is_some_and(|why| why.contains("range conflict")));
}

/// The cure of an overlap is an edit of the subnet that nobody uses.
#[test]
fn a_subnet_is_not_in_use_by_leases_of_another_pool() {
    for (master, vlan, pool, refused) in [
        ("eth1", 10, (7, true), None),
        ("eth0", 20, (7, false), None),
        // The ledger keeps the pool where it is.
        ("eth0", 20, (7, true), Some("spec.vlan:")),
    ] {
        let mut edited = subnet((1, 60), ACTIVE);
        edited.status.accepted = Some(edited.spec.clone());
        edited.spec.vlan = vlan;
        master.clone_into(&mut edited.spec.master);
        let why = judged_with(&source(), &edited, pool, Some(PoolId(2)));
        let field = why.as_deref().and_then(|why| why.split(' ').next());
        assert_eq!(field, refused, "{master} {vlan} {pool:?}");
        let own = judged_with(&source(), &edited, pool, Some(PoolId(1)));
        assert!(own.is_some(), "{master} {vlan} {pool:?}");
    }
}

/// Nobody edits it: a change of the other subnet, and one of the leases of its pool, has it judged again.
#[test]
fn a_subnet_is_served_again_once_what_was_in_its_way_is_gone() {
    let source = source();
    let mut other = subnet((50, 99), ACTIVE);
    other.meta.uid = "other".into();
    other.meta.name = "other".into();
    let key = Key::new("cattle-flat-network", "other");
    source.subnets.set(&key, other);
    let mut made = subnet((1, 60), FAILED);
    made.meta.uid = "new".into();
    let why = judged_with(&source, &made, (7, true), None).expect("a clash");
    assert!(why.contains("\"other\""), "{why}");
    source.subnets.remove(&key);
    assert_eq!(judged_with(&source, &made, (7, true), None), None);
    // It is in the network of another VLAN.
    let left = |user| judged_with(&source, &made, (8, true), user);
    for (user, by) in [(1, "an earlier subnet"), (2, "through other")] {
        let why = left(Some(PoolId(user))).expect("addresses are in use");
        for part in ["spec.vlan", "vlan-20", by, "move-network"] {
            assert!(why.contains(part), "{why}");
        }
    }
    assert_eq!(left(None), None);
}

fn source() -> SubnetSource {
    SubnetSource {
        settings: FlatNetworkSettings::default(),
        subnets: Objects::new(),
        ips: Objects::new(),
        accepted: Arc::default(),
    }
}

/// What is said of a subnet in use that was accepted with eth0 and VLAN 10 and is now so, whose pool is in this network, by
/// default or not.
fn judged_in_use(
    (master, vlan): (&str, u16),
    labels: SubnetLabels,
    pool: (u32, bool),
) -> Option<String> {
    let mut edited = subnet((1, 60), ACTIVE);
    edited.status.accepted = Some(edited.spec.clone());
    edited.spec.vlan = vlan.into();
    master.clone_into(&mut edited.spec.master);
    edited.labels = labels;
    judged(&source(), &edited, pool)
}

/// What is said of a subnet in use, whose pool is in this network, by default or not, and is that of an object `u`.
fn judged(source: &SubnetSource, subnet: &SubnetView, pool: (u32, bool)) -> Option<String> {
    judged_with(source, subnet, pool, Some(PoolId(1)))
}

/// The same with a lease that is attributed to pool 1, the subnet's own, or to pool 2, which gives the same addresses, or without.
fn judged_with(
    source: &SubnetSource,
    subnet: &SubnetView,
    (network, network_by_default): (u32, bool),
    user: Option<PoolId>,
) -> Option<String> {
    let cluster = ClusterId("c".into());
    let mirror = MirrorOf {
        cluster: &cluster,
        cluster_name: "lab",
        object: "cattle-flat-network/lab",
        uid: "u",
    };
    let mut ledger = Ledger::new();
    for (id, name) in [(7, "vlan-10"), (8, "vlan-20")] {
        ledger.apply(&Op::PutNetwork(Network {
            id: NetworkId(id),
            name: name.into(),
            hold: None,
        }));
    }
    let network = NetworkId(network);
    let pool = testing::pool(PoolSpec {
        network,
        network_by_default,
        name: mirror.pool_name(&System::flat_network()),
        origin: mirror.origin(System::flat_network()),
        ..subnet.read().expect("a subnet").pool()
    });
    ledger.apply(&Op::PutPool(pool.into()));
    let other = testing::pool(PoolSpec {
        network,
        ..testing::pool_spec("other", &["10.1.2.1-10.1.2.60"])
    });
    let other = Pool {
        id: PoolId(2),
        ..other
    };
    ledger.apply(&Op::PutPool(other.into()));
    let place = LeaseKey {
        network,
        address: [10, 1, 2, 7].into(),
    };
    if user.is_some() {
        let lease = testing::lease(place, user, [testing::holder("fipd/vm/lab/web", "1")]);
        ledger.apply(&Op::PutLease(lease.into()));
    }
    let uid = &subnet.meta.uid;
    source.judge(&ledger, &MirrorOf { uid, ..mirror }, subnet)
}
