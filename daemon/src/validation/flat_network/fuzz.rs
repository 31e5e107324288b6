//! Subnets, and annotations of pods, as anybody writes them.
#![allow(clippy::unwrap_used, reason = "what fails here is a finding")]

use fipd_core::Span;
use fipd_crds::flat_network::{
    FlatNetworkIP, FlatNetworkSubnet,
    names::{NETWORK_STATUS, NETWORKS},
};
use fipd_crds::names::is_object_name;

use super::{
    annotations::{Annotations, PodAddresses, keep_seconds},
    changes, clash,
    interfaces::{PodInterface, pod_of},
    labels, multus, spelling,
    subnet::FlatSubnet,
    workload::check_asked,
};

/// Reads a subnet, and asserts that what is read is one pool of the address book.
pub fn subnets(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<FlatNetworkSubnet>(bytes) else {
        return;
    };
    let current = spelling::current(&object.spec);
    let again = current.as_ref().and_then(spelling::current);
    assert_eq!(again, None, "written back more than once");
    let Ok(subnet) = FlatSubnet::read(&object.spec) else {
        return;
    };
    assert!(subnet.interface().len() < 16);
    let size = subnet.pool().size().unwrap();
    let given = subnet.given();
    let count = given
        .iter()
        .map(Span::len)
        .fold(0_u128, u128::saturating_add);
    let has_mapped = given.iter().any(|span| span.overlaps(&Span::MAPPED));
    assert!(has_mapped || size.assignable == count, "{subnet:?}");
    for span in given.iter().take(10) {
        assert_eq!(subnet.why_not(span.first_address()), None);
        assert_eq!(subnet.why_not(span.last_address()), None);
    }
    assert_eq!(clash::clashes(&subnet, [("itself", &subnet)]).len(), 1);
    assert_eq!(changes::lost(&subnet, &subnet), []);
}

/// Reads the annotations of a pod, or its address.
pub fn pods(bytes: &[u8]) {
    if let Ok(object) = serde_json::from_slice::<FlatNetworkIP>(bytes) {
        let _ = PodAddresses::of_ip(&object.spec);
    }
    let Ok(all) = serde_json::from_slice::<Annotations>(bytes) else {
        return;
    };
    let path = "metadata.annotations";
    let _ = (keep_seconds(path, &all), multus::attachments(path, &all));
    let text = |key: &str| all.get(key).map_or("", String::as_str);
    let _ = multus::shown_addresses("ns", NETWORK_STATUS, text(NETWORK_STATUS));
    let _ = multus::names_flat_network(NETWORKS, text(NETWORKS));
    let spec = r#"{ "flatMode": "ipvlan", "master": "eth0", "cidr": "10.1.2.0/24" }"#;
    let subnet = FlatSubnet::read(&serde_json::from_str(spec).unwrap()).unwrap();
    for one in PodInterface::read_all(path, &all).unwrap_or_default() {
        let asked = &one.asked;
        let addresses = asked.addresses.iter().map(|one| labels::address(*one));
        let values = addresses.chain(asked.macs.iter().map(labels::mac));
        for value in values.chain([labels::name(&asked.subnet)]) {
            assert!(labels::is_value(&value) && !value.is_empty(), "{value:?}");
        }
        let _ = check_asked(asked, &one.fields, &subnet);
        let name = one.id.object_name(path, "web-0").unwrap();
        assert!(
            is_object_name(&name) && pod_of(&name) == "web-0",
            "{name:?}"
        );
    }
}
