//! What the system leaves in a cluster. IPAddresses, endpoints and annotations stay, valid for the original programs.

use fipd_core::System;
use fipd_crds::labels::FIELD_MANAGER;
use serde_json::Value;

use super::{
    claim::wish::sort_of,
    names::{
        ADDRESS_OBJECT, CLAIM, EXTENSION_CONFIG, GLOBAL_POOL, GLOBAL_PREFIX_POOL, GRACE_ENDS, POOL,
        PREFIX_POOL, PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS, WATCH_FILTER,
    },
    settings::ClusterApiSettings,
};
use crate::{
    controller::{kind::Kind, store::Key},
    detach::{Leaving, Leftover, Marks, Named, Past, has_webhook},
};

/// See the module.
pub struct ClusterApiLeaving;

impl Leaving for ClusterApiLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 8] = [
            Leftover::validator(&[super::admission::VALIDATOR], |past| {
                was_on(past) && has_webhook(&of(past).webhook)
            }),
            Leftover {
                own: true,
                listed: None,
                named: Named {
                    names: &[super::extension::NAME],
                    only_in: None,
                    wrote: |past| was_on(past) && of(past).hook.is_some(),
                },
                ..Leftover::of(EXTENSION_CONFIG, was_on)
            },
            of_pool(CLAIM),
            Leftover {
                goes: is_in_grace,
                ..of_pool(ADDRESS_OBJECT)
            },
            pool(POOL),
            pool(GLOBAL_POOL),
            pool(PREFIX_POOL),
            pool(GLOBAL_PREFIX_POOL),
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![RELEASE_ADDRESS, PROTECT_ADDRESS, PROTECT_POOL],
            ..Marks::default()
        }
    }

    fn locks(&self, past: &Past) -> Vec<(Key, bool)> {
        let settings = of(past);
        let held = was_on(past) && settings.leader_elect;
        super::leases(settings)
            .into_iter()
            .map(|lease| (lease, held))
            .collect()
    }
}

/// Claims and IPAddresses: other providers have finalizers of these names too.
const fn of_pool(kind: Kind) -> Leftover {
    Leftover {
        is_ours: Some(|object, past| was_on(past) && serves(of(past), object)),
        ..Leftover::of(kind, was_on)
    }
}

const fn pool(kind: Kind) -> Leftover {
    Leftover {
        is_ours: Some(|object, past| was_on(past) && serves_pool(of(past), object)),
        ..Leftover::of(kind, was_on)
    }
}

/// Whether fipd served the claim or IPAddress. An IPAddress that the original made has no label, and fipd's finalizer once it is
/// adopted.
fn serves(settings: &ClusterApiSettings, object: &Value) -> bool {
    let filter = object["metadata"]["labels"][WATCH_FILTER].as_str();
    let completed = filter.is_none() && is_written(object);
    let covered = settings.covers(namespace(object), filter)
        || completed && settings.covers_namespace(namespace(object));
    let pool = serde_json::from_value(object["spec"]["poolRef"].clone());
    covered && pool.is_ok_and(|pool| sort_of(&pool, settings).is_some())
}

/// Whether fipd served the pool.
fn serves_pool(settings: &ClusterApiSettings, object: &Value) -> bool {
    settings.serves_in_cluster_kinds() && settings.covers_namespace(namespace(object))
}

/// Whether fipd wrote any field of it.
fn is_written(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    let mut managers = managers.into_iter().flatten();
    managers.any(|one| one["manager"] == FIELD_MANAGER)
}

/// Empty for what is of no namespace.
fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// An IPAddress without a claim, which stays for the grace of its pool: nobody else would delete it, or free its address.
fn is_in_grace(meta: &Value) -> bool {
    let none = |field: &str| meta[field].as_array().is_none_or(Vec::is_empty);
    meta["annotations"].get(GRACE_ENDS).is_some() && none("finalizers") && none("ownerReferences")
}

fn of(past: &Past) -> &ClusterApiSettings {
    past.settings.of()
}

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::cluster_api())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::systems::cluster_api::settings::InClusterKinds;

    /// Other providers have finalizers of the same names on what they serve.
    #[test]
    fn what_another_provider_serves_keeps_its_finalizers() {
        let ours = ClusterApiSettings {
            namespace: "ours".into(),
            watch_filter: "fipd".into(),
            ..ClusterApiSettings::default()
        };
        let all = ClusterApiSettings::default();
        let object = |namespace: &str, filter: Option<&str>, manager: &str| {
            json!({
                "metadata": {
                    "namespace": namespace, "labels": { WATCH_FILTER: filter },
                    "managedFields": [{ "manager": manager }],
                },
                "spec": { "poolRef": {
                    "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "a",
                } },
            })
        };
        for (namespace, filter, manager, served) in [
            ("ours", Some("fipd"), "kubectl", true),
            ("theirs", Some("fipd"), "kubectl", false),
            ("ours", Some("other"), "fipd", false),
            ("ours", None, "manager", false),
            // The original made it, and fipd adopted it.
            ("ours", None, "fipd", true),
            ("theirs", None, "fipd", false),
        ] {
            let object = object(namespace, filter, manager);
            assert_eq!(serves(&ours, &object), served, "{object}");
            assert!(serves(&all, &object), "{object}");
        }
        let elsewhere =
            json!({ "spec": { "poolRef": { "apiGroup": "x", "kind": "Pool", "name": "a" } } });
        assert!(!serves(&all, &elsewhere));
        let pool = |namespace: Value| json!({ "metadata": { "namespace": namespace } });
        assert!(serves_pool(&ours, &pool(json!("ours"))));
        assert!(!serves_pool(&ours, &pool(json!("theirs"))));
        assert!(serves_pool(&ours, &pool(Value::Null)), "a global pool");
        let leaves = ClusterApiSettings {
            in_cluster_kinds: InClusterKinds::Leave,
            ..all
        };
        assert!(!serves_pool(&leaves, &pool(json!("ours"))));
    }

    #[test]
    fn an_address_in_its_grace_goes_and_one_that_somebody_uses_stays() {
        let mark = || json!({ GRACE_ENDS: "2026-01-01T00:00:00Z" });
        for (meta, goes) in [
            (json!({ "annotations": mark() }), true),
            (json!({}), false),
            (
                json!({ "annotations": mark(), "finalizers": [PROTECT_ADDRESS] }),
                false,
            ),
            (
                json!({ "annotations": mark(), "ownerReferences": [{ "name": "a" }] }),
                false,
            ),
        ] {
            assert_eq!(is_in_grace(&meta), goes, "{meta}");
        }
    }
}
