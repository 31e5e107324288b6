//! Since when Clusters wait for the hook to let them be made. Strangers may ask as well, so what is kept is bounded.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use fipd_core::Timestamp;
use parking_lot::Mutex;

/// The most Clusters that are kept; beyond, the one that was asked for longest ago is forgotten.
const AT_MOST: usize = 10_000;
/// A Cluster that nobody asks for is forgotten then, in milliseconds. Cluster API asks again within 1,000 s, whatever fails.
const FORGOTTEN_AFTER: u64 = 30 * 60 * 1000;

/// When the hook first and last refused to let a Cluster be made.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    first: Timestamp,
    last: Timestamp,
}

/// The Clusters that were refused lately, by a digest of their UID: a question may name one of any length.
#[derive(Default)]
pub struct BlockedClusters {
    seed: RandomState,
    all: Mutex<HashMap<u64, Blocked>>,
}

impl BlockedClusters {
    /// For how long it has waited by now, in milliseconds. One that was paused, or made while fipd was down, has not waited.
    pub fn waited(&self, uid: &str, now: Timestamp) -> u64 {
        let mut all = self.all.lock();
        let uid = self.seed.hash_one(uid);
        let is_kept = |one: &Blocked| now.0.saturating_sub(one.last.0) <= FORGOTTEN_AFTER;
        let known = all.get(&uid).copied().filter(is_kept);
        if known.is_none() && all.len() >= AT_MOST {
            all.retain(|_, one| is_kept(one));
            if all.len() >= AT_MOST
                && let Some(oldest) = all
                    .iter()
                    .min_by_key(|(_, one)| one.last)
                    .map(|(key, _)| *key)
            {
                all.remove(&oldest);
            }
        }
        let first = known.map_or(now, |one| one.first);
        all.insert(uid, Blocked { first, last: now });
        now.0.saturating_sub(first.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_waits_from_the_first_question_on_until_nobody_asks() {
        let blocked = BlockedClusters::default();
        let at = |minutes: u64| Timestamp(1_700_000_000_000 + minutes * 60_000);
        let waited = |uid, minutes| blocked.waited(uid, at(minutes)) / 60_000;
        assert_eq!(waited("a", 0), 0);
        assert_eq!(waited("a", 10), 10);
        assert_eq!(waited("b", 11), 0, "another has not waited");
        assert_eq!(waited("a", 40), 40);
        assert_eq!(waited("a", 71), 0, "it was paused");
        assert_eq!(waited("a", 60), 0, "the clock went back");
    }

    #[test]
    fn strangers_fill_no_memory() {
        let blocked = BlockedClusters::default();
        let at = |second: u64| Timestamp(1_700_000_000_000 + second * 1000);
        blocked.waited("early", at(0));
        blocked.waited("asked again", at(0));
        for index in 0..AT_MOST - 2 {
            blocked.waited(&format!("x{index}"), at(1));
        }
        blocked.waited("asked again", at(2));
        blocked.waited("one more", at(3));
        assert_eq!(blocked.all.lock().len(), AT_MOST);
        assert_eq!(blocked.waited("asked again", at(4)), 4000);
        assert_eq!(blocked.waited("early", at(4)), 0, "it was forgotten first");
        assert_eq!(blocked.all.lock().len(), AT_MOST);
    }
}
