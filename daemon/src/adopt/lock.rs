//! One takeover of a system at a time for each cluster.

use std::{collections::BTreeSet, sync::Arc};

use fipd_core::{System, Text};
use parking_lot::Mutex;

/// Systems and ids of the clusters that are being taken over.
#[derive(Clone, Default)]
pub struct AdoptLocks(Arc<Mutex<BTreeSet<(System, Text)>>>);

/// Keeps other takeovers of the system off the cluster until it is dropped.
pub struct AdoptLock {
    locks: AdoptLocks,
    key: (System, Text),
}

impl AdoptLocks {
    /// `None`: somebody else has it.
    pub fn acquire(&self, system: &System, cluster: &Text) -> Option<AdoptLock> {
        let key = (system.clone(), Text::clone(cluster));
        let first = self.0.lock().insert(key.clone());
        let locks = self.clone();
        first.then_some(AdoptLock { locks, key })
    }
}

impl Drop for AdoptLock {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_one_takeover_of_a_system_at_a_time() {
        let locks = AdoptLocks::default();
        let (system, one, other) = (System::rancher_fip(), "one".into(), "other".into());
        let lock = locks.acquire(&system, &one);
        assert!(lock.is_some());
        assert!(locks.clone().acquire(&system, &one).is_none());
        assert!(locks.acquire(&system, &other).is_some());
        assert!(locks.acquire(&System::ip_rule(), &one).is_some());
        drop(lock);
        assert!(locks.acquire(&system, &one).is_some());
    }
}
