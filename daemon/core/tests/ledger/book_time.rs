//! Whatever happens to a host's clock, no quarantine ends before its length has passed on the boot clock.

use fipd_core::{BookTime, BootId, ClockLine, ClockReading, Timestamp};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    /// The host runs for so long.
    Run(u64),
    /// The wall clock is set forward or back.
    Set(i64),
    /// The host is off for so long, and its real-time clock may drift.
    Reboot { off: u64, drift: i64 },
    /// fipd dies and starts again.
    Restart,
    /// A decision is made durable.
    Decide,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    const DAY: u64 = 86_400_000;
    const CENTURY: i64 = 3_155_760_000_000;
    let step = prop_oneof![-CENTURY..CENTURY, -600_000i64..600_000];
    let event = prop_oneof![
        (0..DAY).prop_map(Event::Run),
        step.clone().prop_map(Event::Set),
        (0..DAY, step).prop_map(|(off, drift)| Event::Reboot { off, drift }),
        Just(Event::Restart),
        Just(Event::Decide),
    ];
    prop::collection::vec(event, 1..60)
}

/// A host, and what its store would keep.
struct Host {
    boot: u8,
    uptime: u64,
    wall: i64,
    ran: u64,
    time: BookTime,
    saved: Option<ClockLine>,
    last: Timestamp,
}

impl Host {
    fn reading(&self) -> ClockReading {
        ClockReading {
            boot: Some(BootId([self.boot; 16])),
            uptime: self.uptime,
            wall: Timestamp(u64::try_from(self.wall).unwrap_or_default()),
        }
    }

    fn now(&mut self) -> Timestamp {
        let reading = self.reading();
        self.time.at(&reading, || false)
    }

    /// The line is written in the transaction of the decision.
    fn decide(&mut self) {
        self.last = self.now();
        if let Some(line) = self.time.unsaved() {
            self.time.note_saved(line);
            self.saved = Some(line);
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Run(passed) => {
                self.uptime += passed;
                self.ran += passed;
                self.wall = self.wall.saturating_add_unsigned(*passed);
            }
            Event::Set(step) => self.wall = self.wall.saturating_add(*step).max(0),
            Event::Reboot { off, drift } => {
                self.boot = self.boot.wrapping_add(1);
                self.uptime = 0;
                let wall = self.wall.saturating_add_unsigned(*off);
                self.wall = wall.saturating_add(*drift).max(0);
                self.time = BookTime::resume(self.saved, self.last);
            }
            Event::Restart => self.time = BookTime::resume(self.saved, self.last),
            Event::Decide => self.decide(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_history_of_clocks_ends_a_quarantine_early(events in events(), cools in 1u64..10_000_000_000) {
        let mut host = Host {
            boot: 1,
            uptime: 1_000,
            wall: 1_767_225_600_000,
            ran: 0,
            time: BookTime::resume(None, Timestamp(0)),
            saved: None,
            last: Timestamp(0),
        };
        host.decide();
        let until = host.last.0 + cools;
        let mut before = host.last;
        for event in &events {
            host.happen(event);
            let now = host.now();
            if !matches!(event, Event::Reboot { .. } | Event::Restart) {
                prop_assert!(now >= before, "book time ran back");
            }
            prop_assert!(now >= host.last, "book time is behind a decision");
            before = now;
            if now.0 >= until {
                prop_assert!(host.ran + BookTime::TOLERANCE >= cools, "ended after {} of {cools} ms", host.ran);
            }
        }
    }
}
