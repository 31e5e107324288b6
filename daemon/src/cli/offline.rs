//! Commands that change the store while no daemon runs.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fipd_core::{Actor, Epoch, Text, Timestamp};
use serde::Serialize;

use super::{
    CliSession,
    exit::Failure,
    output::{Table, or_dash},
    shown,
};
use crate::{
    clock::{self, HostClock as _, KernelClock, Synchronised},
    ipam::DATABASE,
    settings::{Overrides, Settings},
    store::{ClaimError, ClaimStore, Create, CreateError, HostId},
};

/// Where the store of a stopped daemon is.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Where the store lives; else as the configuration says
    #[arg(long, env = "FIPD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Configuration file
    #[arg(short, long, env = "FIPD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A change that an admin answers for.
#[derive(Debug, Args)]
pub struct ReasonArgs {
    /// Why that is right; for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// What such a command works on.
pub struct Offline {
    pub settings: Settings,
    pub store: PathBuf,
    /// Who the audit log names.
    pub actor: Actor,
}

impl StoreArgs {
    /// # Errors
    /// When the configuration cannot be read.
    pub fn open(self) -> Result<Offline, Failure> {
        let overrides = Overrides {
            config: self.config,
            data_dir: self.data_dir,
            ..Overrides::default()
        };
        let settings =
            Settings::load(overrides).map_err(|error| Failure::Input(error.to_string()))?;
        Ok(Offline {
            store: settings.data_dir.join(DATABASE),
            settings,
            actor: format!("offline:{}", nix::unistd::getuid()).into(),
        })
    }
}

impl Offline {
    /// The wall clock where the kernel says that it is synchronised, or the configuration trusts it; else 0.
    pub fn confirmed_time(&self) -> Timestamp {
        let clock = KernelClock::new(self.settings.config.clock.trust);
        // In this order: what is set back meanwhile is not the time that was confirmed.
        match clock.synchronised() {
            Synchronised::Yes => clock.read().wall,
            Synchronised::No | Synchronised::Unknown(_) => Timestamp(0),
        }
    }
}

impl ReasonArgs {
    /// The reason, and the store that it is given for. `say`: what the reason has to explain.
    ///
    /// # Errors
    /// When there is no reason, or the configuration cannot be read.
    pub fn open(self, say: &str) -> Result<(Text, Offline), Failure> {
        let reason = stated(&self.reason, say)?;
        Ok((reason, self.store.open()?))
    }
}

/// A store that begins a new epoch.
#[derive(Serialize)]
pub struct EpochBegun {
    store: String,
    epoch: u64,
    held_until: Option<String>,
}

impl EpochBegun {
    pub fn show(session: &CliSession, store: &Path, epoch: Epoch) -> Result<(), Failure> {
        let begun = Self {
            store: shown(store),
            epoch: epoch.number,
            held_until: epoch.hold.map(|hold| clock::rfc3339(hold.until)),
        };
        session.output.show(&begun, |begun| {
            Table::facts([
                ("Store", begun.store.clone()),
                ("Epoch", begun.epoch.to_string()),
                ("Held until about", or_dash(begun.held_until.as_ref())),
            ])
        })
    }
}

/// A reason with something in it.
///
/// # Errors
/// When it is blank.
pub fn stated(reason: &str, say: &str) -> Result<Text, Failure> {
    match reason.trim() {
        "" => Err(Failure::Input(format!(
            "reason: \"\" is not allowed: say {say}"
        ))),
        reason => Ok(reason.into()),
    }
}

#[derive(Debug, Subcommand)]
pub enum Store {
    /// Make an empty store where the old one is lost, while the daemon is stopped
    ///
    /// fipd refuses to start with an empty address book in a directory that was used: it would give addresses twice. Restore
    /// the newest backup instead if there is one. The new store begins a new epoch: every network waits until its clusters
    /// are adopted again, and free addresses are given to nobody new until fipd has run for 24 hours (`fipd hold lift`).
    Create(ReasonArgs),
}

impl Store {
    pub(super) fn run(self, session: &CliSession) -> Result<(), Failure> {
        let Self::Create(answered) = self;
        let (reason, offline) = answered.open("why an empty address book is right")?;
        let create = Create {
            store: &offline.store,
            reason,
            actor: offline.actor,
            now: clock::now(),
            host: HostId::of_this_host(),
        };
        let epoch = create.run().map_err(|error| match error {
            CreateError::Exists(_) => Failure::Input(error.to_string()),
            CreateError::Open(_) | CreateError::Io { .. } => Failure::failed(error),
        })?;
        EpochBegun::show(session, &offline.store, epoch)
    }
}

#[derive(Debug, Subcommand)]
pub enum Host {
    /// Make the store of another host this one's, while the daemon is stopped
    ///
    /// For a data directory that has moved here for good. fipd starts on it, shows it and decides nothing, since the other host
    /// may still decide by its own copy: stop fipd there first. The store begins a new epoch: every network waits until its
    /// clusters are adopted again, and free addresses are given to nobody new until fipd has run for 24 hours (`fipd hold lift`).
    Claim(ReasonArgs),
}

impl Host {
    pub(super) fn run(self, session: &CliSession) -> Result<(), Failure> {
        let Self::Claim(answered) = self;
        let say = "why no fipd of the other host decides by this store any more";
        let (reason, offline) = answered.open(say)?;
        let claim = ClaimStore {
            store: &offline.store,
            options: offline.settings.store_options(),
            reason,
            actor: offline.actor,
        };
        let epoch = claim.run().map_err(|error| match error {
            ClaimError::NotForeign(_) | ClaimError::UnknownHost => {
                Failure::Input(error.to_string())
            }
            ClaimError::Open(_) | ClaimError::Store(_) | ClaimError::Io { .. } => {
                Failure::failed(error)
            }
        })?;
        EpochBegun::show(session, &offline.store, epoch)
    }
}
