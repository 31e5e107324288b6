//! How a receiver is doing.

use std::time::{Duration, Instant};

use fipd_core::Timestamp;
use parking_lot::Mutex;

use super::cursor::Cursor;
use crate::{clock, config::Hook};

/// Shared by the task that sends and those who ask.
#[derive(Default)]
pub struct HookStanding(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    cursor: Option<Cursor>,
    /// What the file says, and since when.
    noted: Option<(Cursor, Instant)>,
    delivered: u64,
    failed: u64,
    missed: u64,
    last_success: Option<Timestamp>,
    /// Why it fails at the moment, since when, and when it is tried again.
    failing: Option<(String, Timestamp, Timestamp)>,
}

/// The same for those who ask.
#[derive(Clone, Debug, PartialEq)]
pub struct HookView {
    pub name: String,
    pub url: String,
    pub events: Vec<String>,
    /// Events received since the start.
    pub delivered: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Entries of the audit log that were trimmed before they were sent, since the start.
    pub missed: u64,
    /// Entries of the audit log that it has not come to.
    pub pending: u64,
    pub last_success: Option<Timestamp>,
    /// Why it fails, since when, and when it is tried again.
    pub failing: Option<(String, Timestamp, Timestamp)>,
}

impl HookStanding {
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.0.lock().cursor
    }

    pub(super) fn reached(&self, cursor: Cursor) {
        self.0.lock().cursor = Some(cursor);
    }

    pub(super) fn delivered(&self) {
        self.0.lock().delivered += 1;
    }

    pub(super) fn missed(&self, entries: u64) {
        self.0.lock().missed += entries;
    }

    pub(super) fn succeeded(&self) {
        let mut inner = self.0.lock();
        inner.last_success = Some(clock::now());
        inner.failing = None;
    }

    /// Nothing is left to send, so nothing fails.
    pub(super) fn idle(&self) {
        self.0.lock().failing = None;
    }

    pub(super) fn failed(&self, why: &str, again: Duration) {
        let now = clock::now();
        let mut inner = self.0.lock();
        inner.failed += 1;
        let since = inner.failing.take().map_or(now, |(_, since, _)| since);
        let pause = u64::try_from(again.as_millis()).unwrap_or(u64::MAX);
        let again = Timestamp(now.0.saturating_add(pause));
        inner.failing = Some((why.to_owned(), since, again));
    }

    /// What is to be written down: nothing that was, and where it is not the end not more than once in `every`.
    pub(super) fn to_note(&self, end: bool, every: Duration) -> Option<Cursor> {
        let inner = self.0.lock();
        let cursor = inner.cursor?;
        match inner.noted {
            Some((noted, _)) if noted == cursor => None,
            Some((_, at)) if !end && at.elapsed() < every => None,
            Some(_) | None => Some(cursor),
        }
    }

    pub(super) fn noted(&self, cursor: Cursor) {
        self.0.lock().noted = Some((cursor, Instant::now()));
    }

    pub(super) fn view(&self, hook: &Hook, last: u64) -> HookView {
        let inner = self.0.lock();
        let after = inner.cursor.map_or(last, |cursor| cursor.after);
        HookView {
            name: hook.name.0.to_string(),
            url: hook.url.0.to_string(),
            events: hook.events.words(),
            delivered: inner.delivered,
            failed: inner.failed,
            missed: inner.missed,
            pending: last.saturating_sub(after),
            last_success: inner.last_success,
            failing: inner.failing.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_written_seldom_while_it_moves_and_at_the_end() {
        let standing = HookStanding::default();
        let every = Duration::from_secs(3600);
        assert_eq!(standing.to_note(true, every), None, "there is none");
        let at = |after| Cursor {
            instance: 1,
            epoch: 0,
            after,
            written: None,
        };
        standing.reached(at(1));
        assert_eq!(standing.to_note(false, every), Some(at(1)));
        standing.noted(at(1));
        standing.reached(at(2));
        assert_eq!(standing.to_note(false, every), None);
        assert_eq!(standing.to_note(true, every), Some(at(2)));
        standing.noted(at(2));
        assert_eq!(standing.to_note(true, every), None);
    }

    #[test]
    fn a_failure_keeps_its_beginning_until_something_arrives() {
        let standing = HookStanding::default();
        standing.failed("a", Duration::from_secs(1));
        let since = standing.0.lock().failing.clone().unwrap().1;
        standing.failed("b", Duration::from_secs(2));
        let (why, still, again) = standing.0.lock().failing.clone().unwrap();
        assert_eq!((why.as_str(), still), ("b", since));
        assert!(again > since);
        standing.succeeded();
        assert!(standing.0.lock().failing.is_none());
        assert_eq!(standing.0.lock().failed, 2);
    }
}
