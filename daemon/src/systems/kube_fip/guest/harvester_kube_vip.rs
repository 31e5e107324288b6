//! The kube-vip that Harvester's cloud provider brings along: it must not run beside fipd's. Pure.

use std::collections::BTreeMap;

use fipd_crds::kube_fip::KUBE_VIP;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::guests::objects::Texts;

/// Set by helm on what it installs.
const RELEASE: &str = "meta.helm.sh/release-name";
pub const HARVESTER: &str = "harvester-cloud-provider";
/// No node has this label, so a DaemonSet that selects it runs nowhere. The original's name.
pub const DISABLED: &str = "node-role.kubernetes.io/harvester-kube-vip-disabled";
/// Annotation on the DaemonSet: fipd answers for the selector.
const MARK: &str = "fipd.io/kube-fip-disabled";

/// What to merge into DaemonSet `kube-system/kube-vip` so that it runs, or does not (`off`); `None`: it is so, or it is not
/// Harvester's. What somebody else switched off stays so: the original's kube-vip may run there.
pub fn change(found: &DaemonSet, off: bool) -> Option<Value> {
    let harvester = is_harvesters(found);
    let set = selector(found) == Some("true");
    let marked = found.annotations().contains_key(MARK);
    let stays = if off { set } else { !marked };
    if !harvester || stays {
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

/// Whether no selector but the one that switches it off is left, which fipd did not write: the original replaced them all.
pub fn is_alone(found: &DaemonSet) -> bool {
    let count = selectors(found).map_or(0, BTreeMap::len);
    let marked = found.annotations().contains_key(MARK);
    is_harvesters(found) && !marked && count == 1 && selector(found).is_some()
}

/// The selectors that a manifest of its chart gives it; `None`: it is not in there.
pub fn by_chart(manifest: &str) -> Option<Texts> {
    let documents = manifest.split("\n---");
    documents.into_iter().find_map(|document| {
        let found: DaemonSet = serde_saphyr::from_str(document.trim_start_matches('-')).ok()?;
        let named = found.metadata.name.as_deref() == Some(KUBE_VIP);
        named.then(|| selectors(&found).cloned().unwrap_or_default())
    })
}

/// Whether Harvester's cloud provider brought it.
pub fn is_harvesters(found: &DaemonSet) -> bool {
    found.annotations().get(RELEASE).map(String::as_str) == Some(HARVESTER)
}

fn selectors(found: &DaemonSet) -> Option<&Texts> {
    let template = found.spec.template.spec.as_ref()?;
    template.node_selector.as_ref()
}

fn selector(found: &DaemonSet) -> Option<&str> {
    selectors(found)?.get(DISABLED).map(String::as_str)
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
    fn selectors_that_the_original_replaced_are_known_from_the_chart() {
        let blanked = daemon_set(HARVESTER, json!({ DISABLED: "true" }));
        assert!(is_alone(&blanked));
        let ours = merged(&daemon_set(HARVESTER, json!({})), true);
        assert!(!is_alone(&ours));
        for kept in [
            json!({}),
            json!({ "a": "b" }),
            json!({ DISABLED: "true", "a": "b" }),
        ] {
            assert!(!is_alone(&daemon_set(HARVESTER, kept)));
        }
        assert!(!is_alone(&daemon_set(
            "kube-vip",
            json!({ DISABLED: "true" })
        )));
        let of = |name: &str, more: &str| {
            format!(
                "---\n# Source: x\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n---\napiVersion: apps/v1\nkind: DaemonSet\n\
                 metadata: {{name: {name}}}\nspec: {{selector: {{}}, template: {{spec: {{containers: []{more}}}}}}}\n"
            )
        };
        let selector = ", nodeSelector: {node-role.kubernetes.io/control-plane: \"true\"}";
        let expected = (
            "node-role.kubernetes.io/control-plane".to_owned(),
            "true".to_owned(),
        );
        let expected = Some(Texts::from([expected]));
        assert_eq!(by_chart(&of("kube-vip", selector)), expected);
        assert_eq!(by_chart(&of("kube-vip", "")), Some(Texts::new()));
        assert_eq!(by_chart(&of("other", selector)), None);
        assert_eq!(by_chart("a: ["), None);
    }

    #[test]
    fn only_harvesters_is_touched() {
        let own = daemon_set("kube-vip", json!({}));
        assert_eq!((change(&own, true), change(&own, false)), (None, None));
    }

    #[test]
    fn what_the_original_switched_off_stays_off() {
        let blanked = daemon_set(HARVESTER, json!({ DISABLED: "true" }));
        assert_eq!(
            (change(&blanked, true), change(&blanked, false)),
            (None, None)
        );
    }
}
