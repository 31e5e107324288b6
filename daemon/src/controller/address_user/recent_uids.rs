//! Objects to which fipd did something a moment ago that looks as if somebody else had.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use fipd_core::Text;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longer than any list takes, and than anything waits for a move.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The UIDs of those of the last minutes.
#[derive(Default)]
pub struct RecentUids(Mutex<Uids>);

#[derive(Default)]
struct Uids {
    /// When it was done to each last.
    last: BTreeMap<Text, Instant>,
    /// The oldest comes first; one is there as often as it was done to it.
    order: VecDeque<(Instant, Text)>,
}

impl RecentUids {
    /// It is about to be done to the object of this UID, perhaps once more.
    pub fn note(&self, uid: &Text) {
        let (mut known, now) = (self.0.lock(), Instant::now());
        while let Some((at, old)) = known.order.pop_front_if(|(at, _)| now - *at > KEPT_FOR) {
            if known.last.get(&old) == Some(&at) {
                known.last.remove(&old);
            }
        }
        known.last.insert(Text::clone(uid), now);
        known.order.push_back((now, Text::clone(uid)));
    }

    pub fn has(&self, uid: &Text) -> bool {
        let known = self.0.lock();
        let last = known.last.get(uid);
        last.is_some_and(|at| at.elapsed() <= KEPT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_is_known_for_a_while() {
        let (known, uid) = (RecentUids::default(), |text: &str| Text::from(text));
        for _ in 0..2 {
            known.note(&uid("a"));
        }
        tokio::time::advance(KEPT_FOR).await;
        known.note(&uid("b"));
        assert!(known.has(&uid("a")) && known.has(&uid("b")));
        tokio::time::advance(Duration::from_secs(1)).await;
        known.note(&uid("c"));
        assert!(!known.has(&uid("a")) && known.has(&uid("b")) && known.has(&uid("c")));
        assert_eq!(known.0.lock().order.len(), 2);
        tokio::time::advance(KEPT_FOR).await;
        assert!(!known.has(&uid("b")), "whether another came or not");
        assert!(known.has(&uid("c")));
    }

    /// A release that fails is tried for as long as it fails.
    #[tokio::test(start_paused = true)]
    async fn the_last_time_counts() {
        let (known, uid) = (RecentUids::default(), Text::from("a"));
        known.note(&uid);
        tokio::time::advance(KEPT_FOR).await;
        known.note(&uid);
        tokio::time::advance(KEPT_FOR).await;
        known.note(&"b".into());
        assert!(known.has(&uid));
        tokio::time::advance(Duration::from_secs(1)).await;
        known.note(&"b".into());
        assert!(!known.has(&uid));
        assert_eq!(known.0.lock().last.len(), 1);
    }
}
