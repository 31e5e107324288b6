//! Adoption before allocation: which networks give nothing new yet, and because of whom.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::Rows;
use crate::{Expectation, Hold, NetworkId};

/// The expectations of the configuration and, kept up to date, what of them is not met.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    expectations: BTreeSet<Expectation>,
    holds: BTreeMap<NetworkId, Vec<Hold>>,
}

impl Gate {
    /// Replaces the expectations.
    pub fn expect(&mut self, expectations: Vec<Expectation>, rows: &Rows) {
        self.expectations = expectations.into_iter().collect();
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
        self.expectations
            .iter()
            .any(|expected| &*expected.cluster == cluster)
    }

    /// Looks at clusters and markers again.
    pub fn review(&mut self, rows: &Rows) {
        self.holds.clear();
        for expected in &self.expectations {
            let record = rows.cluster_by_name(&expected.cluster);
            let adopted = record.is_some_and(|record| {
                rows.adopted(expected.network, &record.id.0, &expected.system)
            });
            // A cluster that was never reached has no id yet: an admin may have skipped it by name.
            let skipped = || {
                let name = format!("name:{}", expected.cluster);
                rows.adopted(expected.network, &name, &expected.system)
            };
            if !adopted && !skipped() {
                self.holds.entry(expected.network).or_default().push(Hold {
                    cluster: expected.cluster.clone(),
                    id: record.map(|record| record.id.clone()),
                    system: expected.system.clone(),
                });
            }
        }
    }
}
