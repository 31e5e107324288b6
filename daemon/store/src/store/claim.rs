//! Makes a store that belongs to another host this one's, because an admin says so: in a new epoch, with a hold.

use std::{fs, path::Path};

use fipd_core::{Actor, Epoch, Text, Timestamp};

use super::{
    Store, StoreOptions,
    error::{ClaimError, FileError, ReadError},
    high_water::{self, FileAge},
    new_epoch::NewEpoch,
    restore::owner_as,
};

/// A claim as it is asked for.
#[derive(Clone, Debug)]
pub struct ClaimStore<'a> {
    pub store: &'a Path,
    /// With this host.
    pub options: StoreOptions,
    /// Why no fipd of the other host decides by this store any more; for the audit log.
    pub reason: Text,
    pub actor: Actor,
}

impl ClaimStore<'_> {
    /// Does it, while no daemon runs.
    ///
    /// # Errors
    /// When there is no store or a daemon has it, it does not belong to another host, or something cannot be read or written.
    pub fn run(&self) -> Result<Epoch, ClaimError> {
        let failed = |doing| FileError::of(self.store, doing);
        fs::metadata(self.store).map_err(failed("read"))?;
        if self.options.host.is_none() {
            return Err(ClaimError::UnknownHost);
        }
        let options = StoreOptions {
            // It would be this user's, not the daemon's.
            ballast: 0,
            ..self.options.clone()
        };
        let (store, _) = Store::open(self.store, options)?;
        let medium = &store.shared.medium;
        let slot = store.shared.database.read();
        let (Some(record), Some(database)) = (medium.record(), slot.as_ref()) else {
            return Err(ReadError::Reopening.into());
        };
        if !store.is_foreign {
            // Opening may have made it.
            owner_as(record.path(), self.store).map_err(failed("given its owner"))?;
            return Err(ClaimError::NotForeign(self.store.to_owned()));
        }
        let found = record.read().map_err(failed("read"))?;
        let new = NewEpoch {
            last: found.map_or(0, |found| found.reached.epoch),
            from: &format!(
                "this host took the store over from another: {}",
                self.reason
            ),
            no_hold: None,
            actor: &self.actor,
            // Book time as the file has it: nobody has confirmed the wall clock.
            now: Timestamp(0),
        };
        let epoch = new.begin(database)?;
        high_water::note_kept(database, record.host())?;
        medium.note_own_write();
        // An end before this leaves the record with the other host, to be claimed again.
        let FileAge { reached, .. } = FileAge::of(database)?;
        let noted = record.write(reached).and_then(|()| record.sync());
        noted
            .and_then(|()| owner_as(record.path(), self.store))
            .map_err(failed("recorded"))?;
        Ok(epoch)
    }
}
