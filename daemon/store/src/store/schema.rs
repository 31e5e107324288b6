//! Schema versions and how a file gets from one to the next.
//!
//! Migration N turns a file of version N-1 into one of version N. Each is idempotent and runs with all the
//! others in one transaction with the new version number, so that a file is never between two versions.

use redb::{ReadTransaction, ReadableTable, TableHandle as _, WriteTransaction};
use serde::Serialize;

use super::{
    codec::DecodeError,
    envelope::{self, RowDraft, RowFormat, StoredRow},
    error::ReadError,
    rewrite,
    rows::{RewriteV6, StateV1},
    tables::{
        ACCOUNTS, ADOPTIONS, AUDIT, CLUSTERS, LEASES, META, NETWORKS, POOLS, REWRITE, SCHEMA,
        STATE, TOKENS,
    },
};

/// Is handed the version that the file had.
type Migration = fn(&WriteTransaction, u32) -> Result<(), ReadError>;

/// In order; the first makes an empty file a store.
const MIGRATIONS: &[Migration] = &[tables_and_state, checked_rows];

/// The version since which rows have checksums.
pub(super) const CHECKED: u32 = 2;

/// The version that this fipd writes.
pub(super) fn known() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The version a row says.
pub(super) fn parse_version(value: &[u8]) -> Result<u32, ReadError> {
    let wrong = |_| DecodeError::value("schema version", format!("{value:?}"));
    let bytes = value.try_into().map_err(wrong);
    let bytes = bytes.map_err(ReadError::of_row(META.name(), SCHEMA))?;
    Ok(u32::from_be_bytes(bytes))
}

/// The version of a store; 0 in a file that is none yet.
pub(super) fn version(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<u32, ReadError> {
    let row = meta.get(SCHEMA)?;
    row.map_or(Ok(0), |row| parse_version(row.value()))
}

/// Which versions the rows of a store may have.
///
/// # Errors
/// When a store that says so of itself does not say how far its rewrite is.
pub(super) fn format(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<RowFormat, ReadError> {
    if version(meta)? < CHECKED {
        return Ok(RowFormat::Mixed);
    }
    Ok(match rewrite::progress(meta)? {
        Some(_) => RowFormat::Mixed,
        None => RowFormat::Latest,
    })
}

/// As [`format`], of what the transaction sees.
pub(super) fn format_of(txn: &ReadTransaction) -> Result<RowFormat, ReadError> {
    format(&txn.open_table(META)?)
}

/// Runs what is missing from `version` on, and writes the new version.
pub(super) fn migrate(txn: &WriteTransaction, version: u32) -> Result<(), ReadError> {
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or(usize::MAX))
    {
        migration(txn, version)?;
    }
    txn.open_table(META)?
        .insert(SCHEMA, known().to_be_bytes().as_slice())?;
    Ok(())
}

/// Version 1: all tables, and a state that numbers audit entries from 1.
fn tables_and_state(txn: &WriteTransaction, _: u32) -> Result<(), ReadError> {
    txn.open_table(NETWORKS)?;
    txn.open_table(POOLS)?;
    txn.open_table(LEASES)?;
    txn.open_table(CLUSTERS)?;
    txn.open_table(ADOPTIONS)?;
    txn.open_table(ACCOUNTS)?;
    txn.open_table(TOKENS)?;
    txn.open_table(AUDIT)?;
    let is_new = txn.open_table(META)?.get(STATE)?.is_none();
    if is_new {
        let state = StateV1 {
            audit_first: 1,
            audit_next: 1,
            ..StateV1::default()
        };
        write_meta(txn, STATE, &state)?;
    }
    Ok(())
}

/// Version 2: every row has a checksum, those of an earlier version once they are rewritten.
fn checked_rows(txn: &WriteTransaction, found: u32) -> Result<(), ReadError> {
    let at = (found > 0).then_some((NETWORKS.name(), [].as_slice()));
    write_meta(txn, REWRITE, &RewriteV6 { at })
}

/// Writes a row of [`META`].
pub(super) fn write_meta(
    txn: &WriteTransaction,
    name: &'static str,
    row: &impl Serialize,
) -> Result<(), ReadError> {
    let row = RowDraft::new(row);
    let mut row = row.map_err(ReadError::of_row(META.name(), name))?;
    envelope::insert(&mut txn.open_table(META)?, META.name(), &name, &mut row)
}

/// What `decode` makes of a row of [`META`]; `None` where there is none.
pub(super) fn read_meta<T>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &'static str,
    format: RowFormat,
    decode: impl FnOnce(&StoredRow<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, ReadError> {
    let Some(row) = meta.get(name)? else {
        return Ok(None);
    };
    StoredRow::open(META.name(), name.as_bytes(), row.value(), format)
        .and_then(|row| decode(&row))
        .map(Some)
        .map_err(ReadError::of_row(META.name(), name))
}
