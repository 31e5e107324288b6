//! `fipd store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    Session,
    exit::Failure,
    output::{Table, or_dash},
    shown,
};
use crate::{
    clock,
    ipam::DATABASE,
    settings::{Overrides, Settings},
    store::{Create, CreateError},
};

#[derive(Debug, Subcommand)]
pub enum Store {
    /// Make an empty store where the old one is lost, while the daemon is stopped
    ///
    /// fipd refuses to start with an empty address book in a directory that was used: it would give addresses twice. Restore
    /// the newest backup instead if there is one. The new store begins a new epoch: every network waits until its clusters
    /// are adopted again, and free addresses are given to nobody new until fipd has run for 24 hours (`fipd hold lift`).
    Create(CreateStore),
}

#[derive(Debug, Args)]
pub struct CreateStore {
    /// Why an empty address book is right; for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Where the store lives; else as the configuration says
    #[arg(long, env = "FIPD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Configuration file
    #[arg(short, long, env = "FIPD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What was made.
#[derive(serde::Serialize)]
struct Created {
    store: String,
    epoch: u64,
    held_until: Option<String>,
}

impl Store {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(session),
        }
    }
}

impl CreateStore {
    fn run(self, session: &Session) -> Result<(), Failure> {
        let reason = self.reason.trim();
        if reason.is_empty() {
            let why = "reason: \"\" is not allowed: say why an empty address book is right";
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
        let create = Create {
            store: &store,
            reason: reason.into(),
            actor: format!("offline:{}", nix::unistd::getuid()).into(),
            now: clock::now(),
        };
        let epoch = create.run().map_err(|error| match error {
            CreateError::Exists(_) => Failure::Input(error.to_string()),
            CreateError::Open(_) | CreateError::Io { .. } => Failure::failed(error),
        })?;
        let created = Created {
            store: shown(&store),
            epoch: epoch.number,
            held_until: epoch.hold.map(|hold| clock::rfc3339(hold.until)),
        };
        session.output.show(&created, |created| {
            Table::facts([
                ("Store", created.store.clone()),
                ("Epoch", created.epoch.to_string()),
                ("Held until about", or_dash(created.held_until.as_ref())),
            ])
        })
    }
}
