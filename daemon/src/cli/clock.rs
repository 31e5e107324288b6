//! `fipd clock`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    Session,
    exit::Failure,
    output::{Table, or_dash},
};
use crate::{
    api::wire::ClockView,
    clock::{HostClock as _, KernelClock, rfc3339},
    ipam::DATABASE,
    settings::{Overrides, Settings},
    store::{Options, ResetClock, ResetError},
};

#[derive(Debug, Subcommand)]
pub enum Clock {
    /// The time of the address book, the host's clock, and whether the kernel says that it is synchronised
    Show,
    /// Let a forward jump of the host's clock count that the kernel does not confirm
    Accept,
    /// Take the time of the address book back to the host's clock, while the daemon is stopped
    ///
    /// For a store whose time is ahead because the clock was wrong when it began or was accepted. Quarantines and
    /// reservations keep the time that they have left. Entries of the audit log from the time ahead move back with it,
    /// which the entry of the reset records.
    Reset(ResetBook),
}

#[derive(Debug, Args)]
pub struct ResetBook {
    /// Why the host's clock is right; for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Where the store lives; else as the configuration says
    #[arg(long, env = "FIPD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Configuration file
    #[arg(short, long, env = "FIPD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What was done.
#[derive(serde::Serialize)]
struct Reset {
    before: String,
    after: String,
    audit_entries: u64,
}

impl Clock {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let time: ClockView = match self {
            Self::Show => session.client.get("/api/v1/clock").await?,
            Self::Accept => session.client.post("/api/v1/clock/accept", &()).await?,
            Self::Reset(reset) => return reset.run(session),
        };
        session.output.show(&time, |time| {
            Table::facts([
                ("Address book", time.book.clone()),
                ("Host", time.wall.clone()),
                ("Held back", format!("{} s", time.held_back_seconds)),
                ("Ahead", format!("{} s", time.ahead_seconds)),
                ("Kernel", time.kernel.clone()),
                ("Reason", or_dash(time.reason.as_ref())),
            ])
        })
    }
}

impl ResetBook {
    fn run(self, session: &Session) -> Result<(), Failure> {
        let reason = self.reason.trim();
        if reason.is_empty() {
            let why = "reason: \"\" is not allowed: say why the host's clock is right";
            return Err(Failure::Input(why.to_owned()));
        }
        let overrides = Overrides {
            config: self.config,
            data_dir: self.data_dir,
            ..Overrides::default()
        };
        let settings =
            Settings::load(overrides).map_err(|error| Failure::Input(error.to_string()))?;
        let store = settings.data_dir.join(DATABASE);
        let reset = ResetClock {
            store: &store,
            options: Options {
                audit_limit: settings.config.audit.keep.0,
                history: settings.config.history.retention(),
                backups: settings.config.backup.directory.clone(),
                ..Options::default()
            },
            reason: reason.into(),
            actor: format!("offline:{}", nix::unistd::getuid()).into(),
            reading: KernelClock::new(settings.config.clock.trust).read(),
        };
        let done = reset.run().map_err(|error| match error {
            ResetError::NotAhead { .. } => Failure::Input(error.to_string()),
            ResetError::Open(_) | ResetError::Store(_) | ResetError::Io { .. } => {
                Failure::failed(error)
            }
        })?;
        let done = Reset {
            before: rfc3339(done.from),
            after: rfc3339(done.to),
            audit_entries: done.entries,
        };
        session.output.show(&done, |done| {
            Table::facts([
                ("Address book before", done.before.clone()),
                ("Address book now", done.after.clone()),
                ("Audit entries moved", done.audit_entries.to_string()),
            ])
        })
    }
}
