//! Takes the time of the address book back to the wall clock, because an admin says so.
//!
//! One transaction changes every time that was measured while book time was ahead: what has to cool or is reserved keeps the
//! time that it has left, and the entries of the audit log move by the same difference, so that their times still grow with
//! their numbers. The entry of the reset says by how much, and from which entry on.

use std::{fs, path::Path};

use fipd_core::{
    Action, Actor, AuditEntry, BookTime, ClockLine, ClockReading, Decision, Op, Redating, Text,
    Timestamp,
};
use redb::{ReadableDatabase as _, ReadableTable as _, TableHandle as _, WriteTransaction};

use super::{
    Loaded, Store, StoreOptions,
    audit_search::first_after,
    batch::Batch,
    codec,
    envelope::{self, RowFormat},
    error::{FileError, ReadError, ResetError},
    load,
    reader::audit_entry,
    restore::owner_as,
    rollups,
    rows::StateV1,
    schema,
    tables::AUDIT,
};

/// A reset as it is asked for.
#[derive(Debug)]
pub struct ResetClock<'a> {
    pub store: &'a Path,
    pub options: StoreOptions,
    /// Why the wall clock is right; for the audit log.
    pub reason: Text,
    pub actor: Actor,
    /// The clocks of the host.
    pub reading: ClockReading,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockWasReset {
    pub from: Timestamp,
    pub to: Timestamp,
    /// Entries of the audit log that moved with it.
    pub entries: u64,
}

impl ResetClock<'_> {
    /// Does it, while no daemon runs.
    ///
    /// # Errors
    /// When there is no store or a daemon has it, book time is not ahead, or something cannot be read or written. Nothing is
    /// changed then.
    pub fn run(&self) -> Result<ClockWasReset, ResetError> {
        let failed = |doing| FileError::of(self.store, doing);
        fs::metadata(self.store).map_err(failed("read"))?;
        let options = StoreOptions {
            // It would be this user's, not the daemon's.
            ballast: 0,
            ..self.options.clone()
        };
        let (mut store, loaded) = Store::open(self.store, options)?;
        let done = store.reset_clock(&loaded, self);
        // Opening may have made it, whatever came of the reset.
        if let Some(record) = store
            .shared
            .medium
            .record()
            .filter(|record| record.path().exists())
        {
            owner_as(record.path(), self.store).map_err(failed("given its owner"))?;
        }
        done
    }

    fn entry(&self, redating: Redating, first: u64, entries: u64) -> AuditEntry {
        let moved = match entries {
            0 => "no entry of the audit log is later".to_owned(),
            entries => format!("{entries} entries from number {first} on moved with it"),
        };
        let detail = format!(
            "book time went back by {} ms, from {} to {}; {moved}: {}",
            redating.by(),
            redating.from(),
            redating.to(),
            self.reason
        );
        AuditEntry::new(redating.to(), &self.actor, Action::ClockReset, detail)
    }
}

impl Store {
    fn reset_clock(
        &mut self,
        loaded: &Loaded,
        ask: &ResetClock<'_>,
    ) -> Result<ClockWasReset, ResetError> {
        if self.is_foreign {
            return Err(ResetError::OtherHost);
        }
        let to = ask.reading.wall;
        let book = BookTime::resume(loaded.clock, loaded.last_time).at(&ask.reading, || false);
        let redating = Redating::new(book, to).ok_or(ResetError::NotAhead { book, wall: to })?;
        let (after, entries) = self.redate(redating, ask)?;
        self.state = after;
        self.shared.medium.note_own_write();
        self.write_record();
        self.sync_record();
        Ok(ClockWasReset {
            from: book,
            to,
            entries,
        })
    }

    /// Writes the rows with their other times, all or none. Gives the state after it, and how many entries moved.
    fn redate(
        &self,
        redating: Redating,
        ask: &ResetClock<'_>,
    ) -> Result<(StateV1, u64), ReadError> {
        let slot = self.shared.database.read();
        let database = slot.as_ref().ok_or(ReadError::Reopening)?;
        let read = database.begin_read()?;
        let format = schema::format_of(&read)?;
        let mut decision = Decision::default();
        for row in load::ops(&read, &self.state)? {
            decision.ops.extend(redating.row(&row?));
        }
        decision.ops.push(Op::PutClock(ClockLine {
            boot: ask.reading.boot,
            uptime: ask.reading.uptime,
            book: redating.to(),
            unconfirmed: 0,
        }));
        let txn = database.begin_write()?;
        // The latest time of a decision is that of the reset.
        let mut state = StateV1 {
            last_time: 0,
            ..self.state
        };
        let (first, entries) = redate_audit(&txn, format, redating, &mut state)?;
        rollups::redate(&read, &txn, redating)?;
        decision.audit.push(ask.entry(redating, first, entries));
        let mut batch = Batch::default();
        let added = batch.add(&decision);
        added.map_err(ReadError::of_row(AUDIT.name(), "of the reset"))?;
        let after = batch.write(&txn, &state, self.options.keep())?;
        txn.commit().map_err(redb::Error::from)?;
        Ok((after, entries))
    }
}

/// Moves the entries that are later than the new time. Gives the number of the first, and how many there were.
fn redate_audit(
    txn: &WriteTransaction,
    format: RowFormat,
    redating: Redating,
    state: &mut StateV1,
) -> Result<(u64, u64), ReadError> {
    let mut table = txn.open_table(AUDIT)?;
    let first = first_after((&table, format), redating.to(), u64::MAX)?;
    let mut last = Timestamp(0);
    let mut entries = 0;
    // From the one before, which stays.
    for number in first.saturating_sub(1)..state.audit_next {
        let key = number.to_be_bytes();
        let Some(old) = table.get(key)?.map(|row| row.value().to_vec()) else {
            continue;
        };
        let mut entry = audit_entry(number, &old, format)?;
        entry.at = redating.past(entry.at).max(last);
        last = entry.at;
        if number < first {
            continue;
        }
        let row = codec::encode_audit(&entry);
        let mut row = row.map_err(ReadError::of_row(AUDIT.name(), number))?;
        envelope::insert(&mut table, AUDIT.name(), &key, &mut row)?;
        let others = state.audit_bytes.saturating_sub(old.len() as u64);
        state.audit_bytes = others.saturating_add(row.len() as u64);
        entries += 1;
    }
    Ok((first, entries))
}
