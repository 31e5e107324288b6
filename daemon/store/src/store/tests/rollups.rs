//! The table of roll-ups: whole after every cut, thinned, and in every copy.

use std::sync::Arc;

use fipd_core::{
    Authority as _, Decision, Hour, Op, Outcome, Pool, PoolId, PoolSpec, Retention, Rollup,
    Timestamp,
};

use super::medium::Faulty;
use crate::store::{
    HistoryAsk, Restore, Store, StoreOptions, StoreReader, check,
    codec::{decode_rollup, encode_rollup},
    envelope::{RowFormat, StoredRow},
    tables::rollup_key,
};

const POOL: PoolId = PoolId(1);

fn row(pool: PoolId, hour: u32) -> Rollup {
    Rollup {
        pool,
        hour: Hour(hour),
        size: 256,
        used: u64::from(hour % 200),
        quarantined: 3,
        highest: 200,
        given: 2,
        released: 1,
        refused: 0,
    }
}

fn pool(id: PoolId) -> Op {
    let name = format!("p{}", id.0);
    let addresses = vec![format!("10.0.{}.0/24", id.0).parse().unwrap()];
    Op::PutPool(Arc::new(Pool {
        id,
        spec: PoolSpec::own(name, addresses),
        created: Timestamp(1),
        generation: 1,
    }))
}

fn put(store: &mut Store, ops: Vec<Op>) {
    let audit = Vec::new();
    assert_eq!(
        store.commit(&[Decision { ops, audit }]),
        [Outcome::Committed]
    );
}

fn history(reader: &StoreReader, pool: PoolId) -> Vec<Rollup> {
    let ask = HistoryAsk {
        pool,
        from: Hour(0),
        to: Hour(u32::MAX),
        daily: false,
        limit: usize::MAX,
    };
    reader.history(ask).unwrap().0
}

fn opened(medium: Faulty) -> (Store, crate::store::Loaded) {
    Store::open_medium(Arc::new(medium), StoreOptions::default()).unwrap()
}

#[test]
fn a_cut_between_or_in_roll_ups_leaves_whole_rows() {
    let medium = Faulty::default();
    let (mut store, _) = opened(medium.clone());
    put(&mut store, vec![pool(POOL), pool(PoolId(2))]);
    medium.keep_cuts(7);
    let mut cuts = 0;
    for hour in 100..130 {
        let before = history(&store.reader(), POOL);
        let rows = [POOL, PoolId(2)].map(|pool| Op::PutRollup(row(pool, hour)));
        put(&mut store, rows.to_vec());
        let after = history(&store.reader(), POOL);
        assert_eq!(after.len(), before.len() + 1);
        for image in medium.take_cuts() {
            let (cut, loaded) = opened(Faulty::of(image));
            let found = history(&cut.reader(), POOL);
            assert!(found == before || found == after, "a cut shows half a row");
            assert_eq!(history(&cut.reader(), PoolId(2)).len(), found.len());
            let last = found.last().map_or(0, |row| row.hour.end().0);
            assert_eq!(loaded.last_time, Timestamp(last), "time runs backwards");
            let known = loaded
                .ledger
                .dump()
                .filter(|op| matches!(op, Op::PutRollup(_)));
            assert_eq!(known.count(), 2 * found.len());
            cuts += 1;
        }
    }
    assert!(cuts > 60, "{cuts} cuts");
}

#[test]
fn old_hours_are_thinned_to_days_and_old_days_go() {
    let options = StoreOptions {
        history: Retention {
            hourly: 10,
            daily: 40,
        },
        ..StoreOptions::default()
    };
    let (mut store, _) = Store::open_medium(Arc::new(Faulty::default()), options).unwrap();
    put(&mut store, vec![pool(POOL), pool(PoolId(2))]);
    put(&mut store, vec![Op::PutRollup(row(PoolId(2), 5))]);
    let last = 24 * 60 + 7;
    // A pause of 12 days: many rows are old at once.
    for hour in (24..24 * 20).chain(24 * 32..=last) {
        put(&mut store, vec![Op::PutRollup(row(POOL, hour))]);
    }
    let rows = history(&store.reader(), POOL);
    let (old, hours): (Vec<&Rollup>, Vec<&Rollup>) =
        rows.iter().partition(|row| row.hour < Hour(24 * 50));
    assert_eq!(hours.len(), 10 * 24 + 8, "each hour");
    let days: Vec<_> = old.iter().map(|row| row.hour.0).collect();
    let expected = (20..50).filter(|day| *day >= 32).map(|day| day * 24 + 23);
    assert_eq!(days, expected.collect::<Vec<_>>());
    assert_eq!(history(&store.reader(), PoolId(2)).len(), 1, "another pool");
    put(&mut store, vec![Op::DeletePool(POOL)]);
    assert_eq!(history(&store.reader(), POOL), []);
    assert_eq!(history(&store.reader(), PoolId(2)).len(), 1);
}

#[test]
fn a_shorter_retention_thins_what_is_there_already() {
    let medium = Faulty::default();
    let with = |hourly| StoreOptions {
        history: Retention { hourly, daily: 400 },
        ..StoreOptions::default()
    };
    let open = |medium: Faulty, hourly| Store::open_medium(Arc::new(medium), with(hourly)).unwrap();
    let (mut store, _) = open(medium.clone(), 300);
    put(&mut store, vec![pool(POOL), pool(PoolId(2))]);
    let hours = 0..24 * 200;
    for id in [POOL, PoolId(2)] {
        let rows = hours.clone().map(|hour| Op::PutRollup(row(id, hour)));
        put(&mut store, rows.collect());
    }
    drop(store);
    let (store, _) = open(medium.clone(), 300);
    assert_eq!(history(&store.reader(), POOL).len(), 24 * 200);
    drop(store);
    let (store, loaded) = open(Faulty::of(medium.durable()), 10);
    let days = (0..189).map(|day| 24 * day + 23);
    let kept: Vec<_> = days.chain(24 * 189..24 * 200).collect();
    for id in [POOL, PoolId(2)] {
        let rows = history(&store.reader(), id);
        let found: Vec<_> = rows.iter().map(|row| row.hour.0).collect();
        assert_eq!(found, kept, "without a word of the pool");
    }
    let known = loaded.ledger.dump();
    let known = known.filter(|op| matches!(op, Op::PutRollup(_)));
    assert_eq!(known.count(), 2 * 169);
}

#[test]
fn thinning_comes_to_the_oldest_hours_behind_many_days() {
    let options = StoreOptions {
        history: Retention {
            hourly: 10,
            daily: 400,
        },
        ..StoreOptions::default()
    };
    let (mut store, _) = Store::open_medium(Arc::new(Faulty::default()), options).unwrap();
    put(&mut store, vec![pool(POOL)]);
    // One row for each of many days, after days of which each hour has one; the latest first, so that none is old yet.
    let hours = (0..48).chain((2..202).map(|day| 24 * day));
    let rows = hours.rev().map(|hour| Op::PutRollup(row(POOL, hour)));
    put(&mut store, rows.collect());
    assert_eq!(history(&store.reader(), POOL).len(), 48 + 200);
    put(&mut store, vec![Op::PutRollup(row(POOL, 24 * 230))]);
    let rows = history(&store.reader(), POOL);
    assert_eq!(rows.len(), 2 + 200 + 1);
}

#[test]
fn a_history_comes_in_pages_by_hour_or_by_day() {
    let (mut store, _) = opened(Faulty::default());
    let reader = store.reader();
    let mut ask = HistoryAsk {
        pool: POOL,
        from: Hour(30),
        to: Hour(100),
        daily: false,
        limit: 3,
    };
    assert_eq!(reader.history(ask).unwrap(), (vec![], None), "no table yet");
    let hours = [20, 30, 40, 47, 49, 60, 100, 101];
    put(&mut store, vec![pool(POOL)]);
    put(
        &mut store,
        hours
            .iter()
            .map(|hour| Op::PutRollup(row(POOL, *hour)))
            .collect(),
    );
    let (rows, next) = reader.history(ask).unwrap();
    assert_eq!((rows.len(), next), (3, Some(Hour(49))));
    ask.from = Hour(49);
    let (rows, next) = reader.history(ask).unwrap();
    assert_eq!(rows, [49, 60, 100].map(|hour| row(POOL, hour)));
    assert_eq!(next, None);
    ask.daily = true;
    ask.from = Hour(0);
    ask.limit = 2;
    let (rows, next) = reader.history(ask).unwrap();
    let day = |hour, given| Rollup {
        given,
        released: given / 2,
        ..row(POOL, hour)
    };
    assert_eq!(rows, [day(20, 2), day(47, 6)]);
    assert_eq!(next, Some(Hour(49)));
    assert_eq!(
        reader.row_before(POOL, Hour(49)).unwrap(),
        Some(row(POOL, 47))
    );
    assert_eq!(reader.row_before(POOL, Hour(20)).unwrap(), None);
    ask.to = Hour(0);
    ask.from = Hour(9);
    assert_eq!(reader.history(ask).unwrap(), (vec![], None));
}

#[test]
fn a_start_reads_what_a_forecast_looks_at() {
    let medium = Faulty::default();
    let (mut store, _) = opened(medium.clone());
    put(&mut store, vec![pool(POOL)]);
    let rows = (0..400).map(|hour| Op::PutRollup(row(POOL, hour)));
    put(&mut store, rows.collect());
    drop(store);
    let (_, loaded) = opened(Faulty::of(medium.durable()));
    let known = loaded
        .ledger
        .dump()
        .filter(|op| matches!(op, Op::PutRollup(_)));
    assert_eq!(known.count(), 169);
}

#[test]
fn a_backup_and_a_restore_keep_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let (file, copy) = (dir.path().join("a.redb"), dir.path().join("copy.redb"));
    let (mut store, _) = Store::open(&file, StoreOptions::default()).unwrap();
    put(&mut store, vec![pool(POOL)]);
    put(
        &mut store,
        (0..50).map(|hour| Op::PutRollup(row(POOL, hour))).collect(),
    );
    store.reader().backup(&copy).unwrap();
    let before = history(&store.reader(), POOL);
    put(&mut store, vec![Op::PutRollup(row(POOL, 60))]);
    drop(store);
    let restore = Restore {
        backup: &copy,
        store: &file,
        no_hold: None,
        actor: "test".into(),
        now: Timestamp(5),
        host: None,
    };
    restore.run().unwrap();
    let (store, loaded) = Store::open(&file, StoreOptions::default()).unwrap();
    assert_eq!(history(&store.reader(), POOL), before);
    assert_eq!(loaded.last_time, Hour(49).end());
}

#[test]
fn a_row_of_no_pool_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.redb");
    let (mut store, _) = Store::open(&file, StoreOptions::default()).unwrap();
    put(&mut store, vec![Op::PutRollup(row(PoolId(9), 4))]);
    drop(store);
    let problems: Vec<_> = check(&file)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        problems.len() == 1 && problems[0].contains("rollups"),
        "{problems:?}"
    );
}

#[test]
fn rows_are_read_back_as_they_were_written() {
    let most = Rollup {
        size: u128::MAX,
        used: u64::MAX,
        ..row(POOL, u32::MAX)
    };
    for row in [row(POOL, 0), most] {
        let key = rollup_key(row.pool, row.hour);
        let mut draft = encode_rollup(&row).unwrap();
        let bytes = draft.finish("rollups", &key);
        let read = |bytes| {
            StoredRow::open("rollups", &key, bytes, RowFormat::Latest)
                .and_then(|stored| decode_rollup(row.pool, row.hour, &stored))
        };
        assert_eq!(read(bytes), Ok(row));
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }
    // The first version, for ever.
    let known = [1, 128, 2, 5, 3, 200, 1, 2, 1, 0];
    let known = StoredRow::open(
        "rollups",
        &rollup_key(POOL, Hour(5)),
        &known,
        RowFormat::Mixed,
    );
    let read = decode_rollup(POOL, Hour(5), &known.unwrap());
    assert_eq!(read, Ok(row(POOL, 5)));
}

#[test]
fn what_all_pools_gave_is_added_up_hour_by_hour() {
    let medium = Faulty::default();
    let (mut store, _) = opened(medium);
    assert_eq!(store.reader().flow(Hour(0), Hour(9)).unwrap(), [].into());
    put(&mut store, vec![pool(POOL), pool(PoolId(2))]);
    let row = |pool, hour, given, released| {
        Op::PutRollup(Rollup {
            given,
            released,
            ..row(pool, hour)
        })
    };
    let rows = vec![
        row(POOL, 100, 1, 0),
        row(POOL, 101, 2, 7),
        row(PoolId(2), 101, 3, 0),
        row(PoolId(2), 102, 0, 0),
        row(PoolId(2), 103, u64::MAX, 1),
    ];
    put(&mut store, rows);
    let flow = |from, to| store.reader().flow(Hour(from), Hour(to)).unwrap();
    let all = [
        (Hour(100), (1, 0)),
        (Hour(101), (5, 7)),
        (Hour(103), (u64::MAX, 1)),
    ];
    assert_eq!(flow(0, u32::MAX), all.into());
    assert_eq!(
        flow(101, 102),
        [all[1]].into(),
        "both ends are in, and none that is quiet"
    );
    assert_eq!(flow(102, 101), [].into());
}
