//! How often somebody may try to sign in.
//!
//! Failures are counted per name and address, per address alone against trying many names, and per name alone against
//! trying from many addresses. Addresses of IPv6 count as their /64. An attempt counts before its password is checked, so
//! that trying in parallel gains nothing, and is taken off again where it was right: who signs in prolongs no lockout. Names
//! that do not exist are counted like those that do.
//!
//! What is tried from an address that the name has signed in from counts not towards the name alone, and does not wait for
//! it: guessing from many addresses keeps nobody out who comes from where they came before. That is known until a restart,
//! which forgets failures as well. The price: who shares such an address with somebody, and locks the name out from many others
//! first, is told apart whether it is one that has signed in there.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::api::listen::network;

/// Failures of one name from one address before it is locked out.
const TRIES: usize = 5;
/// Failures from one address, whatever the names.
const TRIES_OF_ADDRESS: usize = 30;
/// The first lockout; each further failure doubles it.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Failures of one name from all addresses that it has not signed in from.
const TRIES_OF_NAME: usize = 50;
/// Failures are forgotten after this long without another.
const FORGET: Duration = Duration::from_secs(30 * 60);
/// Failures that are kept: with so many a lockout is the longest.
const KEPT: usize = TRIES_OF_NAME + 8;
/// More entries than these push out the half with the fewest failures.
const MOST: usize = 10_000;
/// Addresses that one name is known to sign in from, the last ones.
const KNOWN_OF_ONE: usize = 16;
/// The same of all names.
const KNOWN: usize = 2_000;
/// Longer names count by their beginning.
const NAME: usize = 64;

/// Counts failures.
#[derive(Default)]
pub struct Limiter(Mutex<LoginAttempts>);

#[derive(Default)]
struct LoginAttempts {
    failures: BTreeMap<AttemptKey, Failures>,
    /// Where names have signed in from, the last at the end.
    known: Vec<(IpAddr, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttemptKey {
    Both(IpAddr, String),
    Address(IpAddr),
    Name(String),
}

/// When each failed, or began that is not known yet to be right.
#[derive(Clone, Debug, Default)]
struct Failures(Vec<Instant>);

impl Limiter {
    /// Counts an attempt. Fails with the time to wait while name or address are locked out.
    pub fn attempt(&self, name: &str, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut inner = self.0.lock();
        let (address, name) = (network(from), beginning(name));
        let mut keys = vec![
            (AttemptKey::Both(address, name.clone()), TRIES),
            (AttemptKey::Address(address), TRIES_OF_ADDRESS),
        ];
        let both = (address, name);
        if !inner.known.contains(&both) {
            keys.push((AttemptKey::Name(both.1), TRIES_OF_NAME));
        }
        let locked =
            |(key, most): &(AttemptKey, usize)| inner.failures.get(key)?.locked(*most, now);
        if let Some(wait) = keys.iter().filter_map(locked).max() {
            return Err(wait);
        }
        for (key, _) in keys {
            inner.failures.entry(key).or_default().add(now);
        }
        make_room(&mut inner.failures, now);
        Ok(())
    }

    /// The attempt of that time was right after all: forgets the failures of the name from there, and this attempt of the
    /// address and of the name.
    pub fn succeeded(&self, name: &str, from: IpAddr, at: Instant) {
        let mut inner = self.0.lock();
        let (address, name) = (network(from), beginning(name));
        inner
            .failures
            .remove(&AttemptKey::Both(address, name.clone()));
        for key in [AttemptKey::Address(address), AttemptKey::Name(name)] {
            if let Some(failures) = inner.failures.get_mut(&key) {
                failures.take_back(at);
            }
        }
    }

    /// The same, and the name signs in from there from now on whatever is tried elsewhere. Only for who has shown the
    /// password.
    pub fn signed_in(&self, name: &str, from: IpAddr, at: Instant) {
        self.succeeded(name, from, at);
        let mut inner = self.0.lock();
        let known = &mut inner.known;
        let both = (network(from), beginning(name));
        known.retain(|one| *one != both);
        let of_name = known.iter().filter(|(_, name)| *name == both.1).count();
        let oldest = match of_name < KNOWN_OF_ONE {
            true => (known.len() >= KNOWN).then_some(0),
            false => known.iter().position(|(_, name)| *name == both.1),
        };
        if let Some(oldest) = oldest {
            known.remove(oldest);
        }
        known.push(both);
    }
}

impl Failures {
    fn add(&mut self, now: Instant) {
        if self.since_last(now).is_some_and(|since| since >= FORGET) {
            self.0.clear();
        }
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(now);
    }

    fn take_back(&mut self, at: Instant) {
        if let Some(place) = self.0.iter().position(|time| *time == at) {
            self.0.remove(place);
        }
    }

    fn last(&self) -> Option<Instant> {
        self.0.iter().copied().max()
    }

    fn since_last(&self, now: Instant) -> Option<Duration> {
        self.last().map(|last| now.saturating_duration_since(last))
    }

    /// The time still to wait.
    fn locked(&self, most: usize, now: Instant) -> Option<Duration> {
        let over = self.0.len().checked_sub(most)?;
        let lockout = FIRST.saturating_mul(1 << over.min(8)).min(LONGEST);
        let wait = lockout.saturating_sub(self.since_last(now)?);
        (!wait.is_zero()).then_some(wait)
    }
}

/// A name that is being guessed has many failures, so that trying others does not have it forgotten.
fn make_room(failures: &mut BTreeMap<AttemptKey, Failures>, now: Instant) {
    if failures.len() <= MOST {
        return;
    }
    let fresh = |one: &Failures| one.since_last(now).is_some_and(|since| since < FORGET);
    failures.retain(|_, one| fresh(one));
    if failures.len() <= MOST {
        return;
    }
    let weight = |one: &Failures| (one.0.len(), one.last());
    let mut weights: Vec<_> = failures.values().map(weight).collect();
    let middle = weights.len() / 2;
    let (_, middle, _) = weights.select_nth_unstable(middle);
    let middle = *middle;
    failures.retain(|_, one| weight(one) > middle);
}

fn beginning(name: &str) -> String {
    name.chars().take(NAME).collect()
}

#[cfg(test)]
mod tests;
