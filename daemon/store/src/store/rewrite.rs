//! The rewrite of older rows as the latest: in small steps between the commits of decisions, table by table.
//!
//! Each step is one transaction with the place it came to, so that an end at any point is followed by the next step. A
//! store serves normally meanwhile. Once no older row is left, one that turns up is damage.

use std::{
    ops::Bound,
    time::{Duration, Instant},
};

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase as _, ReadableTable, TableDefinition,
    TableHandle as _, WriteTransaction,
};

use super::{
    batch::write_state,
    codec::{self, DecodeError},
    envelope::{self, RowDraft, RowFormat, StoredRow},
    error::ReadError,
    rows::{RewriteV6, StateV1, V6},
    schema,
    tables::{self, AUDIT, META, REWRITE, SCHEMA, Visit, existing},
};

/// Rows that one step looks at: some milliseconds.
pub(super) const STEP: usize = 512;
/// The writer has this many times a step's duration for decisions before the next: 5 % is one part of 20.
const SHARE: u32 = 20;

/// When the step after one that took so long may begin.
pub(super) fn next_step(began: Instant, took: Duration) -> Instant {
    began + took.max(Duration::from_millis(1)) * SHARE
}

/// Where the rewrite is: a table, and the last key of it that was looked at, empty before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RewriteAt {
    table: String,
    after: Vec<u8>,
}

/// Where the rewrite is; `None` once no older row is left.
///
/// # Errors
/// When the store does not say.
pub(super) fn progress(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Option<RewriteAt>, ReadError> {
    let at = schema::read_meta(meta, REWRITE, RowFormat::Latest, |row| {
        codec::only(row).map(|RewriteV6 { at }| at.map(place))
    })?;
    at.ok_or_else(|| ReadError::of_row(META.name(), REWRITE)(DecodeError::Empty))
}

fn place((table, after): (&str, &[u8])) -> RewriteAt {
    RewriteAt {
        table: table.to_owned(),
        after: after.to_owned(),
    }
}

/// Rewrites the older ones of the next `most` rows. Gives the state after it, and whether older rows may be left.
///
/// # Errors
/// When the file cannot be written, or an older row cannot be read: it is damaged.
pub(super) fn step(
    database: &Database,
    before: &StateV1,
    most: usize,
) -> Result<(StateV1, bool), ReadError> {
    let read = database.begin_read()?;
    let Some(at) = progress(&read.open_table(META)?)? else {
        return Ok((*before, false));
    };
    let write = database.begin_write()?;
    let mut pass = Pass {
        read: &read,
        write: &write,
        at,
        reached: false,
        left: most,
        state: *before,
    };
    tables::each(&mut pass)?;
    let Pass {
        at,
        reached,
        left,
        state,
        ..
    } = pass;
    if !reached {
        let error = DecodeError::value("table", at.table);
        return Err(ReadError::of_row(META.name(), REWRITE)(error));
    }
    let more = left == 0;
    let at = more.then_some((at.table.as_str(), at.after.as_slice()));
    schema::write_meta(&write, REWRITE, &RewriteV6 { at })?;
    write_state(&write, &state)?;
    write.commit().map_err(redb::Error::from)?;
    Ok((state, more))
}

/// One step on its way through the tables.
struct Pass<'a> {
    read: &'a ReadTransaction,
    write: &'a WriteTransaction,
    at: RewriteAt,
    /// The table that the last step ended in was met.
    reached: bool,
    /// Rows that may still be looked at; 0 ends the step where it is.
    left: usize,
    state: StateV1,
}

impl Visit for Pass<'_> {
    type Error = ReadError;

    fn table<K: Key + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, &'static [u8]>,
    ) -> Result<(), ReadError> {
        let name = definition.name();
        if self.left == 0 || (!self.reached && self.at.table != name) {
            return Ok(());
        }
        if self.reached {
            self.at = place((name, &[]));
        }
        self.reached = true;
        let older = self.older(definition)?;
        if older.is_empty() {
            return Ok(());
        }
        let mut table = self.write.open_table(definition)?;
        for (key, mut row, bytes) in older {
            envelope::insert(&mut table, name, &K::from_bytes(&key), &mut row)?;
            if name == AUDIT.name() {
                let others = self.state.audit_bytes.saturating_sub(bytes as u64);
                self.state.audit_bytes = others.saturating_add(row.len() as u64);
            }
        }
        Ok(())
    }
}

/// The key of an older row, the row as the latest, and the bytes that it had.
type Older = (Vec<u8>, RowDraft, usize);

impl Pass<'_> {
    /// The older ones of the rows that are next.
    fn older<K: Key + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, &'static [u8]>,
    ) -> Result<Vec<Older>, ReadError> {
        let Some(table) = existing(self.read, definition)? else {
            return Ok(Vec::new());
        };
        let after = std::mem::take(&mut self.at.after);
        let from = match after.as_slice() {
            [] => Bound::Unbounded,
            key => Bound::Excluded(K::from_bytes(key)),
        };
        let mut older = Vec::new();
        for item in table.range::<K::SelfType<'_>>((from, Bound::Unbounded))? {
            let (key, value) = item?;
            let (name, value) = (definition.name(), value.value());
            let key = K::as_bytes(&key.value()).as_ref().to_owned();
            let bare = name == META.name() && key == SCHEMA.as_bytes();
            if !bare && value.first() != Some(&V6) {
                let row = StoredRow::open(name, &key, value, RowFormat::Mixed)
                    .and_then(|row| codec::renewed(name, &key, &row));
                let shown = || format!("{key:02x?}");
                let row = row.map_err(|error| ReadError::of_row(name, shown())(error))?;
                older.push((key.clone(), row, value.len()));
            }
            self.at.after = key;
            self.left -= 1;
            if self.left == 0 {
                break;
            }
        }
        Ok(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_takes_at_most_a_twentieth_of_the_writer() {
        let began = Instant::now();
        for millis in [1, 8, 250] {
            let took = Duration::from_millis(millis);
            assert!(next_step(began, took) >= began + 20 * took);
        }
        assert!(next_step(began, Duration::ZERO) > began, "a busy loop");
    }
}
