//! Since when a release is wanted that another engine brings about, and why it could not so far.

use std::collections::BTreeMap;

use fipd_core::Timestamp;
use parking_lot::Mutex;

use super::{files::ReleaseTarget, release::Release};

#[derive(Default)]
pub(super) struct Awaited(Mutex<BTreeMap<ReleaseTarget, AwaitedRelease>>);

#[derive(Clone)]
pub(super) struct AwaitedRelease {
    wanted: Release,
    /// By this host's clock, which need not be the cluster's.
    pub since: Timestamp,
    /// What came of the last attempt, which another may have followed.
    pub failure: Option<String>,
}

impl Awaited {
    /// What is known of it while it is this that is wanted.
    pub fn wish(&self, target: &ReleaseTarget, wanted: &Release, now: Timestamp) -> AwaitedRelease {
        self.with(target, wanted, now, |wish| wish.clone())
    }

    pub fn failed(&self, target: &ReleaseTarget, wanted: &Release, why: &str, now: Timestamp) {
        let failure = Some(why.to_owned());
        self.with(target, wanted, now, |wish| wish.failure = failure);
    }

    fn with<T>(
        &self,
        target: &ReleaseTarget,
        wanted: &Release,
        now: Timestamp,
        act: impl FnOnce(&mut AwaitedRelease) -> T,
    ) -> T {
        let begun = || AwaitedRelease {
            wanted: wanted.clone(),
            since: now,
            failure: None,
        };
        let mut all = self.0.lock();
        let wish = all.entry(target.clone()).or_insert_with(begun);
        if wish.wanted != *wanted {
            *wish = begun();
        }
        act(wish)
    }

    pub fn reached(&self, target: &ReleaseTarget) {
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
    fn what_is_known_begins_anew_with_what_is_wanted() {
        let (awaited, target) = (
            Awaited::default(),
            ReleaseTarget {
                cluster: "c".into(),
                namespace: "lb".into(),
                name: "purelb".into(),
            },
        );
        let (one, other) = (release("https://x"), release("https://y"));
        let wish = |wanted, now| awaited.wish(&target, wanted, Timestamp(now));
        let since = |wanted, now| wish(wanted, now).since;
        assert_eq!(since(&one, 1), Timestamp(1));
        assert_eq!(since(&one, 5), Timestamp(1));
        awaited.failed(&target, &one, "no", Timestamp(5));
        assert_eq!(wish(&one, 5).failure.as_deref(), Some("no"));
        assert_eq!(since(&other, 6), Timestamp(6));
        assert_eq!(wish(&other, 6).failure, None);
        awaited.reached(&target);
        assert_eq!(since(&other, 9), Timestamp(9));
        awaited.forget("c");
        assert_eq!(since(&other, 11), Timestamp(11));
    }
}
