//! Adoption before allocation: which networks give nothing new yet, and because of whom.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::LedgerRows;
use crate::{Expectation, Hold, NetworkId};

/// The expectations of the configuration and, kept up to date, what of them is not met.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    expectations: BTreeMap<NetworkId, BTreeSet<Expectation>>,
    holds: BTreeMap<NetworkId, Vec<Hold>>,
}

impl Gate {
    /// Replaces the expectations.
    pub fn set_expectations(&mut self, expectations: Vec<Expectation>, rows: &LedgerRows) {
        self.expectations.clear();
        for expected in expectations {
            let of_network = self.expectations.entry(expected.network).or_default();
            of_network.insert(expected);
        }
        self.review(rows);
    }

    /// What holds the network back; empty when it may give new leases.
    pub fn holds(&self, network: NetworkId) -> &[Hold] {
        self.holds.get(&network).map_or(&[], Vec::as_slice)
    }

    /// How many networks something holds back.
    pub fn held_networks(&self) -> usize {
        self.holds.len()
    }

    /// Whether the configuration knows a cluster by this name.
    pub fn expects(&self, cluster: &str) -> bool {
        let mut all = self.expectations.values().flatten();
        all.any(|expected| &*expected.cluster == cluster)
    }

    /// Looks at clusters and markers again.
    pub fn review(&mut self, rows: &LedgerRows) {
        self.holds.clear();
        let networks: Vec<NetworkId> = self.expectations.keys().copied().collect();
        for network in networks {
            self.review_network(network, rows);
        }
    }

    /// Looks at the markers of one network again.
    pub fn review_network(&mut self, network: NetworkId, rows: &LedgerRows) {
        let expected = self.expectations.get(&network).into_iter().flatten();
        let holds: Vec<Hold> = expected.filter_map(|one| hold(one, rows)).collect();
        match holds.is_empty() {
            true => drop(self.holds.remove(&network)),
            false => drop(self.holds.insert(network, holds)),
        }
    }
}

fn hold(expected: &Expectation, rows: &LedgerRows) -> Option<Hold> {
    let record = rows.cluster_by_name(&expected.cluster);
    let marker = |cluster: &str| rows.adoption(expected.network, cluster, &expected.system);
    // A cluster that was never reached has no id yet: an admin may have skipped it by name.
    let met = record.is_some_and(|record| marker(&record.id.0).is_some())
        || marker(&format!("name:{}", expected.cluster)).is_some();
    (!met).then(|| Hold {
        cluster: expected.cluster.clone(),
        id: record.map(|record| record.id.clone()),
        system: expected.system.clone(),
    })
}
