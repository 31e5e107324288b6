//! What the system leaves in a cluster. IPAddresses, endpoints and annotations stay, valid for the original programs.

use fipd_core::System;
use fipd_crds::labels::FIELD_MANAGER;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    claim::wish::sort_of,
    conversion::{OLDER, definition},
    names::{
        ADDRESS_OBJECT, CLAIM, EXTENSION_CONFIG, GLOBAL_POOL, GLOBAL_PREFIX_POOL, GRACE_ENDS, POOL,
        PREFIX_POOL, PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS, WATCH_FILTER,
    },
    settings::ClusterApiSettings,
};
use crate::{
    controller::{
        client::Remote,
        kind::{CUSTOM_RESOURCE_DEFINITION, Kind},
        owned::identify,
        store::Key,
    },
    detach::{Does, Found, Leaving, Leftover, Marks, Named, Past, Step, has_webhook},
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
                is_ours: Some(|object, past| was_on(past) && has_marked(of(past), object)),
                goes: is_in_grace,
                ..Leftover::of(ADDRESS_OBJECT, was_on)
            },
            pool(POOL),
            pool(GLOBAL_POOL),
            pool(PREFIX_POOL),
            pool(GLOBAL_PREFIX_POOL),
        ];
        &LEFTOVERS
    }

    /// Nobody converts pools once fipd is gone. Where another provider has them by now, fipd may still convert them, or never did.
    fn first<'a>(&'a self, remote: &'a Remote, past: &'a Past) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            let mut found = Found::default();
            if !was_on(past) {
                return found;
            }
            let written = of(past).serves_in_cluster_kinds();
            for kind in [POOL, GLOBAL_POOL] {
                let target = definition::target(kind.plural);
                match remote.get::<Value>(&target).await {
                    Ok(there) => found.steps.extend(there.and_then(|there| ending(&there))),
                    Err(error) => found.missed(&target.to_string(), &error, written),
                }
            }
            found
        })
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

/// What ends the conversion by fipd, and the version that needs it.
fn ending(there: &Value) -> Option<Step> {
    if !definition::is_by_fipd(there) {
        return None;
    }
    let (key, uid) = identify(there)?;
    let mut versions = there["spec"]["versions"].clone();
    definition::change_version(&mut versions, OLDER, |one| one["served"] = json!(false));
    let patch = json!({
        "metadata": { "uid": uid, "resourceVersion": there["metadata"]["resourceVersion"] },
        "spec": { "versions": versions, "conversion": definition::none() },
    });
    let taken = vec![format!("the conversion by fipd and version {OLDER}")];
    Some(Step {
        object: format!("{} {}", CUSTOM_RESOURCE_DEFINITION.kind, key.name),
        does: Does::Marks(taken, patch),
        target: CUSTOM_RESOURCE_DEFINITION.target(&key),
        uid,
    })
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

/// Whether the marks on an IPAddress are fipd's.
fn has_marked(settings: &ClusterApiSettings, address: &Value) -> bool {
    serves(settings, address) || is_in_grace(&address["metadata"])
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

/// An IPAddress without a claim, which stays for the grace of its pool: nobody else would delete it, or free its address. fipd alone
/// marks such, whoever serves the pool by now.
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        config::ClusterSettings, controller::client::testing::serving,
        systems::cluster_api::settings::InClusterKinds,
    };

    #[test]
    fn nobody_asks_for_a_version_that_fipd_alone_converts() {
        let definition = |conversion: Value| {
            json!({
                "metadata": { "name": "inclusterippools.ipam.cluster.x-k8s.io", "uid": "u", "resourceVersion": "7" },
                "spec": {
                    "versions": [{ "name": "v1alpha2", "served": true }, { "name": "v1alpha1", "served": true }],
                    "conversion": conversion,
                },
            })
        };
        let ours = json!({ "strategy": "Webhook", "webhook": { "clientConfig": { "url": "https://f/hooks/m/pools/convert" } } });
        let step = ending(&definition(ours)).expect("a step");
        let Does::Marks(_, patch) = step.does else {
            panic!("{step:?}");
        };
        let served: Vec<_> = ["0", "1"]
            .iter()
            .map(|at| patch.pointer(&format!("/spec/versions/{at}/served")))
            .collect();
        assert_eq!(served, [Some(&json!(true)), Some(&json!(false))]);
        assert_eq!(patch["spec"]["conversion"], definition::none());
        for other in [definition::none(), json!({ "strategy": "Webhook" })] {
            assert_eq!(ending(&definition(other)), None);
        }
    }

    #[tokio::test]
    async fn conversion_by_fipd_ends_also_where_another_provider_has_the_pools() {
        let mut settings = ClusterSettings::default();
        let served = Past {
            systems: BTreeSet::from([System::cluster_api()]),
            settings: settings.clone(),
            guest: false,
            unheard: BTreeSet::new(),
        };
        *settings.of_mut() = ClusterApiSettings {
            in_cluster_kinds: InClusterKinds::Leave,
            ..ClusterApiSettings::default()
        };
        let left = Past {
            settings,
            systems: served.systems.clone(),
            unheard: BTreeSet::new(),
            ..served
        };
        for (past, missed) in [(&served, 2), (&left, 0)] {
            let (remote, _) = serving(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                let client = json!({ "url": "https://f/hooks/m/pools/convert" });
                let conversion =
                    json!({ "strategy": "Webhook", "webhook": { "clientConfig": client } });
                let meta = json!({ "name": name, "uid": "u", "resourceVersion": "7" });
                (
                    200,
                    json!({ "metadata": meta, "spec": { "conversion": conversion } }),
                )
            });
            let found = ClusterApiLeaving.first(&remote, past).await;
            assert_eq!((found.steps.len(), found.unseen.len()), (2, 0));
            let (remote, _) = serving(|_| (403, json!("forbidden")));
            let found = ClusterApiLeaving.first(&remote, past).await;
            assert_eq!((found.steps.len(), found.unseen.len()), (0, missed));
        }
    }

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
            // Whoever has its pool by now.
            let address = json!({ "metadata": meta, "spec": { "poolRef": { "kind": "Pool" } } });
            let settings = ClusterApiSettings::default();
            assert_eq!(has_marked(&settings, &address), goes, "{address}");
        }
    }
}
