//! Clusters that have one of their two addresses, while the other may come at any moment. Each write of an address has Cluster API
//! render the Cluster's objects anew, so both are written in one apply. The wait has an end: an ingress never holds up a control
//! plane.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::controller::store::Key;

/// The longest wait. Two claims that are made at once have their addresses within some milliseconds of each other.
pub const AT_MOST: Duration = Duration::from_millis(50);

/// Since when each of them waits.
#[derive(Default)]
pub struct HalfReady(Mutex<BTreeMap<Key, Instant>>);

impl HalfReady {
    /// For how long a Cluster waits yet; `None`: what it has is written now.
    pub fn pause(&self, key: &Key, is_half: bool, now: Instant) -> Option<Duration> {
        let mut since = self.0.lock();
        if !is_half {
            since.remove(key);
            return None;
        }
        // It stays known until it has both, and waits once.
        let since = *since.entry(key.clone()).or_insert(now);
        let left = AT_MOST.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// A Cluster is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_waits_once_and_never_for_long() {
        let all = HalfReady::default();
        let (key, other) = (Key::new("ns", "c"), Key::new("ns", "d"));
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        let (whole, rest) = (Some(AT_MOST), Some(Duration::from_millis(30)));
        for (key, is_half, at, pause) in [
            (&key, false, 0, None),
            (&key, true, 0, whole),
            (&other, true, 10, whole),
            (&key, true, 20, rest),
            (&key, true, 50, None),
            (&key, true, 90, None),
            (&other, false, 90, None),
            (&other, true, 100, whole),
        ] {
            let found = all.pause(key, is_half, after(at));
            assert_eq!(found, pause, "{key} after {at} ms");
        }
        all.forget(&key);
        all.forget(&other);
        assert!(all.0.lock().is_empty());
    }
}
