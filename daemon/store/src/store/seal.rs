//! What a backup says of itself: when and by what it was made, and a digest of all its rows.
//!
//! The pages of a redb file have checksums of their own, which tell a bit that flipped. The digest tells a file whose rows
//! are others than those that were copied.

use fipd_core::Timestamp;
use redb::{Key, ReadTransaction, ReadableTableMetadata as _, TableDefinition, TableHandle as _};
use sha2::{Digest as _, Sha256};

use super::{
    codec,
    envelope::StoredRow,
    error::ReadError,
    rows::StateV1,
    schema,
    tables::{self, SEAL, Visit, existing},
};

/// The only row of [`SEAL`].
pub(super) const ROW: &str = "backup";

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    pub created: Timestamp,
    /// The fipd that wrote it.
    pub version: String,
    pub schema: u32,
    /// Number of the audit entry that comes next: grows with every decision.
    pub revision: u64,
    pub(super) digest: [u8; 32],
}

impl Seal {
    /// The seal of what the transaction sees, made by this fipd.
    pub(super) fn of(
        txn: &ReadTransaction,
        state: &StateV1,
        schema: u32,
        created: Timestamp,
    ) -> Result<Self, ReadError> {
        Ok(Self {
            created,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema,
            revision: state.audit_next,
            digest: digest(txn)?,
        })
    }
}

/// The seal of a file; `None` in a store that is in use.
pub(super) fn read(txn: &ReadTransaction) -> Result<Option<Seal>, ReadError> {
    let Some(table) = existing(txn, SEAL)? else {
        return Ok(None);
    };
    let Some(row) = table.get(ROW)? else {
        return Ok(None);
    };
    let format = schema::format_of(txn)?;
    StoredRow::open(SEAL.name(), ROW.as_bytes(), row.value(), format)
        .and_then(|row| codec::decode_seal(&row))
        .map(Some)
        .map_err(ReadError::of_row(SEAL.name(), ROW))
}

/// The digest of all rows but the seal's.
pub(super) fn digest(txn: &ReadTransaction) -> Result<[u8; 32], ReadError> {
    struct Sum<'a>(&'a ReadTransaction, Sha256);
    impl Sum<'_> {
        fn add(&mut self, bytes: &[u8]) {
            self.1.update((bytes.len() as u64).to_be_bytes());
            self.1.update(bytes);
        }
    }
    impl Visit for Sum<'_> {
        type Error = ReadError;
        fn table<K: Key + 'static>(
            &mut self,
            definition: TableDefinition<'static, K, &'static [u8]>,
        ) -> Result<(), ReadError> {
            let Some(table) = existing(self.0, definition)? else {
                return Ok(());
            };
            self.add(definition.name().as_bytes());
            self.1.update(table.len()?.to_be_bytes());
            for item in table.range::<K::SelfType<'static>>(..)? {
                let (key, value) = item?;
                self.add(K::as_bytes(&key.value()).as_ref());
                self.add(value.value());
            }
            Ok(())
        }
    }
    let mut sum = Sum(txn, Sha256::new());
    tables::each(&mut sum)?;
    Ok(sum.1.finalize().into())
}
