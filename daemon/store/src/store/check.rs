//! The offline check: reads every byte of a store that no daemon has open, and changes none.

use std::{fs, path::Path};

use fipd_core::{Adoption, Ledger, Op, Violation};
use redb::{
    ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
};

use super::{
    batch::read_state,
    codec::{self, DecodeError},
    envelope::StoredRow,
    error::{OpenError, ReadError},
    inspect::inspect,
    load, rollups,
    rows::StateV1,
    schema, seal,
    tables::{ADOPTIONS, AUDIT, META, adoption_key},
};

/// Something that is not as it must be.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// Pages do not match their checksums.
    #[error("pages: {0}")]
    Pages(String),
    /// A row cannot be read.
    #[error("{0}")]
    Row(ReadError),
    /// The rows contradict each other.
    #[error("{0}")]
    Violation(Violation),
    /// A backup has other rows than those that it was made of.
    #[error("backup: the rows do not match their checksum")]
    Seal,
    /// The audit log is not what its bounds say.
    #[error("audit log: {0}")]
    Audit(String),
}

/// Verifies checksums, every row, every invariant of the ledger and the bounds of the audit log.
///
/// # Errors
/// When the file is missing, in use, of a newer schema, or no store at all.
pub fn check(path: &Path) -> Result<Vec<StoreFault>, OpenError> {
    fs::metadata(path).map_err(OpenError::io(path, "read"))?;
    let damaged = OpenError::damaged::<ReadError>(path);
    inspect(path, |file| {
        if let Some(text) = file.pages() {
            return Ok(vec![StoreFault::Pages(text)]);
        }
        let txn = file.database.begin_read();
        let txn = txn.map_err(OpenError::damaged(path))?;
        let state = version_and_state(path, &txn)?;
        if let Some(text) = file.lost_commit(path).map_err(&damaged)? {
            return Ok(vec![StoreFault::Pages(text)]);
        }
        Ok(contents(&txn, &state).map_err(&damaged)?.1)
    })
}

fn version_and_state(path: &Path, txn: &ReadTransaction) -> Result<StateV1, OpenError> {
    let meta = txn.open_table(META).map_err(OpenError::damaged(path))?;
    let found = schema::version(&meta).map_err(OpenError::damaged(path))?;
    if found > schema::known() {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: schema::known(),
        });
    }
    read_state(&meta).map_err(OpenError::damaged(path))
}

/// Everything below the pages, and the ledger that the rows make, where they make one.
pub(super) fn contents(
    txn: &ReadTransaction,
    state: &StateV1,
) -> Result<(Option<Ledger>, Vec<StoreFault>), ReadError> {
    let mut problems = Vec::new();
    let mut bad = Vec::new();
    let rows = load::ops(txn, state)?.filter_map(|row| row.map_err(|error| bad.push(error)).ok());
    let ledger = Ledger::load(rows, state.audit_next);
    note_bad(bad, &mut problems)?;
    let violations = match &ledger {
        Ok(ledger) => &ledger.check(),
        Err(violations) => violations,
    };
    problems.extend(violations.iter().cloned().map(StoreFault::Violation));
    adoptions(txn, &mut problems)?;
    note_bad(rollups::problems(txn)?, &mut problems)?;
    sealed(txn, &mut problems)?;
    audit(txn, state, &mut problems)?;
    Ok((ledger.ok(), problems))
}

/// Rows that cannot be read are problems; a storage that cannot be read ends the check.
fn note_bad(
    errors: impl IntoIterator<Item = ReadError>,
    problems: &mut Vec<StoreFault>,
) -> Result<(), ReadError> {
    for error in errors {
        if !error.is_of_row() {
            return Err(error);
        }
        problems.push(StoreFault::Row(error));
    }
    Ok(())
}

/// The rows of a backup are those that were copied.
fn sealed(txn: &ReadTransaction, problems: &mut Vec<StoreFault>) -> Result<(), ReadError> {
    match seal::read(txn) {
        Ok(Some(seal)) if seal.digest != seal::digest(txn)? => problems.push(StoreFault::Seal),
        Ok(_) => {}
        Err(error) => note_bad([error], problems)?,
    }
    Ok(())
}

/// Markers lie under the key that their content says.
fn adoptions(txn: &ReadTransaction, problems: &mut Vec<StoreFault>) -> Result<(), ReadError> {
    let wrong = |key: &[u8], row: &StoredRow<'_>| {
        let marker: Adoption = codec::decode_adoption(row)?;
        if adoption_key(marker.network, &marker.cluster, &marker.system) == key {
            Ok(Op::PutAdoption(marker))
        } else {
            Err(DecodeError::value("adoption key", format!("{key:02x?}")))
        }
    };
    note_bad(
        load::rows(txn, ADOPTIONS, wrong)?.filter_map(Result::err),
        problems,
    )
}

/// All numbers between the bounds are there, none is beyond, and all can be read.
fn audit(
    txn: &ReadTransaction,
    state: &StateV1,
    problems: &mut Vec<StoreFault>,
) -> Result<(), ReadError> {
    let table = txn.open_table(AUDIT)?;
    let first = table
        .first()?
        .map(|(key, _)| u64::from_be_bytes(key.value()));
    let last = table
        .last()?
        .map(|(key, _)| u64::from_be_bytes(key.value()));
    let (expected_first, next) = (state.audit_first, state.audit_next);
    let bounds_hold = match (first, last) {
        (Some(first), Some(last)) => first == expected_first && last.checked_add(1) == Some(next),
        (None, None) => expected_first == next,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !bounds_hold || table.len()? != next.saturating_sub(expected_first) {
        problems.push(StoreFault::Audit(format!(
            "entries {first:?} to {last:?} ({} of them), where {expected_first} to before {next} should be",
            table.len()?
        )));
    }
    let bytes = std::rc::Rc::new(std::cell::Cell::new(0));
    let sum = std::rc::Rc::clone(&bytes);
    let entries = load::rows(txn, AUDIT, move |_, row| {
        sum.set(sum.get() + row.bytes as u64);
        codec::decode_audit(row).map(drop)
    })?;
    note_bad(entries.filter_map(Result::err), problems)?;
    if bytes.get() != state.audit_bytes {
        problems.push(StoreFault::Audit(format!(
            "the entries are {} bytes, where {} should be",
            bytes.get(),
            state.audit_bytes
        )));
    }
    Ok(())
}
