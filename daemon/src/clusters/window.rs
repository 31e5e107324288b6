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

/// What went within the window: leases by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window(BTreeMap<u64, usize>);

impl Window {
    pub fn add(&mut self, at: Timestamp, leases: usize) {
        if leases > 0 {
            *self.0.entry(at.0).or_default() += leases;
        }
    }

    /// Leases that went within the hour before `now`; forgets older ones.
    pub fn spent(&mut self, now: Timestamp) -> usize {
        self.0.retain(|at, _| now.0.saturating_sub(*at) < WINDOW);
        self.0.values().sum()
    }
}

/// The cluster that lost a lease by absence without an admin's word in this decision.
fn lost_by(entry: &AuditEntry) -> Option<ClusterId> {
    if entry.action == Action::Released && &*entry.detail == REASON {
        return entry.identity.as_ref()?.cluster.clone();
    }
    if entry.action == Action::PassedOn {
        let before = entry.detail.strip_prefix("from ")?.strip_suffix(REASON)?;
        let before: Identity = before.strip_suffix(": ")?.parse().ok()?;
        return before.cluster;
    }
    None
}

/// The windows of all clusters; outlives their sessions.
pub(super) struct Windows {
    start: Instant,
    clusters: OnceCell<Mutex<Clusters>>,
}

/// Locked while somebody decides and releases: two systems of a cluster share its window.
type Shared = Arc<tokio::sync::Mutex<Window>>;
type Clusters = BTreeMap<ClusterId, Shared>;

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
    pub async fn of(&self, id: &ClusterId, ipam: &Ipam) -> Result<Shared, ReadError> {
        let clusters = self
            .clusters
            .get_or_try_init(|| self.recall(ipam))
            .await?
            .lock()
            .entry(id.clone())
            .or_default()
            .clone();
        Ok(clusters)
    }

    async fn recall(&self, ipam: &Ipam) -> Result<Mutex<Clusters>, ReadError> {
        let (reader, wall) = (ipam.reader().clone(), ipam.now());
        let read = tokio::task::spawn_blocking(move || last_hour(&reader, wall));
        let lost = read.await.unwrap_or(Err(ReadError::Reopening))?;
        let mut windows: BTreeMap<ClusterId, Window> = BTreeMap::new();
        for (id, at) in lost {
            let age = wall.0.saturating_sub(at.0);
            let at = Timestamp(self.now().0.saturating_sub(age));
            windows.entry(id).or_default().add(at, 1);
        }
        let shared = |(id, window)| (id, Arc::new(tokio::sync::Mutex::new(window)));
        Ok(Mutex::new(windows.into_iter().map(shared).collect()))
    }
}

/// Who lost a lease when, within the hour before `now`, as the audit log says. Blocks on the disk.
fn last_hour(
    reader: &StoreReader,
    now: Timestamp,
) -> Result<Vec<(ClusterId, Timestamp)>, ReadError> {
    let mut lost = Vec::new();
    let mut before = None;
    loop {
        let page = reader.audit_page(before, StoreReader::PAGE_MAX)?;
        let recent = page
            .iter()
            .take_while(|(_, entry)| now.0.saturating_sub(entry.at.0) < WINDOW);
        let mut count = 0;
        for (_, entry) in recent {
            count += 1;
            lost.extend(lost_by(entry).map(|id| (id, entry.at)));
        }
        match page.last() {
            Some((number, _)) if count == page.len() => before = Some(*number),
            Some(_) | None => return Ok(lost),
        }
    }
}

#[cfg(test)]
mod tests;
