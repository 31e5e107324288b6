//! The table of hourly roll-ups: written and thinned in the commits of decisions, read beside them.

use std::{collections::BTreeMap, ops::Bound};

use fipd_core::{Hour, Op, PoolId, Redating, Retention, Rollup};
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable, TableHandle as _,
    WriteTransaction,
};

use super::{
    codec,
    envelope::{self, RowDraft, RowFormat, StoredRow},
    error::ReadError,
    load::Ops,
    reader::StoreReader,
    schema,
    tables::{META, POOLS, ROLLUPS, existing, parse_rollup_key, rollup_key},
};

/// Old rows removed, and days thinned by as many rows, for one that is written, at the most.
const STEP: usize = 128;
/// Rows removed by one commit at a start.
const AT_ONCE: usize = 16_384;

/// Writes rows, thins what is old of their pools, and removes all rows of pools that are gone.
pub(super) fn write(
    txn: &WriteTransaction,
    rows: &mut [(Rollup, RowDraft)],
    gone: impl Iterator<Item = PoolId>,
    keep: Retention,
) -> Result<(), ReadError> {
    let mut gone = gone.peekable();
    if rows.is_empty() && gone.peek().is_none() {
        return Ok(());
    }
    let mut table = txn.open_table(ROLLUPS)?;
    for (row, value) in rows {
        let key = rollup_key(row.pool, row.hour);
        envelope::insert(&mut table, ROLLUPS.name(), &key, value)?;
        for hour in surplus(&table, (row.pool, row.hour), keep, STEP)? {
            table.remove(rollup_key(row.pool, hour))?;
        }
    }
    for pool in gone {
        let all = rollup_key(pool, Hour(0))..=rollup_key(pool, Hour(u32::MAX));
        table.retain_in(all, |_, _| false)?;
    }
    Ok(())
}

/// What of a pool is kept for too long, the latest of it first where that is more than `most`.
fn surplus(
    table: &impl ReadableTable<[u8; 8], &'static [u8]>,
    (pool, latest): (PoolId, Hour),
    keep: Retention,
    most: usize,
) -> Result<Vec<Hour>, ReadError> {
    let key = |hour| rollup_key(pool, hour);
    let (drop, thin) = (keep.drop_before(latest), keep.thin_before(latest));
    let hours = |found: Vec<[u8; 8]>| found.into_iter().map(|key| parse_rollup_key(key).1);
    let old = table.range(key(Hour(0))..key(drop))?.take(most);
    let old: Vec<_> = old
        .map(|row| row.map(|(key, _)| key.value()))
        .collect::<Result<_, _>>()?;
    let days = table.range(key(drop)..key(thin))?.rev();
    let days: Vec<_> = days
        .map(|row| row.map(|(key, _)| key.value()))
        .collect::<Result<_, _>>()?;
    let thinned = Retention::thinned(hours(days)).into_iter().take(most);
    Ok(hours(old).chain(thinned).collect())
}

/// Removes of all pools what is kept for too long, which is much where `keep` was longer before. Looks at the keys of what is
/// kept by the day.
pub(super) fn thin(database: &Database, keep: Retention) -> Result<(), ReadError> {
    let surplus = surplus_of_all(&database.begin_read()?, keep)?;
    for rows in surplus.chunks(AT_ONCE) {
        let txn = database.begin_write()?;
        let mut table = txn.open_table(ROLLUPS)?;
        for row in rows {
            table.remove(row)?;
        }
        drop(table);
        txn.commit().map_err(redb::Error::from)?;
    }
    if !surplus.is_empty() {
        tracing::info!(rows = surplus.len(), "hours of pools were thinned to days");
    }
    Ok(())
}

fn surplus_of_all(txn: &ReadTransaction, keep: Retention) -> Result<Vec<[u8; 8]>, ReadError> {
    let mut found = Vec::new();
    let Some(table) = existing(txn, ROLLUPS)? else {
        return Ok(found);
    };
    // The latest row of the last pool, then of the one before it.
    let mut before = Bound::Unbounded;
    while let Some(row) = table
        .range::<[u8; 8]>((Bound::Unbounded, before))?
        .next_back()
    {
        let (pool, latest) = parse_rollup_key(row?.0.value());
        let hours = surplus(&table, (pool, latest), keep, usize::MAX)?;
        found.extend(hours.into_iter().map(|hour| rollup_key(pool, hour)));
        before = Bound::Excluded(rollup_key(pool, Hour(0)));
    }
    Ok(found)
}

/// Moves the hours that are later than the new book time. One that the pool has already stays as it is.
pub(super) fn redate(
    read: &ReadTransaction,
    write: &WriteTransaction,
    redating: Redating,
) -> Result<(), ReadError> {
    let Some(table) = existing(read, ROLLUPS)? else {
        return Ok(());
    };
    let format = schema::format_of(read)?;
    let mut moved = Vec::new();
    for item in table.range::<[u8; 8]>(..)? {
        let (key, value) = item?;
        let row = decoded(key.value(), value.value(), format)?;
        let hour = redating.hour(row.hour);
        if hour != row.hour {
            moved.push((key.value(), Rollup { hour, ..row }));
        }
    }
    let mut table = write.open_table(ROLLUPS)?;
    for (key, row) in moved {
        table.remove(key)?;
        let key = rollup_key(row.pool, row.hour);
        if table.get(key)?.is_none() {
            let value = codec::encode_rollup(&row);
            let mut value = value.map_err(ReadError::of_row(META.name(), "rollup"))?;
            envelope::insert(&mut table, ROLLUPS.name(), &key, &mut value)?;
        }
    }
    Ok(())
}

fn decoded(key: [u8; 8], value: &[u8], format: RowFormat) -> Result<Rollup, ReadError> {
    let (pool, hour) = parse_rollup_key(key);
    let shown = || format!("hour {} of pool {}", hour.0, pool.0);
    StoredRow::open(ROLLUPS.name(), &key, value, format)
        .and_then(|row| codec::decode_rollup(pool, hour, &row))
        .map_err(|error| ReadError::of_row(ROLLUPS.name(), shown())(error))
}

/// The rows that a ledger keeps: of each pool those that a forecast looks at, and the one before.
pub(super) fn recent(txn: &ReadTransaction) -> Result<Ops, ReadError> {
    let Some(table) = existing(txn, ROLLUPS)? else {
        return Ok(Box::new(std::iter::empty()));
    };
    let pools = txn.open_table(POOLS)?.range::<[u8; 4]>(..)?;
    let format = schema::format_of(txn)?;
    let of_pool = move |pool: PoolId| -> Result<Vec<Op>, ReadError> {
        let all = rollup_key(pool, Hour(0))..=rollup_key(pool, Hour(u32::MAX));
        let mut rows = Vec::new();
        let mut window = None;
        for item in table.range(all)?.rev() {
            let (key, value) = item?;
            let row = decoded(key.value(), value.value(), format)?;
            let first = *window.get_or_insert(row.hour.before(fipd_core::Forecast::WINDOW));
            rows.push(Op::PutRollup(row));
            if row.hour <= first {
                break;
            }
        }
        Ok(rows)
    };
    let ops = pools.flat_map(move |pool| {
        let rows = pool
            .map_err(ReadError::from)
            .and_then(|(key, _)| of_pool(PoolId(u32::from_be_bytes(key.value()))));
        match rows {
            Ok(rows) => rows.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    });
    Ok(Box::new(ops))
}

/// Rows that cannot be read, or are of no pool.
pub(super) fn problems(txn: &ReadTransaction) -> Result<Vec<ReadError>, ReadError> {
    let Some(table) = existing(txn, ROLLUPS)? else {
        return Ok(Vec::new());
    };
    let pools = txn.open_table(POOLS)?;
    let format = schema::format_of(txn)?;
    let mut found = Vec::new();
    for item in table.range::<[u8; 8]>(..)? {
        let (key, value) = item?;
        match decoded(key.value(), value.value(), format) {
            Ok(row) if pools.get(row.pool.0.to_be_bytes())?.is_none() => {
                found.push(ReadError::Row {
                    table: "rollups".to_owned(),
                    row: format!("hour {}", row.hour.0),
                    error: codec::DecodeError::value("pool", row.pool.0),
                });
            }
            Ok(_) => {}
            Err(error) => found.push(error),
        }
    }
    Ok(found)
}

/// A part of a pool's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryAsk {
    pub pool: PoolId,
    pub from: Hour,
    /// Included.
    pub to: Hour,
    /// One row a day: how the day ended, and what happened in it.
    pub daily: bool,
    /// Rows at the most.
    pub limit: usize,
}

impl StoreReader {
    /// Rows in the order of time, and where the next page begins. Hours in which nothing happened have none. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// While the store is being reopened, and when a row cannot be read.
    pub fn history(&self, ask: HistoryAsk) -> Result<(Vec<Rollup>, Option<Hour>), ReadError> {
        let txn = self.begin()?;
        let Some(table) = existing(&txn, ROLLUPS)? else {
            return Ok((Vec::new(), None));
        };
        let format = schema::format_of(&txn)?;
        let mut rows: Vec<Rollup> = Vec::new();
        if ask.from > ask.to {
            return Ok((rows, None));
        }
        for item in table.range(rollup_key(ask.pool, ask.from)..=rollup_key(ask.pool, ask.to))? {
            let (key, value) = item?;
            let row = decoded(key.value(), value.value(), format)?;
            let of_day = |last: &&mut Rollup| ask.daily && last.hour.day() == row.hour.day();
            if let Some(last) = rows.last_mut().filter(of_day) {
                *last = last.and(&row);
            } else if rows.len() < ask.limit {
                rows.push(row);
            } else {
                return Ok((rows, Some(row.hour)));
            }
        }
        Ok((rows, None))
    }

    /// What all pools gave and what came free in each hour of the span, both ends included. Hours in which nothing
    /// happened are left out. Blocks on the disk; reads the rows of the span alone.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub fn flow(&self, from: Hour, to: Hour) -> Result<BTreeMap<Hour, (u64, u64)>, ReadError> {
        let txn = self.begin()?;
        let mut hours: BTreeMap<Hour, (u64, u64)> = BTreeMap::new();
        let Some(table) = existing(&txn, ROLLUPS)? else {
            return Ok(hours);
        };
        let format = schema::format_of(&txn)?;
        // From pool to pool: the next one is whose row follows the last possible one of this.
        let mut after = Bound::Unbounded;
        while let Some(row) = table.range::<[u8; 8]>((after, Bound::Unbounded))?.next() {
            let (pool, _) = parse_rollup_key(row?.0.value());
            if from <= to {
                for item in table.range(rollup_key(pool, from)..=rollup_key(pool, to))? {
                    let (key, value) = item?;
                    let row = decoded(key.value(), value.value(), format)?;
                    let hour = hours.entry(row.hour).or_default();
                    hour.0 = hour.0.saturating_add(row.given);
                    hour.1 = hour.1.saturating_add(row.released);
                }
            }
            after = Bound::Excluded(rollup_key(pool, Hour(u32::MAX)));
        }
        hours.retain(|_, (given, freed)| *given > 0 || *freed > 0);
        Ok(hours)
    }

    /// The last row before an hour: how the pool was when the hour began. Blocks on the disk.
    ///
    /// # Errors
    /// As [`Self::history`].
    pub fn row_before(&self, pool: PoolId, hour: Hour) -> Result<Option<Rollup>, ReadError> {
        let txn = self.begin()?;
        let Some(table) = existing(&txn, ROLLUPS)? else {
            return Ok(None);
        };
        let format = schema::format_of(&txn)?;
        let mut before = table.range(rollup_key(pool, Hour(0))..rollup_key(pool, hour))?;
        let last = before.next_back().transpose()?;
        last.map(|(key, value)| decoded(key.value(), value.value(), format))
            .transpose()
    }
}
