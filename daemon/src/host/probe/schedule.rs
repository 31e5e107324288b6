//! When probes are sent, and when nobody is waited for any longer. Pure.

use std::{net::IpAddr, time::Duration};

// RFC 5227, section 1.1.
const PROBE_WAIT: Duration = Duration::from_secs(1);
const PROBE_NUM: u32 = 3;
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);

// RFC 4861, section 10.
const MAX_RTR_SOLICITATION_DELAY: Duration = Duration::from_secs(1);
const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// `DupAddrDetectTransmits` of RFC 4862, section 5.1, whose default is 1. That makes one lost frame a free address, so as many are
/// sent as for IPv4.
const DUP_ADDR_DETECT_TRANSMITS: u32 = 3;

/// How a protocol spaces its probes when it has all the time it wants.
#[derive(Debug)]
pub(super) struct Timing {
    /// The first probe is sent at a random time within this.
    first_within: Duration,
    probes: u32,
    /// The least and the most time from one probe to the next.
    spacing: (Duration, Duration),
    /// How long answers to the last probe are waited for.
    last_wait: Duration,
}

/// RFC 5227, section 2.1.1.
const ARP: Timing = Timing {
    first_within: PROBE_WAIT,
    probes: PROBE_NUM,
    spacing: (PROBE_MIN, PROBE_MAX),
    last_wait: ANNOUNCE_WAIT,
};

/// RFC 4862, section 5.4.
const NEIGHBOR: Timing = Timing {
    first_within: MAX_RTR_SOLICITATION_DELAY,
    probes: DUP_ADDR_DETECT_TRANSMITS,
    spacing: (RETRANS_TIMER, RETRANS_TIMER),
    last_wait: RETRANS_TIMER,
};

/// That of the protocol which finds out who has the address.
pub(super) fn timing(address: IpAddr) -> &'static Timing {
    match address {
        IpAddr::V4(_) => &ARP,
        IpAddr::V6(_) => &NEIGHBOR,
    }
}

/// Times since the start of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeSchedule {
    /// When a frame is sent, in order.
    pub sends: Vec<Duration>,
    /// When an address that nobody defended is free.
    pub end: Duration,
}

impl Timing {
    /// The longest time that all probes may take.
    pub fn longest(&self) -> Duration {
        let (_, most) = self.spacing;
        self.first_within + most * self.probes.saturating_sub(1) + self.last_wait
    }

    /// Ends within `timeout`: all times are shortened by the same factor where they would not, and never stretched.
    ///
    /// `random` returns numbers from 0 to 1.
    pub fn schedule(&self, timeout: Duration, mut random: impl FnMut() -> f64) -> ProbeSchedule {
        let factor = timeout.as_secs_f64() / self.longest().as_secs_f64();
        let scaled = |time: Duration| time.mul_f64(factor.min(1.0));
        let (least, most) = self.spacing;
        let mut at = scaled(self.first_within).mul_f64(random());
        let mut sends = vec![at];
        for _ in 1..self.probes {
            at += scaled(least) + scaled(most - least).mul_f64(random());
            sends.push(at);
        }
        ProbeSchedule {
            sends,
            // What was rounded may add up to a nanosecond too much.
            end: (at + scaled(self.last_wait)).min(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(all: &[f64]) -> Vec<Duration> {
        all.iter().copied().map(Duration::from_secs_f64).collect()
    }

    #[test]
    fn with_enough_time_probes_are_sent_as_the_rfcs_say() {
        let long = Duration::from_secs(10);
        let soonest = ARP.schedule(long, || 0.0);
        assert_eq!(soonest.sends, seconds(&[0.0, 1.0, 2.0]));
        assert_eq!(soonest.end, Duration::from_secs(4));
        let latest = ARP.schedule(long, || 1.0);
        assert_eq!(latest.sends, seconds(&[1.0, 3.0, 5.0]));
        assert_eq!(latest.end, ARP.longest());
        assert_eq!(ARP.longest(), Duration::from_secs(7));

        let latest = NEIGHBOR.schedule(long, || 1.0);
        assert_eq!(latest.sends, seconds(&[1.0, 2.0, 3.0]));
        assert_eq!(latest.end, NEIGHBOR.longest());
    }

    #[test]
    fn with_less_time_all_times_shrink_alike() {
        let shrunk = ARP.schedule(Duration::from_millis(3500), || 1.0);
        assert_eq!(shrunk.sends, seconds(&[0.5, 1.5, 2.5]));
        assert_eq!(shrunk.end, Duration::from_millis(3500));
        let soonest = ARP.schedule(Duration::from_millis(3500), || 0.0);
        assert_eq!(soonest.end, Duration::from_secs(2));
    }

    proptest! {
        #[test]
        fn all_probes_are_sent_in_order_before_the_end_which_is_in_time(
            millis in 100_u64..=10_000,
            numbers in prop::collection::vec(0.0_f64..=1.0, 3),
        ) {
            let timeout = Duration::from_millis(millis);
            for timing in [ARP, NEIGHBOR] {
                let mut numbers = numbers.iter().copied();
                let schedule = timing.schedule(timeout, || numbers.next().unwrap());
                prop_assert_eq!(schedule.sends.len(), 3);
                prop_assert!(schedule.sends.is_sorted_by(|one, next| one < next));
                prop_assert!(schedule.sends.last() < Some(&schedule.end));
                prop_assert!(schedule.end <= timeout);
            }
        }
    }
}
