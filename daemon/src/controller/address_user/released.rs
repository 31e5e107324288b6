//! Objects whose leases fipd has released. A list that was read before, or whose object waits for its finalizer to go, shows their
//! addresses still, and nobody else allocated those.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longer than any list takes.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The UIDs of those of the last minutes.
#[derive(Default)]
pub struct RecentReleases(Mutex<Releases>);

#[derive(Default)]
struct Releases {
    uids: BTreeSet<Text>,
    /// The oldest comes first.
    order: VecDeque<(Instant, Text)>,
}

impl RecentReleases {
    /// What the object of this UID has is about to be released.
    pub fn note(&self, uid: &Text) {
        let (mut releases, now) = (self.0.lock(), Instant::now());
        while let Some((_, old)) = releases.order.pop_front_if(|(at, _)| now - *at > KEPT_FOR) {
            releases.uids.remove(&old);
        }
        if releases.uids.insert(Text::clone(uid)) {
            releases.order.push_back((now, Text::clone(uid)));
        }
    }

    pub fn has(&self, uid: &Text) -> bool {
        self.0.lock().uids.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_release_is_known_for_a_while() {
        let (releases, uid) = (RecentReleases::default(), |text: &str| Text::from(text));
        for _ in 0..2 {
            releases.note(&uid("a"));
        }
        tokio::time::advance(KEPT_FOR).await;
        releases.note(&uid("b"));
        assert!(releases.has(&uid("a")) && releases.has(&uid("b")));
        tokio::time::advance(Duration::from_secs(1)).await;
        releases.note(&uid("c"));
        assert!(!releases.has(&uid("a")) && releases.has(&uid("b")) && releases.has(&uid("c")));
        assert_eq!(releases.0.lock().order.len(), 2);
    }
}
