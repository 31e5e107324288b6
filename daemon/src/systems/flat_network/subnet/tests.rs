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
    let source = SubnetSource {
        settings: FlatNetworkSettings::default(),
        subnets: Objects::new(),
        ips: Objects::new(),
        accepted: Arc::default(),
    };
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
#[test]
fn an_edit_of_the_vlan_that_the_pool_has_followed_was_accepted() {
    let source = SubnetSource {
        settings: FlatNetworkSettings::default(),
        subnets: Objects::new(),
        ips: Objects::new(),
        accepted: Arc::default(),
    };
    let cluster = ClusterId("c".into());
    let mirror = MirrorOf {
        cluster: &cluster,
        cluster_name: "lab",
        object: "cattle-flat-network/lab",
        uid: "u",
    };
    let judged = |vlan: u16, network: u32, network_by_default: bool| {
        let mut edited = subnet((1, 60), ACTIVE);
        let before = edited.spec.clone();
        edited.spec.vlan = vlan.into();
        edited.status.accepted = Some(before);
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
            ..edited.read().expect("a subnet").pool()
        });
        ledger.apply(&Op::PutPool(pool.into()));
        let place = LeaseKey {
            network,
            address: [10, 1, 2, 7].into(),
        };
        let lease = testing::lease(
            place,
            Some(PoolId(1)),
            [testing::holder("fipd/vm/lab/web", "1")],
        );
        ledger.apply(&Op::PutLease(lease.into()));
        source.judge(&ledger, &mirror, &edited)
    };
    assert_eq!(judged(20, 8, true), None);
    assert_eq!(judged(0, 0, true), None);
    for (vlan, network, by_default) in [(20, 7, true), (20, 8, false), (20, 0, true), (0, 7, true)]
    {
        let why = judged(vlan, network, by_default).unwrap_or_default();
        assert!(
            why.starts_with("spec.vlan"),
            "{vlan} {network} {by_default}: {why}"
        );
    }
}
