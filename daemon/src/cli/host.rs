//! `fipd host`.

use clap::Subcommand;

use super::{
    Session,
    exit::Failure,
    offline::ReasonArgs,
    output::{Table, or_dash},
    shown,
};
use crate::{
    clock,
    store::{ClaimError, ClaimStore},
};

#[derive(Debug, Subcommand)]
pub enum Host {
    /// Make the store of another host this one's, while the daemon is stopped
    ///
    /// For a data directory that has moved here for good. fipd starts on it, shows it and decides nothing, since the other host
    /// may still decide by its own copy: stop fipd there first. The store begins a new epoch: every network waits until its
    /// clusters are adopted again, and free addresses are given to nobody new until fipd has run for 24 hours (`fipd hold lift`).
    Claim(ReasonArgs),
}

/// What was claimed.
#[derive(serde::Serialize)]
struct Claimed {
    store: String,
    epoch: u64,
    held_until: Option<String>,
}

impl Host {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
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
        let claimed = Claimed {
            store: shown(&offline.store),
            epoch: epoch.number,
            held_until: epoch.hold.map(|hold| clock::rfc3339(hold.until)),
        };
        session.output.show(&claimed, |claimed| {
            Table::facts([
                ("Store", claimed.store.clone()),
                ("Epoch", claimed.epoch.to_string()),
                ("Held until about", or_dash(claimed.held_until.as_ref())),
            ])
        })
    }
}
