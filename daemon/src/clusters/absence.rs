//! When a lease is released because its owner is gone from its cluster without having said so.
//!
//! Pure: time is an argument (milliseconds of any clock that never runs backwards). An owner counts as gone when two
//! complete lists at least a minute apart did not have it and a fresh read between them did not find it. And a
//! list can be wrong as a whole: more than `max(5, 5 %)` of a cluster's leases within an hour are released only
//! once an admin said so, and then only those the admin was shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fipd_core::{Identity, Timestamp};

/// The least time between the two lists.
pub const APART: u64 = 60_000;
/// Releases count against the limit for this long.
pub const WINDOW: u64 = 3_600_000;
/// This many may always go.
pub const AT_LEAST: usize = 5;
/// One in this many may go.
pub const SHARE: usize = 20;

/// What a fresh read of one object found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Present,
    /// The API server says there is no such object.
    Gone,
    /// Not known: an error, a deadline.
    Unknown,
}

/// What may be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub release: Vec<Identity>,
    /// Gone as well, but more than may go without an admin: (leases of these, limit).
    pub held_back: Option<(usize, usize)>,
}

/// The absences of one (cluster identity, system). Start a new one with a new identity: lists of different
/// clusters are never compared.
#[derive(Clone, Debug, Default)]
pub struct Absences {
    missing: BTreeMap<Identity, Missing>,
    /// Leases released by absence: when and how many.
    released: VecDeque<(u64, usize)>,
    /// Shown to an admin as held back.
    shown: BTreeSet<Identity>,
    /// Of those, the ones the admin said yes to.
    confirmed: BTreeSet<Identity>,
}

#[derive(Clone, Debug)]
struct Missing {
    /// First complete list without it.
    first: u64,
    /// A read after that list which did not find it either.
    read: Option<u64>,
    /// The latest complete list without it.
    latest: u64,
    /// How many leases it holds.
    leases: usize,
}

impl Absences {
    /// A complete list was read, begun at `at`: `held` are the owners of leases with how many each has, `present`
    /// are the objects listed. Returns the owners to read freshly now.
    pub fn listed(
        &mut self,
        at: Timestamp,
        held: &BTreeMap<Identity, usize>,
        present: &BTreeSet<Identity>,
    ) -> Vec<Identity> {
        self.missing
            .retain(|identity, _| held.contains_key(identity) && !present.contains(identity));
        for (identity, leases) in held
            .iter()
            .filter(|(identity, _)| !present.contains(*identity))
        {
            let fresh = Missing {
                first: at.0,
                read: None,
                latest: at.0,
                leases: *leases,
            };
            let missing = self.missing.entry(identity.clone()).or_insert(fresh);
            missing.latest = at.0.max(missing.latest);
            missing.leases = *leases;
        }
        self.keep_known();
        self.missing
            .iter()
            .filter(|(_, missing)| missing.read.is_none())
            .map(|(identity, _)| identity.clone())
            .collect()
    }

    /// A fresh read of one object, begun at `at`, came back.
    pub fn read(&mut self, at: Timestamp, identity: &Identity, presence: Presence) {
        match presence {
            Presence::Present => {
                self.missing.remove(identity);
                self.keep_known();
            }
            Presence::Gone => {
                if let Some(missing) = self
                    .missing
                    .get_mut(identity)
                    .filter(|missing| missing.first <= at.0)
                {
                    missing.read.get_or_insert(at.0);
                }
            }
            Presence::Unknown => {}
        }
    }

    /// An admin says that what was shown as held back is really gone. Returns how many owners that are.
    pub fn confirm(&mut self) -> usize {
        self.confirmed.append(&mut self.shown);
        self.confirmed.len()
    }

    /// What to release at `now`, where the cluster has `total` leases. The caller releases it and tells
    /// [`Absences::released`].
    pub fn verdict(&mut self, now: Timestamp, total: usize) -> Verdict {
        while self
            .released
            .front()
            .is_some_and(|(at, _)| now.0.saturating_sub(*at) >= WINDOW)
        {
            self.released.pop_front();
        }
        let spent: usize = self.released.iter().map(|(_, leases)| leases).sum();
        let limit = AT_LEAST.max(total.saturating_add(spent) / SHARE);
        let gone = || self.missing.iter().filter(|(_, missing)| missing.is_gone());
        let (mut release, mut open): (Vec<_>, Vec<_>) = gone()
            .map(|(identity, missing)| (identity.clone(), missing.leases))
            .partition(|(identity, _)| self.confirmed.contains(identity));
        let asked: usize = open.iter().map(|(_, leases)| leases).sum();
        let held_back = if asked.saturating_add(spent) > limit {
            self.shown = open.into_iter().map(|(identity, _)| identity).collect();
            Some((asked, limit))
        } else {
            self.shown.clear();
            release.append(&mut open);
            None
        };
        release.sort();
        Verdict {
            release: release.into_iter().map(|(identity, _)| identity).collect(),
            held_back,
        }
    }

    /// `identity` was released: `leases` of it went.
    pub fn released(&mut self, now: Timestamp, identity: &Identity, leases: usize) {
        self.missing.remove(identity);
        // What an admin confirmed is not counted against what goes without one.
        if !self.confirmed.remove(identity) && leases > 0 {
            self.released.push_back((now.0, leases));
        }
    }

    /// When the next list would tell more: the first absence that needs its second list. `None`: nothing is missing.
    pub fn next_list(&self) -> Option<Timestamp> {
        self.missing
            .values()
            .filter(|missing| !missing.is_gone())
            .map(|missing| Timestamp(missing.first.saturating_add(APART)))
            .min()
    }

    /// How many owners are missing, gone or not yet sure.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    fn keep_known(&mut self) {
        self.shown
            .retain(|identity| self.missing.contains_key(identity));
        self.confirmed
            .retain(|identity| self.missing.contains_key(identity));
    }
}

impl Missing {
    fn is_gone(&self) -> bool {
        let between = self
            .read
            .is_some_and(|read| self.first <= read && read <= self.latest);
        between && self.latest.saturating_sub(self.first) >= APART
    }
}

#[cfg(test)]
mod tests;
