//! Makes an empty store where one is missing, because an admin says so: the first of a new epoch, with a hold.

use std::{fs, io, path::Path};

use fipd_core::{Actor, Epoch, Text, Timestamp};

use super::{
    builder,
    error::{CreateError, FileError, OpenError},
    high_water::{HighWater, RecordFile},
    host_id::HostId,
    medium::{self, Disk, Medium as _},
    new_epoch::NewEpoch,
    open,
    restore::owner_as,
};

/// A store as it is asked for.
#[derive(Clone, Debug)]
pub struct Create<'a> {
    pub store: &'a Path,
    /// Why an empty address book is right; for the audit log.
    pub reason: Text,
    pub actor: Actor,
    /// The wall clock.
    pub now: Timestamp,
    /// This host, to which the store belongs then.
    pub host: Option<HostId>,
}

impl Create<'_> {
    /// Makes it, while no daemon runs.
    ///
    /// # Errors
    /// When there is a store, or something cannot be written. Nothing is left behind then.
    pub fn run(&self) -> Result<Epoch, CreateError> {
        if fs::metadata(self.store).is_ok_and(|file| file.len() > 0) {
            return Err(CreateError::Exists(self.store.to_owned()));
        }
        let failed = |doing| FileError::of(self.store, doing);
        let record = RecordFile::beside(self.store, self.host);
        let reached = record.read().map_err(failed("recorded"))?;
        let new = medium::beside(self.store, medium::NEW);
        let made = self.make(&new, reached.map_or(0, |found| found.reached.epoch));
        let placed = made.and_then(|epoch| {
            owner_as(&new, self.store).map_err(failed("given its owner"))?;
            // An empty file is no store, and in the way.
            match fs::remove_file(self.store) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("replaced")(error).into());
                }
                Ok(()) | Err(_) => {}
            }
            medium::publish(&new, self.store).map_err(failed("put in place"))?;
            Ok(epoch)
        });
        let epoch = placed.inspect_err(|_| {
            // One that stays is swept by a later start.
            let _ = fs::remove_file(&new);
        })?;
        let created = HighWater {
            epoch: epoch.number,
            ..HighWater::default()
        };
        let noted = record.write(created).and_then(|()| record.sync());
        noted
            .and_then(|()| owner_as(record.path(), self.store))
            .map_err(failed("recorded"))?;
        Ok(epoch)
    }

    fn make(&self, new: &Path, last: u64) -> Result<Epoch, CreateError> {
        let disk = Disk::new(new, 0);
        let database = disk
            .open(&builder())
            .map_err(|error| OpenError::from_redb(new, error))?;
        open::prepare(&disk, &database)?;
        let from = format!("an empty store was made: {}", self.reason);
        let epoch = NewEpoch {
            last,
            from: &from,
            no_hold: None,
            actor: &self.actor,
            now: self.now,
        };
        let epoch = epoch.begin(&database);
        Ok(epoch.map_err(OpenError::damaged(new))?)
    }
}
