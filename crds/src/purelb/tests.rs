use serde_json::json;

use super::*;

#[test]
fn each_family_has_its_own_list() {
    let pool = |subnet: &str, pool: &str| AddressPool {
        subnet: subnet.to_owned(),
        pool: pool.to_owned(),
        aggregation: "default".to_owned(),
    };
    let four = ServiceGroupSpec {
        local: Some(LocalAddresses {
            v4_pools: vec![pool("192.0.2.0/24", "192.0.2.7/32")],
            ..LocalAddresses::default()
        }),
    };
    let wanted = json!({"local": {"v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.7/32", "aggregation": "default"}]}});
    assert_eq!(serde_json::to_value(&four).unwrap(), wanted);
    assert_eq!(
        serde_json::from_value::<ServiceGroupSpec>(wanted).unwrap(),
        four
    );

    let six = ServiceGroupSpec {
        local: Some(LocalAddresses {
            v6_pools: vec![pool("2001:db8::/64", "2001:db8::7/128")],
            ..LocalAddresses::default()
        }),
    };
    let wanted = json!({"local": {"v6pools": [{"subnet": "2001:db8::/64", "pool": "2001:db8::7/128", "aggregation": "default"}]}});
    assert_eq!(serde_json::to_value(&six).unwrap(), wanted);
}

#[test]
fn groups_of_other_sources_decode() {
    let group: ServiceGroup = serde_json::from_value(json!({
        "apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": {"name": "netbox"},
        "spec": {"netbox": {"url": "https://netbox.example.com", "tenant": "t"}},
    }))
    .unwrap();
    assert_eq!(group.spec.local, None);
}
