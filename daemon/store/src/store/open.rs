//! Opening: version, migrations, loading, what is kept for too long, and compaction of a file that is mostly air.

use std::time::Duration;

use fipd_core::{Retention, Timestamp};
use redb::{Database, ReadableDatabase as _};

use super::{
    batch::read_state,
    builder,
    envelope::RowFormat,
    error::{OpenError, ReadError},
    high_water::{self, FileAge},
    load::{self, Loaded},
    medium::Medium,
    new_epoch::NewEpoch,
    rollups,
    rows::StateV1,
    schema, seal,
    tables::META,
};

/// Smaller files are never compacted.
const COMPACT_FROM: u64 = 32 << 20;
/// With more content than this a compaction would hold up the start for too long.
const COMPACT_MOST: u64 = 128 << 20;

/// A store that is open.
pub(super) struct Opened {
    pub database: Database,
    pub loaded: Loaded,
    pub state: StateV1,
    /// It belongs to another host: no decision was written, and none is to be.
    pub is_foreign: bool,
}

/// Opens and loads. Where the disk is full, that is tried once more on the room of the ballast.
pub(super) fn open(medium: &dyn Medium, history: Retention) -> Result<Opened, OpenError> {
    match open_once(medium, Some(history)) {
        Err(error) if error.is_full_disk() => {
            tracing::warn!(%error, "the disk is full; the store is opened on the room of its ballast");
            medium.drop_ballast();
            open_once(medium, None).map_err(OpenError::of_full_disk)
        }
        done => done,
    }
}

/// `tidy`: makes the file smaller, which needs some room first.
fn open_once(medium: &dyn Medium, tidy: Option<Retention>) -> Result<Opened, OpenError> {
    let path = medium.path();
    let mut database = open_file(medium)?;
    prepare(medium, &database)?;
    let is_foreign = settle_age(medium, &database)?;
    let tidy = tidy.filter(|_| !is_foreign).map(|history| {
        rollups::thin(&database, history)?;
        compact(medium, &mut database).map_err(ReadError::from)
    });
    if let Some(Err(error)) = tidy {
        // A later start tries again. redb does nothing more with a file it could not write: it is opened anew.
        tracing::warn!(%error, "the store could not be thinned or compacted");
        drop(database);
        medium.settle().map_err(OpenError::io(path, "written"))?;
        database = open_file(medium)?;
    }
    let txn = database.begin_read().map_err(OpenError::damaged(path))?;
    let (loaded, state) = load::load(path, &txn)?;
    drop(txn);
    Ok(Opened {
        database,
        loaded,
        state,
        is_foreign,
    })
}

/// Refuses a backup, begins a new epoch in a store that is older than it was, and records how far it has come. The answer is
/// whether the store belongs to another host; then its age is left as it is.
fn settle_age(medium: &dyn Medium, database: &Database) -> Result<bool, OpenError> {
    let path = medium.path();
    let damaged = OpenError::damaged::<ReadError>(path);
    let sealed = || seal::read(&database.begin_read()?);
    if sealed().map_err(&damaged)?.is_some() {
        return Err(OpenError::Sealed(path.to_owned()));
    }
    let Some(record) = medium.record() else {
        return Ok(false);
    };
    let unrecorded = OpenError::io(record.path(), "read or written");
    let found = record.read().map_err(&unrecorded)?;
    let FileAge {
        reached: mut file,
        kept,
    } = FileAge::of(database).map_err(&damaged)?;
    // A file that was copied without its record still names its host.
    let owner = found.and_then(|found| found.host).or(kept.flatten());
    if record.is_foreign(owner) {
        return Ok(true);
    }
    record.keep_host(owner);
    let reached = found.map(|found| found.reached);
    if let Some(why) = high_water::why_older(reached, file, kept.is_some()) {
        let new = NewEpoch {
            last: reached.map_or(0, |reached| reached.epoch),
            from: &format!("an older store was found in place ({why})"),
            no_hold: None,
            actor: &"fipd".into(),
            // Book time as the file has it: nobody has confirmed the wall clock.
            now: Timestamp(0),
        };
        let epoch = new.begin(database).map_err(&damaged)?;
        tracing::error!(
            epoch = epoch.number,
            "{why}: somebody has put an older store in place. Free addresses are held as after a restore (`fipd hold show`)"
        );
        file = FileAge::of(database).map_err(&damaged)?.reached;
    }
    let noted = record.write(file).and_then(|()| record.sync());
    noted.map_err(unrecorded)?;
    if kept != Some(record.host()) {
        high_water::note_kept(database, record.host()).map_err(&damaged)?;
    }
    Ok(false)
}

/// Opens again what this process has in memory already: only the state is read.
pub(super) fn reopen(medium: &dyn Medium) -> Result<(Database, StateV1), OpenError> {
    let path = medium.path();
    medium.settle().map_err(OpenError::io(path, "written"))?;
    let database = open_file(medium)?;
    let state =
        || -> Result<StateV1, ReadError> { read_state(&database.begin_read()?.open_table(META)?) };
    let state = state().map_err(OpenError::damaged(path))?;
    Ok((database, state))
}

fn open_file(medium: &dyn Medium) -> Result<Database, OpenError> {
    medium
        .open(&builder())
        .map_err(|error| OpenError::from_redb(medium.path(), error))
}

/// Refuses a newer schema, and migrates an older one.
pub(super) fn prepare(medium: &dyn Medium, database: &Database) -> Result<(), OpenError> {
    let path = medium.path().to_owned();
    let found = stored_version(database).map_err(OpenError::damaged(&path))?;
    if found > schema::known() {
        return Err(OpenError::Newer {
            path,
            found,
            known: schema::known(),
        });
    }
    if found == schema::known() {
        return Ok(());
    }
    let migrate = || -> Result<(), ReadError> {
        let txn = database.begin_write()?;
        schema::migrate(&txn, found)?;
        txn.commit().map_err(redb::Error::from)?;
        Ok(())
    };
    migrate().map_err(OpenError::damaged(&path))
}

/// Whether rows of earlier versions may be in the file.
pub(super) fn has_older_rows(medium: &dyn Medium, database: &Database) -> Result<bool, OpenError> {
    let format = || schema::format_of(&database.begin_read()?);
    let format = format().map_err(OpenError::damaged(medium.path()))?;
    Ok(format == RowFormat::Mixed)
}

fn stored_version(database: &Database) -> Result<u32, ReadError> {
    let txn = database.begin_read()?;
    let meta = match txn.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    schema::version(&meta)
}

/// Gives pages back to the disk when more than half of the file is free.
fn compact(medium: &dyn Medium, database: &mut Database) -> Result<(), redb::Error> {
    let used = medium.used().unwrap_or(0);
    if used < COMPACT_FROM {
        return Ok(());
    }
    let txn = database.begin_write()?;
    let stats = txn.stats()?;
    txn.abort()?;
    let taken = stats.allocated_pages() * stats.page_size() as u64;
    if taken.saturating_mul(2) >= used || taken > COMPACT_MOST {
        return Ok(());
    }
    let moved = database.compact()?;
    let now = medium.used().unwrap_or(used);
    tracing::info!(before = used, after = now, moved, "the store was compacted");
    Ok(())
}

/// 75 to 125 % of the pause.
pub(super) fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 1];
    let share = if getrandom::fill(&mut random).is_ok() {
        u32::from(random[0])
    } else {
        128
    };
    pause * (192 + share / 2) / 256
}
