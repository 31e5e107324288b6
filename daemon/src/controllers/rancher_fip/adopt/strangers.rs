//! Whose an address is in the address book that a FloatingIP shows and does not have.

use std::collections::BTreeMap;

use fipd_core::{LeaseKey, Ledger, NetworkId, System};

use crate::controllers::{
    objects::Key,
    rancher_fip::{
        Site,
        floating_ip::observe::Fip,
        names::{self, KIND_FLOATING_IP, KIND_SERVICE},
    },
};

/// Rows read from the ledger at once.
const ROWS: usize = 500;

/// FloatingIPs whose address somebody else has in the address book.
pub fn held_by_others(site: &Site, fips: &BTreeMap<Key, Fip>) -> BTreeMap<Key, String> {
    let mut others = BTreeMap::new();
    let all: Vec<(&Key, &Fip)> = fips.iter().collect();
    // A reader holds the ledger for at most 1,000 rows.
    for some in all.chunks(ROWS) {
        site.ipam.read(|ledger| {
            let held = some.iter().filter_map(|(key, fip)| {
                let holder = stranger(site, ledger, key, fip)?;
                Some(((*key).clone(), holder))
            });
            others.extend(held);
        });
    }
    others
}

/// Who has the object's address, if it is neither itself nor a Service that it is for.
fn stranger(site: &Site, ledger: &Ledger, key: &Key, fip: &Fip) -> Option<String> {
    let address = fip.shown().filter(|_| !fip.terminating)?;
    let pool = site.mirror_in(ledger, &fip.pool);
    let network = pool.map_or(NetworkId::DEFAULT, |pool| pool.spec.network);
    let lease = ledger.lease(LeaseKey { network, address })?;
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
