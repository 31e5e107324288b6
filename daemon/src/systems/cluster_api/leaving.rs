//! What the system leaves in a cluster. IPAddresses, endpoints and annotations stay, valid for the original programs.

use fipd_core::System;

use super::names::{
    ADDRESS_OBJECT, CLAIM, EXTENSION_CONFIG, GLOBAL_POOL, GLOBAL_PREFIX_POOL, POOL, PREFIX_POOL,
    PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS,
};
use super::settings::ClusterApiSettings;
use crate::{
    controller::store::Key,
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
            Leftover::of(CLAIM, was_on),
            Leftover::of(ADDRESS_OBJECT, was_on),
            Leftover::of(POOL, was_on),
            Leftover::of(GLOBAL_POOL, was_on),
            Leftover::of(PREFIX_POOL, was_on),
            Leftover::of(GLOBAL_PREFIX_POOL, was_on),
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

fn of(past: &Past) -> &ClusterApiSettings {
    past.settings.of()
}

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::cluster_api())
}
