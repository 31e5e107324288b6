//! How often somebody may try to sign in.
//!
//! Failures are counted per name and address, and per address alone against trying many names. Addresses of IPv6
//! count as their /64. An attempt counts before its password is checked, so that trying in parallel gains nothing, and is
//! taken off again where it was right: who signs in prolongs no lockout. Names that do not exist are counted like those
//! that do.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Failures of one name from one address before it is locked out.
const TRIES: usize = 5;
/// Failures from one address, whatever the names.
const TRIES_OF_ADDRESS: usize = 30;
/// The first lockout; each further failure doubles it.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Failures are forgotten after this long without another.
const FORGET: Duration = Duration::from_secs(30 * 60);
/// Failures that are kept: with so many a lockout is the longest.
const KEPT: usize = TRIES_OF_ADDRESS + 8;
/// More entries than these push out the older half.
const MOST: usize = 10_000;
/// Longer names count by their beginning.
const NAME: usize = 64;

/// Counts failures.
#[derive(Default)]
pub struct Limiter(Mutex<BTreeMap<Key, Failures>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    address: IpAddr,
    /// `None`: the address alone.
    name: Option<String>,
}

/// When each failed, or began that is not known yet to be right.
#[derive(Clone, Debug, Default)]
struct Failures(Vec<Instant>);

impl Limiter {
    /// Counts an attempt. Fails with the time to wait while name or address are locked out.
    pub fn attempt(&self, name: &str, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut failures = self.0.lock();
        let [both, address] = keys(name, from);
        let locked = |key: &Key, most| {
            failures
                .get(key)
                .and_then(|failures| failures.locked(most, now))
        };
        if let Some(wait) = locked(&both, TRIES).max(locked(&address, TRIES_OF_ADDRESS)) {
            return Err(wait);
        }
        for key in [both, address] {
            failures.entry(key).or_default().add(now);
        }
        if failures.len() > MOST {
            forget_oldest(&mut failures);
        }
        Ok(())
    }

    /// The attempt of that time was right after all: forgets the failures of the name from there, and this attempt of the
    /// address.
    pub fn succeeded(&self, name: &str, from: IpAddr, at: Instant) {
        let mut failures = self.0.lock();
        let [both, address] = keys(name, from);
        failures.remove(&both);
        if let Some(failures) = failures.get_mut(&address) {
            failures.take_back(at);
        }
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

fn forget_oldest(failures: &mut BTreeMap<Key, Failures>) {
    let mut times: Vec<_> = failures.values().map(Failures::last).collect();
    let middle = times.len() / 2;
    let (_, middle, _) = times.select_nth_unstable(middle);
    let middle = *middle;
    failures.retain(|_, failures| failures.last() > middle);
}

fn keys(name: &str, from: IpAddr) -> [Key; 2] {
    let address = match from.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
    };
    let name = name.chars().take(NAME).collect();
    [
        Key {
            address,
            name: Some(name),
        },
        Key {
            address,
            name: None,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_sixth_try_waits_and_each_failure_doubles_it() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let from = ip("192.0.2.1");
        for _ in 0..TRIES {
            limiter.attempt("ann", from, start).unwrap();
        }
        assert_eq!(limiter.attempt("ann", from, start), Err(FIRST));
        // Waiting attempts are not counted: the lockout ends.
        let later = start + FIRST;
        limiter.attempt("ann", from, later).unwrap();
        assert_eq!(limiter.attempt("ann", from, later), Err(FIRST * 2));
        // Others are not locked out, nor is the name from elsewhere.
        limiter.attempt("bob", from, later).unwrap();
        limiter.attempt("ann", ip("192.0.2.2"), later).unwrap();
    }

    #[test]
    fn success_forgets_and_so_does_time() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let from = ip("2001:db8::1");
        for _ in 0..3 {
            for _ in 0..TRIES {
                limiter.attempt("ann", from, start).unwrap();
            }
            limiter.succeeded("ann", from, start);
        }
        let (limiter, from) = (Limiter::default(), ip("192.0.2.7"));
        for _ in 0..TRIES {
            limiter.attempt("ann", from, start).unwrap();
        }
        for _ in 0..TRIES {
            limiter.attempt("ann", from, start + FORGET).unwrap();
        }
    }

    #[test]
    fn many_names_from_one_place_are_stopped_too() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for number in 0..TRIES_OF_ADDRESS {
            let from = ip(&format!("2001:db8::{number:x}"));
            limiter
                .attempt(&format!("name-{number}"), from, start)
                .unwrap();
        }
        assert_eq!(
            limiter.attempt("another", ip("2001:db8::ffff"), start),
            Err(FIRST)
        );
        limiter
            .attempt("another", ip("2001:db8:0:1::1"), start)
            .unwrap();
    }

    #[test]
    fn who_signs_in_prolongs_no_lockout_of_the_address() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let from = ip("192.0.2.1");
        for number in 0..TRIES_OF_ADDRESS {
            let name = format!("name-{number}");
            limiter.attempt(&name, from, start).unwrap();
        }
        let later = start + FIRST;
        limiter.attempt("ann", from, later).unwrap();
        limiter.succeeded("ann", from, later);
        limiter.attempt("bob", from, later).unwrap();
    }

    #[test]
    fn who_signs_in_keeps_no_failures_of_others_alive() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        let from = ip("192.0.2.1");
        for number in 1..TRIES_OF_ADDRESS {
            let name = format!("name-{number}");
            limiter.attempt(&name, from, start).unwrap();
        }
        let between = start + FORGET / 2;
        limiter.attempt("ann", from, between).unwrap();
        limiter.succeeded("ann", from, between);
        // One of before and these would be too many.
        let later = start + FORGET;
        for number in 0..TRIES_OF_ADDRESS {
            let name = format!("name-{number}");
            limiter.attempt(&name, from, later).unwrap();
        }
        assert_eq!(limiter.attempt("bob", from, later), Err(FIRST));
    }

    #[test]
    fn no_lockout_is_longer_than_the_longest_and_what_is_kept_suffices_for_it() {
        let (limiter, mut now) = (Limiter::default(), Instant::now());
        let from = ip("192.0.2.1");
        for number in 0..2 * KEPT {
            let name = format!("name-{number}");
            limiter.attempt(&name, from, now).unwrap();
            now += LONGEST;
        }
        let locked = limiter.attempt("ann", from, now - Duration::from_secs(1));
        assert_eq!(locked, Err(Duration::from_secs(1)));
        let keys = keys("ann", from);
        assert_eq!(limiter.0.lock()[&keys[1]].0.len(), KEPT);
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for number in 0..MOST as u32 {
            let from = IpAddr::V4(number.into());
            limiter
                .attempt(
                    "ann",
                    from,
                    start + Duration::from_millis(u64::from(number)),
                )
                .unwrap();
        }
        assert!(limiter.0.lock().len() <= MOST);
    }
}
