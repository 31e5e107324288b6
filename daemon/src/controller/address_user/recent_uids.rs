//! Objects to which fipd did something a moment ago that looks as if somebody else had.

use std::{
    collections::{BTreeSet, VecDeque},
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
    uids: BTreeSet<Text>,
    /// The oldest comes first.
    order: VecDeque<(Instant, Text)>,
}

impl RecentUids {
    /// It is about to be done to the object of this UID.
    pub fn note(&self, uid: &Text) {
        let (mut known, now) = (self.0.lock(), Instant::now());
        while let Some((_, old)) = known.order.pop_front_if(|(at, _)| now - *at > KEPT_FOR) {
            known.uids.remove(&old);
        }
        if known.uids.insert(Text::clone(uid)) {
            known.order.push_back((now, Text::clone(uid)));
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
    }
}
