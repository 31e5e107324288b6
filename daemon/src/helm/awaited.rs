//! Since when a release is wanted that another engine brings about.

use std::collections::BTreeMap;

use fipd_core::Timestamp;
use parking_lot::Mutex;

use super::{files::Target, release::Release};

/// By this host's clock, which need not be the cluster's.
#[derive(Default)]
pub(super) struct Awaited(Mutex<BTreeMap<Target, (Release, Timestamp)>>);

impl Awaited {
    /// Since when it is this that is wanted.
    pub fn since(&self, target: &Target, wanted: &Release, now: Timestamp) -> Timestamp {
        let mut all = self.0.lock();
        match all.get(target) {
            Some((before, since)) if before == wanted => *since,
            Some(_) | None => {
                all.insert(target.clone(), (wanted.clone(), now));
                now
            }
        }
    }

    pub fn reached(&self, target: &Target) {
        self.0.lock().remove(target);
    }

    pub fn forget(&self, cluster: &str) {
        self.0.lock().retain(|target, _| target.cluster != cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helm::testing::release;

    #[test]
    fn the_time_begins_anew_with_what_is_wanted() {
        let (awaited, target) = (
            Awaited::default(),
            Target {
                cluster: "c".into(),
                namespace: "lb".into(),
                name: "purelb".into(),
            },
        );
        let (one, other) = (release("https://x"), release("https://y"));
        let since = |wanted, now| awaited.since(&target, wanted, Timestamp(now));
        assert_eq!(since(&one, 1), Timestamp(1));
        assert_eq!(since(&one, 5), Timestamp(1));
        assert_eq!(since(&other, 6), Timestamp(6));
        awaited.reached(&target);
        assert_eq!(since(&other, 9), Timestamp(9));
        awaited.forget("c");
        assert_eq!(since(&other, 11), Timestamp(11));
    }
}
