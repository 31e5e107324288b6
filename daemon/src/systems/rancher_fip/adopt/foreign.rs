//! Whose an address is in the address book that a FloatingIP shows.

use std::collections::BTreeMap;

use fipd_core::{Lease, LeaseKey, LeaseState, System};

use super::inventory::LedgerView;
use crate::{
    controller::store::Key,
    systems::rancher_fip::{
        Site,
        floating_ip::observe::Fip,
        names::{self, KIND_FLOATING_IP, KIND_SERVICE},
    },
};

/// Rows read from the ledger at once.
const ROWS: usize = 500;

/// Notes which addresses are in the address book, and which of them somebody else has.
pub fn note(site: &Site, fips: &BTreeMap<Key, Fip>, book: &mut LedgerView) {
    let all: Vec<(&Key, &Fip)> = fips.iter().collect();
    // A reader holds the ledger for at most 1,000 rows.
    for some in all.chunks(ROWS) {
        let leases = site.ipam.read(|ledger| {
            let lease = |(key, fip): &(&Key, &Fip)| {
                let address = fip.shown().filter(|_| fip.meta.deleted.is_none())?;
                let network = ledger.network_by_name(book.network(&fip.pool))?.id;
                let lease = ledger.lease(LeaseKey { network, address })?;
                let used = lease.state != LeaseState::Quarantined;
                Some(((*key).clone(), used, stranger(site, lease, key, fip)))
            };
            some.iter().filter_map(lease).collect::<Vec<_>>()
        });
        for (key, used, stranger) in leases {
            if let Some(stranger) = stranger {
                book.held_by_others.insert(key.clone(), stranger);
            }
            if used {
                book.taken.insert(key);
            }
        }
    }
}

/// Who has the object's address, if it is neither itself nor a Service that it is for.
fn stranger(site: &Site, lease: &Lease, key: &Key, fip: &Fip) -> Option<String> {
    let owner = &lease.owner()?.identity;
    let own = names::identity(&site.id, KIND_FLOATING_IP, key);
    let of_service = owner.system == System::rancher_fip()
        && &*owner.kind == KIND_SERVICE
        && (fip.holder.is_some()
            || fip.services.iter().any(|service| {
                *service.service_namespace == *owner.namespace
                    && *service.service_name == *owner.name
            }));
    (*owner != own && !of_service).then(|| owner.to_string())
}
