//! What the system leaves in a cluster. Addresses stay in their objects, valid for the originals.

use fipd_core::System;

use super::{
    lease,
    names::{FLAT_IP, IP_REMOVE, SUBNET_OBJECT, SUBNET_REMOVE},
    settings::FlatNetworkSettings,
};
use crate::{
    controller::store::Key,
    detach::{Leaving, Leftover, Marks, Past, has_webhook},
};

/// See the module.
pub struct FlatNetworkLeaving;

impl Leaving for FlatNetworkLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 3] = [
            Leftover::validator(&[super::admission::ASKS.name], |past| {
                was_on(past) && has_webhook(&past.settings.of::<FlatNetworkSettings>().webhook)
            }),
            Leftover::of(FLAT_IP, was_on),
            Leftover::of(SUBNET_OBJECT, was_on),
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![IP_REMOVE, SUBNET_REMOVE],
            ..Marks::default()
        }
    }

    fn locks(&self, past: &Past) -> Vec<(Key, bool)> {
        let settings = past.settings.of::<FlatNetworkSettings>();
        let held = was_on(past) && settings.leader_elect;
        vec![(lease(settings), held)]
    }
}

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::flat_network())
}
