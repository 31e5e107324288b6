//! Commands that change the store while no daemon runs.

use std::path::PathBuf;

use clap::Args;
use fipd_core::{Actor, Text, Timestamp};

use super::exit::Failure;
use crate::{
    clock::{HostClock as _, KernelClock, Synchronised},
    ipam::DATABASE,
    settings::{Overrides, Settings},
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
