//! Which objects of a cluster own leases, as the ledger knows it.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{ClusterId, Holder, Lease, LeaseKey, Ledger, System};

use super::{Site, names};
use crate::controller::store::Key;

impl Site {
    /// The keys of this cluster's objects of a kind that own a lease; only holders for which `which` holds.
    pub async fn owners(&self, kind: &str, which: impl Fn(&Holder) -> bool) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        let mut after = None;
        loop {
            let leases = self
                .ipam
                .read(|ledger| page(ledger, &self.id, &self.system, after));
            let Some(last) = leases.last() else {
                return keys;
            };
            after = Some(last.key);
            let owners = leases.iter().filter_map(|lease| lease.owner());
            let ours = owners.filter(|holder| &*holder.identity.kind == kind && which(holder));
            keys.extend(ours.map(|holder| names::key(&holder.identity)));
            tokio::task::yield_now().await;
        }
    }
}

/// As many leases as one look at the ledger may take.
fn page(
    ledger: &Ledger,
    cluster: &ClusterId,
    system: &System,
    after: Option<LeaseKey>,
) -> Vec<Arc<Lease>> {
    ledger.cluster_leases(cluster, Some(system), after, Ledger::SCAN)
}

#[cfg(test)]
mod tests;
