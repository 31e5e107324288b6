//! Reading all rows of a kind, in steps: the writer has its turn between two of them.

use std::sync::Arc;

use fipd_core::{ClusterId, ClusterRecord, Identity, Lease, Ledger, Network, NetworkId, Pool};

use super::Ipam;

impl Ipam {
    /// Calls `each` for all pools, by id. A pool that is made meanwhile may be missed.
    pub fn for_each_pool(&self, mut each: impl FnMut(&Ledger, &Arc<Pool>)) {
        self.in_steps(|ledger, after| {
            let mut last = None;
            for pool in ledger.pools_after(after).take(Ledger::SCAN) {
                each(ledger, pool);
                last = Some(pool.id);
            }
            last
        });
    }

    /// All pools, by id.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        let mut pools = Vec::new();
        self.for_each_pool(|_, pool| pools.push(Arc::clone(pool)));
        pools
    }

    /// As [`Self::for_each_pool`], for networks.
    pub fn for_each_network(&self, mut each: impl FnMut(&Ledger, &Network)) {
        self.in_steps(|ledger, after| {
            let mut last = None;
            for network in ledger.networks_after(after).take(Ledger::SCAN) {
                each(ledger, network);
                last = Some(network.id);
            }
            last
        });
    }

    /// As [`Self::for_each_pool`], for clusters.
    pub fn for_each_cluster(&self, mut each: impl FnMut(&Ledger, &ClusterRecord)) {
        self.in_steps(|ledger, after: Option<ClusterId>| {
            let mut last = None;
            for record in ledger.clusters_after(after.as_ref()).take(Ledger::SCAN) {
                each(ledger, record);
                last = Some(&record.id);
            }
            last.cloned()
        });
    }

    /// Calls `each` for the leases in which the identity is a member or contender, in key order. One that comes meanwhile may be
    /// missed.
    pub fn for_each_lease_with(&self, identity: &Identity, mut each: impl FnMut(&Arc<Lease>)) {
        self.in_steps(|ledger, after| {
            let page = ledger.leases_with(identity, after, Ledger::SCAN);
            page.iter().for_each(&mut each);
            page.last().map(|lease| lease.key)
        });
    }

    /// What `find` finds first in a network, by id. A network that is made meanwhile may be missed.
    pub fn find_network<R>(
        &self,
        mut find: impl FnMut(&Ledger, NetworkId) -> Option<R>,
    ) -> Option<R> {
        let mut found = None;
        self.in_steps(|ledger, after| {
            let mut last = None;
            for network in ledger.networks_after(after).take(Ledger::SCAN) {
                found = find(ledger, network.id);
                if found.is_some() {
                    return None;
                }
                last = Some(network.id);
            }
            last
        });
        found
    }

    /// What `view` makes of each of these.
    pub fn map_in_steps<T, V>(&self, all: &[T], view: impl Fn(&Ledger, &T) -> V) -> Vec<V> {
        let mut views = Vec::with_capacity(all.len());
        for some in all.chunks(Ledger::SCAN) {
            self.read(|ledger| views.extend(some.iter().map(|one| view(ledger, one))));
        }
        views
    }

    /// Reads step by step; `step` gets the key that it answered last, and `None` from it is the end.
    pub fn in_steps<K>(&self, mut step: impl FnMut(&Ledger, Option<K>) -> Option<K>) {
        let mut after = None;
        loop {
            after = self.read(|ledger| step(ledger, after.take()));
            if after.is_none() {
                return;
            }
        }
    }
}
