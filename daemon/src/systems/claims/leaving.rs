//! What the system leaves in a cluster.

use fipd_core::System;
use fipd_crds::labels::{CLAIM_CLEANUP, POOL_CLEANUP};

use super::{
    names::{CLAIM, NAMESPACED_POOL, POOL},
    settings::ClaimsSettings,
};
use crate::detach::{Leaving, Leftover, Marks, Past};

/// See the module.
pub struct ClaimsLeaving;

impl Leaving for ClaimsLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 3] = [
            Leftover::of(CLAIM, claims),
            Leftover::of(NAMESPACED_POOL, |past| {
                claims(past) && past.settings.of::<ClaimsSettings>().pool_objects
            }),
            Leftover {
                own: true,
                ..Leftover::of(POOL, claims)
            },
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![CLAIM_CLEANUP, POOL_CLEANUP],
            ..Marks::default()
        }
    }
}

fn claims(past: &Past) -> bool {
    past.systems.contains(&System::claims())
}
