//! What the system leaves in the cluster of Rancher. Addresses in specifications are the objects' own and stay, and guests stay
//! as they are.

use std::collections::BTreeSet;

use fipd_core::System;

use super::{
    guest::notes::{COPY, NOTES},
    names::{FIP_CLEANUP, FLOATING_IP, RANGE, RANGE_CLEANUP},
    settings::KubeFipSettings,
};
use crate::{
    controller::kind::CONFIG_MAP,
    detach::{Leaving, Leftover, Marks, Named, Past, Places},
};

/// See the module.
pub struct KubeFipLeaving;

impl Leaving for KubeFipLeaving {
    fn leftovers(&self) -> &'static [Leftover] {
        &LEFTOVERS
    }

    fn marks(&self) -> Marks {
        Marks {
            finalizers: vec![FIP_CLEANUP, RANGE_CLEANUP],
            ..Marks::default()
        }
    }
}

static LEFTOVERS: [Leftover; 3] = [
    Leftover::of(FLOATING_IP, was_on),
    Leftover::of(RANGE, was_on),
    Leftover {
        own: true,
        listed: None,
        named: Named {
            names: &[NOTES, COPY],
            only_in: Some(&Places {
                namespaces: |past| BTreeSet::from([namespace(past).to_owned()]),
                written: |past, place| was_on(past) && place == namespace(past),
            }),
            wrote: was_on,
        },
        ..Leftover::of(CONFIG_MAP, was_on)
    },
];

fn was_on(past: &Past) -> bool {
    past.systems.contains(&System::kube_fip())
}

/// That of the original's ConfigMap, where fipd keeps its notes.
fn namespace(past: &Past) -> &str {
    &past.settings.of::<KubeFipSettings>().namespace
}
