//! Whether a lease may be taken, by the rules of client-go's leader election: a holder that has renewed within the
//! time it gave itself keeps it, and only this host's clock says how long ago the record last changed.

use std::time::Duration;

use fipd_core::Text;
use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

/// How long others leave a lease alone that is not renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How long the holder itself goes on without having renewed it.
pub const RENEW: Duration = Duration::from_secs(10);
/// Between two looks, and between two renewals.
pub const RETRY: Duration = Duration::from_secs(2);

/// What a Lease says. Its times are of another host's clock: they are compared with each other only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Empty: nobody, its holder has let it go.
    pub holder: Text,
    pub duration: Duration,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    pub transitions: i32,
}

/// The record as last seen, and since when it has been so by this host's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    /// `None`: the Lease does not exist.
    pub record: Option<Record>,
    pub since: Duration,
}

/// What a candidate or a holder does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nobody holds it, or who did is gone: take it.
    Acquire,
    /// It is ours: say so again.
    Renew,
    /// Another holds it, until this time unless renewed.
    Wait(Duration),
    /// It was ours and is not any more: nothing may be written.
    Lost,
}

impl Record {
    pub fn of(spec: &LeaseSpec) -> Self {
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        let duration = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        Self {
            holder: spec.holder_identity.as_deref().unwrap_or("").into(),
            duration: duration.map_or(LEASE, Duration::from_secs),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// What `me` writes to take or to renew it at `now`.
    pub fn taken(before: Option<&Self>, me: &Text, now: Timestamp) -> Self {
        let same = before.filter(|before| before.holder == *me);
        let transitions = match (same, before) {
            (Some(same), _) => same.transitions,
            (None, Some(before)) => before.transitions.saturating_add(1),
            (None, None) => 0,
        };
        Self {
            holder: Text::clone(me),
            duration: LEASE,
            acquired: same.and_then(|same| same.acquired).or(Some(now)),
            renewed: Some(now),
            transitions,
        }
    }

    /// What its holder writes to let go of it at `now`: anybody may take it at once.
    pub fn released(&self, now: Timestamp) -> Self {
        Self {
            holder: "".into(),
            duration: Duration::from_secs(1),
            acquired: Some(now),
            renewed: Some(now),
            transitions: self.transitions,
        }
    }

    pub fn spec(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.holder.to_string()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..LeaseSpec::default()
        }
    }
}

impl ObservedLease {
    /// Notes what a look at `now` has shown.
    pub fn see(&mut self, record: Option<Record>, now: Duration) {
        if self.record != record {
            *self = Self { record, since: now };
        }
    }
}

/// What `me` does at `now`, having renewed the lease at `renewed` if it holds it. Both are of the clock of `observed`.
pub fn next(observed: &ObservedLease, me: &str, renewed: Option<Duration>, now: Duration) -> Next {
    if renewed.is_some_and(|renewed| now >= renewed + RENEW) {
        return Next::Lost;
    }
    match &observed.record {
        None => Next::Acquire,
        Some(record) if record.holder.is_empty() => Next::Acquire,
        Some(record) if *record.holder == *me => Next::Renew,
        Some(_) if renewed.is_some() => Next::Lost,
        Some(record) => {
            let until = observed.since + record.duration;
            if now >= until {
                Next::Acquire
            } else {
                Next::Wait(until)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn held_by(holder: &str, renewed: i64) -> Record {
        Record {
            holder: holder.into(),
            duration: LEASE,
            acquired: Some(time(0)),
            renewed: Some(time(renewed)),
            transitions: 3,
        }
    }

    fn seen(record: Option<Record>, since: Duration) -> ObservedLease {
        ObservedLease { record, since }
    }

    #[test]
    fn what_nobody_holds_is_taken_at_once() {
        assert_eq!(
            next(&seen(None, secs(0)), "a", None, secs(0)),
            Next::Acquire
        );
        let free = seen(Some(held_by("", 5)), secs(7));
        assert_eq!(next(&free, "a", None, secs(7)), Next::Acquire);
    }

    #[test]
    fn another_holder_is_waited_for_by_the_own_clock() {
        let mut observed = ObservedLease::default();
        // The holder's clock is years behind: that says nothing.
        observed.see(Some(held_by("b", 1)), secs(100));
        assert_eq!(next(&observed, "a", None, secs(100)), Next::Wait(secs(115)));
        observed.see(Some(held_by("b", 1)), secs(110));
        assert_eq!(next(&observed, "a", None, secs(114)), Next::Wait(secs(115)));
        assert_eq!(next(&observed, "a", None, secs(115)), Next::Acquire);
        // Any change counts from when it is seen, even one that sets the clock back.
        observed.see(Some(held_by("b", 0)), secs(114));
        assert_eq!(next(&observed, "a", None, secs(128)), Next::Wait(secs(129)));
    }

    #[test]
    fn the_holder_says_itself_how_long_it_may_be_silent() {
        let mut record = held_by("b", 1);
        record.duration = secs(60);
        let observed = seen(Some(record), secs(0));
        assert_eq!(next(&observed, "a", None, secs(59)), Next::Wait(secs(60)));
        assert_eq!(next(&observed, "a", None, secs(60)), Next::Acquire);
    }

    #[test]
    fn ours_is_renewed_until_the_deadline_and_then_lost() {
        let ours = seen(Some(held_by("a", 1)), secs(0));
        assert_eq!(next(&ours, "a", Some(secs(20)), secs(29)), Next::Renew);
        assert_eq!(next(&ours, "a", Some(secs(20)), secs(30)), Next::Lost);
        // An earlier run of the same daemon had it.
        assert_eq!(next(&ours, "a", None, secs(30)), Next::Renew);
        let others = seen(Some(held_by("b", 1)), secs(21));
        assert_eq!(next(&others, "a", Some(secs(20)), secs(21)), Next::Lost);
        // Somebody deleted it.
        let gone = seen(None, secs(21));
        assert_eq!(next(&gone, "a", Some(secs(20)), secs(21)), Next::Acquire);
    }

    #[test]
    fn a_new_holder_is_counted_and_a_renewal_is_not() {
        let me: Text = "a".into();
        let first = Record::taken(None, &me, time(10));
        assert_eq!((first.transitions, first.acquired), (0, Some(time(10))));
        let again = Record::taken(Some(&first), &me, time(12));
        assert_eq!((again.transitions, again.acquired), (0, Some(time(10))));
        assert_eq!(again.renewed, Some(time(12)));
        let over = Record::taken(Some(&held_by("b", 1)), &me, time(20));
        assert_eq!((over.transitions, over.acquired), (4, Some(time(20))));
        let free = over.released(time(21));
        assert_eq!((&*free.holder, free.transitions), ("", 4));
        assert_eq!(free.duration, secs(1));
    }

    #[test]
    fn a_lease_is_written_as_client_go_reads_it() {
        let record = Record::taken(None, &"a".into(), time(10));
        let json = serde_json::to_value(record.spec()).expect("JSON");
        let expected = serde_json::json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "1970-01-01T00:00:10.000000Z", "renewTime": "1970-01-01T00:00:10.000000Z",
        });
        assert_eq!(json, expected);
        assert_eq!(Record::of(&record.spec()), record);
        let bare = Record::of(&LeaseSpec::default());
        assert_eq!((&*bare.holder, bare.duration), ("", LEASE));
    }
}
