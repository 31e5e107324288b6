//! `fipd restore`.

use std::path::PathBuf;

use clap::Args;

use super::{
    CliSession,
    exit::Failure,
    offline::{StoreArgs, stated},
    output::{Table, or_dash},
    shown,
};
use crate::{
    backups::Schedule,
    clock,
    store::{self, HostId, RestoreError},
};

pub(super) const LONG_ABOUT: &str = "\
Put a backup in the place of the store, while the daemon is stopped. The backup is verified first; the store that was
there stays beside it under another name. Users and tokens are those of the backup, revoked ones included.

The backup does not know what was given after it was made. So every network waits until its clusters are adopted
again, and until fipd has run for 24 hours a free address is given to nobody new; who uses one is adopted, and what is
held can be asked for again, released and transferred. `fipd hold lift` ends that, --no-hold does not begin it.";

#[derive(Debug, Args)]
pub struct Restore {
    /// The backup: from `fipd backup`, a copy of a store, or a name that `fipd backup list` shows
    file: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Give free addresses at once
    #[arg(long, requires = "reason")]
    no_hold: bool,
    /// Why no address of the time after the backup can be in use; for the audit log
    #[arg(long, value_name = "TEXT", requires = "no_hold")]
    reason: Option<String>,
}

/// What was put in place.
#[derive(serde::Serialize)]
struct Done {
    store: String,
    /// When the backup was made; unknown for a copy of a store.
    backup_of: Option<String>,
    /// The fipd that made it.
    version: Option<String>,
    epoch: u64,
    held_until: Option<String>,
    /// The name of the store that was there.
    kept: Option<String>,
}

impl Restore {
    pub(super) fn run(self, session: &CliSession) -> Result<(), Failure> {
        let reason = self.reason.as_deref();
        let no_hold = reason.map(|reason| stated(reason, "why no address can be in use"));
        let no_hold = no_hold.transpose()?;
        let offline = self.store.open()?;
        let settings = &offline.settings;
        // Or where the daemon keeps them; a path from the root is the same there.
        let schedule = Schedule::new(&settings.config.backup, &settings.data_dir);
        let listed = schedule.directory.join(&self.file);
        let Some(backup) = [&self.file, &listed].into_iter().find(|file| file.exists()) else {
            let mut why = format!("there is no backup {}", shown(&self.file));
            if listed != self.file {
                why.push_str(&format!(", nor {}", shown(&listed)));
            }
            return Err(Failure::NotFound(why));
        };
        let restore = store::Restore {
            backup,
            store: &offline.store,
            no_hold,
            actor: offline.actor.clone(),
            now: offline.confirmed_time(),
            host: HostId::of_this_host(),
        };
        let restored = restore.run().map_err(|error| match error {
            RestoreError::Unusable { .. } => Failure::Input(error.to_string()),
            RestoreError::Running(_) | RestoreError::Io { .. } => Failure::failed(error),
        })?;
        let seal = restored.seal.as_ref();
        let done = Done {
            store: shown(&offline.store),
            backup_of: seal.map(|seal| clock::rfc3339(seal.created)),
            version: seal.map(|seal| seal.version.clone()),
            epoch: restored.epoch.number,
            held_until: restored.epoch.hold.map(|hold| clock::rfc3339(hold.until)),
            kept: restored.kept.as_deref().map(shown),
        };
        session.output.show(&done, |done| {
            Table::facts([
                ("Store", done.store.clone()),
                ("Backup of", or_dash(done.backup_of.as_ref())),
                ("Made by fipd", or_dash(done.version.as_ref())),
                ("Epoch", done.epoch.to_string()),
                ("Held until about", or_dash(done.held_until.as_ref())),
                ("Store before", or_dash(done.kept.as_ref())),
            ])
        })
    }
}
