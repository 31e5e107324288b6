use kube::Resource as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::same_again;

fn object(kind: &str, rest: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": "kubefip.k8s.binbash.org/v1", "kind": kind, "metadata": {} });
    let fields = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

#[test]
fn objects_of_the_original_read_and_write_the_same() {
    let spec = json!({ "spec": { "iprange": "10.135.10.192/26", "region": "west" } });
    let range: FloatingIPRange = same_again(&object("FloatingIPRange", &spec));
    assert_eq!(range.spec.iprange, "10.135.10.192/26");
    let spec = json!({ "spec": { "ipaddress": "10.135.10.193" } });
    let fip: GuestFloatingIP = same_again(&object("FloatingIP", &spec));
    assert_eq!(fip.spec.ipaddress, "10.135.10.193");
    assert_eq!(GuestFloatingIP::kind(&()), "FloatingIP");
}

/// The original's clients send `status.Name`, and nothing is required.
#[test]
fn an_object_without_spec_is_one_with_an_empty_spec() {
    for rest in [
        json!({}),
        json!({ "spec": null }),
        json!({ "spec": {}, "status": { "Name": "" } }),
        json!({ "spec": { "iprange": null, "ipaddress": null } }),
    ] {
        let range: FloatingIPRange =
            serde_json::from_value(object("FloatingIPRange", &rest)).unwrap();
        assert_eq!(range.spec, FloatingIPRangeSpec::default(), "{rest}");
        let fip: GuestFloatingIP = serde_json::from_value(object("FloatingIP", &rest)).unwrap();
        assert_eq!(fip.spec, GuestFloatingIPSpec::default(), "{rest}");
    }
}

#[test]
fn what_fipd_adds_reads_and_writes_the_same() {
    let range = json!({
        "spec": {
            "iprange": "2001:db8::/64", "gateway": "2001:db8::1", "exclusions": ["2001:db8::5"],
            "quarantineSeconds": 60, "stickySeconds": 0,
        },
        "status": { "pool": "p", "total": 3, "used": 0, "free": 3, "reserved": 2, "quarantined": 0 },
    });
    let range: FloatingIPRange = same_again(&object("FloatingIPRange", &range));
    assert_eq!(range.spec.sticky_seconds, Some(0));
    let fip = json!({
        "spec": {},
        "status": { "address": "10.0.0.5", "pool": "p", "network": "default", "prefixLength": 24 },
    });
    let fip: GuestFloatingIP = same_again(&object("FloatingIP", &fip));
    assert_eq!(fip.status.unwrap().prefix_length, Some(24));
}

/// The original knows one version without a status, and requires nothing.
#[test]
fn the_definitions_require_nothing_and_add_a_status() {
    let installed = crate::all();
    for (plural, names, scope) in [
        ("floatingips", ["fip", "fips"], "Namespaced"),
        ("floatingipranges", ["fiprange", "fipranges"], "Cluster"),
    ] {
        let mut of_group = installed.iter().filter(|crd| crd.spec.group == GROUP);
        let crd = of_group
            .find(|crd| crd.spec.names.plural == plural)
            .unwrap();
        assert_eq!(crd.spec.scope, scope);
        assert_eq!(crd.spec.names.short_names.as_deref().unwrap(), names);
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{plural} has several versions");
        };
        assert_eq!((version.name.as_str(), version.storage), ("v1", true));
        assert!(version.subresources.as_ref().unwrap().status.is_some());
        let schema = version.schema.as_ref().unwrap();
        let root = schema.open_api_v3_schema.as_ref().unwrap();
        let spec = &root.properties.as_ref().unwrap()["spec"];
        assert_eq!((&root.required, &spec.required), (&None, &None));
    }
}
