//! Pools that are new to a cluster in which addresses are used that fipd did not give: they give nothing before its list was taken
//! in again.
//!
//! In memory only. A network waits for the first such list of a cluster as it does for every adoption; a pool that comes or
//! grows later waits for the next one, of clusters that are looked at. One that does not answer is not, and holds nobody back.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Ledger};
use crate::{ClusterId, Hold, NetworkId, Pool, PoolId, Refusal, System, Text};

/// A cluster of which a system takes in what it shows, list by list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookout {
    /// The name of the cluster.
    pub name: Text,
    /// Where what it shows is kept from everybody else.
    pub networks: BTreeSet<NetworkId>,
    /// The revision at which the latest list began.
    pub seen: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Lookouts {
    clusters: BTreeMap<(ClusterId, System), Lookout>,
    /// The revisions that gave pools addresses that they had not.
    grown: BTreeMap<PoolId, u64>,
    latest: u64,
}

impl Lookouts {
    /// A pool may give addresses since `revision` that it could not before.
    pub fn grows(&mut self, pool: PoolId, revision: u64) {
        self.grown.insert(pool, revision);
        self.latest = self.latest.max(revision);
    }

    pub fn drop_pool(&mut self, pool: PoolId) {
        self.grown.remove(&pool);
    }

    fn waiting<'a>(
        &'a self,
        pool: &'a Pool,
    ) -> impl Iterator<Item = (&'a (ClusterId, System), &'a Lookout)> + 'a {
        let grown = self.grown.get(&pool.id).copied().unwrap_or(0);
        self.clusters.iter().filter(move |(_, lookout)| {
            lookout.seen < grown && lookout.networks.contains(&pool.spec.network)
        })
    }
}

impl Ledger {
    /// The latest revision that gave a pool addresses that it had not; 0 for none since the start.
    pub fn latest_growth(&self) -> u64 {
        self.lookouts.latest
    }

    /// What the latest list of a cluster had for a system is taken in. Counts as a change.
    pub fn look_out(&mut self, cluster: &ClusterId, system: &System, lookout: Lookout) {
        let looks = (cluster.clone(), system.clone());
        self.lookouts.clusters.insert(looks, lookout);
        self.note_other();
    }

    /// The system does not look at the cluster any more. Counts as a change.
    pub fn end_look_out(&mut self, cluster: &ClusterId, system: &System) {
        let looks = (cluster.clone(), system.clone());
        if self.lookouts.clusters.remove(&looks).is_some() {
            self.note_other();
        }
    }

    /// Counts as a change of something that is in memory only.
    pub(super) fn note_other(&mut self) {
        self.changes.push(Change {
            other: true,
            ..Change::default()
        });
    }

    /// Refuses what would give an address of a pool that is new to a cluster that is looked at.
    pub(super) fn check_looked_at(&self, pool: &Pool) -> Result<(), Refusal> {
        let waiting: Vec<Hold> = (self.lookouts.waiting(pool))
            .map(|((id, system), lookout)| Hold {
                cluster: Text::clone(&lookout.name),
                id: Some(id.clone()),
                system: system.clone(),
            })
            .collect();
        match waiting.is_empty() {
            true => Ok(()),
            false => Err(Refusal::PoolHeld {
                pool: Text::clone(&pool.spec.name),
                waiting,
            }),
        }
    }

    /// Notes a pool that is about to be written, if it has addresses then that it has not now.
    pub(super) fn note_growth(&mut self, pool: &Pool) {
        let same = self.rows.pools.get(&pool.id).is_some_and(|old| {
            let (old, new) = (&old.spec, &pool.spec);
            (old.network, &old.addresses, &old.exclusions)
                == (new.network, &new.addresses, &new.exclusions)
                && (old.gateway, old.ends) == (new.gateway, new.ends)
        });
        if !same {
            let next = self.changes.revision() + 1;
            self.lookouts.grows(pool.id, next);
        }
    }
}
