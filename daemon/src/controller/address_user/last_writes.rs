//! What was written last to each object, until the watch shows it: an object is not written twice for one reason.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::controller::{meta::version_number, store::Key};

/// How long the watch may take. An API server that was taken back to a backup counts its versions anew.
const PATIENCE: Duration = Duration::from_secs(5);

/// Versions of objects after fipd's last write, and when that was.
#[derive(Debug, Default)]
pub struct LastWrites(BTreeMap<Key, (u64, Instant)>);

impl LastWrites {
    /// Notes the version that the API server answered a write with. One that is no number does not say which of two is
    /// newer.
    pub fn note(&mut self, key: &Key, version: &str, now: Instant) {
        match version_number(version) {
            Some(version) => self.0.insert(key.clone(), (version, now)),
            None => self.0.remove(key),
        };
    }

    /// How long to wait for the watch, which shows the object as it was before the last write.
    pub fn wait(&mut self, key: &Key, seen: &str, now: Instant) -> Option<Duration> {
        let (version, at) = *self.0.get(key)?;
        let rest = PATIENCE.saturating_sub(now.saturating_duration_since(at));
        let behind = version_number(seen).is_some_and(|seen| seen < version);
        if behind && !rest.is_zero() {
            return Some(rest);
        }
        self.0.remove(key);
        None
    }

    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_waited_for_until_the_watch_shows_the_last_write() {
        let (mut writes, key, now) = (
            LastWrites::default(),
            Key::new("c-m-a", "fip"),
            Instant::now(),
        );
        assert_eq!(writes.wait(&key, "1", now), None);
        writes.note(&key, "9", now);
        writes.note(&key, "10", now);
        assert_eq!(writes.wait(&key, "9", now), Some(PATIENCE));
        assert_eq!(writes.wait(&key, "10", now), None);
        assert_eq!(writes.wait(&key, "9", now), None, "it was seen");
        writes.note(&key, "12", now);
        assert_eq!(writes.wait(&key, "13", now), None, "somebody else wrote");
    }

    #[test]
    fn nobody_waits_for_ever_or_by_what_cannot_be_compared() {
        let (mut writes, key, now) = (
            LastWrites::default(),
            Key::new("c-m-a", "fip"),
            Instant::now(),
        );
        writes.note(&key, "900", now);
        let later = now + Duration::from_secs(4);
        assert_eq!(writes.wait(&key, "3", later), Some(Duration::from_secs(1)));
        assert_eq!(writes.wait(&key, "3", now + PATIENCE), None);
        writes.note(&key, "a9", now);
        assert_eq!(writes.wait(&key, "3", now), None);
        writes.note(&key, "900", now);
        assert_eq!(writes.wait(&key, "a3", now), None);
        writes.note(&key, "900", now);
        writes.forget(&key);
        assert_eq!(writes.wait(&key, "3", now), None);
    }
}
