use serde_json::{Value, json};

use super::*;
use crate::testing::same_again;

fn object(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "api.operator.brtrm.dev/v1alpha1", "kind": kind, "metadata": { "name": "a" }, "spec": spec })
}

#[test]
fn objects_of_all_versions_of_the_original_are_read_as_they_are() {
    let first = json!({ "cidr": "203.0.113.0/24", "table": 100, "priority": 1000, "nodeSelectorLabel": "lb=true" });
    let first: IPRule = same_again(&object("IPRule", first));
    assert_eq!(first.spec.node_selector_label, "lb=true");
    let last = json!({ "cidrs": ["203.0.113.0/24", "2001:db8::/64"], "table": 100 });
    let last: IPRule = same_again(&object("IPRule", last));
    assert_eq!((last.spec.cidr.as_str(), last.spec.priority), ("", 0));
    let config =
        json!({ "serviceIP": "10.96.23.17", "table": 100, "priority": 1000, "state": "present" });
    same_again::<IPRuleConfig>(&object("IPRuleConfig", config));
    let agent = json!({ "image": "x:1", "nodeSelector": { "lb": "true" }, "tolerations": [{ "operator": "Exists" }] });
    same_again::<Agent>(&object("Agent", agent));
}

#[test]
fn fields_of_fipd_are_kept() {
    let spec = json!({
        "cidr": "203.0.113.0/24", "vrf": "red", "reconcileInterval": "30s", "source": "endpoints", "failClosed": true,
        "mode": "indexed",
    });
    let rule: IPRule = same_again(&object("IPRule", spec));
    assert_eq!(rule.spec.table, 0);
}

#[test]
fn odd_values_spoil_no_list() {
    let spec = json!({ "cidr": null, "cidrs": null, "table": 4_294_967_296_u64, "priority": -1, "failClosed": null });
    let rule: IPRuleSpec = serde_json::from_value(spec).unwrap();
    assert_eq!((rule.table, rule.priority), (1 << 32, -1));
    let config: IPRuleConfigSpec = serde_json::from_value(json!({ "table": 1e40 })).unwrap();
    assert_eq!(config.table, i64::MAX);
}
