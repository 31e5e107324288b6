use serde_json::json;

use super::*;

#[test]
fn a_pool_carries_only_what_is_set() {
    let mut pool = IPAddressPool::new(
        "ip4-192.0.2.7",
        IPAddressPoolSpec {
            addresses: vec!["192.0.2.7/32".to_owned()],
            ..IPAddressPoolSpec::default()
        },
    );
    let bare = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": {"name": "ip4-192.0.2.7"},
        "spec": {"addresses": ["192.0.2.7/32"]},
    });
    assert_eq!(serde_json::to_value(&pool).unwrap(), bare);

    pool.spec.allocate_to = Some(ServiceAllocation {
        namespaces: vec!["shop".to_owned()],
        service_selectors: vec![ServiceSelector {
            match_labels: BTreeMap::from([(
                "rancher.k8s.binbash.org/servicegroup".to_owned(),
                "web".to_owned(),
            )]),
        }],
    });
    let allocate = json!({
        "namespaces": ["shop"],
        "serviceSelectors": [{"matchLabels": {"rancher.k8s.binbash.org/servicegroup": "web"}}],
    });
    assert_eq!(
        serde_json::to_value(&pool).unwrap()["spec"]["serviceAllocation"],
        allocate
    );
}

#[test]
fn an_advertisement_names_pool_and_interface() {
    let spec = L2AdvertisementSpec {
        ip_address_pools: vec!["ip4-192.0.2.7".to_owned()],
        interfaces: vec!["enp2s0".to_owned()],
    };
    let wanted = json!({"ipAddressPools": ["ip4-192.0.2.7"], "interfaces": ["enp2s0"]});
    assert_eq!(serde_json::to_value(&spec).unwrap(), wanted);
    assert_eq!(
        serde_json::from_value::<L2AdvertisementSpec>(wanted).unwrap(),
        spec
    );
}

#[test]
fn a_users_own_pool_decodes() {
    let pool: IPAddressPool = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": {"name": "office"},
        "spec": {
            "addresses": ["198.51.100.0-198.51.100.9"], "avoidBuggyIPs": true, "autoAssign": false,
            "serviceAllocation": {"priority": 50, "serviceSelectors": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
        },
        "status": {"assignedIPv4": 0},
    }))
    .unwrap();
    assert_eq!(pool.spec.addresses, ["198.51.100.0-198.51.100.9"]);
    assert_eq!(pool.spec.auto_assign, Some(false));
    assert_eq!(
        pool.spec.allocate_to.unwrap().service_selectors,
        [ServiceSelector::default()]
    );
}
