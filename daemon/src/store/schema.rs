//! Schema versions and how a file gets from one to the next.
//!
//! Migration N turns a file of version N-1 into one of version N. Each is idempotent and runs with all the
//! others in one transaction with the new version number, so that a file is never between two versions.

use redb::{ReadableTable as _, WriteTransaction};

use super::{
    codec::{self, DecodeError},
    error::ReadError,
    rows::StateV1,
    tables::{
        ACCOUNTS, ADOPTIONS, AUDIT, CLUSTERS, LEASES, META, NETWORKS, POOLS, SCHEMA, STATE, TOKENS,
    },
};

type Migration = fn(&WriteTransaction) -> Result<(), ReadError>;

/// In order; the first makes an empty file a store.
const MIGRATIONS: &[Migration] = &[tables_and_state];

/// The version that this fipd writes.
pub(super) fn known() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The version a row says.
pub(super) fn parse_version(value: &[u8]) -> Result<u32, ReadError> {
    let bytes = value.try_into().map_err(|_| ReadError::Row {
        table: "meta".to_owned(),
        row: SCHEMA.to_owned(),
        error: DecodeError::value("schema version", format!("{value:?}")),
    })?;
    Ok(u32::from_be_bytes(bytes))
}

/// Runs what is missing from `version` on, and writes the new version.
pub(super) fn migrate(txn: &WriteTransaction, version: u32) -> Result<(), ReadError> {
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or(usize::MAX))
    {
        migration(txn)?;
    }
    txn.open_table(META)?
        .insert(SCHEMA, known().to_be_bytes().as_slice())?;
    Ok(())
}

/// Version 1: all tables, and a state that numbers audit entries from 1.
fn tables_and_state(txn: &WriteTransaction) -> Result<(), ReadError> {
    txn.open_table(NETWORKS)?;
    txn.open_table(POOLS)?;
    txn.open_table(LEASES)?;
    txn.open_table(CLUSTERS)?;
    txn.open_table(ADOPTIONS)?;
    txn.open_table(ACCOUNTS)?;
    txn.open_table(TOKENS)?;
    txn.open_table(AUDIT)?;
    let mut meta = txn.open_table(META)?;
    if meta.get(STATE)?.is_none() {
        let state = StateV1 {
            audit_first: 1,
            audit_next: 1,
            ..StateV1::default()
        };
        let row = codec::encode_state(&state).map_err(|error| ReadError::Row {
            table: "meta".to_owned(),
            row: STATE.to_owned(),
            error: DecodeError::Malformed(error.to_string()),
        })?;
        meta.insert(STATE, row.as_slice())?;
    }
    Ok(())
}
