//! The kube-vip that Harvester's cloud provider brings along: it must not run beside fipd's. Pure.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Set by helm on what it installs.
const RELEASE: &str = "meta.helm.sh/release-name";
const HARVESTER: &str = "harvester-cloud-provider";
/// No node has this label, so a DaemonSet that selects it runs nowhere. The original's name.
pub const DISABLED: &str = "node-role.kubernetes.io/harvester-kube-vip-disabled";
/// Annotation on the DaemonSet: fipd answers for the selector.
const MARK: &str = "fipd.io/kube-fip-disabled";

/// What to merge into DaemonSet `kube-system/kube-vip` so that it runs, or does not (`off`); `None`: it is so, or it is not
/// Harvester's. What the original had switched off is switched on again only after fipd has had a kube-vip there.
pub fn change(found: &DaemonSet, off: bool) -> Option<Value> {
    let harvester = found.annotations().get(RELEASE).map(String::as_str) == Some(HARVESTER);
    let set = selector(found) == Some("true");
    let marked = found.annotations().contains_key(MARK);
    if !harvester || (set == off && marked == off) || (!off && !marked) {
        return None;
    }
    let (value, mark) = match off {
        true => (json!("true"), json!("true")),
        false => (Value::Null, Value::Null),
    };
    Some(json!({
        "metadata": { "annotations": { MARK: mark } },
        "spec": { "template": { "spec": { "nodeSelector": { DISABLED: value } } } },
    }))
}

fn selector(found: &DaemonSet) -> Option<&str> {
    let template = found.spec.template.spec.as_ref()?;
    let selectors = template.node_selector.as_ref()?;
    selectors.get(DISABLED).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::merge_patch::testing;

    fn daemon_set(release: &str, selectors: Value) -> DaemonSet {
        let value = json!({
            "metadata": { "annotations": { RELEASE: release } },
            "spec": { "selector": {}, "template": { "spec": {
                "containers": [], "nodeSelector": selectors,
            } } },
        });
        serde_json::from_value(value).expect("a DaemonSet")
    }

    fn merged(found: &DaemonSet, off: bool) -> DaemonSet {
        let value = serde_json::to_value(found).expect("JSON");
        let value = testing::merged(&value, &change(found, off).expect("a change"));
        serde_json::from_value(value).expect("a DaemonSet")
    }

    #[test]
    fn one_selector_comes_and_goes_beside_those_that_are_there() {
        let theirs = daemon_set(HARVESTER, json!({ "kubernetes.io/os": "linux" }));
        assert_eq!(change(&theirs, false), None);
        let off = merged(&theirs, true);
        assert_eq!(selector(&off), Some("true"));
        assert_eq!(change(&off, true), None);
        assert_eq!(merged(&off, false), theirs);
    }

    #[test]
    fn only_harvesters_is_touched() {
        let own = daemon_set("kube-vip", json!({}));
        assert_eq!((change(&own, true), change(&own, false)), (None, None));
    }

    #[test]
    fn what_the_original_switched_off_stays_until_fipds_own_has_been_there() {
        let blanked = daemon_set(HARVESTER, json!({ DISABLED: "true" }));
        assert_eq!(change(&blanked, false), None);
        let taken_over = merged(&blanked, true);
        assert_eq!(change(&taken_over, true), None);
        assert_eq!(selector(&merged(&taken_over, false)), None);
    }
}
