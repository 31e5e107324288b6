//! What the system leaves in a cluster. IPAddresses, endpoints and annotations stay, valid for the original programs.

use fipd_core::System;

use serde_json::Value;

use super::{
    claim::wish::sort_of,
    names::{
        ADDRESS_OBJECT, CLAIM, EXTENSION_CONFIG, GLOBAL_POOL, GLOBAL_PREFIX_POOL, GRACE_ENDS, POOL,
        PREFIX_POOL, PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS,
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
        is_ours: Some(|object, past| {
            let pool = serde_json::from_value(object["spec"]["poolRef"].clone());
            was_on(past) && pool.is_ok_and(|pool| sort_of(&pool, of(past)).is_some())
        }),
        ..Leftover::of(kind, was_on)
    }
}

const fn pool(kind: Kind) -> Leftover {
    Leftover {
        is_ours: Some(|_, past| was_on(past) && of(past).serves_in_cluster_kinds()),
        ..Leftover::of(kind, was_on)
    }
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
