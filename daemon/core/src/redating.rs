//! What becomes of the times in the book when an admin takes its time back to the wall clock.

use std::sync::Arc;

use crate::{Hour, Lease, LeaseState, Op, Timestamp};

/// Takes the times of rows back with book time.
///
/// A time later than the new one was measured while book time was ahead, and moves by the difference. So does the end of what
/// ends by itself, which keeps the time that it has left. A quarantine that began before keeps its end.
///
/// What goes by the wall clock (tokens, accounts) is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redating {
    from: Timestamp,
    to: Timestamp,
}

impl Redating {
    /// From the one book time to the other; `None` where that is not back.
    pub fn new(from: Timestamp, to: Timestamp) -> Option<Self> {
        (to < from).then_some(Self { from, to })
    }

    pub fn from(&self) -> Timestamp {
        self.from
    }

    pub fn to(&self) -> Timestamp {
        self.to
    }

    /// By how much, in milliseconds.
    pub fn by(&self) -> u64 {
        self.from.0 - self.to.0
    }

    /// When something happened.
    #[must_use]
    pub fn past(&self, at: Timestamp) -> Timestamp {
        if at <= self.to {
            return at;
        }
        Timestamp(at.0.saturating_sub(self.by())).min(self.to)
    }

    /// When something ends: it has as much time left as before.
    #[must_use]
    pub fn end(&self, at: Timestamp) -> Timestamp {
        if at <= self.to {
            return at;
        }
        Timestamp(at.0.saturating_sub(self.by()))
    }

    /// An hour that is over; those before the new time stay.
    #[must_use]
    pub fn hour(&self, hour: Hour) -> Hour {
        let (from, to) = (Hour::of(self.from), Hour::of(self.to));
        if hour < to {
            return hour;
        }
        hour.before(from.0 - to.0)
    }

    /// The row with other times; `None`: it stays. Hours of pools are not looked at.
    pub fn row(&self, row: &Op) -> Option<Op> {
        let mut changed = row.clone();
        match &mut changed {
            Op::PutLease(lease) => *lease = Arc::new(self.lease(lease)),
            Op::PutPast(past) => self.take_back(&mut Arc::make_mut(past).released),
            Op::PutPool(pool) => self.take_back(&mut Arc::make_mut(pool).created),
            Op::PutCluster(record) => self.take_back(&mut record.first_seen),
            Op::PutAdoption(marker) => self.take_back(&mut marker.at),
            Op::PutKey(key) => {
                self.take_back(&mut key.created);
                key.until = key.until.map(|until| self.end(until));
            }
            Op::PutEpoch(epoch) => {
                self.take_back(&mut epoch.began);
                if let Some(hold) = &mut epoch.hold {
                    hold.until = Timestamp(self.to.0.saturating_add(hold.left));
                }
            }
            Op::PutNetwork(_)
            | Op::PutNextPool(_)
            | Op::DeletePool(_)
            | Op::PutQuota(_)
            | Op::DeleteQuota { .. }
            | Op::DeleteLease(_)
            | Op::DeletePast(_)
            | Op::DeleteCluster(_)
            | Op::DeleteAdoption { .. }
            | Op::PutAccount(_)
            | Op::DeleteAccount(_)
            | Op::PutToken(_)
            | Op::DeleteToken(_)
            | Op::DeleteKey(_)
            | Op::PutClock(_)
            | Op::PutRollup(_)
            | Op::PutSeparation(_)
            | Op::DeleteSeparation(_) => return None,
        }
        (changed != *row).then_some(changed)
    }

    fn take_back(&self, at: &mut Timestamp) {
        *at = self.past(*at);
    }

    fn lease(&self, lease: &Lease) -> Lease {
        // The begin of a quarantine is known; a reservation may have been prolonged since its own.
        let stays = lease.state == LeaseState::Quarantined && lease.since <= self.to;
        let mut changed = lease.clone();
        changed.since = self.past(lease.since);
        if !stays {
            changed.until = lease.until.map(|until| self.end(until));
        }
        // The oldest first, as before.
        let mut last = Timestamp(0);
        for contender in &mut changed.contenders {
            contender.since = self.past(contender.since).max(last);
            last = contender.since;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Contender, testing};

    fn lease(state: LeaseState, since: u64, until: Option<u64>) -> Lease {
        Lease {
            state,
            since: Timestamp(since),
            until: until.map(Timestamp),
            ..testing::lease(testing::key_of("10.0.0.1"), None, None)
        }
    }

    fn contender(since: u64) -> Contender {
        Contender {
            holder: testing::holder("fipd/Service/apps/web", "i"),
            tenant: None,
            since: Timestamp(since),
            uses: Vec::new(),
        }
    }

    #[test]
    fn book_time_is_only_taken_back() {
        assert_eq!(Redating::new(Timestamp(5), Timestamp(5)), None);
        assert_eq!(Redating::new(Timestamp(5), Timestamp(6)), None);
        let by = Redating::new(Timestamp(6), Timestamp(5)).map(|redating| redating.by());
        assert_eq!(by, Some(1));
    }

    #[test]
    fn a_quarantine_from_before_the_jump_keeps_its_end() {
        let redating = Redating::new(Timestamp(100_000), Timestamp(1_000)).unwrap();
        let before = lease(LeaseState::Quarantined, 900, Some(1_900));
        assert_eq!(
            redating.lease(&before),
            before,
            "also one that is over in the book"
        );
    }

    #[test]
    fn a_reservation_that_was_prolonged_during_the_jump_does_not_last_for_decades() {
        let redating = Redating::new(Timestamp(100_000), Timestamp(1_000)).unwrap();
        let kept = redating.lease(&lease(LeaseState::Reserved, 900, Some(100_500)));
        assert_eq!(
            (kept.since, kept.until),
            (Timestamp(900), Some(Timestamp(1_500)))
        );
    }

    #[test]
    fn hours_before_the_new_time_stay_and_later_ones_come_before_it() {
        let hour = |hour: u64| Timestamp(hour * 3_600_000 + 60_000);
        let redating = Redating::new(hour(900), hour(100)).unwrap();
        for (before, after) in [(7, 7), (99, 99), (899, 99), (890, 90)] {
            assert_eq!(redating.hour(Hour(before)), Hour(after), "{before}");
        }
    }

    proptest! {
        #[test]
        fn nothing_has_less_time_left_and_nothing_began_later_than_now(
            to in 1_000u64..100_000,
            by in 1u64..100_000,
            ago in 0u64..150_000,
            lasts in 0u64..150_000,
            state in prop::sample::select(&[LeaseState::Quarantined, LeaseState::Reserved, LeaseState::Probing][..]),
            mut contenders in prop::collection::vec(0u64..150_000, 0..5),
        ) {
            let from = to + by;
            let redating = Redating::new(Timestamp(from), Timestamp(to)).unwrap();
            let since = from.saturating_sub(ago);
            let mut before = lease(state, since, Some(since + lasts));
            contenders.sort_unstable();
            before.contenders = contenders.iter().map(|at| contender((*at).min(from))).collect();
            let after = redating.lease(&before);
            let left = |until: Option<Timestamp>, now: u64| until.map_or(0, |until| until.0.saturating_sub(now));
            let (was, is) = (left(before.until, from), left(after.until, to));
            prop_assert!(is >= was, "{is} ms are left of {was}");
            if since > to {
                prop_assert_eq!(is, was, "what began meanwhile keeps what it had left");
            }
            prop_assert!(after.since <= Timestamp(to));
            let ages: Vec<_> = after.contenders.iter().map(|one| one.since).collect();
            prop_assert!(ages.is_sorted() && ages.iter().all(|at| at.0 <= to));
        }
    }
}
