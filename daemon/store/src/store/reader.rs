//! Reading the file beside the writer: the audit log, figures, backups.

use std::{os::unix::fs::FileExt as _, path::Path, sync::Arc};

use fipd_core::{AuditEntry, Lease, LeaseKey, Ledger};
use redb::{ReadOnlyTable, ReadTransaction, ReadableDatabase as _, TableHandle as _};

use super::{
    StoreState, backup,
    batch::read_state,
    check::{self, StoreFault},
    codec,
    envelope::{RowFormat, StoredRow},
    error::{BackupError, ReadError},
    health::{Condition, StoreStats},
    inspect::{Snapshot, inspect_snapshot},
    overlay::Overlay,
    room, schema,
    tables::{AUDIT, LEASES, META, lease_key},
};
use crate::clock;

type AuditTable = ReadOnlyTable<[u8; 8], &'static [u8]>;

/// Reads the store while it is written; cheap to clone. Sees only what is durable.
#[derive(Clone, Debug)]
pub struct StoreReader {
    shared: Arc<StoreState>,
}

impl StoreReader {
    /// The most audit entries of one page.
    pub const PAGE_MAX: usize = 1_000;
    /// The number of the first audit entry that a store ever had.
    pub const FIRST_AUDIT: u64 = 1;

    pub(super) fn new(shared: Arc<StoreState>) -> Self {
        Self { shared }
    }

    /// Audit entries with their numbers, newest first, below number `before`. At most `limit` and
    /// [`Self::PAGE_MAX`]. Blocks on the disk.
    ///
    /// # Errors
    /// While the store is being reopened, and when an entry cannot be read.
    pub fn audit_page(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, AuditEntry)>, ReadError> {
        let (table, format) = self.audit()?;
        let end = before.unwrap_or(u64::MAX).to_be_bytes();
        let newest = table
            .range::<[u8; 8]>(..end)?
            .rev()
            .take(limit.min(Self::PAGE_MAX));
        newest
            .map(|item| {
                let (key, value) = item?;
                let number = u64::from_be_bytes(key.value());
                Ok((number, audit_entry(number, value.value(), format)?))
            })
            .collect()
    }

    /// Copies the store as it is at this moment into a new file of mode 0600, makes that durable and checks it.
    /// Writing goes on meanwhile. Blocks for long.
    ///
    /// # Errors
    /// When the file exists, or cannot be written or verified; nothing is left behind then.
    pub fn backup(&self, path: &Path) -> Result<(), BackupError> {
        backup::backup(&self.begin()?, path, clock::now())?;
        if let Some(record) = self.shared.medium.record()
            && let Err(error) = record.sync()
        {
            tracing::warn!(%error, "the high-water record beside the store cannot be synced; tried again");
        }
        Ok(())
    }

    /// Checks every page, every row and every invariant of the file as it is at this moment, and gives the ledger that the
    /// rows make, where they make one. Writing goes on meanwhile, but while pages that look damaged are read again. Blocks
    /// for long.
    ///
    /// # Errors
    /// While the store is being reopened, and when a table cannot be read.
    pub fn verify(&self) -> Result<(Option<Ledger>, Vec<StoreFault>), ReadError> {
        let pages = self.wrong_pages()?;
        let txn = self.begin()?;
        let state = read_state(&txn.open_table(META)?)?;
        let (ledger, mut problems) = check::contents(&txn, &state)?;
        problems.extend(pages.map(StoreFault::Pages));
        Ok((ledger, problems))
    }

    /// What is wrong with the pages of the file. A read transaction keeps those of tables, but redb's own may be written
    /// anew by the next commits: what seems to be damage is looked at again with no commit in flight.
    fn wrong_pages(&self) -> Result<Option<String>, ReadError> {
        let path = self.shared.medium.path();
        let wrong = |file| match inspect_snapshot(path, file, |file| Ok(file.wrong_now())) {
            Ok(found) => found,
            Err(error) => Some(error.to_string()),
        };
        let file = {
            let slot = self.shared.database.write();
            let database = slot.as_ref().ok_or(ReadError::Reopening)?;
            (database.begin_read()?, self.file()?)
        };
        let (_txn, Some(file)) = file else {
            return Ok(None);
        };
        if wrong(file).is_none() {
            return Ok(None);
        }
        let _no_commit = self.shared.database.write();
        Ok(self.file()?.and_then(wrong))
    }

    /// The file with the first page that it has now. No commit may be in flight.
    fn file(&self) -> Result<Option<Snapshot>, ReadError> {
        let unread = |error| ReadError::Storage(redb::Error::Io(error));
        let Some(file) = self.shared.medium.file().map_err(unread)? else {
            return Ok(None);
        };
        let mut header = vec![0; Overlay::PAGE];
        file.read_exact_at(&mut header, 0).map_err(unread)?;
        Ok(Some(Snapshot { file, header }))
    }

    /// Leases as they are in the file at this moment. Blocks on the disk.
    ///
    /// # Errors
    /// While the store is being reopened, and when a row cannot be read.
    pub fn leases(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, ReadError> {
        let txn = self.begin()?;
        let (table, format) = (txn.open_table(LEASES)?, schema::format_of(&txn)?);
        let read = |key: &LeaseKey| {
            let bytes = lease_key(*key);
            let Some(row) = table.get(bytes)? else {
                return Ok(None);
            };
            StoredRow::open(LEASES.name(), &bytes, row.value(), format)
                .and_then(|row| codec::decode_lease(*key, &row))
                .map(Some)
                .map_err(ReadError::of_row(LEASES.name(), key.address))
        };
        keys.iter().map(read).collect()
    }

    /// Figures of the store. While it is full, the disk is asked whether it still is.
    pub fn stats(&self) -> StoreStats {
        let full = matches!(self.shared.stats.lock().condition, Condition::Full { .. });
        if full {
            room::look(&self.shared);
        }
        self.shared.stats.lock().clone()
    }

    /// Bytes of disk the store uses, and bytes that are free beside it, as last known.
    ///
    /// # Errors
    /// When the file system does not say.
    pub fn disk(&self) -> std::io::Result<(u64, u64)> {
        room::look(&self.shared);
        let known = self.shared.room.known();
        known.ok_or_else(|| std::io::Error::other("the file system does not say"))
    }

    /// The audit log as it is at this moment.
    pub(super) fn audit(&self) -> Result<(AuditTable, RowFormat), ReadError> {
        let txn = self.begin()?;
        Ok((txn.open_table(AUDIT)?, schema::format_of(&txn)?))
    }

    pub(super) fn begin(&self) -> Result<ReadTransaction, ReadError> {
        let slot = self.shared.database.read();
        let database = slot.as_ref().ok_or(ReadError::Reopening)?;
        Ok(database.begin_read()?)
    }
}

/// The entry in a row of the audit log.
pub(super) fn audit_entry(
    number: u64,
    value: &[u8],
    format: RowFormat,
) -> Result<AuditEntry, ReadError> {
    StoredRow::open(AUDIT.name(), &number.to_be_bytes(), value, format)
        .and_then(|row| codec::decode_audit(&row))
        .map_err(ReadError::of_row(AUDIT.name(), number))
}
