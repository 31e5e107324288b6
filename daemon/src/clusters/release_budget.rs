//! How many leases of a cluster were released by absence within the last hour.
//!
//! Kept per cluster identity, not per session: neither a reconnection nor a restart of the daemon opens a new window.
//! What an earlier life of the daemon released is in the audit log, which is read before the first release.

use std::{collections::BTreeMap, sync::Arc};

use fipd_core::{Action, AuditEntry, ClusterId, Identity, Timestamp};
use parking_lot::Mutex;
use tokio::{sync::OnceCell, time::Instant};

use crate::{
    ipam::Ipam,
    store::{ReadError, StoreReader},
};

/// Releases count against the limit for this long.
pub const WINDOW: u64 = 3_600_000;
/// The audit log's reason of a release that no admin confirmed: what an earlier life released is found by it.
pub const REASON: &str = "absent from two complete lists and a fresh read";
/// The reason of one that an admin confirmed; it does not count against the limit.
pub const CONFIRMED: &str = "absent from two complete lists and a fresh read; release confirmed";

/// What went within the window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Leases by time.
    went: BTreeMap<u64, usize>,
    /// Until then nobody knows what else went.
    unknown_until: u64,
}

impl Window {
    pub fn add(&mut self, at: Timestamp, leases: usize) {
        if leases > 0 {
            *self.went.entry(at.0).or_default() += leases;
        }
    }

    /// Takes back what was added for `at` and did not go.
    pub fn take_back(&mut self, at: Timestamp, leases: usize) {
        if let Some(went) = self.went.get_mut(&at.0) {
            *went = went.saturating_sub(leases);
        }
    }

    /// Leases that went within the hour before `now`; forgets older ones. `None`: not known, perhaps too many.
    pub fn spent(&mut self, now: Timestamp) -> Option<usize> {
        self.went
            .retain(|at, leases| *leases > 0 && now.0.saturating_sub(*at) < WINDOW);
        (self.unknown_until <= now.0).then(|| self.went.values().sum())
    }
}

/// The cluster that lost a lease by absence without an admin's word in this decision.
fn lost_by(entry: &AuditEntry) -> Option<ClusterId> {
    if entry.action == Action::Released && &*entry.detail == REASON {
        return entry.identity.as_ref()?.cluster.clone();
    }
    if matches!(entry.action, Action::PassedOn | Action::HandedOver) {
        let before = entry.detail.strip_prefix("from ")?.strip_suffix(REASON)?;
        let before: Identity = before.strip_suffix(": ")?.parse().ok()?;
        return before.cluster;
    }
    None
}

/// The windows of all clusters; outlives their sessions.
pub(super) struct Windows {
    start: Instant,
    clusters: OnceCell<AllWindows>,
}

/// Locked while somebody decides and releases: two systems of a cluster share its window.
type SharedWindow = Arc<tokio::sync::Mutex<Window>>;

struct AllWindows {
    /// Of a cluster without a window: as [`Window::unknown_until`].
    unknown_until: u64,
    windows: Mutex<BTreeMap<ClusterId, SharedWindow>>,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            clusters: OnceCell::new(),
        }
    }
}

impl Windows {
    /// Monotonic: the wall clock may jump. Begins late enough for what the audit log remembers to lie before it.
    pub fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp(elapsed.saturating_add(WINDOW))
    }

    /// The window of one cluster.
    ///
    /// # Errors
    /// When the audit log cannot be read: nothing may be released then.
    pub async fn of(&self, id: &ClusterId, ipam: &Ipam) -> Result<SharedWindow, ReadError> {
        let clusters = self.clusters.get_or_try_init(|| self.recall(ipam)).await?;
        let mut windows = clusters.windows.lock();
        let shared = windows.entry(id.clone()).or_insert_with(|| {
            shared(Window {
                unknown_until: clusters.unknown_until,
                ..Window::default()
            })
        });
        Ok(Arc::clone(shared))
    }

    async fn recall(&self, ipam: &Ipam) -> Result<AllWindows, ReadError> {
        let (reader, wall) = (ipam.reader().clone(), ipam.now());
        let read = tokio::task::spawn_blocking(move || last_hour(&reader, wall));
        let remembered = read.await.unwrap_or(Err(ReadError::Reopening))?;
        let now = self.now();
        let ours = |at: Timestamp| Timestamp(now.0.saturating_sub(wall.0.saturating_sub(at.0)));
        let unknown_until = remembered
            .unknown_before
            .map_or(0, |at| ours(at).0.saturating_add(WINDOW));
        if unknown_until > now.0 {
            tracing::warn!(
                minutes = (unknown_until - now.0) / 60_000 + 1,
                "the audit log does not reach back an hour; nothing is released by absence without confirm-release"
            );
        }
        let mut windows: BTreeMap<ClusterId, Window> = BTreeMap::new();
        for (id, at) in remembered.lost {
            let window = windows.entry(id).or_default();
            window.unknown_until = unknown_until;
            window.add(ours(at), 1);
        }
        let shared = |(id, window)| (id, shared(window));
        Ok(AllWindows {
            unknown_until,
            windows: Mutex::new(windows.into_iter().map(shared).collect()),
        })
    }
}

fn shared(window: Window) -> SharedWindow {
    Arc::new(tokio::sync::Mutex::new(window))
}

/// What the audit log says of an hour.
#[derive(Debug, Default)]
struct Remembered {
    /// Who lost a lease, and when.
    lost: Vec<(ClusterId, Timestamp)>,
    /// The log begins within the hour and had entries before: nobody knows what went before this time.
    unknown_before: Option<Timestamp>,
}

/// What the audit log says of the hour before `now`. Blocks on the disk.
fn last_hour(reader: &StoreReader, now: Timestamp) -> Result<Remembered, ReadError> {
    let mut remembered = Remembered::default();
    let mut first = (reader.stats().audit_next, now);
    loop {
        let page = reader.audit_page(Some(first.0), StoreReader::PAGE_MAX)?;
        for (number, entry) in &page {
            if now.0.saturating_sub(entry.at.0) >= WINDOW {
                return Ok(remembered);
            }
            first = (*number, entry.at);
            let lost = lost_by(entry).map(|id| (id, entry.at));
            remembered.lost.extend(lost);
        }
        if page.is_empty() {
            let trimmed = first.0 > StoreReader::FIRST_AUDIT;
            remembered.unknown_before = trimmed.then_some(first.1);
            return Ok(remembered);
        }
    }
}

#[cfg(test)]
mod tests;
