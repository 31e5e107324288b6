//! Which changes of pools may serve a Cluster that waits. Addresses come and go all the time, and most of that concerns none. Pure.

use std::collections::{BTreeMap, BTreeSet};

use fipd_core::PoolId;

use super::choose::VipPool;
use crate::controller::store::Key;

/// What Clusters have seen of pools.
#[derive(Default)]
pub struct WatchedPools {
    /// Pools of the address book in which a Cluster found no room, and none since.
    full: BTreeSet<PoolId>,
    /// What the objects said last, by kind and key.
    objects: BTreeMap<(&'static str, Key), VipPool>,
}

impl WatchedPools {
    /// A Cluster finds no room in a pool. It is to be noted in the same look at the address book.
    pub fn found_full(&mut self, pool: PoolId) {
        self.full.insert(pool);
    }

    /// Whether one of the changed pools has room where a Cluster found none. `has_room` is `None` of one that is gone.
    pub fn has_gained(
        &mut self,
        changed: impl Iterator<Item = PoolId>,
        has_room: impl Fn(PoolId) -> Option<bool>,
    ) -> bool {
        let mut gained = false;
        for pool in changed {
            if !self.full.contains(&pool) {
                continue;
            }
            let room = has_room(pool);
            if room != Some(false) {
                self.full.remove(&pool);
                gained |= room.is_some();
            }
        }
        gained
    }

    /// Whether a pool object may serve whom it did not serve before; `None`: it serves no Clusters, or is gone.
    pub fn object_changed(&mut self, kind: &'static str, key: &Key, now: Option<VipPool>) -> bool {
        let at = (kind, key.clone());
        let before = match &now {
            Some(pool) => self.objects.insert(at, pool.clone()),
            None => self.objects.remove(&at),
        };
        match (before, now) {
            (Some(before), Some(now)) => {
                let gained = before.has_room != now.has_room && now.has_room != Some(false);
                gained || (before.labels, before.family) != (now.labels, now.family)
            }
            (before, now) => before.is_some() || now.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fipd_core::Family;

    use super::*;
    use crate::systems::cluster_api::{
        names::{CLUSTER_CLASS, INGRESS, POOL, PRIORITY, ROLE},
        pool::VipLabels,
    };

    #[test]
    fn room_counts_only_where_somebody_found_none() {
        let mut pools = WatchedPools::default();
        let (one, two) = (PoolId(1), PoolId(2));
        let gains = |pools: &mut WatchedPools, room| {
            let changed = [one, two].into_iter();
            pools.has_gained(changed, |pool| if pool == one { room } else { Some(true) })
        };
        assert!(!gains(&mut pools, Some(true)), "nobody looks for any");
        pools.found_full(one);
        assert!(!gains(&mut pools, Some(false)), "it is still full");
        assert!(gains(&mut pools, Some(true)));
        assert!(!gains(&mut pools, Some(true)), "who waits was told");
        // It had room for a moment, of which nobody heard.
        pools.found_full(one);
        assert!(gains(&mut pools, Some(true)));
        pools.found_full(one);
        assert!(!gains(&mut pools, None), "it is gone");
        assert_eq!(pools.full, BTreeSet::new());
    }

    #[test]
    fn of_an_object_counts_what_lets_it_serve_more() {
        let mut pools = WatchedPools::default();
        let key = Key::new("ns", "a");
        let map = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = all.iter();
            let owned = owned.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let labels = map(&[(CLUSTER_CLASS, "c"), (ROLE, INGRESS)]);
        let pool = |priority, family, has_room| VipPool {
            kind: POOL,
            key: key.clone(),
            labels: VipLabels::of(Some(&labels), Some(&map(&[(PRIORITY, priority)])))
                .expect("labels"),
            family,
            has_room,
        };
        let v4 = Some(Family::V4);
        for (now, counts) in [
            (None, false),
            (Some(pool("0", None, None)), true),
            (Some(pool("0", v4, None)), true),
            (Some(pool("0", v4, Some(true))), true),
            (Some(pool("0", v4, Some(true))), false),
            (Some(pool("0", v4, Some(false))), false),
            (Some(pool("1", v4, Some(false))), true),
            (Some(pool("1", v4, Some(true))), true),
            (None, true),
            (None, false),
        ] {
            let case = format!("{now:?}");
            assert_eq!(pools.object_changed(POOL.kind, &key, now), counts, "{case}");
        }
    }
}
