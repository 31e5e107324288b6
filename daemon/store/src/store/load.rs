//! Reading the whole file: rows to [`Op`]s, and those to a ledger.

use std::sync::Arc;

use fipd_core::{ClockLine, Epoch, Ledger, Op, PoolId, Timestamp};
use redb::{Key, ReadTransaction, TableDefinition, TableHandle as _};

use super::{
    batch::read_state,
    codec::{self, DecodeError},
    envelope::StoredRow,
    error::{OpenError, ReadError},
    rollups,
    rows::StateV1,
    schema,
    tables::{
        ACCOUNTS, ADOPTIONS, CLOCK, CLUSTERS, EPOCH, KEYS, LEASES, META, NETWORKS, PASTS, POOLS,
        QUOTAS, SEPARATIONS, TOKENS, existing, parse_lease_key, parse_quota_key,
        parse_separation_key,
    },
};

/// What a store holds when it is opened.
#[derive(Debug)]
pub struct Loaded {
    pub ledger: Ledger,
    /// The latest point in time of a decision in the file; the clock must not run behind it.
    pub last_time: Timestamp,
    /// The number of the epoch; 0 before the first restore.
    pub epoch: u64,
    /// Book time as it was measured last.
    pub clock: Option<ClockLine>,
}

/// Decoded rows of a file.
pub(super) type Rows<T> = Box<dyn Iterator<Item = Result<T, ReadError>>>;

/// The rows of a file, in the order in which a ledger wants them.
pub(super) type Ops = Rows<Op>;

/// All rows but the audit log and old roll-ups. `lease_bytes` grows by the size of each lease row read.
pub(super) fn ops(txn: &ReadTransaction, state: &StateV1) -> Result<Ops, ReadError> {
    let next = (state.next_pool > 0).then_some(Op::PutNextPool(PoolId(state.next_pool)));
    let epoch = epoch(txn)?.map(Op::PutEpoch);
    let adoptions = rows(txn, ADOPTIONS, |_, row| codec::decode_adoption(row))?;
    let separations = rows_if_any(txn, SEPARATIONS, |key, row| {
        codec::plain(row).map(|()| parse_separation_key(key))
    })?;
    let quotas = rows_if_any(txn, QUOTAS, |key, row| {
        codec::decode_quota(parse_quota_key(key)?, row)
    })?;
    let leases = rows(txn, LEASES, |key, row| {
        codec::decode_lease(parse_lease_key(&key)?, row).map(Arc::new)
    })?;
    let pasts = rows_if_any(txn, PASTS, |key, row| {
        codec::decode_past(parse_lease_key(&key)?, row).map(Arc::new)
    })?;
    let pools = rows(txn, POOLS, |key, row| {
        codec::decode_pool(key, row).map(Arc::new)
    })?;
    let parts: [Ops; 13] = [
        Box::new(next.into_iter().chain(epoch).map(Ok)),
        as_ops(rows(txn, NETWORKS, codec::decode_network)?, Op::PutNetwork),
        as_ops(rows(txn, CLUSTERS, codec::decode_cluster)?, Op::PutCluster),
        as_ops(adoptions, Op::PutAdoption),
        as_ops(separations, Op::PutSeparation),
        as_ops(pools, Op::PutPool),
        as_ops(quotas, Op::PutQuota),
        as_ops(leases, Op::PutLease),
        as_ops(pasts, Op::PutPast),
        as_ops(rows(txn, ACCOUNTS, codec::decode_account)?, Op::PutAccount),
        as_ops(rows(txn, TOKENS, codec::decode_token)?, Op::PutToken),
        as_ops(rows_if_any(txn, KEYS, codec::decode_key)?, Op::PutKey),
        rollups::recent(txn)?,
    ];
    Ok(Box::new(parts.into_iter().flatten()))
}

fn as_ops<T: 'static>(rows: Rows<T>, op: fn(T) -> Op) -> Ops {
    Box::new(rows.map(move |row| row.map(op)))
}

/// The restore that the rows come from.
pub(super) fn epoch(txn: &ReadTransaction) -> Result<Option<Epoch>, ReadError> {
    meta_row(txn, EPOCH, codec::decode_epoch)
}

/// Book time as it was measured last; `None` in a file of an earlier version.
pub(super) fn clock(txn: &ReadTransaction) -> Result<Option<ClockLine>, ReadError> {
    meta_row(txn, CLOCK, codec::decode_clock)
}

fn meta_row<T>(
    txn: &ReadTransaction,
    name: &'static str,
    decode: impl FnOnce(&StoredRow<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, ReadError> {
    let meta = txn.open_table(META)?;
    schema::read_meta(&meta, name, schema::format(&meta)?, decode)
}

/// As [`rows`], of a table that is made by its first row.
fn rows_if_any<K: Key + 'static, T: 'static>(
    txn: &ReadTransaction,
    definition: TableDefinition<'static, K, &'static [u8]>,
    read: impl Fn(K::SelfType<'_>, &StoredRow<'_>) -> Result<T, DecodeError> + 'static,
) -> Result<Rows<T>, ReadError> {
    match existing(txn, definition)? {
        Some(_) => rows(txn, definition, read),
        None => Ok(Box::new(std::iter::empty())),
    }
}

/// Decodes the rows of one table. Ends with the first error of the storage.
pub(super) fn rows<K: Key + 'static, T: 'static>(
    txn: &ReadTransaction,
    definition: TableDefinition<'static, K, &'static [u8]>,
    read: impl Fn(K::SelfType<'_>, &StoredRow<'_>) -> Result<T, DecodeError> + 'static,
) -> Result<Rows<T>, ReadError> {
    let format = schema::format_of(txn)?;
    let range = txn
        .open_table(definition)?
        .range::<K::SelfType<'static>>(..)?;
    let decoded = range.map(move |item| {
        let (key, value) = item?;
        let (key, table) = (key.value(), definition.name());
        let row = StoredRow::open(table, K::as_bytes(&key).as_ref(), value.value(), format);
        row.and_then(|row| read(K::from_bytes(K::as_bytes(&key).as_ref()), &row))
            .map_err(|error| ReadError::of_row(table, format!("{key:?}"))(error))
    });
    Ok(Box::new(to_first_failure(decoded)))
}

/// Rows up to the first error that is not of one row, that included: redb repeats it for ever.
fn to_first_failure<T>(
    rows: impl Iterator<Item = Result<T, ReadError>>,
) -> impl Iterator<Item = Result<T, ReadError>> {
    let mut ended = false;
    rows.map_while(move |row| {
        let go_on = !ended;
        ended = row.as_ref().is_err_and(|error| !error.is_of_row());
        go_on.then_some(row)
    })
}

/// Loads a ledger, and stops at the first row that cannot be read.
pub(super) fn load(
    path: &std::path::Path,
    txn: &ReadTransaction,
) -> Result<(Loaded, StateV1), OpenError> {
    let damaged = OpenError::damaged(path);
    let state = txn
        .open_table(META)
        .map_err(ReadError::from)
        .and_then(|meta| read_state(&meta))
        .map_err(&damaged)?;
    let number = epoch(txn).map_err(&damaged)?;
    let number = number.map_or(0, |epoch| epoch.number);
    let clock = clock(txn).map_err(&damaged)?;
    let mut failed = None;
    let rows = ops(txn, &state).map_err(&damaged)?;
    let rows = rows.map_while(|row| row.map_err(|error| failed = Some(error)).ok());
    let ledger = Ledger::load(rows, first_revision(&state));
    if let Some(error) = failed {
        return Err(damaged(error));
    }
    let ledger = ledger.map_err(|violations| OpenError::Inconsistent {
        path: path.to_owned(),
        violations,
    })?;
    Ok((
        Loaded {
            ledger,
            last_time: Timestamp(state.last_time),
            epoch: number,
            clock,
        },
        state,
    ))
}

/// Above every revision that an earlier run came to, so that a reader of that run is told that it has missed changes: a
/// ledger makes far less than a thousand of them a millisecond, and where the time stood still the numbers of commits and
/// audit entries have grown. Stays below 2^53, which every reader of JSON can keep.
fn first_revision(state: &StateV1) -> u64 {
    const MOST: u64 = 1 << 52;
    let numbers = state.audit_next.saturating_add(state.sequence);
    let time = state.last_time.saturating_mul(1 << 10);
    time.saturating_add(numbers).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_fails_for_ever_ends_the_rows() {
        let row = || ReadError::Row {
            table: "audit".to_owned(),
            row: "1".to_owned(),
            error: DecodeError::Empty,
        };
        let rows = [Ok(1), Err(row()), Ok(2)].into_iter();
        let rows = rows.chain(std::iter::repeat_with(|| Err(ReadError::Reopening)));
        let seen: Vec<_> = to_first_failure(rows).map(|row| row.ok()).collect();
        assert_eq!(seen, [Some(1), None, Some(2), None]);
    }
}
