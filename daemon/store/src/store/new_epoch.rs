//! Begins a new epoch in a file that no daemon has open: no marker of an adoption counts any more, and free addresses
//! are held.

use fipd_core::{
    Action, Actor, AuditEntry, Decision, Epoch, Op, RestoreHold, Retention, Text, Timestamp,
};
use redb::{Database, ReadableDatabase as _, TableHandle as _};

use super::{
    batch::{Batch, HistoryLimits, read_state},
    error::ReadError,
    load,
    tables::{ADOPTIONS, AUDIT, META, SEAL},
};

/// Why an epoch begins, and how.
pub(super) struct NewEpoch<'a> {
    /// The highest epoch that was reached, as far as known.
    pub last: u64,
    /// Where the rows come from; for the audit log.
    pub from: &'a str,
    /// Why no hold is needed; `None`: free addresses are held.
    pub no_hold: Option<&'a Text>,
    pub actor: &'a Actor,
    /// The wall clock where an admin vouches for it. The epoch begins at the time of the file where that is later.
    pub now: Timestamp,
}

impl NewEpoch<'_> {
    /// Makes it durable.
    ///
    /// # Errors
    /// When the file cannot be read or written; nothing is changed then.
    pub(super) fn begin(&self, database: &Database) -> Result<Epoch, ReadError> {
        let read = database.begin_read()?;
        let state = read_state(&read.open_table(META)?)?;
        let before = load::epoch(&read)?.map_or(0, |epoch| epoch.number);
        drop(read);
        let began = Timestamp(self.now.0.max(state.last_time));
        let epoch = Epoch {
            number: before.max(self.last) + 1,
            began,
            hold: self.no_hold.is_none().then(|| RestoreHold::starting(began)),
        };
        let mut batch = Batch::default();
        let decision = Decision {
            ops: vec![Op::PutEpoch(epoch)],
            audit: vec![self.entry(&epoch)],
        };
        let added = batch.add(&decision);
        added.map_err(ReadError::of_row(AUDIT.name(), "of the new epoch"))?;
        let txn = database.begin_write()?;
        txn.delete_table(SEAL)?;
        txn.delete_table(ADOPTIONS)?;
        txn.open_table(ADOPTIONS)?;
        let keep = HistoryLimits {
            audit: u64::MAX,
            history: Retention::default(),
        };
        batch.write(&txn, &state, keep)?;
        txn.commit().map_err(redb::Error::from)?;
        Ok(epoch)
    }

    fn entry(&self, epoch: &Epoch) -> AuditEntry {
        let hold = match (self.no_hold, epoch.hold) {
            (Some(reason), _) => format!("no address is held: {reason}"),
            (None, Some(hold)) => format!("free addresses are held until about {}", hold.until),
            (None, None) => "no address is held".to_owned(),
        };
        let detail = format!("epoch {}, {}; {hold}", epoch.number, self.from);
        AuditEntry::new(epoch.began, self.actor, Action::Restored, detail)
    }
}
