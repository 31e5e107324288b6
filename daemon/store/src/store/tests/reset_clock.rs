//! Book time goes back to the wall clock: whole rows, an audit log in order, and the same figures.

use std::sync::Arc;

use fipd_core::{
    Action, Authority as _, BootId, ClockLine, ClockReading, Decision, Epoch, Hour, KeyBytes,
    KeyId, Op, Outcome, Pool, PoolId, RestoreHold, Rollup, SigningKey, Timestamp, testing,
};

use super::file::decision;
use crate::store::{
    AuditFilter, ClockWasReset, HistoryAsk, Loaded, ResetClock, Store, StoreOptions, check,
};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// The wall clock, on the hour.
const NOW: u64 = 1_767_225_600_000;
const AHEAD: u64 = 4_102_444_800_000;
/// Near enough for hours before it to be kept.
const LATER: u64 = NOW + 30 * 24 * HOUR;
const READING: ClockReading = ClockReading {
    boot: Some(BootId([7; 16])),
    uptime: 5,
    wall: Timestamp(NOW),
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self) -> (Store, Loaded) {
        Store::open(&self.0.path().join("fipd.redb"), StoreOptions::default()).unwrap()
    }

    fn reset(&self) -> ClockWasReset {
        let store = self.0.path().join("fipd.redb");
        let reset = ResetClock {
            store: &store,
            options: StoreOptions::default(),
            reason: "why".into(),
            actor: "offline:0".into(),
            reading: READING,
        };
        let done = reset.run().unwrap();
        assert!(check(&store).unwrap().is_empty());
        done
    }
}

/// An account and an entry of that time.
fn at(time: u64) -> Decision {
    let mut decision = decision(time);
    decision.audit[0].at = Timestamp(time);
    decision
}

fn commit(store: &mut Store, decisions: &[Decision]) {
    let outcomes = store.commit(decisions);
    assert!(outcomes.iter().all(|one| *one == Outcome::Committed));
}

#[test]
fn the_audit_log_stays_in_order_and_is_searched_as_ever() {
    let place = Place::new();
    let (mut store, _) = place.open();
    let times = [NOW - 2 * HOUR, NOW - HOUR, AHEAD, AHEAD + MINUTE];
    commit(&mut store, &times.map(at));
    drop(store);
    let done = place.reset();
    assert_eq!((done.from.0, done.entries), (AHEAD + MINUTE, 2));

    let (mut store, loaded) = place.open();
    assert_eq!(loaded.last_time, Timestamp(NOW));
    assert_eq!(loaded.ledger.restore_hold(), None, "it is no older store");
    let line = ClockLine {
        boot: READING.boot,
        uptime: READING.uptime,
        book: Timestamp(NOW),
        unconfirmed: 0,
    };
    assert_eq!(loaded.clock, Some(line));
    commit(&mut store, &[at(NOW + 1)]);
    let reader = store.reader();
    let page = reader.audit_page(None, 9).unwrap();
    let found: Vec<_> = page
        .iter()
        .map(|(number, entry)| (*number, entry.at.0))
        .collect();
    let moved = [(6, NOW + 1), (5, NOW), (4, NOW), (3, NOW - MINUTE)];
    let before = [(2, NOW - HOUR), (1, NOW - 2 * HOUR)];
    assert_eq!(found, [&moved[..], &before[..]].concat());
    let (_, entry) = &page[1];
    assert_eq!(entry.action, Action::ClockReset);
    let by = AHEAD + MINUTE - NOW;
    assert!(
        entry
            .detail
            .starts_with(&format!("book time went back by {by} ms"))
            && entry
                .detail
                .ends_with("2 entries from number 3 on moved with it: why"),
        "{}",
        entry.detail
    );
    let last_hour = AuditFilter {
        from: Some(Timestamp(NOW - HOUR + 1)),
        to: Some(Timestamp(NOW)),
        ..AuditFilter::default()
    };
    let found = reader.audit_search(&last_hour, None, 9, 99).unwrap();
    let numbers: Vec<_> = found.entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [5, 4, 3]);
}

#[test]
fn entries_never_move_before_those_that_stay() {
    let place = Place::new();
    let (mut store, _) = place.open();
    // An hour ahead, after a decision half an hour before the new time.
    let times = [NOW - 30 * MINUTE, NOW + MINUTE, NOW + HOUR];
    commit(&mut store, &times.map(at));
    drop(store);
    place.reset();
    let (store, _) = place.open();
    let page = store.reader().audit_page(None, 9).unwrap();
    let times: Vec<_> = page.iter().rev().map(|(_, entry)| entry.at.0).collect();
    assert_eq!(times, [NOW - 30 * MINUTE, NOW - 30 * MINUTE, NOW, NOW]);
}

fn row(hour: u64, used: u64) -> Op {
    Op::PutRollup(Rollup {
        pool: PoolId(1),
        hour: Hour::of(Timestamp(hour)),
        size: 256,
        used,
        quarantined: 0,
        highest: used,
        given: 0,
        released: 0,
        refused: 0,
    })
}

#[test]
fn hours_keys_and_a_hold_go_back_with_the_book() {
    let place = Place::new();
    let (mut store, _) = place.open();
    let pool = Op::PutPool(Arc::new(Pool {
        id: PoolId(1),
        spec: testing::pool_spec("p", &["10.0.0.0/24"]),
        created: Timestamp(LATER),
        generation: 1,
    }));
    let epoch = Op::PutEpoch(Epoch {
        number: 4,
        began: Timestamp(LATER),
        hold: Some(RestoreHold {
            left: HOUR,
            until: Timestamp(LATER + 2 * HOUR),
        }),
    });
    let key = Op::PutKey(SigningKey {
        id: KeyId(1),
        created: Timestamp(NOW - HOUR),
        bytes: KeyBytes([1, 2].into()),
        until: Some(Timestamp(LATER + 2 * HOUR)),
    });
    let rows = [row(NOW - 2 * HOUR, 7), row(LATER - HOUR, 8), row(LATER, 9)];
    let ops = [pool, epoch, key].into_iter().chain(rows).collect();
    let last = Decision {
        ops,
        ..at(LATER + HOUR)
    };
    commit(&mut store, &[last]);
    drop(store);
    place.reset();
    let (store, loaded) = place.open();
    let ledger = &loaded.ledger;
    assert_eq!(
        ledger.pool(PoolId(1)).unwrap().created,
        Timestamp(NOW - HOUR)
    );
    let epoch = ledger.epoch().unwrap();
    assert_eq!(epoch.began, Timestamp(NOW - HOUR));
    let hold = epoch.hold.unwrap();
    assert_eq!((hold.left, hold.until), (HOUR, Timestamp(NOW + HOUR)));
    let key = ledger.keys().next().unwrap();
    assert_eq!(key.created, Timestamp(NOW - HOUR));
    assert_eq!(key.until, Some(Timestamp(NOW + HOUR)));
    let ask = HistoryAsk {
        pool: PoolId(1),
        from: Hour(0),
        to: Hour(u32::MAX),
        daily: false,
        limit: 99,
    };
    let (history, _) = store.reader().history(ask).unwrap();
    let history: Vec<_> = history
        .iter()
        .map(|row| (row.hour.begin().0, row.used))
        .collect();
    // The hour that the pool has already stays as it is.
    assert_eq!(history, [(NOW - 2 * HOUR, 7), (NOW - HOUR, 9)]);
}
