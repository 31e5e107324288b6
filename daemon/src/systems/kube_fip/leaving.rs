//! What the system leaves in the cluster of Rancher. Addresses in specifications are the objects' own and stay.

use fipd_core::System;

use super::names::{FIP_CLEANUP, FLOATING_IP, RANGE, RANGE_CLEANUP};
use crate::detach::{Leaving, Leftover, Marks, Past};

/// See the module.
pub struct KubeFipLeaving;

impl Leaving for KubeFipLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        static LEFTOVERS: [Leftover; 2] = [
            Leftover::of(FLOATING_IP, was_on),
            Leftover::of(RANGE, was_on),
        ];
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![FIP_CLEANUP, RANGE_CLEANUP],
            ..Marks::default()
        }
    }
}

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::kube_fip())
}
