//! When a lease is released because its owner is gone from its cluster without having said so.
//!
//! Pure: time is an argument (milliseconds of any clock that never runs backwards). An owner counts as gone when two
//! complete lists at least a minute apart did not have it and a fresh read between them did not find it. And a
//! list can be wrong as a whole: more than `max(5, 5 %)` of the leases that a list could release, within an hour
//! ([`super::release_budget`]), are released only once an admin said so, and then only what the admin's word was about.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fipd_core::{Actor, Identity, Timestamp};

/// The least time between two looks that find something missing.
pub const RECHECK_AFTER: Duration = Duration::from_secs(60);
/// The same in milliseconds.
pub(super) const RECHECK_MS: u64 = RECHECK_AFTER.as_secs() * 1_000;
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
pub struct AbsenceVerdict {
    /// Owners in order; with who confirmed it where it needed that.
    pub release: Vec<(Identity, Option<Actor>)>,
    pub held_back: Option<Withheld>,
}

/// Gone as well, but more than may go without an admin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// With how many leases each has.
    pub owners: BTreeMap<Identity, usize>,
    /// How many leases may go without an admin.
    pub limit: usize,
}

/// An admin's word that these owners are really gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    pub actor: Actor,
    /// With how many leases each had then; it is no word about more.
    pub owners: BTreeMap<Identity, usize>,
}

/// The absences of one (cluster identity, system). Start a new one with a new identity: lists of different
/// clusters are never compared.
#[derive(Clone, Debug, Default)]
pub struct Absences {
    missing: BTreeMap<Identity, Missing>,
    /// Of those, the ones an admin said yes to: who, and to how many leases.
    confirmed: BTreeMap<Identity, (Actor, usize)>,
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
                let missing = self.missing.get_mut(identity);
                if let Some(missing) = missing.filter(|missing| missing.first <= at.0) {
                    missing.read.get_or_insert(at.0);
                }
            }
            Presence::Unknown => {}
        }
    }

    /// An admin says that these are really gone. It counts for those that are missing, until they are seen again.
    pub fn confirm(&mut self, confirmation: &Confirmation) {
        for (identity, leases) in &confirmation.owners {
            let word = (confirmation.actor.clone(), *leases);
            self.confirmed.insert(identity.clone(), word);
        }
        self.keep_known();
    }

    /// Whether any owner counts as gone.
    pub fn any_gone(&self) -> bool {
        self.missing.values().any(Missing::is_gone)
    }

    /// What to release, where `total` leases could be and `spent` went within the window. Where nobody knows how
    /// many went, none may without an admin, nor may any whose absence `vouched` does not believe. The caller releases it and tells [`Absences::released`].
    pub fn verdict(
        &self,
        total: usize,
        spent: Option<usize>,
        vouched: impl Fn(&Identity) -> bool,
    ) -> AbsenceVerdict {
        let limit = spent.map_or(0, |spent| AT_LEAST.max(total.saturating_add(spent) / SHARE));
        let spent = spent.unwrap_or(0);
        let mut release = Vec::new();
        let (mut open, mut doubted) = (BTreeMap::new(), BTreeMap::new());
        for (identity, missing) in self.missing.iter().filter(|(_, missing)| missing.is_gone()) {
            match self.confirmed.get(identity) {
                Some((actor, most)) if missing.leases <= *most => {
                    release.push((identity.clone(), Some(actor.clone())));
                }
                Some(_) | None if vouched(identity) => {
                    open.insert(identity.clone(), missing.leases);
                }
                Some(_) | None => drop(doubted.insert(identity.clone(), missing.leases)),
            }
        }
        let asked: usize = open.values().sum();
        if asked.saturating_add(spent) > limit {
            doubted.extend(open);
        } else {
            release.extend(open.into_keys().map(|identity| (identity, None)));
        }
        let held_back = (!doubted.is_empty()).then_some(Withheld {
            owners: doubted,
            limit,
        });
        release.sort();
        AbsenceVerdict { release, held_back }
    }

    /// Everything of `identity` was released.
    pub fn released(&mut self, identity: &Identity) {
        self.missing.remove(identity);
        self.confirmed.remove(identity);
    }

    /// When the next list would tell more: the first absence that needs its second list. `None`: nothing is missing.
    pub fn next_list(&self) -> Option<Timestamp> {
        self.missing
            .values()
            .filter(|missing| !missing.is_gone())
            .map(|missing| Timestamp(missing.first.saturating_add(RECHECK_MS)))
            .min()
    }

    fn keep_known(&mut self) {
        self.confirmed
            .retain(|identity, _| self.missing.contains_key(identity));
    }
}

impl Withheld {
    /// Leases of all of them.
    pub fn leases(&self) -> usize {
        self.owners.values().sum()
    }
}

impl Missing {
    fn is_gone(&self) -> bool {
        let between = self
            .read
            .is_some_and(|read| self.first <= read && read <= self.latest);
        between && self.latest.saturating_sub(self.first) >= RECHECK_MS
    }
}

#[cfg(test)]
mod tests;
